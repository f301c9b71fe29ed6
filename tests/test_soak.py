"""Real processes, killed with SIGKILL at random moments: the short form of `make soak`."""

import pytest

from mbpo.algorithms import ALGORITHMS
from soak import SETTINGS, soak


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_kills_lose_nothing(algorithm):
    report: list[str] = []
    soak(algorithm, kills=3, steps=250, seed=0, report=report.append)
    assert report[-1].startswith(f"{algorithm}: 3 kills")
    assert sum(line.startswith("killed after") for line in report) == 3


def test_every_algorithm_can_be_soaked():
    assert SETTINGS.keys() == ALGORITHMS.keys()

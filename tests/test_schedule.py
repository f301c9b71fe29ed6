"""Schedules against the formula of the paper's Table 2, in exact fractions."""

from fractions import Fraction
from math import floor

import pytest

from mbpo.envs.tasks import TASKS
from mbpo.presets import EPOCHS, VARIANTS, find_preset
from mbpo.schedule import RolloutLength, ramp


def paper(epoch, x, y, a, b):
    """f(e) = min(max(x + (e − a) / (b − a) · (y − x), x), y), rounded down."""
    return floor(min(max(x + Fraction(epoch - a, b - a) * (y - x), x), y))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", TASKS)
def test_every_preset_follows_the_formula_in_every_epoch(task, variant):
    k = find_preset("mbpo", TASKS[task], variant).algorithm.rollout_length
    for epoch in range(EPOCHS[task] + 1):
        assert k.at(epoch) == paper(epoch, k.first, k.last, k.from_epoch, k.to_epoch)


# Hopper, 1 → 15 over 20 → 100: 1 + 14 · 40/80 = 8 at 60. The release stretches it to 150: 1 + 14 · 104/130 = 12.2.
@pytest.mark.parametrize(
    ("task", "variant", "epoch", "k"),
    [
        ("Hopper", "paper", 0, 1),
        ("Hopper", "paper", 20, 1),
        ("Hopper", "paper", 25, 1),
        ("Hopper", "paper", 26, 2),
        ("Hopper", "paper", 60, 8),
        ("Hopper", "paper", 99, 14),
        ("Hopper", "paper", 100, 15),
        ("Hopper", "paper", 124, 15),
        ("Hopper", "released", 124, 12),
        ("Ant", "paper", 60, 13),
        ("Humanoid", "paper", 160, 13),
        ("Humanoid", "paper", 300, 25),
        ("HalfCheetah", "paper", 399, 1),
    ],
)
def test_the_rollout_length_of_known_epochs(task, variant, epoch, k):
    assert find_preset("mbpo", TASKS[task], variant).algorithm.rollout_length.at(epoch) == k


def test_a_whole_number_is_never_rounded_down():
    # In floating point 1/49 · 49 < 1, and k would stay behind by an epoch.
    for last in range(2, 200):
        k = RolloutLength(1, last, from_epoch=0, to_epoch=last - 1)
        assert [k.at(epoch) for epoch in range(last)] == list(range(1, last + 1))


def test_a_length_may_fall_and_may_jump():
    falling = RolloutLength(5, 1, from_epoch=0, to_epoch=8)
    # 5 − e/2: 5, 4.5, 4, 3.5, ...
    assert [falling.at(epoch) for epoch in range(10)] == [5, 4, 4, 3, 3, 2, 2, 1, 1, 1]
    jump = RolloutLength(1, 4, from_epoch=3, to_epoch=3)
    assert [jump.at(epoch) for epoch in range(6)] == [1, 1, 1, 1, 4, 4]


def test_a_ramp_is_a_line_between_two_plateaus():
    # PPO's learning rate: 3e-4 at 0, half of it half way, 0 from the end on.
    rate = {step: ramp(step, start=0, end=1000, low=3e-4, high=0.0) for step in (-5, 0, 250, 500, 1000, 2000)}
    assert rate == pytest.approx({-5: 3e-4, 0: 3e-4, 250: 2.25e-4, 500: 1.5e-4, 1000: 0.0, 2000: 0.0})

"""What several seeds say together: their centre, their spread, and one curve made of theirs.

Plain numpy. In arrays of several seeds the first axis is the seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean(values: Floats) -> Floats:
    """The mean over seeds."""
    return np.asarray(values.mean(axis=0))


def std(values: Floats) -> Floats:
    """The sample standard deviation over seeds (divisor n − 1: the seeds stand for all seeds); 0 for one seed."""
    return np.asarray(values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:]))


def interquartile_mean(values: Floats) -> Floats:
    """The mean of the middle half of the seeds: ⌊n/4⌋ are dropped at each end (Agarwal et al. 2021)."""
    dropped = len(values) // 4
    return np.asarray(np.sort(values, axis=0)[dropped : len(values) - dropped].mean(axis=0))


def bootstrap_interval(
    values: Floats,
    statistic: Callable[[Floats], Floats] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> tuple[Floats, Floats]:
    """Lower and upper end of the percentile bootstrap interval of `statistic`, seeds drawn with replacement.

    The draws are the same on every call, so that a figure made twice is the same figure. With fewer than about ten
    seeds such an interval is too narrow: read it as a lower bound of the uncertainty.
    """
    draws = np.random.default_rng(0).integers(0, len(values), (resamples, len(values)))
    estimates = np.stack([statistic(values[draw]) for draw in draws])
    tail = (1 - confidence) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail], axis=0)
    return np.asarray(low), np.asarray(high)


def running_mean(values: Floats, n: int) -> Floats:
    """Each value replaced by the mean of the n neighbours around it, of fewer at the ends.

    For an even n the odd one out is the later neighbour.
    """
    if n < 1:
        raise ValueError(f"A running mean over {n} values has no meaning; take at least 1.")
    sums = np.concatenate([np.zeros(1), np.cumsum(values)])
    place = np.arange(len(values))
    first = np.maximum(place - (n - 1) // 2, 0)
    last = np.minimum(place + n // 2, len(values) - 1) + 1
    return (sums[last] - sums[first]) / (last - first)


@dataclass(frozen=True)
class Aligned:
    """Several seeds on one grid: `values[i, j]` is seed i at `grid[j]`."""

    grid: Floats
    values: Floats


def align(curves: Sequence[tuple[Floats, Floats]]) -> Aligned:
    """The curves (increasing x, y) on a common grid, in the range that all of them cover.

    The grid is every x at which some seed was measured; between its own measurements a seed is interpolated, beyond
    them it is never guessed. So a seed that stopped early ends the grid, instead of leaving the centre to jump where
    it drops out. The grid may be empty.
    """
    start = max((x[0] for x, _ in curves if len(x)), default=0.0)
    end = min((x[-1] for x, _ in curves if len(x)), default=0.0)
    every_x = np.unique(np.concatenate([x for x, _ in curves]))
    grid = every_x[(every_x >= start) & (every_x <= end)]
    return Aligned(grid, np.stack([np.interp(grid, x, y) for x, y in curves]))

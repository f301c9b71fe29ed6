"""Numbers worked by hand, and SciPy as the second opinion."""

import numpy as np
import pytest
from scipy import stats

from mbpo.statistics import align, bootstrap_interval, interquartile_mean, mean, running_mean, std


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_mean_and_std_over_the_seed_axis():
    values = np.array([[1.0, 10.0], [3.0, 10.0], [8.0, 10.0]])
    np.testing.assert_array_equal(mean(values), [4.0, 10.0])
    # (9 + 1 + 16) / 2 = 13
    np.testing.assert_allclose(std(values), [np.sqrt(13.0), 0.0])


def test_one_seed_has_no_spread():
    np.testing.assert_array_equal(std(np.array([[1.0, 2.0]])), [0.0, 0.0])


def test_interquartile_mean_drops_a_quarter_at_each_end():
    # 8 // 4 = 2 at each end: the mean of 3, 4, 5, 6.
    assert interquartile_mean(floats(100, 1, 6, 3, 5, 4, 2, -50)) == pytest.approx((3 + 4 + 5 + 2) / 4)
    # 3 // 4 = 0: the mean of all.
    assert interquartile_mean(floats(0, 3, 9)) == 4


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 7, 8, 11])
def test_interquartile_mean_is_scipys_trimmed_mean(seeds: int):
    values = np.random.default_rng(seeds).normal(size=(seeds, 6))
    np.testing.assert_allclose(interquartile_mean(values), stats.trim_mean(values, 0.25))


def test_bootstrap_interval_of_two_seeds_by_hand():
    # The mean of two draws from {0, 4} is 0, 2, 2 or 4, so 2.5 % and 97.5 % lie at the extremes.
    low, high = bootstrap_interval(np.array([[0.0], [4.0]]), mean)
    np.testing.assert_array_equal(low, [0.0])
    np.testing.assert_array_equal(high, [4.0])


def test_bootstrap_interval_agrees_with_scipy():
    values = np.random.default_rng(3).normal(10, 2, size=20)
    low, high = bootstrap_interval(values[:, None], mean, resamples=10_000)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    np.testing.assert_allclose([low[0], high[0]], [theirs.low, theirs.high], atol=0.05)


def test_bootstrap_interval_is_the_same_on_every_call():
    values = np.random.default_rng(0).normal(size=(5, 7))
    for first, second in zip(bootstrap_interval(values), bootstrap_interval(values), strict=True):
        np.testing.assert_array_equal(first, second)


def test_running_mean_by_hand():
    values = floats(1, 2, 6, 3, 8)
    np.testing.assert_allclose(running_mean(values, 1), values)
    np.testing.assert_allclose(running_mean(values, 3), [1.5, 3, 11 / 3, 17 / 3, 5.5])
    np.testing.assert_allclose(running_mean(values, 2), [1.5, 4, 4.5, 5.5, 8])
    np.testing.assert_allclose(running_mean(values, 99), [4.0] * 5)


def test_running_mean_over_nothing_is_refused():
    with pytest.raises(ValueError, match="take at least 1"):
        running_mean(floats(1), 0)


def test_align_interpolates_and_ends_with_the_shortest_seed():
    aligned = align([(floats(0, 2, 4, 6), floats(0, 20, 40, 60)), (floats(1, 3), floats(7, 9))])
    np.testing.assert_array_equal(aligned.grid, [1, 2, 3])
    np.testing.assert_array_equal(aligned.values, [[10, 20, 30], [7, 8, 9]])


def test_align_keeps_equal_grids_as_they_are():
    steps = floats(1000, 2000, 3000)
    aligned = align([(steps, floats(1, 2, 3)), (steps, floats(4, 5, 6))])
    np.testing.assert_array_equal(aligned.grid, steps)
    np.testing.assert_array_equal(aligned.values, [[1, 2, 3], [4, 5, 6]])


def test_seeds_without_a_common_range_give_an_empty_grid():
    aligned = align([(floats(1, 2), floats(1, 2)), (floats(5), floats(5))])
    assert aligned.grid.size == 0
    assert aligned.values.shape == (2, 0)

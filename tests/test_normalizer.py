"""Running moments against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mbpo.normalizer import RunningMoments, init_moments


def moments_of(rows) -> RunningMoments:
    add = jax.jit(RunningMoments.add)
    moments = init_moments(rows.shape[1:])
    for row in rows:
        moments = add(moments, jnp.asarray(row))
    return moments


def test_a_stream_has_the_moments_of_its_rows():
    rows = (np.random.default_rng(0).normal(size=(500, 3)) * [1, 5, 0.1] + [0, 100, -3]).astype(np.float32)
    moments = moments_of(rows)
    # The count starts at 1e-4, at mean 0 and variance 1: by 100 rows that weighs a millionth.
    assert float(moments.count) == pytest.approx(500)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-2, atol=1e-4)


def test_the_first_row_by_hand():
    # Count 1e-4 at mean 0, variance 1; then x = 2. n = 1.0001, mean = 2/n, variance = (1e-4 + 4 · 1e-4/n) / n.
    moments = moments_of(np.float32([[2.0]]))
    assert float(moments.mean[0]) == pytest.approx(2 / 1.0001, rel=1e-6)
    assert float(moments.variance[0]) == pytest.approx((1e-4 + 4e-4 / 1.0001) / 1.0001, rel=1e-5)


def test_scaling_and_normalizing():
    moments = RunningMoments(jnp.float32(10), jnp.float32([1, -1]), jnp.float32([4, 9]))
    np.testing.assert_allclose(moments.normalize(jnp.float32([[5, 5], [1, -1]])), [[2, 2], [0, 0]], rtol=1e-6)
    scalar = RunningMoments(jnp.float32(10), jnp.float32(7), jnp.float32(4))
    np.testing.assert_allclose(scalar.scale(jnp.float32([6, -2])), [3, -1], rtol=1e-6)


def test_before_anything_was_seen_nothing_is_changed():
    x = jnp.float32([[3.0, -4.0]])
    np.testing.assert_allclose(init_moments((2,)).normalize(x), x, rtol=1e-6)

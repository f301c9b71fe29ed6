"""The action distributions against SciPy, at the extremes, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from gradients import assert_gradient
from mbpo.distributions import DiagonalGaussian, TanhGaussian

RANDOM = np.random.default_rng(0)
MEAN, LOG_STD = RANDOM.normal(size=(4, 3)), RANDOM.uniform(-2, 1, (4, 3))
NOISE, WEIGHTS = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 3))


def test_the_diagonal_gaussian_is_scipys():
    law = stats.norm(MEAN, np.exp(LOG_STD))
    x = MEAN + np.exp(LOG_STD) * NOISE
    with jax.enable_x64(True):
        ours = DiagonalGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
        np.testing.assert_allclose(ours.sample(jnp.asarray(NOISE)), x)
        np.testing.assert_allclose(ours.log_prob(jnp.asarray(x)), law.logpdf(x).sum(-1))
        np.testing.assert_allclose(ours.entropy(), law.entropy().sum(-1))


def test_the_density_of_a_squashed_sample_is_the_slope_of_its_distribution():
    """P(tanh u ≤ a) = Φ((artanh a − μ) / σ), one dimension at a time; log π is the log of its derivative."""
    with jax.enable_x64(True):
        law = TanhGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
        action, log_prob = (np.asarray(leaf) for leaf in law.sample(jnp.asarray(NOISE)))
    step = 1e-6 * (1 - np.abs(action))
    below, above = (stats.norm.cdf((np.arctanh(a) - MEAN) / np.exp(LOG_STD)) for a in (action - step, action + step))
    np.testing.assert_allclose(log_prob, np.log((above - below) / (2 * step)).sum(-1), rtol=1e-5)


def test_the_squashed_density_integrates_to_one():
    def density(a: float) -> float:
        noise = (np.arctanh(a) - 0.4) / np.exp(-0.3)
        with jax.enable_x64(True):
            law = TanhGaussian(jnp.full(1, 0.4), jnp.full(1, -0.3))
            return float(jnp.exp(law.sample(jnp.full(1, noise))[1]))

    nodes = np.linspace(-1, 1, 401)[1:-1]
    total = integrate.simpson([density(a) for a in nodes], x=nodes)
    assert total == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("u", [-1e4, -50.0, -15.0, 15.0, 50.0, 1e4])
def test_far_out_the_log_density_stays_finite_and_right(u):
    """There 1 − tanh²u rounds to 0; log(1 − tanh²u) = 2 (log 2 − |u|) − 2 log(1 + e^(−2|u|)) does not."""
    law = TanhGaussian(jnp.float32([u]), jnp.float32([0.0]))
    action, log_prob = law.sample(jnp.zeros(1))
    slope = 2 * (np.log(2) - abs(u)) - 2 * np.log1p(np.exp(-2 * abs(u)))
    assert abs(float(action[0])) == 1.0
    assert float(log_prob) == pytest.approx(stats.norm.logpdf(0) - slope, rel=1e-5)
    assert np.isfinite(jax.grad(lambda mean: TanhGaussian(mean, law.log_std).sample(jnp.zeros(1))[1])(law.mean)).all()


def test_the_deterministic_action_is_the_squashed_mean():
    law = TanhGaussian(jnp.float32([0.5, -2.0]), jnp.zeros(2))
    np.testing.assert_allclose(law.mode(), np.tanh([0.5, -2.0]), rtol=1e-6)


def test_gradients_of_the_diagonal_gaussian():
    assert_gradient(lambda m, s, x: jnp.sum(DiagonalGaussian(m, s).log_prob(x)), MEAN, LOG_STD, NOISE)


def test_gradients_of_the_squashed_gaussian():
    def mixed(mean, log_std, noise):
        action, log_prob = TanhGaussian(mean, log_std).sample(noise)
        return jnp.sum(log_prob) + jnp.sum(action * jnp.asarray(WEIGHTS))

    assert_gradient(mixed, MEAN, LOG_STD, NOISE)

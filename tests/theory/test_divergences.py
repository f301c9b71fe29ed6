"""Divergences against hand-worked numbers, scipy, and each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from mbpo.theory import (
    gaussian_kl_divergence,
    gaussian_total_variation,
    kl_divergence,
    model_error_from_likelihood,
    pinsker_bound,
    policy_shift_from_kl,
    total_variation,
)


def test_finite_distributions_by_hand():
    p, q = [0.5, 0.5, 0.0], [0.25, 0.5, 0.25]
    assert total_variation(p, q) == 0.25
    # ½ ln 2 + ½ ln 1 + 0; the other way round p misses mass.
    assert kl_divergence(p, q) == pytest.approx(0.5 * np.log(2))
    assert kl_divergence(q, p) == np.inf
    assert kl_divergence(p, p) == 0.0


def test_leading_axes_broadcast():
    p = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 1))
    q = np.random.default_rng(1).dirichlet(np.ones(4), size=5)
    assert total_variation(p, q).shape == (3, 5)
    assert kl_divergence(p, q).shape == (3, 5)


@given(st.integers(0, 10_000))
def test_pinsker_holds_for_finite_distributions_and_gaussians(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(3, rng.choice([0.1, 1, 5])), size=(2, 20))
    p, q = (p + 1e-9) / (1 + 3e-9), (q + 1e-9) / (1 + 3e-9)
    assert (total_variation(p, q) <= pinsker_bound(kl_divergence(p, q)) + 1e-12).all()
    gaussians = rng.normal(size=2), np.exp(rng.normal(size=2)), rng.normal(size=2), np.exp(rng.normal(size=2))
    assert gaussian_total_variation(*gaussians) <= pinsker_bound(gaussian_kl_divergence(*gaussians)) + 1e-6


def exact_total_variation(mean_p, std_p, mean_q, std_q):
    """In one dimension the densities cross at the roots of a quadratic; between them the sign is constant."""
    p, q = stats.norm(mean_p, std_p), stats.norm(mean_q, std_q)
    quadratic = [
        1 / std_q**2 - 1 / std_p**2,
        2 * mean_p / std_p**2 - 2 * mean_q / std_q**2,
        mean_q**2 / std_q**2 - mean_p**2 / std_p**2 + 2 * np.log(std_q / std_p),
    ]
    edges = np.concatenate([[-np.inf], np.sort(np.roots(np.trim_zeros(quadratic, "f")).real), [np.inf]])
    return 0.5 * np.abs(np.diff(p.cdf(edges)) - np.diff(q.cdf(edges))).sum()


@pytest.mark.parametrize(
    "parameters",
    [(0, 1, 1, 1), (0, 1, 1e-6, 1), (0, 1, 10, 1), (0, 1, 0, 2), (0, 1, 3, 0.5), (0, 1, 0, 1e-3), (2, 0.1, 0, 30)],
)
def test_gaussians_in_one_dimension(parameters):
    assert gaussian_total_variation(*parameters) == pytest.approx(exact_total_variation(*parameters), abs=3e-6)
    p, q = stats.norm(*parameters[:2]), stats.norm(*parameters[2:])
    kl, _ = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), *p.interval(1 - 1e-13), limit=200)
    assert gaussian_kl_divergence(*parameters) == pytest.approx(kl, rel=1e-6)


def test_gaussians_in_many_dimensions():
    # Equal deviations: only the length of the scaled difference of the means matters, 2Φ(‖Δ‖/2) − 1.
    std, difference = np.array([0.5, 2.0, 1.0]), np.array([0.3, 1.0, -0.4])
    scaled = np.linalg.norm(difference / std)
    expected = 2 * stats.norm.cdf(scaled / 2) - 1
    assert gaussian_total_variation(np.zeros(3), std, difference, std) == pytest.approx(expected, abs=1e-7)
    assert gaussian_kl_divergence(np.zeros(3), std, difference, std) == pytest.approx(scaled**2 / 2)
    # Equal means, deviations 1 and σ in two dimensions: the densities cross at one radius R, where both tails
    # are exponential in R², with R² = 4 ln σ · σ²/(σ² − 1).
    sigma = 2.0
    squared = 4 * np.log(sigma) * sigma**2 / (sigma**2 - 1)
    expected = np.exp(-squared / (2 * sigma**2)) - np.exp(-squared / 2)
    assert gaussian_total_variation([0, 0], [1, 1], [0, 0], [sigma, sigma]) == pytest.approx(expected, abs=1e-6)


def test_equal_gaussians_are_at_no_distance():
    assert gaussian_total_variation([1, 2], [3, 4], [1, 2], [3, 4]) == 0.0
    assert gaussian_kl_divergence([1, 2], [3, 4], [1, 2], [3, 4]) == 0.0


def test_estimates_bound_the_truth():
    rng = np.random.default_rng(0)
    p, model = rng.dirichlet(np.ones(5), size=(2, 100))
    likelihood = -(p * np.log(model)).sum(-1).mean()
    entropy = -(p * np.log(p)).sum(-1).mean()
    assert total_variation(p, model).mean() <= model_error_from_likelihood(likelihood, entropy)
    assert model_error_from_likelihood(0.9, 1.0) == 0.0  # a lucky validation set
    assert policy_shift_from_kl(0.02) == pytest.approx(0.1)
    assert policy_shift_from_kl(8.0) == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: total_variation([0.5, 0.4], [0.5, 0.5]), r"^p sums to 0.9 over its last axis"),
        (lambda: kl_divergence([0.5, 0.5], [1.5, -0.5]), r"^q = -0.5 is negative"),
        (lambda: total_variation(1.0, 1.0), r"^p has shape \(\)"),
        (lambda: gaussian_kl_divergence([0], [0], [0], [1]), r"^std_p = 0 is not a standard deviation"),
        (lambda: gaussian_total_variation([0], [1], [float("nan")], [1]), r"^mean_q = nan is not finite"),
        (lambda: pinsker_bound(-1.0), r"^kl = -1 is negative"),
        (lambda: model_error_from_likelihood(float("inf"), 0.0), r"^negative_log_likelihood = inf"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

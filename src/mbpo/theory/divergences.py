"""Total variation and Kullback-Leibler divergence, and the paper's two errors estimated from what can be measured.

Distributions lie along the last axis; all leading axes broadcast. Gaussians are diagonal, given by mean and
std.
"""

import numpy as np
from numpy.typing import NDArray

from mbpo.theory.arguments import Numbers, Numeric, nonnegative, number, plain

# Nodes of the trapezium rule for the total variation of Gaussians, in ln u from LOWEST to HIGHEST.
NODES, LOWEST, HIGHEST = 4001, -20.0, 20.0


def total_variation(p: Numeric, q: Numeric) -> Numbers:
    """½ Σ |p − q| over the last axis, for finite distributions."""
    p, q = _distribution("p", p), _distribution("q", q)
    return plain(0.5 * np.abs(p - q).sum(axis=-1))


def kl_divergence(p: Numeric, q: Numeric) -> Numbers:
    """Σ p ln(p/q) over the last axis, for finite distributions: infinite where q misses mass of p."""
    p, q = np.broadcast_arrays(_distribution("p", p), _distribution("q", q))
    with np.errstate(divide="ignore", invalid="ignore"):
        summands = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0)
    # Rounding can bring two equal distributions an ulp below zero.
    return plain(np.maximum(summands.sum(axis=-1), 0.0))


def gaussian_kl_divergence(mean_p: Numeric, std_p: Numeric, mean_q: Numeric, std_q: Numeric) -> Numbers:
    """KL(p ‖ q) = Σ_i [ ln(σ_q/σ_p) + (σ_p² + (μ_p − μ_q)²)/(2σ_q²) − ½ ] of two diagonal Gaussians."""
    m_p, s_p, m_q, s_q = _gaussians(mean_p, std_p, mean_q, std_q)
    summands = np.log(s_q / s_p) + (s_p**2 + (m_p - m_q) ** 2) / (2 * s_q**2) - 0.5
    return plain(np.maximum(summands.sum(axis=-1), 0.0))


def gaussian_total_variation(mean_p: Numeric, std_p: Numeric, mean_q: Numeric, std_q: Numeric) -> Numbers:
    """1 − ∫ min(p, q) of two diagonal Gaussians in any dimension, by one integral over a line.

    With l = ln p − ln q, min(p, q) = √(pq) e^(−|l|/2), and e^(−|l|/2) has the Fourier transform 1/(¼ + u²).
    So

    ∫ min(p, q) = (1/π) ∫_0^∞ Re ρ(½ + iu) / (¼ + u²) du,    ρ(α) = ∫ p^α q^(1−α),

    and ρ is a product of Gaussian integrals, one a dimension. Accurate to about 1e-6 (measured against the
    closed form in one dimension, with standard deviations up to a factor of 1000 apart).
    """
    m_p, s_p, m_q, s_q = (values[..., None] for values in _gaussians(mean_p, std_p, mean_q, std_q))
    u = np.exp(np.linspace(LOWEST, HIGHEST, NODES))
    alpha = 0.5 + 1j * u
    # p^α q^(1−α) is a Gaussian with the (complex) precision `mixed` σ_p⁻² σ_q⁻², times a constant.
    mixed = alpha * s_q**2 + (1 - alpha) * s_p**2
    log_rho = (
        alpha * np.log(s_q)
        + (1 - alpha) * np.log(s_p)
        - 0.5 * np.log(mixed)
        - alpha * (1 - alpha) * (m_p - m_q) ** 2 / (2 * mixed)
    ).sum(axis=-2)
    weights = u / (0.25 + u**2) * np.log(u[1] / u[0]) / np.pi
    # ρ = 1 makes the integral 1, so what the quadrature misses of that is what it misses: subtract it from both.
    return plain(np.clip(((1 - np.exp(log_rho).real) * weights).sum(axis=-1), 0.0, 1.0))


def pinsker_bound(kl: Numeric) -> Numbers:
    """min(1, √(KL/2)), the largest total variation that a KL divergence allows by Pinsker's inequality."""
    return plain(np.minimum(1.0, np.sqrt(nonnegative("kl", kl) / 2)))


def model_error_from_likelihood(negative_log_likelihood: Numeric, entropy: Numeric) -> Numbers:
    """An upper bound on ε_m from a validation loss in nats: √((NLL − entropy)/2), at most 1.

    E[−ln p̂(s'|s,a)] is the entropy of p plus E[KL(p ‖ p̂)]; Pinsker's and Jensen's inequalities do the rest.
    It assumes held-out transitions from the data policy at one time step (take the largest over time, or
    their discounted mean for the sharper bounds), so many that the mean is the expectation, and that the
    entropy of the true dynamics is known: 0 for deterministic discrete ones, unknown in general for
    continuous ones, where a loss says nothing without it. A loss below the entropy is sampling noise, and
    counts as no error.
    """
    excess = number("negative_log_likelihood", negative_log_likelihood) - number("entropy", entropy)
    return pinsker_bound(np.maximum(excess, 0.0))


def policy_shift_from_kl(kl: Numeric) -> Numbers:
    """An upper bound on ε_π, min(1, √(KL/2)), from the KL divergence between two policies.

    It assumes the largest KL over all states, in either direction. The mean over visited states, which is
    what is usually logged, bounds only the mean total variation: enough for the discounted forms of the
    sharper bounds, not for the paper's ε_π.
    """
    return pinsker_bound(kl)


def _distribution(name: str, value: Numeric) -> NDArray[np.float64]:
    values = nonnegative(name, value)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"{name} has shape {values.shape}; give probabilities along its last axis.")
    totals = values.sum(axis=-1)
    if not np.allclose(totals, 1.0, rtol=0, atol=1e-8):
        worst = float(np.ravel(totals)[np.argmax(np.abs(np.ravel(totals) - 1))])
        raise ValueError(f"{name} sums to {worst:g} over its last axis; divide by the sum to make it 1.")
    return values


def _gaussians(mean_p: Numeric, std_p: Numeric, mean_q: Numeric, std_q: Numeric) -> list[NDArray[np.float64]]:
    """The four parameters, checked and broadcast, with at least one axis: the dimensions of the space."""
    deviations = {"std_p": nonnegative("std_p", std_p), "std_q": nonnegative("std_q", std_q)}
    for name, values in deviations.items():
        if np.any(values == 0):
            raise ValueError(f"{name} = 0 is not a standard deviation; give a positive number.")
    means = number("mean_p", mean_p), number("mean_q", mean_q)
    parameters = means[0], deviations["std_p"], means[1], deviations["std_q"]
    return [np.atleast_1d(values) for values in np.broadcast_arrays(*parameters)]

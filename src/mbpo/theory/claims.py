"""What the paper claims, in its order, each claim as two sides that exact worlds can be asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mbpo.theory import bounds, tabular
from mbpo.theory.arguments import Numbers
from mbpo.theory.tabular import PerWorld
from mbpo.theory.worlds import Exact, finite_kl

Sides = tuple[PerWorld, Numbers]


@dataclass(frozen=True)
class Claim:
    """One statement: in every world the first of `sides` is at most the second."""

    label: str
    """Where the paper says it."""
    form: Literal["printed", "corrected", "sharper"]
    statement: str
    """What is claimed, in a line."""
    sides: Callable[[Exact], Sides]
    holds: bool = True
    """Whether it is true; one that is not has a counterexample of this name."""
    counterexample: str = ""


def _joint(x: Exact) -> PerWorld:
    """The total variation of (a, s') between (π_D, p) and (π, p̂) in state 0."""
    old = x.worlds.data_policy[:, 0, :, None] * x.worlds.mdp.dynamics[:, 0]
    new = x.worlds.policy[:, 0, :, None] * x.worlds.model[:, 0]
    return 0.5 * np.abs(old - new).sum((-1, -2))


def _joint_largest(x: Exact) -> Sides:
    return _joint(x), x.shift_per_state[:, 0] + x.pair_error[:, 0].max(-1)


def _joint_expected(x: Exact) -> Sides:
    return _joint(x), x.shift_per_state[:, 0] + x.error_old[:, 0]


def _chain_distance(x: Exact) -> PerWorld:
    """The distance between the state distributions of (π_D, p) and (π, p̂) after k + 1 steps."""
    old = new = x.worlds.mdp.start
    for i in range(int(x.worlds.rollout_length.max()) + 1):
        inside = (i <= x.worlds.rollout_length)[:, None]
        old = np.where(inside, tabular.advance(old, x.real_old), old)
        new = np.where(inside, tabular.advance(new, x.model_new), new)
    return 0.5 * np.abs(old - new).sum(-1)


def _state_shift_kl(x: Exact) -> Sides:
    # With a KL of 1 or more the bound is trivially true, so cutting it there changes no verdict.
    divergence = np.minimum(x.largest(x.real_old, finite_kl(x.real_old, x.model_new)), 1.0)
    return _chain_distance(x), bounds.state_shift(x.worlds.rollout_length + 1, divergence)


def _state_shift(x: Exact) -> Sides:
    divergence = x.largest(x.real_old, 0.5 * np.abs(x.real_old - x.model_new).sum(-1))
    return _chain_distance(x), bounds.state_shift(x.worlds.rollout_length + 1, divergence)


def _returns_kl(x: Exact) -> Sides:
    kl = (x.worlds.policy * finite_kl(x.worlds.mdp.dynamics, x.worlds.model)).sum(-1)
    error = np.minimum(x.largest(x.real_new, kl), 1.0)
    gap = np.abs(x.return_new - x.model_return_new)
    return gap, bounds.returns_gap(error, 0.0, x.discount, x.worlds.max_reward)


def _returns_first(x: Exact) -> Sides:
    gap = np.abs(x.return_old - x.model_return_new)
    return gap, bounds.returns_gap(x.model_error, x.policy_shift, x.discount, x.worlds.max_reward)


def _returns_second(x: Exact) -> Sides:
    error = x.largest(x.model_new, x.error_new)
    gap = np.abs(x.return_old - x.model_return_new)
    return gap, bounds.returns_gap(error, x.policy_shift, x.discount, x.worlds.max_reward)


def _returns_mean(x: Exact) -> Sides:
    gap = np.abs(x.return_old - x.model_return_new)
    error, shift = x.mean_model_error, x.mean_policy_shift
    return gap, bounds.returns_gap(error, shift, x.discount, x.worlds.max_reward)


def _branched_lemma(x: Exact, error_after: PerWorld) -> Sides:
    """Lemma B.4 for (π_D, p) then (π, p), against (π, p̂) then (π, p̂): the policies differ before the branch."""
    k = x.worlds.rollout_length
    gap = np.abs(x.branched(x.real_old, x.real_new, k) - x.branched(x.model_new, x.model_new, k))
    bound = bounds.branched_returns_gap(
        k, x.model_error, error_after, x.policy_shift, 0.0, x.discount, x.worlds.max_reward
    )
    return gap, bound


def _branched_lemma_marginals(x: Exact) -> Sides:
    # Only the model after the branch is wrong here: it isolates the hypothesis that is at fault.
    error = x.largest_at_branched_times(x.real_old, x.real_new, x.error_new)
    k = x.worlds.rollout_length
    gap = np.abs(x.branched(x.real_old, x.real_new, k) - x.branched_return)
    return gap, bounds.branched_returns_gap(k, 0.0, error, 0.0, 0.0, x.discount, x.worlds.max_reward)


def _branched_lemma_every_depth(x: Exact) -> Sides:
    return _branched_lemma(x, x.largest_in_branch(x.real_old, x.real_new, x.error_new))


def _monotonic(x: Exact) -> Sides:
    gap = np.abs(x.model_return_new - x.return_new)
    return gap, bounds.monotonic_gap(x.model_error, x.policy_shift, x.discount, x.worlds.max_reward)


def _learned_reward(x: Exact) -> tuple[PerWorld, PerWorld]:
    """The gap and ε_m when rewards are ±r_max with the right mean, and the model draws both s' and r."""
    scale = x.worlds.max_reward
    outcomes = [
        dynamics[..., None] * np.stack([scale + reward, scale - reward], -1)[..., None, :] / (2 * scale)
        for dynamics, reward in (
            (x.worlds.mdp.dynamics, x.worlds.mdp.reward),
            (x.worlds.model, x.worlds.model_reward),
        )
    ]
    error = 0.5 * np.abs(outcomes[0] - outcomes[1]).sum((-1, -2))
    largest = x.largest(x.real_old, (x.worlds.data_policy * error).sum(-1))
    predicted = x.return_of(x.model_new, tabular.policy_reward(x.worlds.model_reward, x.worlds.policy))
    return np.abs(predicted - x.return_new), largest


def _monotonic_learned_reward(x: Exact) -> Sides:
    gap, error = _learned_reward(x)
    return gap, bounds.monotonic_gap(error, x.policy_shift, x.discount, x.worlds.max_reward)


def _monotonic_learned_reward_paid(x: Exact) -> Sides:
    gap, error = _learned_reward(x)
    states = bounds.monotonic_gap(error, x.policy_shift, x.discount, x.worlds.max_reward)
    return gap, states + bounds.learned_reward_gap(error, x.discount, x.worlds.max_reward)


def _sharp_monotonic(x: Exact) -> Sides:
    gap = np.abs(x.model_return_new - x.return_new)
    error, shift = x.mean_model_error, x.mean_policy_shift
    return gap, bounds.sharp_monotonic_gap(error, shift, x.discount, x.worlds.max_reward)


def _branched_gap(x: Exact) -> PerWorld:
    """The largest gap over the readings of the branched return that the printed bounds leave open."""
    k = x.worlds.rollout_length
    shorter = x.branched(x.real_old, x.model_new, np.maximum(k - 1, 0))
    old_acts = np.where(k == 0, x.return_old, x.branched_return)
    readings = np.stack([x.branched_return, shorter, old_acts])
    return np.abs(readings - x.return_new).max(0)


def _branched(x: Exact) -> Sides:
    k = x.worlds.rollout_length
    bound = bounds.branched_gap(k, x.model_error, x.policy_shift, x.discount, x.worlds.max_reward)
    return _branched_gap(x), bound


def _sharp_branched(x: Exact) -> Sides:
    k, error, shift = x.worlds.rollout_length, x.mean_model_error, x.mean_policy_shift
    gap = np.abs(x.branched_return - x.return_new)
    return gap, bounds.sharp_branched_gap(k, error, shift, x.discount, x.worlds.max_reward)


def _current_error(x: Exact, error: PerWorld) -> Numbers:
    k = x.worlds.rollout_length
    return bounds.branched_gap_current_error(k, error, x.policy_shift, x.discount, x.worlds.max_reward)


def _branched_data_error(x: Exact) -> Sides:
    gap = np.abs(x.branched_return - x.return_new)
    return gap, _current_error(x, x.largest(x.real_old, x.error_new))


def _branched_current_error(x: Exact) -> Sides:
    return _branched_gap(x), _current_error(x, x.current_model_error)


def _branched_proof_step(x: Exact) -> Sides:
    k = x.worlds.rollout_length
    gap = np.abs(x.branched(x.real_old, x.real_new, k) - x.branched_return)
    return gap, 2 * x.worlds.max_reward * k * x.current_model_error / (1 - x.discount)


def _sharp_branched_current_error(x: Exact) -> Sides:
    k, error, shift = x.worlds.rollout_length, x.mean_current_model_error, x.mean_policy_shift
    gap = np.abs(x.branched_return - x.return_new)
    return gap, bounds.sharp_branched_gap_current_error(k, error, shift, x.discount, x.worlds.max_reward)


def _weighted_branch_points(x: Exact) -> Sides:
    """A perfect model and an unchanged policy: Σ_t γ^t (the k-step return from s_t), scaled to total 1/(1−γ)."""
    k = np.maximum(x.worlds.rollout_length, 1)
    visits, total = tabular.occupancy(x.worlds.mdp.start, x.real_old, x.discount), np.zeros(k.shape)
    for i in range(int(k.max())):
        total += np.where(i < k, x.discount**i * (visits * x.reward_old).sum(-1), 0.0)
        visits = tabular.advance(visits, x.real_old)
    gap = np.abs(total * (1 - x.discount) / (1 - x.discount**k) - x.return_old)
    return gap, bounds.branched_gap_current_error(k, 0.0, 0.0, x.discount, x.worlds.max_reward)


def _error_after_shift(x: Exact) -> Sides:
    lower, _ = tabular.largest_over_time(x.real_new, x.worlds.mdp.start, x.error_new)
    return lower, x.model_error + 2 * x.policy_shift


def _mean_error_after_shift(x: Exact) -> Sides:
    return x.mean_current_model_error, x.mean_model_error + x.mean_policy_shift / (1 - x.discount)


def _gain_in_model(x: Exact) -> Sides:
    shift = (x.policy_shift, x.discount, x.worlds.max_reward)
    charge = bounds.monotonic_gap(x.model_error, *shift) - bounds.monotonic_gap(x.model_error, 0.0, *shift[1:])
    return x.model_return_new - x.model_return_old, charge / 2


CLAIMS: Sequence[Claim] = (
    Claim("Theorem 4.1 / A.1", "printed", "ε_m over s', under π_D", _monotonic),
    Claim(
        "Theorem 4.1",
        "printed",
        "ε_m over (s', r), the reward learned",
        _monotonic_learned_reward,
        False,
        "learned reward",
    ),
    Claim(
        "Theorem 4.1",
        "corrected",
        "ε_m over (s', r), plus 2 r_max ε_m/(1−γ)",
        _monotonic_learned_reward_paid,
    ),
    Claim(
        "Theorem 4.1 / A.1",
        "sharper",
        "2γ r_max (ε_m + ε_π)/(1−γ)², discounted means",
        _sharp_monotonic,
    ),
    Claim("Theorem 4.2 / A.3", "printed", "ε_m under π_D", _branched),
    Claim(
        "Theorem 4.2 / A.3",
        "sharper",
        "2γ r_max [ε_π + (1−γ^k) ε_m]/(1−γ)², discounted means",
        _sharp_branched,
    ),
    Claim(
        "Branched rollout",
        "printed",
        "branch points weighted by γ^t, a perfect model, π = π_D",
        _weighted_branch_points,
        False,
        "weighted branch points",
    ),
    Claim(
        "Section 4.3",
        "printed",
        "ε_m' ≤ ε_m + 2ε_π",
        _error_after_shift,
        False,
        "drifting policy",
    ),
    Claim("Section 4.3", "corrected", "ε_m' ≤ ε_m + ε_π/(1−γ), discounted means", _mean_error_after_shift),
    Claim(
        "Theorem 4.3",
        "printed",
        "ε_m' under π_D's states",
        _branched_data_error,
        False,
        "unvisited state",
    ),
    Claim("Theorem A.2", "printed", "ε_m' under π's own states", _branched_current_error),
    Claim(
        "Theorem A.2, proof",
        "printed",
        "L_2 ≤ 2 r_max k ε_m'/(1−γ), ε_m' under π's own states",
        _branched_proof_step,
        False,
        "abandoned state",
    ),
    Claim(
        "Theorem 4.3 / A.2",
        "sharper",
        "2γ r_max [γ^k ε_π + (1−γ^k) ε_m']/(1−γ)², discounted means",
        _sharp_branched_current_error,
    ),
    Claim("Lemma B.1", "printed", "with the largest conditional", _joint_largest),
    Claim("Lemma B.1", "printed", "with the expected conditional", _joint_expected),
    Claim("Lemma B.2", "printed", "δ a KL divergence", _state_shift_kl, False, "noisy coin"),
    Claim("Lemma B.2", "corrected", "δ a total variation", _state_shift),
    Claim("Lemma B.3", "printed", "ε_m a KL divergence", _returns_kl, False, "noisy coin"),
    Claim("Lemma B.3", "corrected", "ε_m a total variation, under (π_1, p_1)", _returns_first),
    Claim("Lemma B.3", "corrected", "ε_m a total variation, under (π_2, p_2)", _returns_second),
    Claim("Lemma B.3", "sharper", "discounted means for the largest errors", _returns_mean),
    Claim(
        "Lemma B.4",
        "printed",
        "ε_m^post under the branched marginals p_1^t",
        _branched_lemma_marginals,
        False,
        "abandoned state",
    ),
    Claim(
        "Lemma B.4",
        "corrected",
        "ε_m^post at every depth, from every branch point",
        _branched_lemma_every_depth,
    ),
    Claim("Algorithm 1", "corrected", "η̂[π] − η̂[π_D] ≤ ½ [C(ε_m, ε_π) − C(ε_m, 0)]", _gain_in_model),
)

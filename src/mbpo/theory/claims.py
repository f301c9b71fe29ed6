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


def _model_gap(x: Exact) -> PerWorld:
    """|η̂[π] − η[π]|. Negating the rewards turns a gap of one sign into the other, so claims are two-sided."""
    return np.abs(x.model_return_new - x.return_new)


def _monotonic(x: Exact) -> Sides:
    return _model_gap(x), bounds.monotonic_gap(x.model_error, x.policy_shift, *x.scale)


def _monotonic_new_actions(x: Exact) -> Sides:
    error = x.largest(x.real_old, x.error_new)
    return _model_gap(x), bounds.monotonic_gap(error, x.policy_shift, *x.scale)


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
    return gap, bounds.monotonic_gap(error, x.policy_shift, *x.scale)


def _monotonic_learned_reward_paid(x: Exact) -> Sides:
    gap, error = _learned_reward(x)
    paid = bounds.learned_reward_gap(error, *x.scale)
    return gap, bounds.monotonic_gap(error, x.policy_shift, *x.scale) + paid


def _sharp_monotonic(x: Exact) -> Sides:
    return _model_gap(x), bounds.sharp_monotonic_gap(x.mean_model_error, x.mean_policy_shift, *x.scale)


def _branch_gap(x: Exact) -> PerWorld:
    return np.abs(x.branched_return - x.return_new)


def _branch_gap_of_any_reading(x: Exact) -> PerWorld:
    """The largest gap over the readings of the branched return that the printed bounds leave open."""
    k = x.worlds.rollout_length
    shorter = x.branched(x.real_old, x.model_new, np.maximum(k - 1, 0))
    old_acts = np.where(k == 0, x.return_old, x.branched_return)
    return np.maximum(_branch_gap(x), np.abs(np.stack([shorter, old_acts]) - x.return_new).max(0))


def _branched(x: Exact) -> Sides:
    bound = bounds.branched_gap(x.worlds.rollout_length, x.model_error, x.policy_shift, *x.scale)
    return _branch_gap_of_any_reading(x), bound


def _sharp_branched(x: Exact) -> Sides:
    errors = x.mean_model_error, x.mean_policy_shift
    return _branch_gap(x), bounds.sharp_branched_gap(x.worlds.rollout_length, *errors, *x.scale)


def _weighted_branch_points(x: Exact) -> Sides:
    """Perfect model, old policy: Σ_t γ^t (the k-step return from s_t), scaled to total weight 1/(1−γ)."""
    k = np.maximum(x.worlds.rollout_length, 1)
    visits, total = tabular.occupancy(x.worlds.mdp.start, x.real_old, x.discount), np.zeros(k.shape)
    for i in range(int(k.max())):
        total += np.where(i < k, x.discount**i * (visits * x.reward_old).sum(-1), 0.0)
        visits = tabular.advance(visits, x.real_old)
    gap = np.abs(total * (1 - x.discount) / (1 - x.discount**k) - x.return_old)
    return gap, bounds.branched_gap(np.zeros_like(k), 0.0, 0.0, *x.scale)


def _error_after_shift(x: Exact) -> Sides:
    lower, _ = tabular.largest_over_time(x.real_new, x.worlds.mdp.start, x.error_new)
    return lower, x.model_error + 2 * x.policy_shift


def _mean_error_after_shift(x: Exact) -> Sides:
    return x.mean_current_model_error, x.mean_model_error + x.mean_policy_shift / (1 - x.discount)


def _current_error_bound(x: Exact, error: PerWorld) -> Numbers:
    return bounds.branched_gap_current_error(x.worlds.rollout_length, error, x.policy_shift, *x.scale)


def _branched_data_error(x: Exact) -> Sides:
    return _branch_gap(x), _current_error_bound(x, x.largest(x.real_old, x.error_new))


def _branched_current_error(x: Exact) -> Sides:
    return _branch_gap_of_any_reading(x), _current_error_bound(x, x.current_model_error)


def _sharp_branched_current_error(x: Exact) -> Sides:
    errors = x.mean_current_model_error, x.mean_policy_shift
    bound = bounds.sharp_branched_gap_current_error(x.worlds.rollout_length, *errors, *x.scale)
    return _branch_gap(x), bound


def _gap_after_branch(x: Exact) -> PerWorld:
    """What the model costs after the branch point: (π_D, p) then (π, p), against (π_D, p) then (π, p̂)."""
    return np.abs(x.branched(x.real_old, x.real_new, x.worlds.rollout_length) - x.branched_return)


def _branched_proof_step(x: Exact) -> Sides:
    bound = 2 * x.worlds.max_reward * x.worlds.rollout_length * x.current_model_error / (1 - x.discount)
    return _gap_after_branch(x), bound


def _joint_distance(x: Exact) -> PerWorld:
    """The total variation of (a, s') between (π_D, p) and (π, p̂) in state 0."""
    old = x.worlds.data_policy[:, 0, :, None] * x.worlds.mdp.dynamics[:, 0]
    new = x.worlds.policy[:, 0, :, None] * x.worlds.model[:, 0]
    return 0.5 * np.abs(old - new).sum((-1, -2))


def _joint_largest(x: Exact) -> Sides:
    return _joint_distance(x), x.shift_per_state[:, 0] + x.pair_error[:, 0].max(-1)


def _joint_expected(x: Exact) -> Sides:
    return _joint_distance(x), x.shift_per_state[:, 0] + x.error_old[:, 0]


def _chain_distance(x: Exact) -> PerWorld:
    """The distance between the state distributions of (π_D, p) and (π, p̂) after k + 1 steps."""
    old = new = x.worlds.mdp.start
    for i in range(int(x.worlds.rollout_length.max()) + 1):
        inside = (i <= x.worlds.rollout_length)[:, None]
        old = np.where(inside, tabular.advance(old, x.real_old), old)
        new = np.where(inside, tabular.advance(new, x.model_new), new)
    return 0.5 * np.abs(old - new).sum(-1)


def _state_shift_kl(x: Exact) -> Sides:
    # With a KL divergence of 1 or more the bound is trivially true: cutting it there changes no verdict.
    divergence = np.minimum(x.largest(x.real_old, finite_kl(x.real_old, x.model_new)), 1.0)
    return _chain_distance(x), bounds.state_shift(x.worlds.rollout_length + 1, divergence)


def _state_shift(x: Exact) -> Sides:
    # Later errors cannot reach back: the lower bound, which has every step up to k + 1, makes the stricter test.
    per_state = 0.5 * np.abs(x.real_old - x.model_new).sum(-1)
    divergence, _ = tabular.largest_over_time(x.real_old, x.worlds.mdp.start, per_state)
    return _chain_distance(x), bounds.state_shift(x.worlds.rollout_length + 1, divergence)


def _returns_kl(x: Exact) -> Sides:
    # One policy under two dynamics: then the KL of (s', a) is the KL of s' alone, and ε_π = 0.
    kl = (x.worlds.policy * finite_kl(x.worlds.mdp.dynamics, x.worlds.model)).sum(-1)
    return _model_gap(x), bounds.returns_gap(np.minimum(x.largest(x.real_new, kl), 1.0), 0.0, *x.scale)


def _old_new_gap(x: Exact) -> PerWorld:
    """|η_1 − η_2| for (π_D, p) and (π, p̂)."""
    return np.abs(x.return_old - x.model_return_new)


def _returns_first(x: Exact) -> Sides:
    return _old_new_gap(x), bounds.returns_gap(x.model_error, x.policy_shift, *x.scale)


def _returns_second(x: Exact) -> Sides:
    error = x.largest(x.model_new, x.error_new)
    return _old_new_gap(x), bounds.returns_gap(error, x.policy_shift, *x.scale)


def _returns_mean(x: Exact) -> Sides:
    return _old_new_gap(x), bounds.returns_gap(x.mean_model_error, x.mean_policy_shift, *x.scale)


def _branched_lemma_marginals(x: Exact) -> Sides:
    # Only the model after the branch point is wrong: that isolates the premise at fault.
    error = x.largest_at_branched_times(x.real_old, x.real_new, x.error_new)
    bound = bounds.branched_returns_gap(x.worlds.rollout_length, 0.0, error, 0.0, 0.0, *x.scale)
    return _gap_after_branch(x), bound


def _branched_lemma_every_depth(x: Exact) -> Sides:
    """(π_D, p) then (π, p), against (π, p̂) throughout: everything but the policy after the branch point differs."""
    k, error = x.worlds.rollout_length, x.largest_in_branch(x.real_old, x.real_new, x.error_new)
    gap = np.abs(x.branched(x.real_old, x.real_new, k) - x.branched(x.model_new, x.model_new, k))
    return gap, bounds.branched_returns_gap(k, x.model_error, error, x.policy_shift, 0.0, *x.scale)


def _gain_in_model(x: Exact) -> Sides:
    charge = bounds.monotonic_gap(0.0, x.policy_shift, *x.scale)
    return x.model_return_new - x.model_return_old, charge / 2


def _certified_by_model(x: Exact) -> Sides:
    charge = bounds.monotonic_gap(x.model_error, x.policy_shift, *x.scale)
    return x.model_return_new - x.return_old, charge - bounds.monotonic_gap(0.0, x.policy_shift, *x.scale) / 2


def _certified_by_branches(x: Exact) -> Sides:
    bound = bounds.branched_gap(x.worlds.rollout_length, x.model_error, x.policy_shift, *x.scale)
    return x.branched_return - x.return_old, bound


CLAIMS: Sequence[Claim] = (
    Claim("Algorithm 1", "printed", "C charges twice what π gains: η̂[π] − η̂[π_D] ≤ ½ C(0, ε_π)", _gain_in_model),
    Claim("Algorithm 1", "printed", "η̂[π] − C(ε_m, ε_π) is below η[π_D], by ½ C(0, ε_π)", _certified_by_model),
    Claim("Theorem 4.1 / A.1", "printed", "ε_m over s', π_D's states and actions", _monotonic),
    Claim("Theorem 4.1 / A.1", "printed", "ε_m over s', π_D's states and π's actions", _monotonic_new_actions),
    Claim(
        "Theorem 4.1",
        "printed",
        "ε_m over (s', r), the reward learned",
        _monotonic_learned_reward,
        holds=False,
        counterexample="learned reward",
    ),
    Claim(
        "Theorem 4.1",
        "corrected",
        "ε_m over (s', r), plus 2 r_max ε_m/(1−γ)",
        _monotonic_learned_reward_paid,
    ),
    Claim("Theorem 4.1 / A.1", "sharper", "2γ r_max (ε_m + ε_π)/(1−γ)², discounted means", _sharp_monotonic),
    Claim(
        "Branched rollout",
        "printed",
        "branch points weighted by γ^t, perfect model, π = π_D",
        _weighted_branch_points,
        holds=False,
        counterexample="weighted branch points",
    ),
    Claim("Theorem 4.2 / A.3", "printed", "ε_m under π_D", _branched),
    Claim("Theorem 4.2 / A.3", "printed", "η^branch[π] less the bound is below η[π_D]", _certified_by_branches),
    Claim(
        "Theorem 4.2 / A.3",
        "sharper",
        "2γ r_max [ε_π + (1−γ^k) ε_m]/(1−γ)², discounted means",
        _sharp_branched,
    ),
    Claim(
        "Section 4.3",
        "printed",
        "ε_m' ≤ ε_m + 2ε_π",
        _error_after_shift,
        holds=False,
        counterexample="drifting policy",
    ),
    Claim("Section 4.3", "corrected", "ε_m' ≤ ε_m + ε_π/(1−γ), discounted means", _mean_error_after_shift),
    Claim(
        "Theorem 4.3",
        "printed",
        "ε_m' under π_D's states",
        _branched_data_error,
        holds=False,
        counterexample="unvisited state",
    ),
    Claim("Theorem A.2", "printed", "ε_m' under π's own states", _branched_current_error),
    Claim(
        "Theorem A.2, proof",
        "printed",
        "L_2 ≤ 2 r_max k ε_m'/(1−γ)",
        _branched_proof_step,
        holds=False,
        counterexample="abandoned state",
    ),
    Claim(
        "Theorem 4.3 / A.2",
        "sharper",
        "2γ r_max [γ^k ε_π + (1−γ^k) ε_m']/(1−γ)², discounted means",
        _sharp_branched_current_error,
    ),
    Claim("Lemma B.1", "printed", "with the largest conditional", _joint_largest),
    Claim("Lemma B.1", "printed", "with the expected conditional", _joint_expected),
    Claim("Lemma B.2", "printed", "δ a KL divergence", _state_shift_kl, holds=False, counterexample="noisy coin"),
    Claim("Lemma B.2", "corrected", "δ a total variation", _state_shift),
    Claim("Lemma B.3", "printed", "ε_m a KL divergence", _returns_kl, holds=False, counterexample="noisy coin"),
    Claim("Lemma B.3", "corrected", "ε_m a total variation, under (π_1, p_1)", _returns_first),
    Claim("Lemma B.3", "corrected", "ε_m a total variation, under (π_2, p_2)", _returns_second),
    Claim("Lemma B.3", "sharper", "discounted means for the largest errors", _returns_mean),
    Claim(
        "Lemma B.4",
        "printed",
        "ε_m^post under the branched marginals p_1^t",
        _branched_lemma_marginals,
        holds=False,
        counterexample="abandoned state",
    ),
    Claim("Lemma B.4", "corrected", "ε_m^post at every depth of the branch", _branched_lemma_every_depth),
)

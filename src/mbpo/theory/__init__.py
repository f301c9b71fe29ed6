"""The theory of Model-Based Policy Optimization as something to compute with: bounds, divergences, exact worlds.

NumPy in float64 and nothing of the training code; docs/theory.md says what was found.
"""

from mbpo.theory.bounds import (
    best_rollout_length,
    branched_gap,
    branched_gap_current_error,
    branched_returns_gap,
    extrapolated_model_error,
    learned_reward_gap,
    monotonic_gap,
    returns_gap,
    sharp_branched_gap,
    sharp_branched_gap_current_error,
    sharp_monotonic_gap,
    state_shift,
)
from mbpo.theory.divergences import (
    gaussian_kl_divergence,
    gaussian_total_variation,
    kl_divergence,
    model_error_from_likelihood,
    pinsker_bound,
    policy_shift_from_kl,
    total_variation,
)
from mbpo.theory.tabular import (
    FiniteMDP,
    branched_return,
    maximum_likelihood_model,
    model_error,
    policy_return,
    policy_shift,
    random_mdp,
    random_policy,
    state_distribution,
)

__all__ = [
    "FiniteMDP",
    "best_rollout_length",
    "branched_gap",
    "branched_gap_current_error",
    "branched_return",
    "branched_returns_gap",
    "extrapolated_model_error",
    "gaussian_kl_divergence",
    "gaussian_total_variation",
    "kl_divergence",
    "learned_reward_gap",
    "maximum_likelihood_model",
    "model_error",
    "model_error_from_likelihood",
    "monotonic_gap",
    "pinsker_bound",
    "policy_return",
    "policy_shift",
    "policy_shift_from_kl",
    "random_mdp",
    "random_policy",
    "returns_gap",
    "sharp_branched_gap",
    "sharp_branched_gap_current_error",
    "sharp_monotonic_gap",
    "state_distribution",
    "state_shift",
    "total_variation",
]

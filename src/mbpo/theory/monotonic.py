"""Algorithm 1, monotonic model-based policy optimisation, on finite worlds: as printed, and so that it moves.

As printed it never leaves π_D. Let Δ = 2 r_max ε_π/(1−γ)², which Lemma B.3 inside the model makes the most
that η̂[π] can gain over η̂[π_D]; C(ε_m, ε_π) − C(ε_m, 0) is 2Δ. So η̂ − C is at most its value at π_D less Δ,
and π_D is the only maximiser (for r_max > 0, ε_π being taken over all states). It does not even help to
compare with the true return of π_D: η̂[π] − C(ε_m, ε_π) ≤ η[π_D] − Δ.

What moves is the bound of Lemma B.3 with the model's error under the new policy and no policy shift, η[π] ≥
η̂[π] − 2γ r_max ε_m'(π)/(1−γ)². The expectation in ε_m' may be taken under the model's own rollouts, which
are all that a learner has, and the discounted mean over time may stand for the largest. Then the penalty is a
sum of rewards, and the guarantee is maximised exactly by solving one more MDP.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mbpo.theory import bounds, tabular
from mbpo.theory.tabular import Dynamics, FiniteMDP, PerPair, PerWorld, Policy

# How the error at each pair is known, and how its size over time enters the penalty.
Knowledge = Literal["exact", "confidence"]
OverTime = Literal["mean", "largest"]

# A step must beat the old return by more than the rounding of two linear solves, relative to r_max/(1−γ).
ROUNDING = 1e-9
# The chance, a run, that the confidence radius is too small somewhere.
FAILURE_PROBABILITY = 0.05


@dataclass(frozen=True)
class Epoch:
    """One round of Algorithm 1 in a stack of worlds."""

    guaranteed: PerWorld
    """The candidate's guaranteed return."""
    to_beat: PerWorld
    """The old policy's return, or where that is unknown its upper bound."""
    admitted: np.ndarray
    """Where the candidate became the policy."""
    before: PerWorld
    """η of the policy before, exactly."""
    after: PerWorld
    """η of the policy after, exactly."""


def improve(
    rng: np.random.Generator,
    mdp: FiniteMDP,
    transitions: int,
    epochs: int,
    max_reward: float = 1.0,
    knowledge: Knowledge = "exact",
    over_time: OverTime = "mean",
) -> Iterator[Epoch]:
    """Algorithm 1 from the uniform policy: collect, fit, maximise the guarantee, admit what beats the old return.

    With `knowledge` "exact" the error of the model at each pair and the return of the running policy are
    known; with "confidence" both are replaced by what the data alone support, and the guarantee holds with
    probability 1 − FAILURE_PROBABILITY a run.
    """
    policy = np.full(mdp.reward.shape, 1 / mdp.reward.shape[-1])
    counts = np.zeros(mdp.dynamics.shape)
    for _ in range(epochs):
        counts = counts + tabular.sample_counts(rng, mdp, policy, transitions)
        model = replace(mdp, dynamics=tabular.maximum_likelihood_model(counts))
        known = knowledge == "exact"
        error = tabular.transition_error(mdp.dynamics, model.dynamics) if known else confidence_radius(counts)
        candidate = most_guaranteed_policy(model, error, max_reward)
        guaranteed = guaranteed_return(model, candidate, error, max_reward, over_time)
        before = tabular.policy_return(mdp, policy)
        to_beat = before if known else largest_return(model, policy, error, max_reward)
        admitted = guaranteed > to_beat + ROUNDING * max_reward / (1 - mdp.discount)
        policy = np.where(admitted[..., None, None], candidate, policy)
        yield Epoch(guaranteed, to_beat, admitted, before, tabular.policy_return(mdp, policy))


def most_guaranteed_policy(model: FiniteMDP, error: PerPair, max_reward: float) -> Policy:
    """The policy of greatest guaranteed return with the mean error: optimal for r − (2γ r_max/(1−γ)) · error."""
    charge = 2 * model.discount * max_reward / (1 - model.discount)
    return tabular.optimal_policy(replace(model, reward=model.reward - charge[..., None, None] * error))


def guaranteed_return(
    model: FiniteMDP, policy: Policy, error: PerPair, max_reward: float, over_time: OverTime = "mean"
) -> PerWorld:
    """η̂[π] − 2γ r_max ε_m'(π)/(1−γ)², below which η[π] cannot be."""
    return np.asarray(tabular.policy_return(model, policy) - penalty(model, policy, error, max_reward, over_time))


def largest_return(model: FiniteMDP, policy: Policy, error: PerPair, max_reward: float) -> PerWorld:
    """η̂[π] + 2γ r_max ε_m'(π)/(1−γ)², above which η[π] cannot be."""
    return np.asarray(tabular.policy_return(model, policy) + penalty(model, policy, error, max_reward))


def penalty(
    model: FiniteMDP, policy: Policy, error: PerPair, max_reward: float, over_time: OverTime = "mean"
) -> PerWorld:
    """2γ r_max ε_m'(π)/(1−γ)², Lemma B.3 for one policy, with ε_m' under the model's own rollouts of π."""
    transitions, per_state = tabular.chain(model.dynamics, policy), (policy * error).sum(-1)
    if over_time == "mean":
        size = tabular.discounted_mean(model, transitions, per_state)
    else:
        size = tabular.largest_over_time(transitions, model.start, per_state)[1]
    return np.asarray(bounds.returns_gap(size, 0.0, model.discount, max_reward))


def confidence_radius(counts: Dynamics) -> PerPair:
    """A bound on the total variation between the frequencies and the truth, for all pairs and all sample sizes
    at once, with probability 1 − FAILURE_PROBABILITY.

    n draws from S outcomes miss their distribution by more than c in L1 with probability at most
    2^S e^(−n c²/2); the failures are shared out over the pairs and, as 1/(n(n+1)), over the sample sizes.
    """
    tried = counts.sum(-1)
    pairs, states = counts.shape[-3] * counts.shape[-2], counts.shape[-1]
    sizes = np.maximum(tried, 1)
    logarithm = states * np.log(2) + np.log(pairs * sizes * (sizes + 1) / FAILURE_PROBABILITY)
    return np.where(tried > 0, np.minimum(1.0, 0.5 * np.sqrt(2 * logarithm / sizes)), 1.0)


def best_policy_within(model: FiniteMDP, data_policy: Policy, shift: PerWorld) -> Policy:
    """The policy of greatest return among all within total variation `shift` of π_D in every state.

    Policy iteration: the allowance is given state by state, so in each it moves that much probability from
    the worst actions to the best one.
    """
    policy, value = data_policy, tabular.policy_return(model, data_policy)
    while True:
        values = model.reward + model.discount[..., None, None] * np.einsum(
            "...sat,...t->...sa", model.dynamics, tabular.state_values(model, policy)
        )
        policy = _shifted(data_policy, values, shift)
        improved = tabular.policy_return(model, policy)
        if np.all(improved <= value + 1e-12 * (1 + np.abs(value))):
            return policy
        value = improved


def _shifted(data_policy: Policy, values: PerPair, shift: PerWorld) -> Policy:
    """π_D with up to `shift` of its probability moved from the least valued actions to the most valued one."""
    order = values.argsort(-1)
    ascending = np.take_along_axis(data_policy, order, -1)
    below = ascending.cumsum(-1) - ascending
    moved = np.clip(shift[..., None, None] - below, 0.0, ascending)
    moved[..., -1] = 0.0
    ascending = ascending - moved
    ascending[..., -1] += moved.sum(-1)
    result = np.empty_like(ascending)
    np.put_along_axis(result, order, ascending, -1)
    return result

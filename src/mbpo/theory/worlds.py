"""Stacks of random worlds to check bounds on, and the exact quantities of each that the bounds speak of."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from mbpo.theory import tabular
from mbpo.theory.divergences import kl_divergence
from mbpo.theory.tabular import Chain, Dynamics, FiniteMDP, PerPair, PerState, PerWorld, Policy

# (states, actions): mostly tiny worlds, which reach the extremes that larger ones average away.
SIZES = ((2, 2), (3, 2), (3, 3), (4, 2), (6, 3))
LONGEST_ROLLOUT = 12
# Dirichlet concentrations from nearly deterministic over sparse to even.
CONCENTRATIONS = (0.01, 0.1, 0.5, 2.0)
# Stands for an infinite divergence where it may be multiplied by a probability of zero.
HUGE = 1e200


@dataclass(frozen=True)
class Worlds:
    """A stack of worlds, each with a model, a data policy, a new policy and a rollout length."""

    mdp: FiniteMDP
    model: Dynamics
    """p̂(s'|s,a)."""
    model_reward: PerPair
    """What a model that learns the reward as well predicts for r(s,a)."""
    data_policy: Policy
    """π_D(a|s)."""
    policy: Policy
    """π(a|s)."""
    rollout_length: Int[np.ndarray, "*W"]
    max_reward: float = 1.0


def draw(rng: np.random.Generator, worlds: int) -> Iterator[Worlds]:
    """Stacks of random worlds, `worlds` in all, spread over the sizes and over how even the dynamics are."""
    shapes = [(size, concentration) for size in SIZES for concentration in CONCENTRATIONS]
    for i, ((states, actions), concentration) in enumerate(shapes):
        share = worlds // len(shapes) + (i < worlds % len(shapes))
        if share:
            yield draw_stack(rng, share, states, actions, concentration)


def draw_stack(rng: np.random.Generator, worlds: int, states: int, actions: int, concentration: float) -> Worlds:
    """Random worlds of one size. In each: γ in [0.5, 0.999], evenly in ln(1−γ); model and policy a mixture of the
    truth (of π_D) with something else, by a weight even on a logarithmic scale from 1e-3 to 1; a third with
    absorbing states, half with every reward at ±r_max, a third of the models fitted to a few samples.
    """
    discount = 1 - np.exp(rng.uniform(np.log(1e-3), np.log(0.5), worlds))
    mdp = tabular.random_mdp(rng, states, actions, discount, concentration)
    absorbing = (rng.random(worlds) < 1 / 3)[:, None] & (rng.random((worlds, states)) < 0.5)
    dynamics = np.where(absorbing[:, :, None, None], np.eye(states)[:, None], mdp.dynamics)
    extreme = rng.random(worlds) < 0.5
    reward = np.where(extreme[:, None, None], np.sign(mdp.reward), mdp.reward)
    mdp = FiniteMDP(dynamics, reward, mdp.start, mdp.discount)

    data_policy = tabular.random_policy(rng, reward.shape, concentration)
    model = _mixture(rng, dynamics, tabular.random_distributions(rng, dynamics.shape, concentration))
    counts = tabular.sample_counts(rng, mdp, data_policy, 20 * states * actions)
    fitted = (rng.random(worlds) < 1 / 3)[:, None, None, None]
    return Worlds(
        mdp=mdp,
        model=np.where(fitted, tabular.maximum_likelihood_model(counts), model),
        model_reward=_mixture(rng, reward, rng.uniform(-1, 1, reward.shape)),
        data_policy=data_policy,
        policy=_mixture(rng, data_policy, tabular.random_policy(rng, reward.shape, concentration)),
        rollout_length=rng.integers(0, LONGEST_ROLLOUT + 1, worlds),
    )


def _mixture(
    rng: np.random.Generator, base: Float[np.ndarray, "..."], other: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    worlds = base.shape[0]
    weight = np.exp(rng.uniform(np.log(1e-3), 0, worlds)).reshape(worlds, *(1,) * (base.ndim - 1))
    return (1 - weight) * base + weight * other


@dataclass(frozen=True)
class Exact:
    """The exact quantities of a stack of worlds, each computed when first asked for.

    `old` is π_D and `new` is π; `real` is p and `model` is p̂. Largest errors over time are their upper bounds
    from `largest_over_time`: a bound violated with them is violated beyond doubt.
    """

    worlds: Worlds

    @cached_property
    def discount(self) -> PerWorld:
        return self.worlds.mdp.discount

    @cached_property
    def scale(self) -> tuple[PerWorld, float]:
        """γ and r_max, the last two arguments of every bound."""
        return self.discount, self.worlds.max_reward

    @cached_property
    def real_old(self) -> Chain:
        return tabular.chain(self.worlds.mdp.dynamics, self.worlds.data_policy)

    @cached_property
    def real_new(self) -> Chain:
        return tabular.chain(self.worlds.mdp.dynamics, self.worlds.policy)

    @cached_property
    def model_old(self) -> Chain:
        return tabular.chain(self.worlds.model, self.worlds.data_policy)

    @cached_property
    def model_new(self) -> Chain:
        return tabular.chain(self.worlds.model, self.worlds.policy)

    @cached_property
    def reward_new(self) -> PerState:
        return tabular.policy_reward(self.worlds.mdp.reward, self.worlds.policy)

    @cached_property
    def reward_old(self) -> PerState:
        return tabular.policy_reward(self.worlds.mdp.reward, self.worlds.data_policy)

    @cached_property
    def return_new(self) -> PerWorld:
        """η[π]."""
        return self.return_of(self.real_new, self.reward_new)

    @cached_property
    def return_old(self) -> PerWorld:
        """η[π_D]."""
        return self.return_of(self.real_old, self.reward_old)

    @cached_property
    def model_return_new(self) -> PerWorld:
        """η̂[π]."""
        return self.return_of(self.model_new, self.reward_new)

    @cached_property
    def model_return_old(self) -> PerWorld:
        """η̂[π_D]."""
        return self.return_of(self.model_old, self.reward_old)

    @cached_property
    def branched_return(self) -> PerWorld:
        """η^branch[π]."""
        return self.branched(self.real_old, self.model_new, self.worlds.rollout_length)

    @cached_property
    def pair_error(self) -> PerPair:
        return tabular.transition_error(self.worlds.mdp.dynamics, self.worlds.model)

    @cached_property
    def error_old(self) -> PerState:
        """The model's error at a state in which π_D acts."""
        return (self.worlds.data_policy * self.pair_error).sum(-1)

    @cached_property
    def error_new(self) -> PerState:
        """The model's error at a state in which π acts."""
        return (self.worlds.policy * self.pair_error).sum(-1)

    @cached_property
    def model_error(self) -> PerWorld:
        """ε_m, under π_D's own state distributions."""
        return tabular.model_error(self.worlds.mdp, self.worlds.model, self.worlds.data_policy)[1]

    @cached_property
    def current_model_error(self) -> PerWorld:
        """ε_m', under π's own state distributions."""
        return tabular.model_error(self.worlds.mdp, self.worlds.model, self.worlds.policy)[1]

    @cached_property
    def mean_model_error(self) -> PerWorld:
        """ε_m with the discounted mean over time for the largest."""
        return tabular.discounted_mean(self.worlds.mdp, self.real_old, self.error_old)

    @cached_property
    def mean_current_model_error(self) -> PerWorld:
        """ε_m' with the discounted mean over time for the largest."""
        return tabular.discounted_mean(self.worlds.mdp, self.real_new, self.error_new)

    @cached_property
    def shift_per_state(self) -> PerState:
        return tabular.policy_distance(self.worlds.data_policy, self.worlds.policy)

    @cached_property
    def policy_shift(self) -> PerWorld:
        """ε_π."""
        return self.shift_per_state.max(-1)

    @cached_property
    def mean_policy_shift(self) -> PerWorld:
        """ε_π with the discounted mean over π_D's states for the largest over all states."""
        return tabular.discounted_mean(self.worlds.mdp, self.real_old, self.shift_per_state)

    def return_of(self, chain: Chain, reward: PerState) -> PerWorld:
        """Σ_t γ^t E r(s_t) along a chain."""
        return (tabular.occupancy(self.worlds.mdp.start, chain, self.discount) * reward).sum(-1)

    def branched(self, before: Chain, after: Chain, rollout_length: Int[np.ndarray, "*W"]) -> PerWorld:
        """The branched return along two chains, π taking the rewarded action."""
        return tabular.branched_return(self.worlds.mdp, before, after, self.reward_new, rollout_length)

    def largest(self, chain: Chain, values: PerState) -> PerWorld:
        """The largest expectation over time, from above."""
        return tabular.largest_over_time(chain, self.worlds.mdp.start, values)[1]

    def largest_in_branch(self, before: Chain, after: Chain, values: PerState) -> PerWorld:
        """The largest expectation over every depth i < k of the branch, from every branch point."""
        carried, found = values, np.zeros(self.discount.shape)
        for i in range(LONGEST_ROLLOUT):
            inside = i < self.worlds.rollout_length
            found = np.where(inside, np.maximum(found, self.largest(before, carried)), found)
            carried = np.einsum("...st,...t->...s", after, carried)
        return found

    def largest_at_branched_times(self, before: Chain, after: Chain, values: PerState) -> PerWorld:
        """The largest expectation over the branched state distributions at the times t = 0, 1, 2, ... alone."""
        start, k = self.worlds.mdp.start, self.worlds.rollout_length
        carried, distribution, found = values, start, np.zeros(self.discount.shape)
        for i in range(LONGEST_ROLLOUT):
            inside = i < k
            found = np.where(inside, np.maximum(found, (distribution * values).sum(-1)), found)
            distribution = tabular.advance(distribution, after)
            step = np.einsum("...st,...t->...s", after, carried)
            carried = np.where(inside[..., None], step, carried)
        return np.maximum(found, self.largest(before, carried))


def finite_kl(p: Float[np.ndarray, "..."], q: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The KL divergence along the last axis, an infinite one as HUGE, so that it can be averaged over states."""
    return np.minimum(np.asarray(kl_divergence(p, q)), HUGE)

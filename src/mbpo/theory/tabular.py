"""Finite Markov decision processes in which everything the theory speaks of can be computed exactly.

Axis letters: `*W` any stack of worlds, `S` states (the second time as next states), `A` actions. A policy is
an array π(a|s), a model an array p̂(s'|s,a); the model knows the rewards unless said otherwise.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

Dynamics = Float[np.ndarray, "*W S A S"]
Policy = Float[np.ndarray, "*W S A"]
Chain = Float[np.ndarray, "*W S S"]
PerState = Float[np.ndarray, "*W S"]
PerPair = Float[np.ndarray, "*W S A"]
PerWorld = Float[np.ndarray, "*W"]

# `largest_over_time` follows a chain for 2 · 2^8 = 512 steps before it bounds the rest.
DOUBLINGS = 8


@dataclass(frozen=True)
class FiniteMDP:
    """A finite Markov decision process, or a stack of them along leading axes."""

    dynamics: Dynamics
    """p(s'|s,a)."""
    reward: PerPair
    """r(s,a)."""
    start: PerState
    """ρ_0(s)."""
    discount: PerWorld
    """γ."""


def random_distributions(
    rng: np.random.Generator, shape: tuple[int, ...], concentration: float
) -> Float[np.ndarray, "..."]:
    """Symmetric Dirichlet draws along the last axis: sparse for concentrations well below 1, even above it."""
    return rng.dirichlet(np.full(shape[-1], concentration), size=shape[:-1])


def random_mdp(
    rng: np.random.Generator,
    states: int,
    actions: int,
    discount: PerWorld,
    concentration: float = 1.0,
    max_reward: float = 1.0,
) -> FiniteMDP:
    """A stack of random worlds, one a discount, with rewards uniform in [−max_reward, max_reward]."""
    worlds = discount.shape
    return FiniteMDP(
        dynamics=random_distributions(rng, (*worlds, states, actions, states), concentration),
        reward=rng.uniform(-max_reward, max_reward, (*worlds, states, actions)),
        start=random_distributions(rng, (*worlds, states), concentration),
        discount=discount,
    )


def random_policy(rng: np.random.Generator, shape: tuple[int, ...], concentration: float = 1.0) -> Policy:
    """Random π(a|s) of the given shape, actions last."""
    return random_distributions(rng, shape, concentration)


def chain(dynamics: Dynamics, policy: Policy) -> Chain:
    """P(s'|s) = Σ_a π(a|s) p(s'|s,a)."""
    return np.einsum("...sa,...sat->...st", policy, dynamics)


def policy_reward(reward: PerPair, policy: Policy) -> PerState:
    """r_π(s) = Σ_a π(a|s) r(s,a)."""
    return (policy * reward).sum(-1)


def expectation(distribution: PerState, values: PerState) -> PerWorld:
    """Σ_s d(s) v(s), an array for a single world too: NumPy's scalars are none."""
    return np.asarray((distribution * values).sum(-1))


def advance(distribution: PerState, chain: Chain, steps: int = 1) -> PerState:
    """The state distribution `steps` steps of the chain later."""
    for _ in range(steps):
        distribution = np.einsum("...s,...st->...t", distribution, chain)
    return distribution


def state_distribution(mdp: FiniteMDP, policy: Policy, step: int) -> PerState:
    """d_t, the exact distribution of s_t under the policy."""
    return advance(mdp.start, chain(mdp.dynamics, policy), step)


def occupancy(start: PerState, chain: Chain, discount: PerWorld) -> PerState:
    """Σ_t γ^t d_t by a linear solve; it sums to 1/(1−γ)."""
    system = np.eye(start.shape[-1]) - discount[..., None, None] * np.swapaxes(chain, -1, -2)
    return np.linalg.solve(system, start[..., None])[..., 0]


def state_values(mdp: FiniteMDP, policy: Policy) -> PerState:
    """V_π(s) by a linear solve."""
    transitions = chain(mdp.dynamics, policy)
    system = np.eye(transitions.shape[-1]) - mdp.discount[..., None, None] * transitions
    return np.linalg.solve(system, policy_reward(mdp.reward, policy)[..., None])[..., 0]


def policy_return(mdp: FiniteMDP, policy: Policy) -> PerWorld:
    """η[π] = E[Σ_t γ^t r(s_t, a_t)], exactly."""
    return expectation(mdp.start, state_values(mdp, policy))


def branched_return(
    mdp: FiniteMDP,
    before: Chain,
    after: Chain,
    reward: PerState,
    rollout_length: Int[np.ndarray, "*W"],
) -> PerWorld:
    """The k-branched return Σ_t γ^t E r(s_t), exactly, for any pair of chains before and after the branch point.

    The state at time t has made max(t − k, 0) steps of `before` and then min(t, k) steps of `after`; with
    (π_D, p) before, (π, p̂) after and r_π as the reward this is the paper's η^branch[π].

    The text leaves room in three places. (1) Who takes the last action, the one that is rewarded at time t?
    Here whoever's r_π is given, for every k: so k = 0 with r_π is the surrogate "π_D's states, π's actions",
    and with r_(π_D) it is η[π_D]. (2) Is the rewarded action one of the k steps? Here it is not; if it is,
    replace k by k − 1. (3) Appendix A also says that a branch point t has a weight proportional to γ^t;
    weighting whole branches so counts most times more than once, and is no return even for a perfect model.
    The bounds speak of time t, as done here.
    """
    k, early = rollout_length, np.zeros(rollout_length.shape)
    # The start and the discounted visits of `before`, both carried i steps into the branch.
    from_start, from_visits = mdp.start, occupancy(mdp.start, before, mdp.discount)
    for i in range(int(k.max(initial=0))):
        inside = i < k
        early += np.where(inside, mdp.discount**i * expectation(from_start, reward), 0.0)
        from_start = np.where(inside[..., None], advance(from_start, after), from_start)
        from_visits = np.where(inside[..., None], advance(from_visits, after), from_visits)
    return np.asarray(early + mdp.discount**k * expectation(from_visits, reward))


def transition_error(dynamics: Dynamics, model: Dynamics) -> PerPair:
    """The total variation between p(·|s,a) and p̂(·|s,a), for every pair."""
    return 0.5 * np.abs(dynamics - model).sum(-1)


def policy_distance(data_policy: Policy, policy: Policy) -> PerState:
    """The total variation between π_D(·|s) and π(·|s), for every state."""
    return 0.5 * np.abs(data_policy - policy).sum(-1)


def policy_shift(data_policy: Policy, policy: Policy) -> PerWorld:
    """ε_π, the largest of `policy_distance` over all states."""
    return np.asarray(policy_distance(data_policy, policy).max(-1))


def discounted_mean(mdp: FiniteMDP, chain: Chain, values: PerState) -> PerWorld:
    """(1−γ) Σ_t γ^t E_(d_t)[values], the mean over time that the sharper bounds need, exactly."""
    return np.asarray((1 - mdp.discount) * expectation(occupancy(mdp.start, chain, mdp.discount), values))


def largest_over_time(
    chain: Chain, start: PerState, values: PerState, doublings: int = DOUBLINGS
) -> tuple[PerWorld, PerWorld]:
    """A lower and an upper bound on the largest E_(d_t)[values] over all t, for values of at least 0.

    With T = 2^doublings the first 2T times are computed; the lower bound is their largest. A later expectation
    is d_T P^n e with e = P^T · values and n ≥ T, at most the mean under d_T of the largest e that can be reached
    from each state. Where the chain has nearly settled within each of its classes, the two bounds meet.
    """
    distributions, power = start[..., None, :], chain
    for _ in range(doublings):
        distributions = np.concatenate([distributions, distributions @ power], axis=-2)
        power = power @ power
    later = np.einsum("...st,...t->...s", power, values)
    both = np.stack([values, later], axis=-1)
    lower = np.asarray((distributions @ both).max((-1, -2)))
    reachable = later
    for _ in range(start.shape[-1]):
        onward = np.where(chain > 0, reachable[..., None, :], 0.0).max(-1)
        reachable = np.maximum(reachable, onward)
    upper = np.maximum(lower, expectation(np.einsum("...s,...st->...t", start, power), reachable))
    return lower, np.asarray(upper)


def model_error(mdp: FiniteMDP, model: Dynamics, policy: Policy) -> tuple[PerWorld, PerWorld]:
    """A lower and an upper bound on max over t of the model's expected error under the policy's own rollouts.

    ε_m when the policy is π_D, ε_m' when it is π. The text leaves open whose action is meant in E_s: the
    policy's.
    """
    error = (policy * transition_error(mdp.dynamics, model)).sum(-1)
    return largest_over_time(chain(mdp.dynamics, policy), mdp.start, error)


def sample_counts(rng: np.random.Generator, mdp: FiniteMDP, policy: Policy, transitions: int) -> Dynamics:
    """How often each (s, a, s') was seen in `transitions` independent draws from the policy's discounted visits.

    Such a draw is the last transition of a run that ends after each step with probability 1−γ.
    """
    visits = occupancy(mdp.start, chain(mdp.dynamics, policy), mdp.discount)
    joint = visits[..., None, None] * policy[..., None] * mdp.dynamics
    flat = joint.reshape(*joint.shape[:-3], -1)
    flat = np.clip(flat, 0.0, None)
    drawn = rng.multinomial(transitions, flat / flat.sum(-1, keepdims=True))
    return drawn.reshape(joint.shape).astype(np.float64)


def maximum_likelihood_model(counts: Dynamics) -> Dynamics:
    """p̂(s'|s,a), the frequencies; uniform where a pair was never tried, about which the likelihood is silent."""
    tried = counts.sum(-1, keepdims=True)
    return np.where(tried > 0, counts / np.maximum(tried, 1), 1 / counts.shape[-1])


def optimal_policy(mdp: FiniteMDP) -> Policy:
    """A deterministic policy of the greatest return, by policy iteration."""
    policy = np.full(mdp.reward.shape, 1 / mdp.reward.shape[-1])
    while True:
        values = mdp.reward + mdp.discount[..., None, None] * np.einsum(
            "...sat,...t->...sa", mdp.dynamics, state_values(mdp, policy)
        )
        current = (policy * values).sum(-1)
        # Only a gain above rounding changes an action, or ties would keep the iteration going round.
        tolerance = 1e-12 * (1 + np.abs(values).max((-1, -2), keepdims=True))[..., 0]
        better = values.max(-1) > current + tolerance
        if not better.any():
            return policy
        greedy = np.arange(values.shape[-1]) == values.argmax(-1)[..., None]
        policy = np.where(better[..., None], greedy.astype(np.float64), policy)

"""Worlds small enough to check on paper: counterexamples to what fails as printed, and worlds near equality."""

from dataclasses import dataclass

import numpy as np

from mbpo.theory.arguments import Numeric
from mbpo.theory.tabular import FiniteMDP
from mbpo.theory.worlds import Worlds


@dataclass(frozen=True)
class Counterexample:
    """A world in which a printed statement fails, and why."""

    name: str
    story: str
    worlds: Worlds
    """A stack of one."""


def single_world(
    dynamics: Numeric,
    model: Numeric,
    reward: Numeric,
    data_policy: Numeric,
    policy: Numeric,
    discount: float,
    rollout_length: int = 0,
    model_reward: Numeric | None = None,
) -> Worlds:
    """A stack of one world that starts in state 0, with a reward per state whatever the action."""

    def stacked(values: Numeric) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)[None]

    def pairs(values: Numeric) -> np.ndarray:
        return np.repeat(stacked(values)[..., None], actions, axis=-1)

    transitions = stacked(dynamics)
    _, states, actions, _ = transitions.shape
    return Worlds(
        mdp=FiniteMDP(transitions, pairs(reward), stacked(np.eye(states)[0]), np.array([discount])),
        model=stacked(model),
        model_reward=pairs(reward if model_reward is None else model_reward),
        data_policy=stacked(data_policy),
        policy=stacked(policy),
        rollout_length=np.array([rollout_length]),
    )


def noisy_coin() -> Counterexample:
    """Lemmas B.2 and B.3 with the KL divergence."""
    return Counterexample(
        "noisy coin",
        "Every step tosses a coin for the next state, fair in truth and 5/8 : 3/8 in the model. "
        "The total variation is 1/8, the KL divergence only ln(16/15)/2 = 0.0323.",
        single_world(
            dynamics=np.full((2, 1, 2), 0.5),
            model=np.broadcast_to([5 / 8, 3 / 8], (2, 1, 2)),
            reward=[1, -1],
            data_policy=[[1], [1]],
            policy=[[1], [1]],
            discount=0.5,
        ),
    )


def learned_reward() -> Counterexample:
    """Theorem 4.1 with ε_m over next state and reward."""
    return Counterexample(
        "learned reward",
        "One state, one action, γ = 1/4: the reward is -1 and the model says +1. ε_m = 1 costs the bound its "
        "first reward, which the model gets wrong too.",
        single_world(
            dynamics=[[[1]]],
            model=[[[1]]],
            reward=[-1],
            model_reward=[1],
            data_policy=[[1]],
            policy=[[1]],
            discount=0.25,
        ),
    )


def weighted_branch_points() -> Counterexample:
    """Branched returns with branch points weighted by γ^t."""
    return Counterexample(
        "weighted branch points",
        "Reward 0 at t = 0 and 1 ever after, k = 2, γ = 1/2, a perfect model and an unchanged policy: "
        "weighting branch points counts t = 0 once and all other times twice, so 4/3 stands for a return of 1.",
        single_world(
            dynamics=[[[0, 1]], [[0, 1]]],
            model=[[[0, 1]], [[0, 1]]],
            reward=[0, 1],
            data_policy=[[1], [1]],
            policy=[[1], [1]],
            discount=0.5,
            rollout_length=2,
        ),
    )


def drifting_policy() -> Counterexample:
    """Section 4.3, ε_m' approximated by ε_m + 2ε_π."""
    stay_or_go = [[1, 0], [0, 1]]
    return Counterexample(
        "drifting policy",
        "π_D never leaves state 0; π leaves it with probability 1/4 a step, for a state in which the model is "
        "wrong. ε_m = 0 and ε_π = 1/4, but π ends up where the error is 1.",
        single_world(
            dynamics=[stay_or_go, [[0, 1], [0, 1]]],
            model=[stay_or_go, [[1, 0], [1, 0]]],
            reward=[0, 0],
            data_policy=[[1, 0], [1, 0]],
            policy=[[3 / 4, 1 / 4], [1, 0]],
            discount=0.5,
        ),
    )


def unvisited_state() -> Counterexample:
    """Theorem 4.3 with ε_m' under the data policy's states."""
    stay_or_go = [[1, 0], [0, 1]]
    return Counterexample(
        "unvisited state",
        "π_D stays in state 0 (reward 1), π goes to state 1 (reward -1) and remains; the model sends it back. "
        "No state of π_D shows the error, so ε_m' = 0; γ = 1/2, k = 4.",
        single_world(
            dynamics=[stay_or_go, [[0, 1], [0, 1]]],
            model=[stay_or_go, [[1, 0], [1, 0]]],
            reward=[1, -1],
            data_policy=[[1, 0], [1, 0]],
            policy=[[0, 1], [1, 0]],
            discount=0.5,
            rollout_length=4,
        ),
    )


def abandoned_state() -> Counterexample:
    """The proof of Theorem A.2 and Lemma B.4 with the error under the branched marginals."""
    return Counterexample(
        "abandoned state",
        "π stays in state 0 and would return there from state 1, where π_D lives; the model has π stuck in "
        "state 1. π itself is never there, and a branch of k = 1 has left it by the time that is looked at, "
        "so the error counts as 0.",
        single_world(
            dynamics=[[[0, 1], [1, 0]], [[0, 1], [1, 0]]],
            model=[[[0, 1], [1, 0]], [[0, 1], [0, 1]]],
            reward=[1, -1],
            data_policy=[[1, 0], [1, 0]],
            policy=[[0, 1], [0, 1]],
            discount=0.5,
            rollout_length=1,
        ),
    )


def counterexamples() -> dict[str, Counterexample]:
    """All counterexamples by name."""
    found = (
        noisy_coin(),
        learned_reward(),
        weighted_branch_points(),
        drifting_policy(),
        unvisited_state(),
        abandoned_state(),
    )
    return {example.name: example for example in found}


def model_leak(probability: float, discount: float, rollout_length: int = 0) -> Worlds:
    """A paradise that the model leaves for hell with a small probability a step, and one policy.

    |η − η̂| = 2γε/((1−γ)(1−γ+γε)), so Lemma B.3 and Theorem 4.1 are loose by a factor 1 + γε/(1−γ) only.
    """
    return single_world(
        dynamics=[[[1, 0]], [[0, 1]]],
        model=[[[1 - probability, probability]], [[0, 1]]],
        reward=[1, -1],
        data_policy=[[1], [1]],
        policy=[[1], [1]],
        discount=discount,
        rollout_length=rollout_length,
    )


def policy_leak(probability: float, discount: float) -> Worlds:
    """π leaves where π_D stays, with a small probability a step: for hell in truth, for paradise in the model.

    ε_m = 0 and ε_π = ε, and the gap is that of `model_leak`: the sharper Theorem 4.1 cannot be improved.
    """
    absorbed = [[0, 1, 0], [0, 1, 0]], [[0, 0, 1], [0, 0, 1]]
    return single_world(
        dynamics=[[[1, 0, 0], [0, 0, 1]], *absorbed],
        model=[[[1, 0, 0], [0, 1, 0]], *absorbed],
        reward=[0, 1, -1],
        data_policy=[[1, 0], [1, 0], [1, 0]],
        policy=[[1 - probability, probability], [1, 0], [1, 0]],
        discount=discount,
    )

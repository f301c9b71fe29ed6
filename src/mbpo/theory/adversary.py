"""A search for the worlds that come closest to violating a claim."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from mbpo.theory.checks import compare, ratio
from mbpo.theory.claims import Claim
from mbpo.theory.tabular import FiniteMDP, PerWorld
from mbpo.theory.worlds import Exact, Worlds, draw_stack

POPULATION, STATES, ACTIONS = 64, 3, 2


def hardest(claim: Claim, rng: np.random.Generator, discount: float, rounds: int) -> tuple[float, Worlds]:
    """The least bound/gap that a hill climb over worlds of one discount finds, and its world.

    A population of small worlds; each round jolts every one and keeps what brings its bound nearer to its
    gap. Below 1 the claim is violated.
    """
    population = draw_stack(rng, POPULATION, STATES, ACTIONS, concentration=0.1)
    mdp = replace(population.mdp, discount=np.full(POPULATION, discount))
    population = replace(population, mdp=mdp)
    best = _difficulty(claim, population)
    for _ in range(rounds):
        proposal = _jolted(rng, population)
        difficulty = _difficulty(claim, proposal)
        better = difficulty < best
        population = _combined(lambda new, old, keep=better: _where(keep, new, old), proposal, population)
        best = np.where(better, difficulty, best)
    winner = [int(best.argmin())]
    return float(best.min()), _combined(lambda array: array[winner], population)


def _difficulty(claim: Claim, worlds: Worlds) -> PerWorld:
    exact = Exact(worlds)
    return ratio(*compare(claim, exact), exact)


def _jolted(rng: np.random.Generator, worlds: Worlds) -> Worlds:
    """The same worlds with their distributions and rewards moved a little, a lot, or to a corner."""

    def distribution(p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        size = np.exp(rng.uniform(np.log(1e-3), np.log(3), p.shape[0])).reshape(-1, *(1,) * (p.ndim - 1))
        moved = np.maximum(p, 1e-6) * np.exp(size * rng.normal(size=p.shape))
        moved = np.where(moved < 1e-5 * moved.max(-1, keepdims=True), 0.0, moved)
        moved = moved / moved.sum(-1, keepdims=True)
        corner = np.eye(p.shape[-1])[rng.integers(p.shape[-1], size=p.shape[:-1])]
        chance = rng.random((*p.shape[:-1], 1))
        return np.where(chance < 0.5, p, np.where(chance < 0.95, moved, corner))

    def reward(r: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        moved = np.clip(r + rng.normal(size=r.shape), -worlds.max_reward, worlds.max_reward)
        return np.where(rng.random(r.shape) < 0.8, r, moved)

    mdp = replace(
        worlds.mdp,
        dynamics=distribution(worlds.mdp.dynamics),
        reward=reward(worlds.mdp.reward),
        start=distribution(worlds.mdp.start),
    )
    return replace(
        worlds,
        mdp=mdp,
        model=distribution(worlds.model),
        model_reward=reward(worlds.model_reward),
        data_policy=distribution(worlds.data_policy),
        policy=distribution(worlds.policy),
    )


def _combined(function: Callable[..., np.ndarray], *worlds: Worlds) -> Worlds:
    """The stack whose every array is the function of the same array in the given stacks."""

    def over(kind: type, parts: tuple[Any, ...]) -> dict[str, Any]:
        return {
            field.name: function(*(getattr(part, field.name) for part in parts))
            for field in fields(kind)
            if isinstance(getattr(parts[0], field.name), np.ndarray)
        }

    mdp = FiniteMDP(**over(FiniteMDP, tuple(stack.mdp for stack in worlds)))
    return replace(worlds[0], mdp=mdp, **over(Worlds, worlds))


def _where(keep: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(keep.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

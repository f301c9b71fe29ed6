"""The nouns that travel between the rooms, and what an algorithm is."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from mbpo.envs.tasks import Terminal
from mbpo.pytree import pytree

State = TypeVar("State")

Metrics = Mapping[str, Float[Array, ""]]


Obs = Float[Array, "*B O"] | Float[np.ndarray, "*B O"]
"""Observations as they come: from the environment, or from the model."""


@pytree
class Transition:
    """One step of an environment, real or imagined; any leading axes.

    `terminated` is the task's own end (no value after it); `truncated` is a time limit (the value goes on).
    `action` is what the policy chose, in [−1, 1] up to the clipping that the environment does.
    """

    obs: Float[Array, "*B O"]
    action: Float[Array, "*B A"]
    reward: Float[Array, "*B"]
    next_obs: Float[Array, "*B O"]
    terminated: Bool[Array, "*B"]
    truncated: Bool[Array, "*B"]


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm may know of an environment before it has seen a step of it."""

    name: str
    obs_size: int
    action_size: int
    time_limit: int | None = None
    terminal: Terminal | None = None


def blank_transition(spec: EnvSpec) -> Transition:
    """A row of zeros: the shapes of a buffer."""
    obs, action = jnp.zeros(spec.obs_size), jnp.zeros(spec.action_size)
    no = jnp.zeros((), bool)
    return Transition(obs, action, jnp.zeros(()), obs, no, no)


@runtime_checkable
class Host(Protocol):
    """What an algorithm may ask of the program around it; nothing of this changes what it computes."""

    def clock(self, part: str) -> AbstractContextManager[None]:
        """Counts the time inside as `seconds/<part>`. Compiled work is asynchronous: wait for it inside."""
        ...

    def interrupted(self) -> bool:
        """True once a signal asked the run to stop."""
        ...

    def message(self, text: str) -> None:
        """Tells the user a sentence, and goes on."""
        ...

    def record(self, series: str, row: Mapping[str, Any]) -> None:
        """Appends a row to `<series>.jsonl` of the run folder; values that are metrics go into the next evaluation."""
        ...


@runtime_checkable
class Algorithm(Protocol[State]):
    """A frozen dataclass whose fields are its hyper-parameters, and these methods. State in, state out."""

    @property
    def discount(self) -> float:
        """γ."""
        ...

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every metric that `update` returns or `prepare` records."""
        ...

    @property
    def random_steps(self) -> int:
        """The number of uniformly random real steps before the policy acts."""
        ...

    def init(self, spec: EnvSpec, steps: int, key: Key[Array, ""]) -> State:
        """The state before the first of `steps` real steps. Pure: `jax.eval_shape` of it is the memory plan."""
        ...

    def act(self, state: State, obs: Obs, key: Key[Array, ""], explore: bool) -> Float[Array, "*B A"]:
        """Actions: a sample where `explore`, else the deterministic choice."""
        ...

    def value(self, state: State, obs: Float[Array, "B O"]) -> Float[Array, " B"]:
        """What the algorithm expects as discounted return from these observations on, acting deterministically."""
        ...

    def prepare(self, state: State, step: int, key: Key[Array, ""], host: Host) -> State:
        """What is due before real step `step + 1`. May consume `state`, or raise `Interrupted` and leave it valid."""
        ...

    def observe(self, state: State, transition: Transition, host: Host) -> State:
        """Takes in the real transition just made (leaves without a leading axis). May consume `state`."""
        ...

    def update(self, state: State, step: int, key: Key[Array, ""], host: Host) -> tuple[State, Metrics]:
        """What is learned after real step `step`, with metrics if anything was. May consume `state`."""
        ...

    def counts(self, state: State) -> tuple[int, int]:
        """Cumulative gradient steps of the policy, and of the model."""
        ...


class Interrupted(Exception):  # noqa: N818  (an event, not an error)
    """Raised by `Algorithm.prepare` when it gave up at a safe point because a signal came."""

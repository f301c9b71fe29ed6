"""The six tasks of the paper, and the terminal functions that belong to Gymnasium ids.

Imports neither gymnasium nor jax, so that the command line can name the tasks at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any

from mbpo.errors import UsageError

Terminal = Callable[[Any, Any, Any], Any]
"""(obs, action, next_obs), batched arrays, to a boolean per row: true where the transition ends the episode."""


@dataclass(frozen=True)
class Task:
    """An environment by name: the Gymnasium id, the arguments it is made with, and when its episodes end."""

    name: str
    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    terminal: Terminal | None = None


def find_task(name: str) -> Task:
    """One of the six tasks, or any other name as a Gymnasium id, with the terminal function registered for it.

    A plain id that makes the same environment as a task is that task: "Hopper-v5" is "Hopper". "Ant-v5" is not "Ant",
    which leaves out the contact forces, but both end alike: the columns that decide come first in both.
    """
    if not name or ":" in name:
        # Gymnasium imports what stands before a colon; a name that was read from a file must never import anything.
        raise UsageError(
            f"'{name}' is no task name; give a task or a Gymnasium id, and name the module that registers it with "
            "--env-module."
        )
    task = TASKS.get(name) or _PLAIN_IDS.get(name) or Task(name, env_id=name)
    return replace(task, terminal=_registered.get(task.env_id, task.terminal))


def register_task(env_id: str, *, terminal: Terminal | None = None) -> None:
    """Adds or replaces the terminal function of a Gymnasium id; without a function, termination is learned.

    `terminal(obs, action, next_obs)` takes batched `jax.numpy` arrays and is true for each row that ends its episode.
    """
    if terminal is not None and not callable(terminal):
        raise UsageError(f"the terminal of '{env_id}' is {terminal!r}; give a function of (obs, action, next_obs).")
    known = TASKS.get(env_id)
    _registered[known.env_id if known else env_id] = terminal


def registered_terminal(env_id: str) -> Terminal | None:
    """The function given to `register_task` for this id. Those of the six tasks are not meant here."""
    return _registered.get(env_id)


_registered: dict[str, Terminal | None] = {}


# Each function below takes the next observation, because an episode ends where a step arrives. Only operators and
# methods: NumPy checks the real transitions, and JAX compiles the same lines for the imagined ones. A comparison with
# NaN is false, so a row that is not finite is never healthy.


def _finite(obs: Any) -> Any:
    return (abs(obs) < inf).all(axis=-1)


def _pendulum_is_up(obs: Any) -> Any:
    return _finite(obs) & (abs(obs[..., 1]) <= 0.2)


def _hopper_is_healthy(obs: Any) -> Any:
    # Reference: the release writes abs(x < 100), which is always below 100 and leaves the lower bound unchecked.
    inside = (abs(obs[..., 1:]) < 100.0).all(axis=-1)
    return _finite(obs) & inside & (obs[..., 0] > 0.7) & (abs(obs[..., 1]) < 0.2)


def _walker_is_healthy(obs: Any) -> Any:
    return _finite(obs) & (obs[..., 0] > 0.8) & (obs[..., 0] < 2.0) & (abs(obs[..., 1]) < 1.0)


def _ant_is_healthy(obs: Any) -> Any:
    return _finite(obs) & (obs[..., 0] >= 0.2) & (obs[..., 0] <= 1.0)


def _humanoid_is_healthy(obs: Any) -> Any:
    return _finite(obs) & (obs[..., 0] > 1.0) & (obs[..., 0] < 2.0)


def _unless(healthy: Callable[[Any], Any]) -> Terminal:
    return lambda _obs, _action, next_obs: ~healthy(next_obs)


# Paper: the contact forces and the other derived quantities are left out of Ant's and Humanoid's observations.
_HUMANOID_PARTS = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
_HUMANOID_KWARGS = {f"include_{part}_in_observation": False for part in _HUMANOID_PARTS}

TASKS: Mapping[str, Task] = MappingProxyType(
    {
        task.name: task
        for task in (
            Task("InvertedPendulum", "InvertedPendulum-v5", terminal=_unless(_pendulum_is_up)),
            Task("Hopper", "Hopper-v5", terminal=_unless(_hopper_is_healthy)),
            Task("Walker2d", "Walker2d-v5", terminal=_unless(_walker_is_healthy)),
            Task("HalfCheetah", "HalfCheetah-v5", terminal=_unless(_finite)),
            Task("Ant", "Ant-v5", {"include_cfrc_ext_in_observation": False}, _unless(_ant_is_healthy)),
            Task("Humanoid", "Humanoid-v5", _HUMANOID_KWARGS, _unless(_humanoid_is_healthy)),
        )
    }
)


def _by_plain_id(task: Task) -> Task:
    return replace(task, name=task.env_id, env_kwargs=MappingProxyType({})) if task.env_kwargs else task


_PLAIN_IDS = {task.env_id: _by_plain_id(task) for task in TASKS.values()}

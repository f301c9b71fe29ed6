"""The only code that drives an environment.

Inside, an algorithm meets float32 observations, actions in [−1, 1], and `terminated` apart from `truncated`. Outside,
an environment has spaces, dtypes, wrappers, a simulator, and mistakes.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit
from jaxtyping import Float32

from mbpo.envs.faults import Breach, EnvironmentFault, read_reset, read_step
from mbpo.envs.simulator import SelfResetWatch, log_warnings
from mbpo.envs.spaces import Rescaling, action_box, observation_box
from mbpo.envs.tasks import TASKS, Task, Terminal, registered_terminal
from mbpo.errors import RunError, UsageError, nearest
from mbpo.types import EnvSpec

EnvFactory = Callable[[], gymnasium.Env[Any, Any]]

SEEDS = 2**31
"""Seeds are at least 0 and below this: Gymnasium refuses negative ones, and some environments those of more bits."""


@dataclass(frozen=True)
class Outcome:
    """What a step led to.

    Where the step is `corrupt`, the simulator has reset itself: nothing else here means anything, and the episode is
    over without an end of its own.
    """

    obs: Float32[np.ndarray, " O"]
    reward: float
    terminated: bool
    truncated: bool
    corrupt: bool = False


@dataclass(frozen=True)
class Snapshot:
    """All that an episode is made of, and where it had come to: `actions` [n, A] are those since the reset."""

    seed: int
    actions: Float32[np.ndarray, "n A"]
    obs: Float32[np.ndarray, " O"]


class Environment:
    """One environment, one episode at a time. `open_environment` makes it."""

    def __init__(self, env: gymnasium.Env[Any, Any], spec: EnvSpec, obs_space: Box, action_space: Box):
        self.spec = spec
        self._env = env
        self._obs_space = obs_space
        self._rescale = Rescaling(action_space)
        self._watch = SelfResetWatch(env.unwrapped)
        self._episode: _Episode | None = None

    def reset(self, seed: int) -> Float32[np.ndarray, " O"]:
        """The first observation of the episode of this seed, 0 ≤ seed < 2**31.

        The seed is always given, so that an episode depends on it and on the actions alone.
        """
        if not 0 <= seed < SEEDS:
            raise ValueError(f"the seed {seed} is not in [0, 2**31).")
        self._episode = None
        try:
            result = _call("reset", lambda: self._env.reset(seed=int(seed)))
            obs = read_reset(result, self._obs_space)
        except Breach as breach:
            raise self._fault(breach, action=None) from breach.__cause__
        # An environment may build a new simulation here, and a warning from before must not end this episode.
        self._watch = SelfResetWatch(self._env.unwrapped)
        self._watch.take()
        self._episode = _Episode(int(seed), obs)
        return obs

    def step(self, action: Float32[np.ndarray, " A"]) -> Outcome:
        """What `action`, clipped to [−1, 1] and rescaled to the action space, leads to."""
        episode = self._running_episode()
        self._check(action)
        try:
            result = _call("step", lambda: self._env.step(self._rescale(action)))
            if self._watch.take():
                self._episode = None
                return Outcome(episode.obs, reward=0.0, terminated=False, truncated=False, corrupt=True)
            outcome = Outcome(*read_step(result, self._obs_space))
        except Breach as breach:
            raise self._fault(breach, self._rescale(action)) from breach.__cause__
        episode.add(action, outcome.obs)
        if outcome.terminated or outcome.truncated:
            self._episode = None
        return outcome

    def to_box(self, action: np.ndarray) -> np.ndarray:
        """What the environment receives for `action`, one or a batch: clipped to [−1, 1], in the space's own units."""
        return self._rescale(action)

    def snapshot(self) -> Snapshot | None:
        """The running episode, to be restored later, by another process too; None between episodes.

        After an `EnvironmentFault` in `step` it is the episode as it was before that step.
        """
        if self._episode is None:
            return None
        actions = np.frombuffer(bytes(self._episode.actions), np.float32).reshape(-1, self.spec.action_size)
        return Snapshot(self._episode.seed, actions, self._episode.obs)

    def restore(self, snapshot: Snapshot) -> bool:
        """True if the episode, repeated from its seed and its actions, arrives at the same bits.

        False where it arrives elsewhere, ends on the way or fails: then no episode is running, and a reset is due.
        """
        repeated = self._repeats(snapshot)
        if not repeated:
            self._episode = None
        return repeated

    def close(self) -> None:
        """Frees what the environment holds. A run that ended well does not fail because this does."""
        _close(self._env)

    def _repeats(self, snapshot: Snapshot) -> bool:
        if snapshot.actions.shape[1] != self.spec.action_size:
            return False
        try:
            obs = self.reset(snapshot.seed)
            for action in snapshot.actions:
                obs = self.step(action).obs
                if self._episode is None:
                    return False
        except EnvironmentFault:
            return False
        return obs.tobytes() == snapshot.obs.tobytes()

    def _running_episode(self) -> "_Episode":
        if self._episode is None:
            raise RuntimeError(f"no episode is running in environment '{self.spec.name}'; call reset(seed) first.")
        return self._episode

    def _check(self, action: np.ndarray) -> None:
        if action.shape != (self.spec.action_size,):
            raise ValueError(f"the action has shape {action.shape}; give ({self.spec.action_size},).")
        if not np.isfinite(action).all():
            # MuJoCo would take NaN for 0 and go on.
            raise RunError(
                f"the policy chose the action {action.tolist()} in environment '{self.spec.name}', so it has diverged: "
                "resume from an earlier checkpoint with a smaller learning rate, or scale the rewards down."
            )

    def _fault(self, breach: Breach, action: np.ndarray | None) -> EnvironmentFault:
        return EnvironmentFault(self.spec.name, breach.problem, breach.remedy, action)


@dataclass
class _Episode:
    """`actions` holds the float32 bytes of the actions since the reset: 4 A bytes a step, and growing is cheap."""

    seed: int
    obs: np.ndarray
    actions: bytearray = field(default_factory=bytearray)

    def add(self, action: np.ndarray, obs: np.ndarray) -> None:
        self.actions += action.tobytes()
        self.obs = obs


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with suppress(Exception):
        env.close()


def _call(what: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        raise Breach(f"raised {_describe(error)} in {what}", "correct the environment") from error


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def open_environment(task: Task | EnvFactory) -> Environment:
    """The environment of a task, or the one that a function without arguments returns."""
    if isinstance(task, Task):
        _refuse_unknown(task)
        env = _construct(task.name, lambda: _construct_task(task))
        return _adapt(env, task.name, task.terminal)
    if not callable(task):
        raise UsageError(
            f"'{type(task).__name__}' is no environment that can be opened; give a function that returns it."
        )
    env = _construct(getattr(task, "__name__", type(task).__name__), task)
    # The functions of the six tasks read fixed columns, which the wrappers of a user's own environment may change.
    name = _own_name(env)
    return _adapt(env, name, registered_terminal(name))


def _refuse_unknown(task: Task) -> None:
    if task.env_id not in gymnasium.registry:
        raise UsageError(
            f"'{task.name}' is neither a task nor a registered Gymnasium id; "
            f"{nearest(task.env_id, [*TASKS, *gymnasium.registry])} "
            "If it is an environment of your own, name the module that registers it with --env-module."
        )


def _construct_task(task: Task) -> Any:
    entry_point = gymnasium.registry[task.env_id].entry_point
    if isinstance(entry_point, str):
        # Loads the simulator ahead of the first model, because loading a model may already print a warning.
        load_env_creator(entry_point)
        log_warnings()
    return gymnasium.make(task.env_id, disable_env_checker=True, **task.env_kwargs)


def _construct(name: str, construct: Callable[[], Any]) -> gymnasium.Env[Any, Any]:
    log_warnings()
    try:
        env = construct()
    except Exception as error:
        raise UsageError(
            f"environment '{name}' could not be constructed ({_describe(error)}); "
            "correct its constructor, or install what it needs."
        ) from error
    log_warnings()
    if not isinstance(env, gymnasium.Env):
        kind = type(env).__name__
        raise UsageError(
            f"environment '{name}' is of type '{kind}'; give a single gymnasium.Env, not a vector of them."
        )
    return env


def _own_name(env: gymnasium.Env[Any, Any]) -> str:
    spec = env.unwrapped.spec
    return type(env.unwrapped).__name__ if spec is None else spec.id


def _adapt(env: gymnasium.Env[Any, Any], name: str, terminal: Terminal | None) -> Environment:
    try:
        obs_space = observation_box(name, getattr(env, "observation_space", None))
        action_space = action_box(name, getattr(env, "action_space", None))
    except UsageError:
        _close(env)
        raise
    spec = EnvSpec(name, obs_space.shape[0], action_space.shape[0], _time_limit(env), terminal)
    return Environment(env, spec, obs_space, action_space)


def _time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """The smallest limit of the wrappers, or that of an environment which brings its own."""
    limits = [vars(layer)["_max_episode_steps"] for layer in _layers(env) if isinstance(layer, TimeLimit)]
    if limits:
        return min(limits)
    spec = env.unwrapped.spec
    return None if spec is None else spec.max_episode_steps


def _layers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Env[Any, Any]]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env

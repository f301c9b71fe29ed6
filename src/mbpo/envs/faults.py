"""What an environment may return, and the error that says how it broke that contract."""

from math import isfinite
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float32

from mbpo.errors import RunError

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class EnvironmentFault(RunError):  # noqa: N818  (the name says whose fault it is)
    """An environment raised, or returned what no transition can be made of.

    `action` is the last action as the environment received it, None where it was reset. Whoever counts the steps adds
    where in the run it happened, with `locate`.
    """

    def __init__(self, env_name: str, problem: str, remedy: str, action: np.ndarray | None = None):
        super().__init__(env_name, problem, remedy, action)
        self.env_name = env_name
        self.problem = problem
        self.remedy = remedy
        self.action = action
        self.step: int | None = None
        self.seed: int | None = None

    def locate(self, step: int, seed: int) -> None:
        """Adds the number of the real step and the run's seed to the message."""
        self.step, self.seed = step, seed

    def __str__(self) -> str:
        place = "" if self.step is None else f" at step {self.step} (seed {self.seed})"
        action = "" if self.action is None else f" after action {_one_line(self.action)}"
        return f"environment '{self.env_name}' {self.problem}{place}{action}: {self.remedy}, then resume the run."


class Breach(Exception):  # noqa: N818  (what was found, before it is known of which environment)
    """What an environment did, and the remedy: the middle and the end of an `EnvironmentFault`."""

    def __init__(self, problem: str, remedy: str):
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy


def read_reset(result: Any, space: Box) -> Float32[np.ndarray, " O"]:
    """The observation that `reset` returned."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise Breach(f"returned {_kind(result)} from reset", "return (observation, info) from reset")
    return read_observation(result[0], space)


def read_step(result: Any, space: Box) -> tuple[Float32[np.ndarray, " O"], float, bool, bool]:
    """The observation, the reward, `terminated` and `truncated` that `step` returned."""
    if not isinstance(result, tuple) or len(result) != 5:
        remedy = "return (observation, reward, terminated, truncated, info) from step"
        raise Breach(f"returned {_kind(result)} from step", remedy)
    obs, reward, terminated, truncated, _ = result
    return (
        read_observation(obs, space),
        read_reward(reward),
        read_flag("terminated", terminated),
        read_flag("truncated", truncated),
    )


def read_observation(value: Any, space: Box) -> Float32[np.ndarray, " O"]:
    """A float32 copy: environments may reuse the array they return."""
    array = _as_array("an observation", value)
    if array.shape != space.shape:
        problem = f"returned an observation of shape {array.shape} where its space has {space.shape}"
        raise Breach(problem, "make the observation and the space agree")
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        problem = f"returned an observation of dtype {array.dtype} where its space has {space.dtype}"
        raise Breach(problem, "make the observation and the space agree")
    with np.errstate(over="ignore"):
        obs = array.astype(np.float32)
    finite = np.isfinite(obs)
    if not finite.all():
        place = int(np.argmin(finite))
        raise Breach(f"returned {_not_finite(array[place])} in observation[{place}]", "keep observations finite")
    return obs


def read_reward(value: Any) -> float:
    """The reward as a float; arrays of one element are numbers too."""
    array = _as_array("a reward", value)
    if array.size != 1 or array.dtype.kind not in "fiub":
        problem = f"returned a reward of dtype {array.dtype} and shape {array.shape}"
        raise Breach(problem, "return one real number")
    reward = float(array.item())
    if not abs(reward) <= LARGEST_FLOAT32:
        raise Breach(f"returned {_not_finite(reward)} as reward", "keep rewards finite")
    return reward


def read_flag(name: str, value: Any) -> bool:
    """`terminated` or `truncated`, which must be a boolean: a 1 may just as well be a reward in the wrong place."""
    if not isinstance(value, (bool, np.bool_)):
        raise Breach(f"returned {_kind(value)} as {name}", f"return {name} as a bool")
    return bool(value)


def _as_array(what: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except Exception as error:
        raise Breach(f"returned {_kind(value)} as {what}, which is no array", "return a NumPy array") from error


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"'{type(value).__name__}'"


def _not_finite(value: Any) -> str:
    number = float(value)
    if number != number:
        return "NaN"
    return f"{number:.3g}, which float32 cannot hold," if isfinite(number) else f"{number}"


def _one_line(action: np.ndarray) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in action.tolist()) + "]"

"""Tiny environments with known answers. An algorithm that learns a wrong value for one of them has a bug.

Everything random comes from `np_random`, so that the seed of the reset and the actions repeat an episode exactly.
"""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from mbpo.envs.tasks import register_task

Observation = np.ndarray
Step = tuple[Observation, float, bool, bool, dict[str, Any]]
Start = tuple[Observation, dict[str, Any]]

ENDLESS_STEPS = 10
LINE_STEPS = 30
LINE_SPEED = 0.2
LINE_BOUND = 1.0


class OneStepProbe(gymnasium.Env[Observation, np.ndarray]):
    """One step from a drawn observation o, with reward(o, a). Nothing follows, so Q(o, a) = reward(o, a)."""

    def __init__(self, draw: Callable[[np.random.Generator], float], reward: Callable[[float, float], float]):
        self.observation_space, self.action_space = _box(1), _box(1)
        self._draw, self._reward = draw, reward
        self._obs = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        super().reset(seed=seed, options=options)
        self._obs = self._draw(self.np_random)
        return _row(self._obs), {}

    def step(self, action: np.ndarray) -> Step:
        return _row(self._obs), self._reward(self._obs, float(action[0])), True, False, {}


def constant_probe() -> OneStepProbe:
    """Always the same observation, reward 1: V = Q = 1. Wrong: the critic's loss, or its optimiser."""
    return OneStepProbe(lambda _random: 0.0, lambda _obs, _action: 1.0)


def sign_probe() -> OneStepProbe:
    """The observation is −1 or 1 with equal chance, and so is the reward: V(o) = Q(o, a) = o.

    Wrong if `constant_probe` is right: the critic's input, or the observations stored beside the rewards.
    """
    return OneStepProbe(lambda random: float(random.choice([-1.0, 1.0])), lambda obs, _action: obs)


def action_probe() -> OneStepProbe:
    """Always the same observation, reward −(a − 0.5)²: the derivative −2 (a − 0.5) is 0 at the best action, 0.5.

    Wrong: the policy's loss, or actions stored otherwise than they were chosen.
    """
    return OneStepProbe(lambda _random: 0.0, lambda _obs, action: -((action - 0.5) ** 2))


def follow_probe() -> OneStepProbe:
    """The observation is uniform in [−1, 1], the reward −(a − o/2)²: the best action is o/2, and earns 0.

    Wrong if `action_probe` is right: the policy's input, or a batch whose rows are matched up wrongly.
    """
    return OneStepProbe(lambda random: random.uniform(-1.0, 1.0), lambda obs, action: -((action - obs / 2) ** 2))


class DelayProbe(gymnasium.Env[Observation, np.ndarray]):
    """Two steps: from 0 to 1 without reward, then the end with reward 1.

    V(1) = 1, and V(0) = 0 + γ V(1) = γ. Wrong if `sign_probe` is right: discounting, or the value of the next state.
    """

    def __init__(self) -> None:
        self.observation_space, self.action_space = _box(1), _box(1)
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        super().reset(seed=seed, options=options)
        self._time = 0
        return _row(0.0), {}

    def step(self, action: np.ndarray) -> Step:
        self._time += 1
        ended = self._time == 2
        return _row(1.0), float(ended), ended, False, {}


class EndlessProbe(gymnasium.Env[Observation, np.ndarray]):
    """Always the same observation, reward 1 a step, no end of its own; `endless_probe` cuts it off after ten steps.

    The state after the cut is worth as much as every other: V = 1 + γ V, so V = 1 / (1 − γ). Where a time limit is
    taken for an end, the last of ten steps is worth 1, and V(o), an average over the steps, comes out below
    1 / (1 − γ) by a wide margin.
    """

    def __init__(self) -> None:
        self.observation_space, self.action_space = _box(1), _box(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        super().reset(seed=seed, options=options)
        return _row(0.0), {}

    def step(self, action: np.ndarray) -> Step:
        return _row(0.0), 1.0, False, False, {}


class CountingProbe(gymnasium.Env[Observation, np.ndarray]):
    """The observation is (the episode's tag, t), the reward of the step from t to t + 1 is t.

    So each true transition has obs[0] = next_obs[0], next_obs[1] = obs[1] + 1 and reward = obs[1], and a row that
    crosses episodes, or mixes steps, does not. An episode has 3 to 9 steps: it terminates after an even number and is
    truncated after an odd one. The tag is drawn in reset, a multiple of 2⁻²⁰ below 1, which float32 holds exactly.
    """

    def __init__(self) -> None:
        self.observation_space, self.action_space = _box(2, bound=np.inf), _box(1)
        self._tag, self._time, self._length = 0.0, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        super().reset(seed=seed, options=options)
        self._tag, self._time = float(self.np_random.integers(2**20)) / 2**20, 0
        self._length = int(self.np_random.integers(3, 10))
        return _row(self._tag, 0.0), {}

    def step(self, action: np.ndarray) -> Step:
        reward, self._time = float(self._time), self._time + 1
        over, even = self._time == self._length, self._length % 2 == 0
        return _row(self._tag, float(self._time)), reward, over and even, over and not even, {}


class PointLineProbe(gymnasium.Env[Observation, np.ndarray]):
    """A point on a line, moved by 0.2 a a step: reward 1 − x² where it arrives, the end outside [−1, 1].

    Starts at |x| ≤ 0.5, lasts at most 30 steps under `point_line_probe`. Going to 0 as fast as the speed allows is
    best, a = −x / 0.2 clipped to [−1, 1], and the reward is never negative inside, so that leaving is never worth it.
    The best return is at least 29.9: from 0.5 the point goes through 0.3 and 0.1 to 0, so 30 − 0.09 − 0.01.
    """

    def __init__(self) -> None:
        self.observation_space, self.action_space = _box(1, bound=2.0), _box(1)
        self._x = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        super().reset(seed=seed, options=options)
        self._x = float(self.np_random.uniform(-0.5, 0.5))
        return _row(self._x), {}

    def step(self, action: np.ndarray) -> Step:
        self._x += LINE_SPEED * float(action[0])
        return _row(self._x), 1.0 - self._x**2, abs(self._x) > LINE_BOUND, False, {}


def endless_probe() -> gymnasium.Env[Observation, np.ndarray]:
    """`EndlessProbe` under its time limit."""
    return TimeLimit(EndlessProbe(), ENDLESS_STEPS)


def point_line_probe() -> gymnasium.Env[Observation, np.ndarray]:
    """`PointLineProbe` under its time limit."""
    return TimeLimit(PointLineProbe(), LINE_STEPS)


def left_the_line(_obs: Any, _action: Any, next_obs: Any) -> Any:
    """The terminal function of `PointLineProbe`."""
    return ~(abs(next_obs[..., 0]) <= LINE_BOUND)


PROBES: Mapping[str, Callable[[], gymnasium.Env[Observation, np.ndarray]]] = {
    "ConstantProbe-v0": constant_probe,
    "SignProbe-v0": sign_probe,
    "DelayProbe-v0": DelayProbe,
    "ActionProbe-v0": action_probe,
    "FollowProbe-v0": follow_probe,
    "EndlessProbe-v0": endless_probe,
    "CountingProbe-v0": CountingProbe,
    "PointLineProbe-v0": point_line_probe,
}


def register_probes() -> None:
    """Makes every probe a Gymnasium id, and tells when `PointLineProbe-v0` ends. A second call changes nothing."""
    for env_id, construct in PROBES.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=_without_arguments(construct))
    register_task("PointLineProbe-v0", terminal=left_the_line)


def _without_arguments(construct: Callable[[], Any]) -> Callable[..., Any]:
    return lambda **_no_arguments: construct()


def _box(size: int, bound: float = 1.0) -> Box:
    return Box(-bound, bound, (size,), np.float32)


def _row(*values: float) -> Observation:
    return np.array(values, np.float32)

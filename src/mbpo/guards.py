"""Noticing at once that a run has gone wrong, before it writes its ruin into a checkpoint."""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from mbpo.errors import RunError

SQUARED_LOSSES = ("critic_loss", "value_loss", "model/holdout_mse")
MAY_BE_UNDEFINED = ("explained_variance",)
"""Ratios without a meaning where nothing varies, which is no divergence."""
EXPLOSION = 1e6
MEMORY = 101
Q_MARGIN = 10.0


class DivergedError(RunError):
    """Learning has diverged. The last good checkpoint was kept, and nothing later is saved."""


class Guard:
    """Looks at the metrics of every update.

    Three things stop a run: a metric that is not finite, a squared-error loss a million times its running median,
    and a |Q| that no discounted sum of the rewards and entropies seen so far comes near.
    """

    def __init__(self, discount: float, action_size: int) -> None:
        self.horizon = 1.0 / (1.0 - discount) if discount < 1.0 else math.inf
        self.max_entropy = action_size * math.log(2.0)
        self.max_reward = 0.0
        self._losses = {name: deque[float](maxlen=MEMORY) for name in SQUARED_LOSSES}

    def remembered(self) -> dict[str, Any]:
        """What it has seen, for a checkpoint: a resumed run must judge as the uninterrupted one."""
        return {"max_reward": self.max_reward, "losses": {name: list(past) for name, past in self._losses.items()}}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Takes up what `remembered` gave."""
        self.max_reward = memory["max_reward"]
        for name, past in self._losses.items():
            past.extend(memory["losses"].get(name, ()))

    def see_reward(self, reward: float) -> None:
        self.max_reward = max(self.max_reward, abs(reward))

    def check(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Raises `DivergedError` with the likely cause."""
        for name, value in metrics.items():
            if value is not None and not math.isfinite(value) and name not in MAY_BE_UNDEFINED:
                raise DivergedError(
                    f"{name} is {value} at step {step:,}: learning has diverged. Try a lower learning rate; rewards of "
                    "a very large scale are a common cause."
                )
        for name, past in self._losses.items():
            self._check_loss(step, name, metrics.get(name), past)
        self._check_value(step, metrics)

    def _check_loss(self, step: int, name: str, loss: float | None, past: deque[float]) -> None:
        if loss is None:
            return
        if len(past) == MEMORY and loss > EXPLOSION * max(median(past), 1e-12):
            what = "the model" if name.startswith("model/") else "the critic"
            raise DivergedError(
                f"{name} is {loss:.3g} at step {step:,}, a million times its recent median of {median(past):.3g}: "
                f"{what} has diverged. Try a lower learning rate or fewer updates a step; in MBPO, imagined rollouts "
                "that end where the real task does not (or the reverse) are a common cause."
            )
        past.append(loss)

    def _check_value(self, step: int, metrics: Mapping[str, float | None]) -> None:
        q, temperature, entropy = (metrics.get(name) for name in ("q", "temperature", "entropy"))
        if q is None or temperature is None or entropy is None:
            return
        bonus = temperature * max(abs(entropy), self.max_entropy)
        reach = self.horizon * (self.max_reward + bonus)
        if abs(q) > Q_MARGIN * max(reach, 1.0):
            raise DivergedError(
                f"The critic expects {q:.3g} at step {step:,}, and no discounted sum of the rewards seen so far "
                f"(at most {self.max_reward:.3g}) exceeds {reach:.3g}: it has diverged. Try fewer updates a step, or "
                "a lower discount; in MBPO, shorter rollouts or a task's own termination function."
            )

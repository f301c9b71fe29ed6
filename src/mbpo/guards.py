"""Noticing at once that a run has gone wrong, before it writes its ruin into a checkpoint."""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from mbpo.errors import RunError

SQUARED_LOSSES = ("critic_loss", "value_loss", "model/holdout_mse")
EXPLOSION = 1e6
MEMORY = 101
WARM_UP = 10
"""Losses that must be known before one of them is called an explosion."""
Q_MARGIN = 10.0
LARGEST_SCALED_REWARD = 10.0
"""PPO's: rewards divided by their scale are cut there."""


class DivergedError(RunError):
    """Learning has diverged. The last good checkpoint was kept, and nothing later is saved."""


class Guard:
    """Looks at the metrics of every update.

    Three things stop a run: a metric that is not finite, a squared-error loss a million times its running median,
    and a |Q| that no discounted sum of the rewards and entropies seen so far comes near.

    A loss below the square of the largest reward is never called an explosion: where all rewards were 0, the first
    one that is not makes any loss a million times larger.
    """

    def __init__(self, discount: float, action_size: int) -> None:
        self.horizon = 1.0 / (1.0 - discount) if discount < 1.0 else math.inf
        self.max_entropy = action_size * math.log(2.0)
        self._losses = {name: deque[float](maxlen=MEMORY) for name in SQUARED_LOSSES}

    def remembered(self) -> dict[str, Any]:
        """What it has seen, for a checkpoint: a resumed run must judge as the uninterrupted one."""
        return {name: list(past) for name, past in self._losses.items()}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Takes up what `remembered` gave."""
        for name, past in self._losses.items():
            past.extend(memory.get(name, ()))

    def check(self, step: int, metrics: Mapping[str, int | float | None], largest_reward: float) -> None:
        """Raises `DivergedError` with the likely cause. `largest_reward` is the largest |reward| of the run so far."""
        for name, value in metrics.items():
            if value is not None and not math.isfinite(value):
                raise DivergedError(
                    f"{name} is {value} at step {step:,}: learning has diverged. Try a lower learning rate; rewards of "
                    "a very large scale are a common cause."
                )
        for name, past in self._losses.items():
            self._check_loss(step, name, metrics.get(name), past, largest_reward)
        self._check_value(step, metrics, largest_reward)

    def _check_loss(
        self, step: int, name: str, loss: int | float | None, past: deque[float], largest_reward: float
    ) -> None:
        if loss is None:
            return
        harmless = max(largest_reward, LARGEST_SCALED_REWARD) ** 2
        if len(past) >= WARM_UP and loss > max(EXPLOSION * median(past), harmless):
            what = "the model" if name.startswith("model/") else "the critic"
            raise DivergedError(
                f"{name} is {loss:.3g} at step {step:,}, a million times its recent median of {median(past):.3g}: "
                f"{what} has diverged. Try a lower learning rate or fewer updates a step; in MBPO, imagined rollouts "
                "that end where the real task does not (or the reverse) are a common cause."
            )
        past.append(loss)

    def _check_value(self, step: int, metrics: Mapping[str, int | float | None], largest_reward: float) -> None:
        q, temperature, entropy = (metrics.get(name) for name in ("q", "temperature", "entropy"))
        if q is None or temperature is None or entropy is None:
            return
        # The temperature starts at 1 and often falls faster than the critics forget it.
        bonus = max(temperature, 1.0) * max(abs(entropy), self.max_entropy)
        reach = self.horizon * (largest_reward + bonus)
        if abs(q) > Q_MARGIN * max(reach, 1.0):
            raise DivergedError(
                f"The critic expects {q:.3g} at step {step:,}, and no discounted sum of the rewards seen so far "
                f"(at most {largest_reward:.3g}) exceeds {reach:.3g}: it has diverged. Try fewer updates a step, or "
                "a lower discount; in MBPO, shorter rollouts or a task's own termination function."
            )

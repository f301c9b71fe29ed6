"""What must be known of MuJoCo. Nothing here imports it: environments that do not use it never pay for it."""

import logging
import sys
from functools import cache
from typing import Any

_log = logging.getLogger("mbpo.mujoco")


class SelfResetWatch:
    """Tells whether the simulator has reset itself, which it does silently on positions, velocities or accelerations
    that are NaN or huge: what it returns then is finite, and has nothing to do with the step before.

    Its reset zeroes the counters as well, so that one does not grow from step to step; it counts from zero every time.
    """

    def __init__(self, env: Any):
        """Watches the simulation of an unwrapped environment; one that is not MuJoCo's never resets itself."""
        # The counters point into `data`, which therefore has to outlive them.
        self._data = getattr(env, "data", None)
        self._counters = _counters(self._data)

    def take(self) -> bool:
        """True if the simulator has reset itself since the last call."""
        if not any(counter.number for counter in self._counters):
            return False
        for counter in self._counters:
            counter.number = 0
        return True


def _counters(data: Any) -> list[Any]:
    mujoco = sys.modules.get("mujoco")
    if mujoco is None or not isinstance(data, mujoco.MjData):
        return []
    kinds = mujoco.mjtWarning
    return [data.warning[int(kind)] for kind in (kinds.mjWARN_BADQPOS, kinds.mjWARN_BADQVEL, kinds.mjWARN_BADQACC)]


def log_warnings() -> None:
    """Sends the simulator's warnings to the logger "mbpo.mujoco", if the simulator has been imported.

    By itself it prints them across the display and appends them to a file in the working folder. Those that matter to
    a run are counted by `SelfResetWatch`.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None:
        _redirect(mujoco)


@cache
def _redirect(mujoco: Any) -> None:
    mujoco.set_mju_user_warning(_log.info)

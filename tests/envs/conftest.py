"""The simulator is loaded once, and its warnings go to the log: it would leave a file in the working folder."""

import mujoco  # noqa: F401  (before its warnings can be sent elsewhere)

from mbpo.envs.simulator import log_warnings

log_warnings()

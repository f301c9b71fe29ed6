"""The spaces that can be learned in, and the way from [−1, 1] into an action space."""

from textwrap import shorten
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from mbpo.errors import UsageError


def observation_box(name: str, space: Any) -> Box:
    """`space` if observations can be taken from it; `name` is the environment's, for the message."""
    if not isinstance(space, Box) or len(space.shape) != 1 or space.shape[0] == 0:
        raise UsageError(
            f"environment '{name}' has the observation space {_short(space)}; a Box of one axis and at least one "
            "number is needed: wrap the environment in gymnasium.wrappers.FlattenObservation."
        )
    return space


def action_box(name: str, space: Any) -> Box:
    """`space` if actions in [−1, 1] can be rescaled to it; `name` is the environment's, for the message."""
    if not isinstance(space, Box) or len(space.shape) != 1 or space.shape[0] == 0:
        raise UsageError(
            f"environment '{name}' has the action space {_short(space)}; a Box of one axis and at least one number is "
            "needed: wrap the environment in gymnasium.wrappers.TransformAction, or choose one with continuous actions."
        )
    if not _is_bounded(space):
        raise UsageError(
            f"environment '{name}' has the action space {_short(space)} with an infinite bound; "
            "give every action finite bounds, for instance with gymnasium.wrappers.TransformAction."
        )
    if (space.low >= space.high).any():
        place = int(np.argmax(space.low >= space.high))
        raise UsageError(
            f"environment '{name}' has the action space {_short(space)}, where action[{place}] can only be "
            f"{space.low[place]}; leave out of the space what cannot vary."
        )
    return space


def _is_bounded(box: Box) -> bool:
    if box.dtype.kind == "f":
        return bool(np.isfinite([box.low, box.high]).all())
    # Beyond 2**53 float64 does not hold every integer; a bound out there stands for none.
    return box.is_bounded() and bool((np.abs([box.low.astype(float), box.high.astype(float)]) <= 2.0**53).all())


def _short(space: Any) -> str:
    return shorten(str(space), 120)


class Rescaling:
    """Actions in [−1, 1] to the Box: middle + half · a, in float64, where a Box of −1 to 1 keeps every bit."""

    def __init__(self, box: Box):
        self.dtype = box.dtype
        self.low, self.high = box.low.astype(np.float64), box.high.astype(np.float64)
        self.middle, self.half = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2

    def __call__(self, action: np.ndarray) -> np.ndarray:
        unit = np.minimum(np.maximum(action, -1.0), 1.0)
        scaled = self.middle + self.half * unit
        if self.dtype.kind != "f":
            scaled = np.rint(scaled)
        return np.minimum(np.maximum(scaled, self.low), self.high).astype(self.dtype)

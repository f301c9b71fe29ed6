"""Numbers that change over a run, as pure functions of where it is."""

from dataclasses import dataclass

from mbpo.limits import COUNT, NATURAL, check_settings


def ramp(x: float, *, start: float, end: float, low: float, high: float) -> float:
    """`low` up to x = start, `high` from x = end on, a straight line between.

    Paper: Table 2, f(e) = min(max(x + (e − a) / (b − a) · (y − x), x), y). Rising or falling alike.
    """
    if x <= start:
        return low
    if x >= end:
        return high
    return low + (x - start) / (end - start) * (high - low)


@dataclass(frozen=True)
class RolloutLength:
    """k over the epochs of a run: constant, or growing along a straight line.

    Paper: Table 2, x → y over epochs a → b.
    """

    first: int = 1
    """Steps at the start (x)."""
    last: int = 1
    """Steps at the end (y)."""
    from_epoch: int = 20
    """The epoch at which k begins to grow (a)."""
    to_epoch: int = 100
    """The epoch at which k has its last value (b)."""

    def __post_init__(self) -> None:
        check_settings(self, first=COUNT, last=COUNT, from_epoch=NATURAL, to_epoch=NATURAL)

    def at(self, epoch: int) -> int:
        """k in an epoch, rounded down."""
        low, high = float(self.first), float(self.last)
        return int(ramp(epoch, start=self.from_epoch, end=self.to_epoch, low=low, high=high))

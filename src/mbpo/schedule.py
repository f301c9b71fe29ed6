"""Numbers that change over a run, as pure functions of where it is."""

from dataclasses import dataclass

from mbpo.limits import COUNT, NATURAL, check_settings


def ramp(x: int, *, start: int, end: int, low: float, high: float) -> float:
    """`low` up to x = start, `high` from x = end on, a straight line between. Rising or falling alike."""
    if x <= start:
        return low
    if x >= end:
        return high
    return low + (x - start) / (end - start) * (high - low)


@dataclass(frozen=True)
class RolloutLength:
    """k over the epochs of a run: constant, or growing along a straight line.

    Paper: Table 2, x → y over epochs a → b: f(e) = min(max(x + (e − a) / (b − a) · (y − x), x), y).
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
        """k in an epoch, rounded down: in whole numbers, where 1 + 1/49 · 49 would be a little less than 2."""
        if epoch <= self.from_epoch:
            return self.first
        if epoch >= self.to_epoch:
            return self.last
        return self.first + (epoch - self.from_epoch) * (self.last - self.first) // (self.to_epoch - self.from_epoch)

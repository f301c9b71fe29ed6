"""Numbers that change over a run, as pure functions of where it is."""


def ramp(x: float, *, start: float, end: float, low: float, high: float) -> float:
    """`low` up to x = start, `high` from x = end on, a straight line between.

    Paper: Table 2, f(e) = min(max(x + (e − a) / (b − a) · (y − x), x), y). Rising or falling alike.
    """
    if x <= start:
        return low
    if x >= end:
        return high
    return low + (x - start) / (end - start) * (high - low)

"""How numbers are said to people, so that figures, live display and summaries agree."""

import math
from typing import TypeGuard

Number = int | float


def count(value: Number) -> str:
    """12345 as `12,345`."""
    return f"{value:,.0f}"


def score(value: Number | None, spread: Number | None = None) -> str:
    """A return, with its standard deviation if there is one: `1,234.5 ± 12.3`; `—` where there is no number."""
    if not _is_number(value):
        return "—"
    return f"{_rounded(value)} ± {_rounded(spread)}" if _is_number(spread) else _rounded(value)


def size(count_of_bytes: Number) -> str:
    """`1.2 GB`, `34.5 MB`, `678 kB`: of a thousand each."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if count_of_bytes >= scale:
            return f"{count_of_bytes / scale:.1f} {unit}"
    return f"{count_of_bytes / 1e3:.0f} kB"


def duration(seconds: Number) -> str:
    """Two units at most: `45 s`, `2 m 05 s`, `1 h 02 m`, `3 d 04 h`."""
    whole = round(seconds)
    for unit, size, small_unit, small_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size:02d} {small_unit}"
    return f"{whole} s"


def _rounded(value: Number) -> str:
    """One decimal, or three digits where one decimal would hide them."""
    return f"{value:.3g}" if 0 < abs(value) < 10 else f"{value:,.1f}"


def _is_number(value: Number | None) -> TypeGuard[Number]:
    return value is not None and math.isfinite(value)

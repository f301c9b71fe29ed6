"""The checks of arguments that all of the theory shares: a bad one is named, with its value and the remedy."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# What may be given, and what comes back: scalars in, a float out.
Numeric: TypeAlias = float | int | np.number[Any] | NDArray[Any] | Sequence[Any]
Numbers: TypeAlias = float | NDArray[np.float64]
# What NumPy makes of them in between: its scalars are not arrays.
Floats: TypeAlias = np.float64 | NDArray[np.float64]
Bools: TypeAlias = np.bool_ | NDArray[np.bool_]

# How far outside [0, 1] a computed total variation may lie through rounding; it is moved back in.
ROUNDING = 1e-9


def plain(values: Floats) -> Numbers:
    """A float for a single number, the array itself otherwise."""
    return values if isinstance(values, np.ndarray) and values.ndim else float(values)


def number(name: str, value: Numeric) -> Floats:
    """Finite float64 numbers."""
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}, which is not a number; give a number or an array.") from None
    _refuse(name, values, ~np.isfinite(values), "is not finite; give a finite number")
    return values


def total_variation_distance(name: str, value: Numeric) -> Floats:
    """Total variation distances, in [0, 1]."""
    values = number(name, value)
    remedy = "is outside [0, 1]; give a total variation distance (half the L1 distance)"
    _refuse(name, values, (values < -ROUNDING) | (values > 1 + ROUNDING), remedy)
    return np.clip(values, 0.0, 1.0)


def discount_factor(name: str, value: Numeric) -> Floats:
    """Discounts, strictly between 0 and 1."""
    values = number(name, value)
    _refuse(name, values, (values <= 0) | (values >= 1), "is outside (0, 1); give a discount such as 0.99")
    return values


def nonnegative(name: str, value: Numeric) -> Floats:
    """Numbers of at least 0."""
    values = number(name, value)
    _refuse(name, values, values < 0, "is negative; give a number of at least 0")
    return values


def count(name: str, value: Numeric) -> Floats:
    """Whole numbers of at least 0, as floats, so that an integer given as 5.0 is welcome too."""
    values = number(name, value)
    remedy = "is not a count; give a whole number of at least 0"
    _refuse(name, values, (values < 0) | (values != np.floor(values)), remedy)
    return values


def _refuse(name: str, values: Floats, bad: Bools, complaint: str) -> None:
    if np.any(bad):
        first = float(np.ravel(values)[np.argmax(bad)])
        raise ValueError(f"{name} = {first:g} {complaint}.")

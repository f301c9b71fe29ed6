"""The checks of arguments that all of the theory shares: a bad one is named, with its value and the remedy."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers: TypeAlias = float | NDArray[np.float64]

# How far outside [0, 1] a computed total variation may lie through rounding; it is moved back in.
ROUNDING = 1e-9


def plain(values: NDArray[np.float64]) -> Numbers:
    """A float for a single number, the array itself otherwise."""
    return values.item() if values.ndim == 0 else values


def number(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Finite float64 numbers."""
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}, which is not a number; give a number or an array.") from None
    _refuse(name, values, ~np.isfinite(values), "is not finite; give a finite number")
    return values


def total_variation_distance(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Total variation distances, in [0, 1]."""
    values = number(name, value)
    remedy = "is outside [0, 1]; give a total variation distance (half the L1 distance)"
    _refuse(name, values, (values < -ROUNDING) | (values > 1 + ROUNDING), remedy)
    return np.clip(values, 0.0, 1.0)


def discount_factor(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Discounts, strictly between 0 and 1."""
    values = number(name, value)
    _refuse(name, values, (values <= 0) | (values >= 1), "is outside (0, 1); give a discount such as 0.99")
    return values


def nonnegative(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Numbers of at least 0."""
    values = number(name, value)
    _refuse(name, values, values < 0, "is negative; give a number of at least 0")
    return values


def count(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Whole numbers of at least 0, as floats, so that an integer given as 5.0 is welcome too."""
    values = number(name, value)
    remedy = "is not a count; give a whole number of at least 0"
    _refuse(name, values, (values < 0) | (values != np.floor(values)), remedy)
    return values


def _refuse(name: str, values: NDArray[np.float64], bad: NDArray[np.bool_], complaint: str) -> None:
    if np.any(bad):
        first = float(values[bad].flat[0]) if values.ndim else float(values)
        raise ValueError(f"{name} = {first:g} {complaint}.")

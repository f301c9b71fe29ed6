"""What a setting may be.

Dataclasses of hyper-parameters ask when they are made, so a flag, a script and a run's file are all checked.
"""

import math
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union

from mbpo.errors import UsageError

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; without the two where `open`."""

    low: float
    high: float = math.inf
    open: bool = False

    def __contains__(self, number: int | float) -> bool:
        inside = self.low < number < self.high if self.open else self.low <= number <= self.high
        return inside and math.isfinite(number)

    def __str__(self) -> str:
        if math.isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}{', both excluded' if self.open else ''}"
        return f"{'above' if self.open else 'at least'} {self.low:g}"


COUNT = Range(1.0)
NATURAL = Range(0.0)
POSITIVE = Range(0.0, open=True)
NOT_NEGATIVE = Range(0.0)
FRACTION = Range(0.0, 1.0)
PROPER_FRACTION = Range(0.0, 1.0, open=True)


def check_settings(settings: Any, **ranges: Range) -> None:
    """Refuses a dataclass instance of which a field has not its type, or lies outside its range.

    The range of a tuple is that of its entries; a field that may be None, and is, has none.
    """
    owner = type(settings).__name__
    for name, hint in typing.get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not is_of(value, hint):
            raise UsageError(f"{name} of {owner} is {value!r}; it must be {in_words(hint)}.")
        numbers = value if isinstance(value, tuple) else (value,)
        if name in ranges and value is not None and not all(number in ranges[name] for number in numbers):
            each = "each entry " if isinstance(value, tuple) else "it "
            raise UsageError(f"{name} of {owner} is {value!r}; {each}must be {ranges[name]}.")


def require(holds: bool, problem: str, remedy: str) -> None:
    """Refuses settings that are well each by itself, and not together."""
    if not holds:
        raise UsageError(f"{problem}; {remedy}.")


def is_of(value: Any, hint: Any) -> bool:
    """Is it of this annotated type? A whole number is a number too, but true and false are no numbers."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(is_of(value, option) for option in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of(entry, arguments[0]) for entry in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint)


def in_words(hint: Any) -> str:
    """An annotated type for people."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(option) for option in arguments)
    if origin is tuple:
        return f"a tuple, each entry {in_words(arguments[0])}"
    return "None" if hint is type(None) else WORDS.get(hint, f"of the class {hint.__name__}")

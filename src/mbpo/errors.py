"""The errors a user can meet. Each message is one sentence or two: the thing, its value, the remedy."""

from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(ValueError):
    """What was asked for cannot be done; nothing was created. The command line exits with code 2."""


class RunError(RuntimeError):
    """A run failed after it had begun; what it had done was saved. The command line exits with code 1."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint at the end of a message about an unknown name: the closest known one, or all of them."""
    known = list(known)
    lowered = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if matches:
        return f"did you mean '{lowered[matches[0]]}'?"
    return f"known are: {', '.join(known)}."

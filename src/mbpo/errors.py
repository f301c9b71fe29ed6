"""The errors a user can meet. Each message is one sentence or two: the thing, its value, the remedy."""

import signal
from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(ValueError):
    """What was asked for cannot be done; nothing was created. The command line exits with code 2."""


class RunError(RuntimeError):
    """A run failed after it had begun; what it had done was saved. The command line exits with code 1."""


class StoppedBySignal(KeyboardInterrupt):
    """A signal stopped the run, and everything is saved. The command line exits with 128 and the signal's number."""

    def __init__(self, number: signal.Signals, remedy: str):
        super().__init__(f"Stopped by {number.name}; go on with {remedy}.")
        self.signal = number


class RunWarning(UserWarning):
    """Something that a user should know about a run that is all the same used."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint at the end of a message about an unknown name: the closest known one, or all of them."""
    known = list(known)
    lowered = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if matches:
        return f"did you mean '{lowered[matches[0]]}'?"
    return f"known are: {', '.join(known)}."

"""Fair timing: contestants take turns in one process, so that whatever else the machine does hits all alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROUND_SECONDS = 0.1
"""A round of one contestant is made at least so long, by repeating it."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, one number a round."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def per(self, units: int) -> "Timing":
        """The timing of one of the `units` that a call consists of."""
        return Timing(tuple(seconds / units for seconds in self.rounds))


def interleave(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """Every contestant's timing over rounds in which each has its turn. A call must wait for its own result.

    The first call of each, which compiles, does not count, and neither does the second, which tells how often to
    repeat it in a round.
    """
    repeats = {name: _repeats(call) for name, call in contestants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            seconds[name].append((time.perf_counter() - begin) / repeats[name])
    return {name: Timing(tuple(each)) for name, each in seconds.items()}


def _repeats(call: Callable[[], object]) -> int:
    call()
    begin = time.perf_counter()
    call()
    return max(1, round(ROUND_SECONDS / max(time.perf_counter() - begin, 1e-9)))

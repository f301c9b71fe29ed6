"""Where the time of a run goes: seconds by part, with compilation counted apart."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import jax

PARTS = ("env", "policy", "model", "rollout", "eval", "checkpoint")


class CompileClock:
    """The wall time that JAX spent on tracing and compiling, and how many programs it compiled.

    JAX reports each duration when it ends, and they nest (a function traced inside another): the time is that of
    the union of the intervals.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0
        self._recent: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration: float, **_: str | int) -> None:
        if not event.startswith("/jax/core/compile/"):
            return
        self.count += event == "/jax/core/compile/backend_compile_duration"
        end = time.perf_counter()
        begin = end - duration
        while self._recent and self._recent[-1][0] >= begin:
            inner_begin, inner_end = self._recent.pop()
            self.seconds -= inner_end - inner_begin
        begin = max(begin, self._recent[-1][1]) if self._recent else begin
        self._recent = [*self._recent[-16:], (begin, end)]
        self.seconds += end - begin


COMPILE = CompileClock()


class Clock:
    """Cumulative seconds of a run, over all its sessions; the time between two sessions does not count."""

    def __init__(self, past: Mapping[str, float] | None = None) -> None:
        past = past or {}
        self._parts = {part: past.get(f"seconds/{part}", 0.0) for part in PARTS}
        self._past_total = past.get("seconds", 0.0)
        self._past_compile = past.get("seconds/compile", 0.0)
        self._begin = time.perf_counter()
        self._compile_begin = COMPILE.seconds

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Counts the time inside, less what JAX compiled meanwhile, as `seconds/<part>`."""
        begin, compiled = time.perf_counter(), COMPILE.seconds
        try:
            yield
        finally:
            self._parts[part] += time.perf_counter() - begin - (COMPILE.seconds - compiled)

    @property
    def total(self) -> float:
        return self._past_total + time.perf_counter() - self._begin

    def read(self) -> dict[str, float]:
        """The columns `seconds` and `seconds/<part>` of a metrics row."""
        return {
            "seconds": self.total,
            **{f"seconds/{part}": spent for part, spent in self._parts.items()},
            "seconds/compile": self._past_compile + COMPILE.seconds - self._compile_begin,
        }

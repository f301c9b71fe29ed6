"""What a person sees while a run goes on: a live picture on a terminal, elsewhere a plain line an evaluation.

A display may fail (a closed pipe, a terminal that is gone) but the run goes on: after the first failure it is silent.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO, TextIOBase
from typing import IO, Any, Protocol, cast, runtime_checkable

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mbpo import words

Row = Mapping[str, Any]
"""A row of `metrics.jsonl`, or the part of one that is known between evaluations."""

REFRESH_SECONDS = 0.5
"""Between two pictures. One costs a millisecond or two, so all of them stay below one percent of the run."""
RATE_SECONDS = 60.0
"""The speed shown is that of the last minute, and in a long run of its last quarter: a shorter time would show a fit of
the model without the steps after it, or these without the fit."""
SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Plan:
    """What is known before the first step."""

    title: str
    steps: int
    """The step at which the run is complete."""
    first_step: int = 0
    """The step at which this process begins: not 0 in a resumed run."""
    facts: Sequence[str] = ()
    """Sentences about the run (its folder, its memory, a checkpoint's bytes), said once at the start."""
    history: Sequence[Row] = ()
    """The evaluations before `first_step`."""


@runtime_checkable
class Stream(Protocol):
    """What is asked of an output stream; all that Python calls a text stream can do it."""

    @property
    def encoding(self) -> str | None: ...

    @property
    def closed(self) -> bool: ...

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...

    def fileno(self) -> int: ...


@runtime_checkable
class Display(Protocol):
    """Told what happens, in this order: `start`, any number of the others, `stop`."""

    def start(self, plan: Plan, now: Callable[[], Row] = dict) -> None:
        """Begins. `now` is asked at each refresh for the row as it stands (`policy_updates`, `seconds/...`)."""
        ...

    def tick(self, step: int) -> None:
        """Real step `step` was made, or work on it goes on. Nearly free, so call it often."""
        ...

    def evaluation(self, row: Row) -> None:
        """An evaluation was written."""
        ...

    def message(self, text: str) -> None:
        """Something a person should read."""
        ...

    def stop(self, summary: str = "") -> None:
        """Ends, saying `summary` last. May be called twice, and must be called whatever happened."""
        ...


def open_display(stream: Stream | None) -> Display:
    """The display that suits `stream`: live on a terminal that can draw it, plain lines elsewhere.

    The command line gives standard output, which holds what a person asked to see; under `--json` standard error, so
    that standard output holds the answer alone. `None` (a program without the stream) shows nothing.
    """
    if stream is None:
        return PlainDisplay(Sturdy(StringIO()))
    return LiveDisplay(Sturdy(stream)) if _can_draw(stream) else PlainDisplay(Sturdy(stream))


def _can_draw(stream: Stream) -> bool:
    if stream.closed or not stream.isatty() or os.environ.get("TERM", "") in ("dumb", "unknown"):
        return False
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


class Sturdy(TextIOBase):
    """A stream that never fails: what its encoding cannot say becomes `?`, and once a write fails all go nowhere."""

    encoding = "utf-8"

    def __init__(self, stream: Stream):
        self._stream = stream
        self.encoding = stream.encoding or "utf-8"

    def write(self, text: str, /) -> int:
        said = text.encode(self.encoding, errors="replace").decode(self.encoding)
        self._attempt(lambda: self._stream.write(said))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def fileno(self) -> int:
        return self._stream.fileno()

    def _attempt(self, act: Callable[[], Any]) -> None:
        if self._stream.closed:
            return
        try:
            act()
        except OSError:
            self._mute()

    def _mute(self) -> None:
        """Leads the stream itself to nowhere, so that the flush at the end of the program cannot fail either."""
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def evaluation_line(row: Row, before: Row) -> str:
    """`step 5,000  return 1,234.5 ± 12.3  (10 episodes)  2 m 05 s  412 updates/s`, the speed since row `before`."""
    parts = [
        f"step {words.count(row['step'])}",
        f"return {words.score(row.get('eval/return'), row.get('eval/return_std'))}",
    ]
    if row.get("eval/episodes"):
        parts.append(f"({words.count(row['eval/episodes'])} episodes)")
    if row.get("seconds") is not None:
        parts.append(words.duration(row["seconds"]))
    passed = (row.get("seconds") or 0) - (before.get("seconds") or 0)
    if passed > 0 and "policy_updates" in row:
        updates = row["policy_updates"] - before.get("policy_updates", 0)
        parts.append(f"{words.count(updates / passed)} updates/s")
    return "  ".join(parts)


class PlainDisplay:
    """One line an evaluation, for files, pipes and notebooks."""

    def __init__(self, stream: Sturdy):
        self._stream = stream
        self._before: Row = {}

    def start(self, plan: Plan, now: Callable[[], Row] = dict) -> None:
        self._before = plan.history[-1] if plan.history else {}
        for line in (plan.title, *plan.facts):
            self.message(line)

    def tick(self, step: int) -> None:
        pass

    def evaluation(self, row: Row) -> None:
        self.message(evaluation_line(row, self._before))
        self._before = row

    def message(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def stop(self, summary: str = "") -> None:
        if summary:
            self.message(summary)


class LiveDisplay:
    """A picture that redraws itself in place, at most every `REFRESH_SECONDS` and from within `tick`: no thread."""

    def __init__(self, stream: Sturdy):
        file = cast(IO[str], stream)
        self._console = Console(file=file, force_terminal=True, force_jupyter=False, highlight=False)
        self._picture = Picture(Plan("", 0), dict)
        self._live: Live | None = None
        self._step = 0
        self._next_refresh = 0.0

    def start(self, plan: Plan, now: Callable[[], Row] = dict) -> None:
        self._picture = Picture(plan, now)
        self._step = plan.first_step
        self._console.print(Text(plan.title, style="bold"))
        for fact in plan.facts:
            self.message(fact)
        self._live = Live(
            get_renderable=lambda: self._picture,
            console=self._console,
            auto_refresh=False,
            # What a user's code prints goes above the picture, unless it goes to a file or pipe.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
        )
        self._live.start()
        # Even a run that is killed must leave a terminal with a cursor.
        self._console.show_cursor(True)
        self._refresh()

    def tick(self, step: int) -> None:
        self._step = step
        now = time.monotonic()
        if now >= self._next_refresh:
            self._next_refresh = now + REFRESH_SECONDS
            self._refresh()

    def evaluation(self, row: Row) -> None:
        self._picture.add(row)
        self._refresh()

    def message(self, text: str) -> None:
        self._console.print(Text(text))

    def stop(self, summary: str = "") -> None:
        self._refresh()
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        if summary:
            self.message(summary)

    def _refresh(self) -> None:
        if self._live is not None:
            self._picture.observe(self._step, time.monotonic())
            self._live.refresh()


class Picture:
    """Progress, returns, speed and where the time goes, as Rich draws it."""

    def __init__(self, plan: Plan, now: Callable[[], Row]):
        self._plan = plan
        self._now = now
        self._evaluations = [row for row in plan.history if row.get("eval/return") is not None]
        self._step = plan.first_step
        self._row: Row = {}
        self._samples: deque[tuple[float, int, float]] = deque()
        self._began = time.monotonic()

    def add(self, row: Row) -> None:
        if row.get("eval/return") is not None:
            self._evaluations.append(row)

    def observe(self, step: int, now: float) -> None:
        self._step = step
        self._row = self._now()
        self._samples.append((now, step, self._row.get("policy_updates") or 0))
        window = max(RATE_SECONDS, (now - self._began) / 4)
        while len(self._samples) > 2 and self._samples[1][0] < now - window:
            self._samples.popleft()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield self._progress()
        lines = Table.grid(padding=(0, 2), expand=True)
        lines.add_column(no_wrap=True, style="dim", width=6)
        lines.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        lines.add_row("time", self._time())
        lines.add_row("return", self._returns())
        returns = [row["eval/return"] for row in self._evaluations]
        lines.add_row("", Text(sparkline(returns, max(min(options.max_width - 8, 60), 1)), style="cyan"))
        lines.add_row("speed", self._speed())
        lines.add_row("spent", self._spent())
        yield lines

    def _progress(self) -> Table:
        line = Table.grid(padding=(0, 2), expand=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True, overflow="ellipsis")
        steps = self._plan.steps
        text = f"{words.count(self._step)} / {words.count(steps)} steps"
        line.add_row(ProgressBar(total=max(steps, 1), completed=self._step), text)
        return line

    def _time(self) -> str:
        seconds = self._row.get("seconds") or time.monotonic() - self._began
        rate = self._rates()[0]
        left = self._plan.steps - self._step
        remaining = f", about {words.duration(left / rate)} to go" if rate and left > 0 else ""
        return f"{words.duration(seconds)} so far{remaining}"

    def _returns(self) -> str:
        if not self._evaluations:
            return "no evaluation yet"
        last = self._evaluations[-1]
        best = max(self._evaluations, key=lambda row: row["eval/return"])
        return (
            f"{words.score(last['eval/return'], last.get('eval/return_std'))} at step {words.count(last['step'])}, "
            f"best {words.score(best['eval/return'])} at step {words.count(best['step'])}"
        )

    def _speed(self) -> str:
        steps, updates = self._rates()
        return f"{steps:,.1f} steps/s, {words.count(updates)} updates/s"

    def _spent(self) -> str:
        parts = {name.removeprefix("seconds/"): value for name, value in self._row.items() if "seconds/" in name}
        total = sum(parts.values())
        largest = sorted(parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in largest if value > 0.005 * total)

    def _rates(self) -> tuple[float, float]:
        """Steps and policy updates a second; 0 until there is something to tell it from."""
        if len(self._samples) < 2:
            return 0.0, 0.0
        (then, old_step, old_updates), (now, step, updates) = self._samples[0], self._samples[-1]
        return (step - old_step) / (now - then), (updates - old_updates) / (now - then)


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as a row of at most `width` bars between their least and greatest; neighbours are averaged to fit."""
    if not values:
        return ""
    bars = np.array([part.mean() for part in np.array_split(np.asarray(values, np.float64), min(width, len(values)))])
    height = (bars - bars.min()) / (np.ptp(bars) or 1)
    return "".join(SPARKS[round(part * (len(SPARKS) - 1))] for part in height)

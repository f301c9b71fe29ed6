"""What is shown, to a file, a pipe and a (pseudo) terminal; and that no failing stream can stop a run."""

import io
import os
import pty
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from mbpo import words
from mbpo.display import (
    Display,
    LiveDisplay,
    Picture,
    PlainDisplay,
    Plan,
    Sturdy,
    evaluation_line,
    open_display,
    sparkline,
)
from runs import row

PLAN = Plan("SAC on Hopper, seed 0", steps=5000, facts=("A checkpoint takes 12 MB.",))


class Terminal(io.StringIO):
    """A terminal that remembers all that was sent to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def replay(display: Display, evaluations: int = 5) -> None:
    display.start(PLAN, lambda: {"policy_updates": 100, "seconds": 61.0, "seconds/env": 3.0, "seconds/policy": 1.0})
    for step in range(1, 1000 * evaluations + 1):
        display.tick(step)
        if step % 1000 == 0:
            display.evaluation(row(step))
    display.message("A sink failed.")
    display.stop("evaluated return 950.0")
    display.stop()


def picture(plan: Plan = PLAN, width: int = 90, evaluations: int = 5, now: Callable = dict) -> str:
    drawn = Picture(plan, now)
    drawn.observe(0, time.monotonic())
    for step in range(1000, 1000 * evaluations + 1, 1000):
        drawn.add(row(step))
    drawn.observe(1000 * evaluations, time.monotonic() + 10)
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 m 00 s"),
        (125, "2 m 05 s"),
        (3599.7, "1 h 00 m"),
        (3720, "1 h 02 m"),
        (86_399, "23 h 59 m"),
        (273_600, "3 d 04 h"),
    ],
)
def test_durations(seconds: float, said: str):
    assert words.duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "spread", "said"),
    [
        (1234.54, 12.3, "1,234.5 ± 12.3"),
        (-7, None, "-7"),
        (0.0, 0.04567, "0.0 ± 0.0457"),
        (12_345_678, 9.96, "12,345,678.0 ± 9.96"),
        (None, 1.0, "—"),
        (float("nan"), None, "—"),
    ],
)
def test_scores(value: float | None, spread: float | None, said: str):
    assert words.score(value, spread) == said


def test_an_evaluation_in_a_line():
    # 20 updates a step and 8 steps a second.
    line = "step 5,000  return 1,666.7 ± 12.5  (10 episodes)  10 m 25 s  160 updates/s"
    assert evaluation_line(row(5000), row(4000)) == line
    assert evaluation_line({"step": 5, "eval/return": None}, {}) == "step 5  return —"


def test_off_a_terminal_there_is_a_line_an_evaluation():
    stream = io.StringIO()
    display = open_display(stream)
    assert isinstance(display, PlainDisplay)
    replay(display, evaluations=2)
    assert stream.getvalue().splitlines() == [
        "SAC on Hopper, seed 0",
        "A checkpoint takes 12 MB.",
        "step 1,000  return 333.3 ± 12.5  (10 episodes)  2 m 05 s  160 updates/s",
        "step 2,000  return 666.7 ± 12.5  (10 episodes)  4 m 10 s  160 updates/s",
        "A sink failed.",
        "evaluated return 950.0",
    ]


def test_a_resumed_run_counts_its_speed_from_the_row_before():
    stream = io.StringIO()
    display = PlainDisplay(Sturdy(stream))
    display.start(Plan("", 5000, first_step=4000, history=[row(4000, policy_updates=0)]))
    display.evaluation(row(5000))
    assert "800 updates/s" in stream.getvalue()


def test_a_stream_that_cannot_say_a_letter_gets_another():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    replay(open_display(stream), evaluations=1)
    stream.seek(0)
    assert "return 333.3 ? 12.5" in stream.read()


@pytest.mark.parametrize(
    ("encoding", "term", "expected"),
    [("utf-8", "xterm", LiveDisplay), ("utf-8", "dumb", PlainDisplay), ("ascii", "xterm", PlainDisplay)],
)
def test_only_a_terminal_that_can_draw_gets_the_picture(
    monkeypatch: pytest.MonkeyPatch, encoding: str, term: str, expected: type
):
    monkeypatch.setenv("TERM", term)
    stream = Terminal()
    monkeypatch.setattr(stream, "encoding", encoding, raising=False)
    assert type(open_display(stream)) is expected


def test_without_a_stream_nothing_is_shown():
    replay(open_display(None))
    closed = Terminal()
    closed.close()
    replay(open_display(closed))


def test_the_picture_says_what_matters():
    plan = Plan("", 10_000, history=[row(500, **{"eval/return": 9000.0})])
    text = picture(plan, now=lambda: {"policy_updates": 7, "seconds": 3700.0, "seconds/env": 3.0, "seconds/eval": 1.0})
    assert "5,000 / 10,000 steps" in text
    assert "1 h 01 m so far, about 10 s to go" in text
    assert "1,666.7 ± 12.5 at step 5,000, best 9,000.0 at step 500" in text
    assert "█▁▁▂▂▂" in text
    assert "500.0 steps/s, 0 updates/s" in text
    assert "env 75 %, eval 25 %" in text


def test_the_picture_before_anything_is_known():
    text = picture(evaluations=0)
    assert "no evaluation yet" in text
    assert "0 / 5,000 steps" in text


@pytest.mark.parametrize("width", [1, 8, 20, 40, 80, 300])
def test_the_picture_fits_any_terminal(width: int):
    lines = picture(width=width, now=lambda: {"seconds/policy": 1.0, "seconds/model": 1.0}).splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 9, ""),
        ([5.0], 9, "▁"),
        ([0.0, 7.0, 1.0], 9, "▁█▂"),
        ([0.0, 2.0, 8.0, 6.0], 2, "▁█"),
        ([-1.0, -1.0], 9, "▁▁"),
    ],
)
def test_sparklines(values: list[float], width: int, bars: str):
    assert sparkline(values, width) == bars


def test_the_live_display_draws_messages_above_and_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    replay(LiveDisplay(Sturdy(terminal)))
    sent = terminal.getvalue()
    assert "5,000 / 5,000 steps" in sent
    assert sent.index("A checkpoint takes 12 MB.") < sent.index("A sink failed.") < sent.index("evaluated return 950.0")
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")


def test_the_cursor_is_never_hidden_for_long(monkeypatch: pytest.MonkeyPatch):
    """A run that is killed cannot tidy up."""
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    display = LiveDisplay(Sturdy(terminal))
    display.start(PLAN)
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")
    display.stop()


def test_a_tick_is_nearly_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    display = LiveDisplay(Sturdy(Terminal()))
    display.start(PLAN)
    display.tick(1)
    rounds = []
    for _ in range(20):
        began = time.perf_counter()
        for step in range(1000):
            display.tick(step)
        rounds.append((time.perf_counter() - began) / 1000)
    display.stop()
    assert min(rounds) < 20e-6  # under a type checker; a fraction of a microsecond without


@contextmanager
def program(body: str, stdout: int) -> Iterator[subprocess.Popen[str]]:
    """A program that trains a little, with `body` in its loop over steps."""
    code = f"""
        import sys
        from mbpo.display import Plan, Sturdy, open_display
        display = open_display(sys.stdout)
        display.start(Plan("title", 300), lambda: {{"policy_updates": 1}})
        for step in range(1, 301):
            display.tick(step)
            display.evaluation({{"step": step, "eval/return": 1.0}})
            {body}
        display.stop("summary")
        print("done", file=sys.stderr)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment) as process:
        yield process


def test_a_reader_that_leaves_does_not_stop_the_run():
    ours, theirs = os.pipe()
    with program("pass", theirs) as process:
        os.close(theirs)
        os.close(ours)
        assert process.stderr is not None
        assert process.stderr.read() == "done\n"
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_does_not_stop_the_run():
    with Path("/dev/full").open("w") as full, program("pass", full.fileno()) as process:
        assert process.stderr is not None
        assert process.stderr.read() == "done\n"
    assert process.returncode == 0


def test_a_terminal_that_goes_does_not_stop_the_run():
    ours, theirs = pty.openpty()
    with program("pass", theirs) as process:
        os.close(theirs)
        os.read(ours, 100)
        os.close(ours)
        assert process.stderr is not None
        assert process.stderr.read() == "done\n"
    assert process.returncode == 0


def test_a_crash_leaves_the_terminal_as_it_was():
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(ours)
    with program('sys.exit("boom") if step == 100 else print("from the user")', theirs) as process:
        os.close(theirs)
        sent = bytearray()
        while chunk := _read(ours):
            sent += chunk
        assert process.stderr is not None
        assert process.stderr.read() == "boom\n"
    assert termios.tcgetattr(ours) == before
    os.close(ours)
    assert process.returncode == 1
    assert sent.count(b"from the user") == 99
    assert sent.rindex(b"\x1b[?25h") > sent.rindex(b"\x1b[?25l")


def _read(terminal: int) -> bytes:
    """What the program sent; empty (on Linux an error) once it has ended."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""

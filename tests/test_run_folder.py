"""The folder of a run: refusals that leave no trace, one program at a time, series that survive a kill."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbpo.errors import RunError, UsageError
from mbpo.run_folder import RunFolder, as_json
from runs import everything

CONFIG = {"algorithm": "sac", "task": "Hopper", "seed": 0, "rate": 3e-4, "note": "γ"}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG)


# Making and opening


def test_a_new_run_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first"
    made = RunFolder.create(path, CONFIG)
    opened = RunFolder.open(path)
    assert made.config == opened.config == CONFIG
    assert made.checkpoints == opened.checkpoints == path / "checkpoints"
    assert json.loads((path / "config.json").read_text()) == CONFIG
    assert sorted(entry.name for entry in path.iterdir()) == ["config.json", "run.lock"]


def test_an_empty_folder_and_one_of_a_run_killed_while_it_was_made_are_free(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, CONFIG)
    (tmp_path / "config.json").rename(tmp_path / ".config.json.aside")
    os.truncate(tmp_path / ".config.json.aside", 10)
    with pytest.raises(UsageError, match=r"is no run: it holds no config\.json"):
        RunFolder.open(tmp_path)
    assert RunFolder.create(tmp_path, CONFIG).config == CONFIG


def hold_a_run(path: Path) -> None:
    RunFolder.create(path, CONFIG)


def hold_something_else(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("precious")


def be_a_file(path: Path) -> None:
    path.write_text("precious")


def be_below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("precious")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (hold_a_run, r"already holds a run; continue it with `mbpo resume .*run`, or choose another folder"),
        (hold_something_else, r"is not empty \(it holds 'thesis\.tex'\) and is no run; choose another folder"),
        (be_a_file, "is a file; choose a folder"),
        (be_below_a_file, r"No run can be made at .* \(Not a directory\); choose another folder"),
    ],
)
def test_a_path_in_use_is_refused_and_left_as_it_was(
    tmp_path: Path, prepare: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "parent" / "run"
    path.parent.mkdir()
    prepare(path)
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=message):
        RunFolder.create(path, CONFIG)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("config", [{"rate": float("inf")}, {"net": object()}])
def test_a_configuration_that_json_cannot_hold_is_refused_before_anything_is_made(tmp_path: Path, config: Any) -> None:
    with pytest.raises(UsageError, match="configuration cannot be written as JSON"):
        RunFolder.create(tmp_path / "run", config)
    assert everything(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"is no run: it holds no config\.json"),
        ('{"algorithm": "sa', "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "is not a JSON object"),
    ],
)
def test_a_folder_that_is_no_run_is_told(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=message):
        RunFolder.open(tmp_path)
    assert everything(tmp_path) == before


def test_a_path_that_is_no_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist, so it is no run"):
        RunFolder.open(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file, so it is no run"):
        RunFolder.open(tmp_path / "file")


def test_the_configuration_can_be_replaced(folder: RunFolder) -> None:
    with folder.lock():
        folder.write_config({**CONFIG, "steps": 2000})
    assert folder.config == RunFolder.open(folder.path).config == {**CONFIG, "steps": 2000}
    assert not list(folder.path.glob(".*"))


def test_looking_at_a_run_needs_no_jax() -> None:
    program = "import sys, mbpo.run_folder; assert not {'jax', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


# The lock

HOLD = """
import sys
from pathlib import Path
from mbpo.run_folder import RunFolder

folder = RunFolder.open(Path(sys.argv[1]))
with folder.lock():
    {body}
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: RunFolder, body: str = "pass") -> subprocess.Popen[str]:
    """Another program that has the run's lock until its input ends."""
    command = [sys.executable, "-c", HOLD.format(body=body), str(folder.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], how: signal.Signals | None = None) -> None:
    if how is not None:
        process.send_signal(how)
    process.communicate()


def assert_free(folder: RunFolder) -> None:
    with folder.lock():
        pass


def soon_free(folder: RunFolder) -> None:
    """A child that was forked a moment before the kill lets go when it first runs."""
    for _ in range(100):
        try:
            return assert_free(folder)
        except UsageError:
            time.sleep(0.02)
    return assert_free(folder)


@pytest.mark.parametrize("how", [None, signal.SIGKILL])
def test_a_second_program_is_refused_until_the_first_has_ended(folder: RunFolder, how: signal.Signals | None) -> None:
    process = holder(folder)
    refusal = pytest.raises(UsageError, match=rf"is in use by process {process.pid}; wait until that has ended")
    with refusal, RunFolder.open(folder.path).lock():
        pass
    assert RunFolder.open(folder.path).read("metrics") == []
    end(process, how)
    assert_free(folder)


@pytest.mark.parametrize(
    "body",
    [
        "import subprocess; subprocess.Popen(['sleep', '3'], close_fds=False)",
        "import os, time; os.fork() or (time.sleep(3), os._exit(0))",
    ],
)
def test_children_of_a_killed_program_do_not_keep_the_lock(folder: RunFolder, body: str) -> None:
    process = holder(folder, body)
    with pytest.raises(UsageError, match=f"in use by process {process.pid}"):
        assert_free(folder)
    process.send_signal(signal.SIGKILL)
    process.wait()
    soon_free(folder)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()


def test_one_process_cannot_have_it_twice(folder: RunFolder) -> None:
    refused: list[str] = []

    def try_it(other: RunFolder) -> None:
        try:
            assert_free(other)
        except UsageError as error:
            refused.append(str(error))

    with folder.lock():
        for other in (folder, RunFolder.open(folder.path)):
            thread = threading.Thread(target=try_it, args=(other,))
            thread.start()
            thread.join()
            try_it(other)
        assert len(refused) == 4
        assert all(f"in use by process {os.getpid()}" in message for message in refused)
        folder.append("metrics", {"step": 1})
    assert_free(folder)


def test_the_lock_ends_with_an_error(folder: RunFolder) -> None:
    with pytest.raises(ZeroDivisionError), folder.lock():
        folder.append("metrics", {"step": 1 // 0})
    assert_free(folder)


def test_nothing_is_written_without_the_lock(folder: RunFolder) -> None:
    for write in (
        lambda: folder.append("metrics", {"step": 1}),
        lambda: folder.cut("metrics", 0),
        lambda: folder.write_config({}),
    ):
        with pytest.raises(RuntimeError, match=r"without its lock; do it inside `with folder\.lock\(\)`"):
            write()


def test_two_programs_making_the_same_run_do_not_both_succeed(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from mbpo.errors import UsageError
from mbpo.run_folder import RunFolder

sys.stdin.readline()
for number in range(50):
    try:
        RunFolder.create(Path(sys.argv[1]) / str(number), {"maker": sys.argv[2]})
        print(number)
    except UsageError:
        pass
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    makers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "ab"
    ]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()
    made = [maker.communicate()[0].split() for maker in makers]
    assert sorted(map(int, made[0] + made[1])) == list(range(50))
    for name, numbers in zip("ab", made, strict=True):
        assert all(RunFolder.open(tmp_path / number).config == {"maker": name} for number in numbers)


# The series


def test_rows_are_valid_json_in_order_and_there_at_once(folder: RunFolder) -> None:
    row = {
        "step": np.int64(250),
        "eval/return": jnp.float32(1.5),
        "nested": {"z": [float("nan"), 1.0], "a": (-np.inf, np.float32("nan"))},
        "array": np.array([[1.0, np.inf]]),
        "flag": np.bool_(True),
        "half": jnp.bfloat16(0.5),
        "text": "γ",
        "none": None,
    }
    with folder.lock():
        folder.append("metrics", row)
        line = (folder.path / "metrics.jsonl").read_text()
        folder.append("model", {"step": 1})
    plain = {
        "step": 250,
        "eval/return": 1.5,
        "nested": {"z": [None, 1.0], "a": [None, None]},
        "array": [[1.0, None]],
        "flag": True,
        "half": 0.5,
        "text": "γ",
        "none": None,
    }
    assert line.endswith("\n")
    assert json.loads(line) == plain
    assert list(json.loads(line)) == list(row)
    assert folder.read("metrics") == [plain]
    assert folder.series() == ["metrics", "model"]
    assert folder.read("other") == []


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda node: st.lists(node)))
def test_anything_becomes_strict_json(value: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = json.dumps(as_json({"value": value}), allow_nan=False)
    assert json.loads(text, parse_constant=refuse) == as_json({"value": value})


def test_what_json_cannot_hold_is_refused_and_nothing_is_written(folder: RunFolder) -> None:
    with folder.lock():
        with pytest.raises(TypeError, match="is a set, which JSON cannot hold"):
            folder.append("metrics", {"step": 1, "values": {1, 2}})
        with pytest.raises(ValueError, match=r"A row of 'metrics' has no 'step' \(loss\)"):
            folder.append("metrics", {"loss": 1.0})
        with pytest.raises(ValueError, match=r"'\.\./x' is no name for a series"):
            folder.append("../x", {"step": 1})
    assert folder.series() == []


def test_a_torn_last_line_is_left_out_and_the_next_row_starts_a_line(folder: RunFolder) -> None:
    file = folder.path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "eval/re')
    assert [row["step"] for row in folder.read("metrics")] == [1, 2]
    with folder.lock():
        folder.append("metrics", {"step": 4})
    assert file.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 4}\n'
    file.write_bytes(b'{"step": 1}')
    with folder.lock():
        folder.append("metrics", {"step": 4})
    assert file.read_text() == '{"step": 4}\n'


@pytest.mark.parametrize("line", ['{"step": 2, "x', "[1]", '{"x": 1}', "\0\0\0", ""])
def test_a_broken_line_in_the_middle_is_an_error_that_says_where(folder: RunFolder, line: str) -> None:
    (folder.path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(RunError, match=r"Line 2 of '.*metrics\.jsonl' is no row with a step: .*remove that line"):
        folder.read("metrics")


def test_cutting_takes_back_what_came_later(folder: RunFolder) -> None:
    with folder.lock():
        for step in range(1, 6):
            folder.append("metrics", {"step": step, "value": 1 / step})
            folder.append("model", {"step": 10 * step})
        before = (folder.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        with (folder.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 1, "to')
        folder.cut("metrics", 3)
        folder.cut("model", 100)
        assert (folder.path / "metrics.jsonl").read_bytes() == b"".join(before[:3])
        folder.append("metrics", {"step": 4})
        folder.sync()
    assert [row["step"] for row in folder.read("metrics")] == [1, 2, 3, 4]
    assert [row["step"] for row in folder.read("model")] == [10, 20, 30, 40, 50]
    with folder.lock():
        folder.cut("metrics", -1)
    assert folder.read("metrics") == []


def test_a_kill_loses_no_row_that_was_appended(folder: RunFolder) -> None:
    process = holder(folder, "for step in range(99): folder.append('metrics', {'step': step})")
    end(process, signal.SIGKILL)
    assert [row["step"] for row in folder.read("metrics")] == list(range(99))

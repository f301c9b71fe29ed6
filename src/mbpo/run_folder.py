"""The folder of a run: what it was asked (`config.json`), its series (`*.jsonl`), its checkpoints, and its lock.

Imports no JAX, so that the commands that only look at a run answer at once.
"""

import fcntl
import json
import math
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from mbpo.durable import aside, sync_folder, write_durably
from mbpo.errors import RunError, UsageError

CONFIG = "config.json"
LOCK = "run.lock"

_held_locks: set[int] = set()
"""Descriptors of the locks this process holds."""


def _drop_inherited_locks() -> None:
    """In a forked child: a lock lives as long as any process has it open, and must not outlive the run's own."""
    for descriptor in _held_locks:
        os.close(descriptor)
    _held_locks.clear()


os.register_at_fork(after_in_child=_drop_inherited_locks)


class RunFolder:
    """One run on disk. Reading needs no lock; whatever writes does.

    >>> folder = RunFolder.create(Path("runs/first"), config)
    >>> with folder.lock():
    ...     folder.append("metrics", {"step": 250, "eval/return": 12.5})
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        """Of a folder known to be a run; from outside call `create` or `open`."""
        self.path = path
        self.config = dict(config)
        self._open_series: dict[str, BinaryIO] = {}
        self._locked = False

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any]) -> "RunFolder":
        """A new run. Refuses a path that is in use for anything else, and then leaves the disk as it was.

        The run exists from the moment `config.json` has its name; killed before, the folder counts as empty.
        """
        content = _config_bytes(config)
        folder = cls(path, json.loads(content))
        try:
            _refuse_unless_free(path)
            path.mkdir(parents=True, exist_ok=True)
            with folder.lock():
                # Asked again now that nobody else can be making a run here.
                _refuse_unless_free(path)
                write_durably(path / CONFIG, content)
                sync_folder(path.parent)
        except OSError as error:
            raise UsageError(f"No run can be made at '{path}' ({error.strerror}); choose another folder.") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run that lies at `path`."""
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise UsageError(f"'{path}' {what}, so it is no run; name a folder that `mbpo train --out` made.")
        file = path / CONFIG
        if not file.exists():
            raise UsageError(f"'{path}' is no run: it holds no {CONFIG}; name a folder that `mbpo train --out` made.")
        try:
            config = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"'{file}' cannot be read ({error}); restore it, or start a new run.") from error
        if not isinstance(config, dict):
            raise UsageError(f"'{file}' is not a JSON object; restore it, or start a new run.")
        return cls(path, config)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replaces the configuration, as a resume with a new number of steps does."""
        self._require_lock()
        content = _config_bytes(config)
        write_durably(self.path / CONFIG, content)
        self.config = json.loads(content)

    @contextmanager
    def lock(self) -> Generator[None]:
        """Inside, no other program works on the run. The system ends the lock with the process, however that ends."""
        descriptor = _take_lock(self.path)
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            try:
                self._close_series()
            finally:
                _release_lock(descriptor)

    def _require_lock(self) -> None:
        if not self._locked:
            raise RuntimeError(f"'{self.path}' is written to without its lock; do it inside `with folder.lock()`.")

    def append(self, series: str, row: Mapping[str, Any]) -> None:
        """Adds one line of valid JSON to `<series>.jsonl` and hands it to the system, so that a kill keeps it."""
        self._require_lock()
        if "step" not in row:
            raise ValueError(f"A row of '{series}' has no 'step' ({', '.join(row)}); a resume could not place it.")
        line = json.dumps(as_json(row), allow_nan=False)
        if series not in self._open_series:
            self._open_series[series] = _open_for_append(self._series_path(series))
        file = self._open_series[series]
        file.write(line.encode() + b"\n")
        file.flush()

    def series(self) -> list[str]:
        """The names of the series there are."""
        return sorted(path.stem for path in self.path.glob("*.jsonl"))

    def read(self, series: str) -> list[dict[str, Any]]:
        """The rows of `<series>.jsonl`, none if there is no such file. A last line still being written is left out."""
        path = self._series_path(series)
        return [row for _, row in _rows(path)] if path.exists() else []

    def cut(self, series: str, step: int) -> None:
        """Takes back the rows that came after `step`, as if the run had stopped there."""
        self._require_lock()
        self._close_series()
        path = self._series_path(series)
        kept = b"".join(line + b"\n" for line, row in _rows(path) if row["step"] <= step)
        if kept != path.read_bytes():
            write_durably(path, kept)

    def sync(self) -> None:
        """Makes the rows appended so far survive a power cut: before a checkpoint that counts on them."""
        for file in self._open_series.values():
            os.fsync(file.fileno())

    def _series_path(self, series: str) -> Path:
        if not re.fullmatch(r"[\w-]+", series):
            raise ValueError(f"'{series}' is no name for a series; use letters, digits, '_' and '-'.")
        return self.path / f"{series}.jsonl"

    def _close_series(self) -> None:
        files, self._open_series = self._open_series, {}
        for file in files.values():
            file.close()


def as_json(value: Any) -> Any:
    """`value` in JSON's own terms: arrays and their scalars as plain numbers, what is not finite as null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "tolist"):  # arrays of NumPy and JAX, and their scalars
        return as_json(value.tolist())
    raise TypeError(f"{value!r} is a {type(value).__name__}, which JSON cannot hold; give numbers, text or arrays.")


def _config_bytes(config: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(config, indent=2, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"The configuration cannot be written as JSON ({error}); give finite, plain values."
        ) from error


def _refuse_unless_free(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise UsageError(f"'{path}' is a file; choose a folder for the run.")
    if (path / CONFIG).exists():
        raise UsageError(
            f"'{path}' already holds a run; continue it with `mbpo resume {path}`, or choose another folder."
        )
    ours = {LOCK, aside(path / CONFIG).name}
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in ours) if path.exists() else []
    if others:
        raise UsageError(f"'{path}' is not empty (it holds '{others[0]}') and is no run; choose another folder.")


def _take_lock(folder: Path) -> int:
    """The descriptor that holds the lock, until it is closed or the process ends."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"'{folder}' cannot be written to ({error.strerror}); use a folder of yours.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise UsageError(f"'{folder}' cannot be locked ({error.strerror}); choose another file system.") from error
        raise UsageError(
            f"'{folder}' is in use by process {holder or 'unknown'}; wait until that has ended, or stop it."
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    _held_locks.add(descriptor)
    return descriptor


def _release_lock(descriptor: int) -> None:
    if descriptor in _held_locks:  # not in a forked child, which has closed it already
        _held_locks.remove(descriptor)
        os.close(descriptor)


def _open_for_append(path: Path) -> BinaryIO:
    """The file open for appending, at the start of a line: one torn by a kill would spoil the next row."""
    file = path.open("a+b")
    file.seek(0)
    content = file.read()
    if not content.endswith(b"\n"):
        file.truncate(content.rfind(b"\n") + 1)
    return file


def _rows(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """The lines of a series, each with what it says. The last one counts only if it was written to its end."""
    *lines, _torn = path.read_bytes().split(b"\n")
    return [(line, _parse_row(path, number, line)) for number, line in enumerate(lines, start=1)]


def _parse_row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise RunError(f"Line {number} of '{path}' is no row with a step: the file was damaged; remove that line.")
    return row

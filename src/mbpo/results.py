"""Learning curves as data: read from a run folder, exported to the small result file that is committed, read back.

A result is two files side by side: `Hopper-0.csv`, a line an evaluation, and `Hopper-0.json`, the run's configuration
(command, commit, versions, hyper-parameters, machine), so that the curve can be made again.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mbpo.errors import UsageError, nearest

Floats = NDArray[np.float64]

CONFIG = "config.json"
METRICS = "metrics.jsonl"

LEADING_COLUMNS = ("step", "seconds", "eval/return", "eval/return_std", "eval/episodes")
SIGNIFICANT_DIGITS = 6
"""Of a number in a result file: far finer than any figure can show, and a third of the bytes."""


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run: a column of numbers a metric, NaN where there was none."""

    algorithm: str
    task: str
    seed: int
    preset: str | None
    settings: Mapping[str, Any]
    """The hyper-parameters, flat: `{"sac.updates_per_step": 20}`."""
    columns: Mapping[str, Floats]
    source: Path

    @property
    def label(self) -> str:
        return self.algorithm.upper()

    def series(self, x: str, y: str) -> tuple[Floats, Floats]:
        """The points of y over x, without those that have no number."""
        across, up = self._column(x), self._column(y)
        known = np.isfinite(across) & np.isfinite(up)
        if not known.any():
            raise UsageError(f"'{self.source}' has no number in its column '{y}' yet; choose another column.")
        return across[known], up[known]

    def _column(self, name: str) -> Floats:
        if name not in self.columns:
            raise UsageError(f"'{self.source}' has no column '{name}'; {nearest(name, self.columns)}")
        return self.columns[name]


@dataclass(frozen=True)
class Reference:
    """A curve from anywhere, to compare with."""

    label: str
    steps: Floats
    returns: Floats
    std: Floats | None
    source: Path


def read_curve(path: Path) -> Curve:
    """The curve of a run folder or of a result file."""
    if path.is_dir():
        config = _read_config(path / CONFIG, f"'{path}' is no run: give the folder that `mbpo train --out` made.")
        return _curve(config, _columns(_read_rows(path)), path)
    if not path.exists():
        raise UsageError(f"There is no '{path}'; give a run folder or a result file.")
    if path.suffix != ".csv":
        raise UsageError(f"'{path}' is no result file; give a run folder, or the .csv that `mbpo export` wrote.")
    beside = path.with_suffix(".json")
    config = _read_config(
        beside,
        f"'{path}' is no result file, as no '{beside.name}' that `mbpo export` writes with it lies beside it; "
        "any other curve is drawn with --reference.",
    )
    cells = _read_cells(path)
    return _curve(config, {name: _numbers(cells, name, path) for name in cells}, path)


def export(run: Path, out: Path) -> None:
    """Writes the result file of a run to `out` (a .csv) and its configuration beside it (the same name, .json)."""
    if out.suffix != ".csv":
        raise UsageError(f"A result file is a .csv, not '{out}'; give a name that ends in .csv.")
    if not run.is_dir():
        raise UsageError(f"'{run}' is no run; give the folder that `mbpo train --out` made.")
    read_curve(run)
    config = json.loads((run / CONFIG).read_text(encoding="utf-8"))
    # The configuration first: a curve that cannot be repeated must not exist, not even for a moment.
    replace_file(out.with_suffix(".json"), (json.dumps(config, indent=2) + "\n").encode())
    replace_file(out, _table(_read_rows(run)).encode())


def read_reference(path: Path) -> Reference:
    """The curve of any CSV with a header: steps, returns and, if there are, their standard deviations."""
    if not path.is_file():
        raise UsageError(f"There is no reference file '{path}'; give a .csv with a header.")
    cells = _read_cells(path)
    step = _first_of(("step", "steps", "thousand_steps"), cells)
    value = _first_of(("return_mean", "eval/return", "return", "mean"), cells)
    spread = _first_of(("return_std", "eval/return_std", "std"), cells)
    if step is None or value is None:
        raise UsageError(
            f"'{path}' has the columns {', '.join(cells) or '(none)'}, but a reference needs 'step' or "
            "'thousand_steps', and 'return_mean', 'return' or 'eval/return'; rename its header."
        )
    steps = _numbers(cells, step, path) * (1000 if step == "thousand_steps" else 1)
    returns = _numbers(cells, value, path)
    known = np.isfinite(steps) & np.isfinite(returns)
    if not known.any():
        raise UsageError(f"'{path}' has a header but no curve below it; give a file with numbers.")
    std = None if spread is None else _numbers(cells, spread, path)[known]
    _check_increasing(steps[known], path)
    return Reference(path.stem, steps[known], returns[known], std, path)


def replace_file(path: Path, content: bytes) -> None:
    """Writes aside and renames, so that nobody ever sees half a file. Makes the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _curve(config: Mapping[str, Any], columns: Mapping[str, Floats], source: Path) -> Curve:
    if not columns.get("step", np.empty(0)).size:
        raise UsageError(f"'{source}' holds no evaluation yet; let the run reach its first one.")
    _check_increasing(columns["step"], source)
    return Curve(
        algorithm=config["algorithm"],
        task=config["task"],
        seed=config["seed"],
        preset=config.get("preset"),
        settings=dict(_flat(config.get("hyperparameters") or {})),
        columns=columns,
        source=source,
    )


def _read_config(path: Path, otherwise: str) -> dict[str, Any]:
    """The configuration in `path`; where there is none, the error `otherwise`."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(otherwise) from None
    for key, kind in (("algorithm", str), ("task", str), ("seed", int)):
        if not isinstance(config, dict) or not isinstance(config.get(key), kind):
            raise UsageError(f"'{path}' does not say the run's {key}; {otherwise}")
    return config


def _read_rows(run: Path) -> list[dict[str, Any]]:
    """The evaluations of a run. Its last line may be torn: the run may be writing it, or was killed at it."""
    try:
        lines = (run / METRICS).read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    return [_row(line, run / METRICS, number) for number, line in enumerate(lines, start=1)]


def _row(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise UsageError(f"Line {number} of '{path}' is no JSON object; mend or remove that line.")
    return row


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Floats]:
    """The numeric columns, those every reader looks for first, the others in alphabetical order."""
    present = {name for row in rows for name, value in row.items() if _is_number(value)}
    leading = [name for name in LEADING_COLUMNS if name in present]
    return {
        name: np.array([row[name] if _is_number(row.get(name)) else math.nan for row in rows], np.float64)
        for name in [*leading, *sorted(present.difference(leading))]
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(_columns(rows))
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    """Counts stand exactly, other numbers rounded; what is no finite number is an empty cell."""
    if not _is_number(value) or not math.isfinite(value):
        return ""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 10**SIGNIFICANT_DIGITS):
        return str(int(value))
    return repr(float(f"{value:.{SIGNIFICANT_DIGITS}g}")).removesuffix(".0")


def _read_cells(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file as text, by the names in its header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *lines = [line for line in csv.reader(file) if line] or [[]]
    except (UnicodeDecodeError, csv.Error):
        raise UsageError(f"'{path}' is no text in CSV format; give a .csv with a header.") from None
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise UsageError(f"Line {number} of '{path}' has {len(line)} cells and its header {len(header)}; mend it.")
    return {name.strip(): [line[place].strip() for line in lines] for place, name in enumerate(header)}


def _numbers(cells: Mapping[str, list[str]], name: str, path: Path) -> Floats:
    try:
        return np.array([float(cell or "nan") for cell in cells[name]], np.float64)
    except ValueError as error:
        raise UsageError(f"Column '{name}' of '{path}' must hold numbers: {error}; mend that cell.") from None


def _check_increasing(steps: Floats, source: Path) -> None:
    if not (np.diff(steps) > 0).all():
        place = int(np.argmin(np.diff(steps) > 0))
        raise UsageError(
            f"The steps of '{source}' must increase, but {steps[place + 1]:g} follows {steps[place]:g}; "
            "remove what was written twice."
        )


def _first_of(names: Sequence[str], known: Iterable[str]) -> str | None:
    return next((name for name in names if name in known), None)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

"""Where evaluation rows also go: TensorBoard and Weights & Biases, behind one small protocol.

Both are optional extras. `metrics.jsonl` stays the source of truth, so a sink may fail: it is reported once, left out
from then on, and the run goes on.
"""

import importlib
import importlib.util
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mbpo.errors import UsageError, nearest

Row = Mapping[str, Any]
Report = Callable[[str], None]


@runtime_checkable
class Sink(Protocol):
    """Takes the rows of `metrics.jsonl` as they are written."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's `tensorboard/` folder, the configuration as a text among them."""

    def __init__(self, folder: Path, config: Row, step: int):
        module: Any = importlib.import_module("tensorboardX")
        self._writer = module.SummaryWriter(
            str(folder / "tensorboard"),
            # A resume makes the rows after its checkpoint again: those of the interrupted run are hidden.
            purge_step=step + 1 if step else None,
            # Files are named after the second they are made in: a resume in the same one must not overwrite.
            filename_suffix=f".{step}",
        )
        if step == 0:
            self._writer.add_text("config", f"```\n{json.dumps(config, indent=2, default=str)}\n```", 0)

    def write(self, row: Row) -> None:
        for name, value in _numbers(row).items():
            self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project `mbpo`; its id is kept in the run folder, so that a resume continues the same run."""

    def __init__(self, folder: Path, config: Row):
        module: Any = importlib.import_module("wandb")
        self._run = module.init(
            project="mbpo",
            id=_kept_id(folder / "wandb-id"),
            name=folder.name,
            dir=str(folder),
            config=dict(config),
            resume="allow",
        )

    def write(self, row: Row) -> None:
        # The service keeps what it has: rows that a resume makes again are equal, so they need not be sent.
        if row["step"] >= self._run.step:
            self._run.log(_numbers(row), step=row["step"])

    def close(self) -> None:
        self._run.finish()


@dataclass(frozen=True)
class Extra:
    """A sink that can be asked for: the package it needs, and how it is opened (folder, config, step)."""

    package: str
    open: Callable[[Path, Row, int], Sink]


SINKS: dict[str, Extra] = {
    "tensorboard": Extra("tensorboardX", TensorBoard),
    "wandb": Extra("wandb", lambda folder, config, _step: WeightsAndBiases(folder, config)),
}
"""By the name of the extra that installs them."""


def check_sinks(names: Sequence[str]) -> None:
    """Raises if a sink is unknown or not installed: to be called before anything is created."""
    if isinstance(names, str):
        raise UsageError(f"sinks is {names!r}; give a tuple of names: ({names!r},).")
    for name in names:
        if name not in SINKS:
            raise UsageError(f"There is no sink '{name}'; {nearest(name, SINKS)}")
        if importlib.util.find_spec(SINKS[name].package) is None:
            raise UsageError(
                f"The sink '{name}' needs the package {SINKS[name].package}, which is not installed; "
                f"run: pip install 'mbpo[{name}]'"
            )


def open_sinks(names: Sequence[str], folder: Path, config: Row, *, report: Report, step: int = 0) -> list[Sink]:
    """The named sinks of the run in `folder`, none of which can stop it.

    `step` is where the run begins: not 0 in a resumed one. `report` is told, once a sink, that one failed.
    """
    check_sinks(names)
    return [Guarded(name, lambda name=name: SINKS[name].open(folder, config, step), report) for name in names]


class Guarded:
    """A sink whose first failure, at opening or later, is reported, and which takes nothing from then on."""

    def __init__(self, name: str, opened: Callable[[], Sink], report: Report):
        self._name = name
        self._report = report
        self._sink: Sink | None = None
        self._guard(lambda: setattr(self, "_sink", opened()))

    def write(self, row: Row) -> None:
        if self._sink is not None:
            self._guard(lambda sink=self._sink: sink.write(row))

    def close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            self._guard(sink.close)

    def _guard(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self._sink, failed = None, self._sink
            self._report(
                f"The sink '{self._name}' failed and is left out from here on ({type(error).__name__}: {error}); "
                "the run goes on, and metrics.jsonl has every row."
            )
            with suppress(Exception):
                if failed is not None:
                    failed.close()


def _kept_id(path: Path) -> str:
    if not path.exists():
        path.write_text(uuid.uuid4().hex[:12] + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _numbers(row: Row) -> dict[str, int | float]:
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }

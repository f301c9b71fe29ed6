"""Sinks that work, fail, are missing and are resumed, with stand-ins for the two optional packages."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mbpo.errors import UsageError
from mbpo.sinks import Guarded, Sink, check_sinks, open_sinks
from runs import config, row


class Memory:
    """A sink that remembers, and fails where it is told to."""

    def __init__(self, fails_at: int | None = None, fails_to_close: bool = False):
        self.steps: list[int] = []
        self.closed = False
        self._fails_at = fails_at
        self._fails_to_close = fails_to_close

    def write(self, row: Mapping[str, Any]) -> None:
        if row["step"] == self._fails_at:
            raise ConnectionError("no network")
        self.steps.append(row["step"])

    def close(self) -> None:
        self.closed = True
        if self._fails_to_close:
            raise RuntimeError("still no network")


class FakeTensorBoard(ModuleType):
    """The part of tensorboardX that is used."""

    def __init__(self) -> None:
        super().__init__("tensorboardX")
        self.made: list[dict[str, Any]] = []
        self.scalars: list[tuple[str, float, int]] = []
        self.texts: list[str] = []
        self.closed = 0

    def SummaryWriter(self, folder: str, **options: Any) -> "FakeTensorBoard":  # noqa: N802  (its name there)
        self.made.append({"folder": folder, **options})
        return self

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def add_text(self, _name: str, text: str, _step: int) -> None:
        self.texts.append(text)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class FakeWandb(ModuleType):
    """The part of wandb that is used: a service that knows what it was told before."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.made: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **options: Any) -> "FakeWandb":
        self.made.append(options)
        return self

    @property
    def step(self) -> int:
        return self.logged[-1][0] + 1 if self.logged else 0

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.logged.append((step, numbers))

    def finish(self) -> None:
        self.finished += 1


def install(monkeypatch: pytest.MonkeyPatch, module: Any) -> Any:
    module.__spec__ = importlib.util.spec_from_loader(module.__name__, loader=None)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def open_one(name: str, folder: Path, step: int = 0) -> Sink:
    (sink,) = open_sinks([name], folder, config(), report=pytest.fail, step=step)
    return sink


def test_tensorboard_gets_the_numbers_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = install(monkeypatch, FakeTensorBoard())
    sink = open_one("tensorboard", tmp_path)
    sink.write({"step": 1000, "eval/return": 2.5, "train/return": None, "bad": float("nan"), "text": "x", "flag": True})
    sink.close()
    assert module.scalars == [("step", 1000, 1000), ("eval/return", 2.5, 1000)]
    assert module.made == [{"folder": str(tmp_path / "tensorboard"), "purge_step": None, "filename_suffix": ".0"}]
    assert "mbpo train --algorithm sac" in module.texts[0]
    assert module.closed == 1


def test_a_resume_hides_what_tensorboard_will_get_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = install(monkeypatch, FakeTensorBoard())
    open_one("tensorboard", tmp_path, step=3000)
    assert module.made[0]["purge_step"] == 3001
    assert module.texts == []


def test_a_resume_continues_the_same_run_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = install(monkeypatch, FakeWandb())
    first = open_one("wandb", tmp_path)
    for step in (1000, 2000, 3000):
        first.write(row(step))
    second = open_one("wandb", tmp_path, step=1000)
    for step in (2000, 3000, 4000):
        second.write(row(step))
    second.close()
    assert [step for step, _ in module.logged] == [1000, 2000, 3000, 4000]
    assert "train/return" not in module.logged[0][1]
    assert module.made[0]["id"] == module.made[1]["id"]
    assert module.made[0]["resume"] == "allow"
    assert module.made[0]["config"] == config()
    assert module.finished == 1


def test_two_runs_of_wandb_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = install(monkeypatch, FakeWandb())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        open_one("wandb", tmp_path / name)
    assert module.made[0]["id"] != module.made[1]["id"]


def test_an_extra_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"tensorboardX, .* not installed; run: pip install 'mbpo\[tensorboard\]'"):
        open_sinks(["tensorboard"], tmp_path, {}, report=pytest.fail)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_sink():
    with pytest.raises(UsageError, match="There is no sink 'wandbb'; did you mean 'wandb'"):
        check_sinks(["wandbb"])


def test_a_sink_that_fails_is_reported_once_and_left_out():
    memory, reports = Memory(fails_at=3), []
    sink = Guarded("wandb", lambda: memory, reports.append)
    for step in range(1, 6):
        sink.write({"step": step})
    sink.close()
    assert memory.steps == [1, 2]
    assert memory.closed
    (report,) = reports
    assert report.startswith("The sink 'wandb' failed and is left out from here on (ConnectionError: no network);")


def test_a_sink_that_cannot_be_opened_is_reported_once():
    reports: list[str] = []

    def refuse() -> Sink:
        raise PermissionError("no API key")

    sink = Guarded("wandb", refuse, reports.append)
    sink.write({"step": 1})
    sink.close()
    assert len(reports) == 1
    assert "no API key" in reports[0]


@pytest.mark.parametrize("fails_at", [1, None])
def test_a_sink_that_cannot_even_be_closed_is_reported_once(fails_at: int | None):
    reports: list[str] = []
    sink = Guarded("wandb", lambda: Memory(fails_at, fails_to_close=True), reports.append)
    sink.write({"step": 1})
    sink.close()
    sink.close()
    assert len(reports) == 1


def test_a_signal_is_no_failure_of_the_sink():
    class Interrupted(Memory):
        def write(self, row: Mapping[str, Any]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded("wandb", Interrupted, pytest.fail).write({"step": 1})

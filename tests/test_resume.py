"""A run that was stopped and resumed is the run that was not: the same rows, and the same bits of all it learned."""

import hashlib
import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import mbpo
from mbpo import model_fit
from mbpo.algorithms import ALGORITHMS
from mbpo.envs.probes import point_line_probe
from training import (
    TINY,
    TINY_SAC,
    Forgetful,
    assert_same_outcome,
    digests,
    interrupted,
    series,
    tear,
    train,
)

STEPS = 260

Folder = Callable[[str], Path]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Uninterrupted runs by algorithm, each made once."""
    made: dict[str, Path] = {}

    def run(algorithm: str) -> Path:
        if algorithm not in made:
            made[algorithm] = tmp_path_factory.mktemp("whole") / algorithm
            train(made[algorithm], algorithm, STEPS)
        return made[algorithm]

    return run


def load(path: Path, env: Any = point_line_probe) -> mbpo.Run:
    return mbpo.load(path, env=env)


def last_step(run: Path) -> int:
    return max(int(path.name.split("-")[1]) for path in (run / "checkpoints").iterdir())


# Inside the warm-up (40 random steps) and at its end, inside and behind an episode of 30 steps, one step before,
# at and after an evaluation (every 50); for MBPO before a fit (41, 66, 91...), at one, and where k grows (140, 240).
CUTS = {
    "sac": (17, 40, 49, 50, 51, 173),
    "ppo": (1, 31, 32, 50, 259),
    "mbpo": (17, 40, 41, 66, 100, 140, 203, 240),
}


def test_every_algorithm_is_cut() -> None:
    assert TINY.keys() == CUTS.keys() == ALGORITHMS.keys()


@pytest.mark.parametrize(("algorithm", "cut"), [(name, cut) for name, cuts in CUTS.items() for cut in cuts])
def test_stopped_by_a_signal_inside_a_step(tmp_path: Path, whole: Folder, algorithm: str, cut: int) -> None:
    with pytest.raises(mbpo.StoppedBySignal) as stop:
        train(tmp_path / "run", algorithm, STEPS, interrupted(cut))
    assert stop.value.signal == signal.SIGTERM
    assert last_step(tmp_path / "run") == cut
    load(tmp_path / "run").resume(display=None)
    assert_same_outcome(tmp_path / "run", whole(algorithm))


@pytest.mark.parametrize("algorithm", TINY)
def test_stopped_many_times(tmp_path: Path, whole: Folder, algorithm: str) -> None:
    with pytest.raises(mbpo.StoppedBySignal):
        train(tmp_path / "run", algorithm, STEPS, interrupted(33))
    # What is repeated of an episode counts as steps of the environment, so no two stops come after as many.
    for further in (40, 75, 90, 60):
        try:
            load(tmp_path / "run", interrupted(further)).resume(display=None)
        except mbpo.StoppedBySignal:
            continue
    load(tmp_path / "run").resume(display=None)
    assert_same_outcome(tmp_path / "run", whole(algorithm))


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("fit", [1, 3])
def test_a_signal_during_a_fit_abandons_it(
    tmp_path: Path, whole: Folder, monkeypatch: pytest.MonkeyPatch, fit: int, epoch: int
) -> None:
    """The fit is given up after its epoch, leaves no row, and is made again with the same bits."""
    judged: list[int] = []

    class SignallingStop(model_fit.EarlyStop):
        def judge(self, error: Any) -> Any:
            improved = super().judge(error)
            judged.append(self.epochs)
            if judged.count(1) == fit and self.epochs == epoch:
                signal.raise_signal(signal.SIGINT)
            return improved

    with monkeypatch.context() as patch:
        patch.setattr(model_fit, "EarlyStop", SignallingStop)
        with pytest.raises(mbpo.StoppedBySignal):
            train(tmp_path / "run", "mbpo", STEPS)
    assert judged[-1] == epoch
    assert len(series(tmp_path / "run", "fits")) == fit - 1
    assert last_step(tmp_path / "run") == 40 + 25 * (fit - 1)
    load(tmp_path / "run").resume(display=None)
    assert_same_outcome(tmp_path / "run", whole("mbpo"))


@pytest.mark.parametrize("algorithm", TINY)
def test_a_signal_during_an_evaluation_abandons_it(tmp_path: Path, whole: Folder, algorithm: str) -> None:
    made: list[Any] = []

    def task() -> Any:
        made.append(None)
        # The third environment is the second of the two that are evaluated on; both evaluations have 30 steps or fewer.
        return interrupted(35)() if len(made) == 3 else point_line_probe()

    with pytest.raises(mbpo.StoppedBySignal):
        train(tmp_path / "run", algorithm, STEPS, task)
    assert [row["step"] for row in series(tmp_path / "run", "metrics")] == [50]
    assert last_step(tmp_path / "run") == 100
    load(tmp_path / "run").resume(display=None)
    assert_same_outcome(tmp_path / "run", whole(algorithm))


@pytest.mark.parametrize("algorithm", TINY)
def test_stopped_by_a_callback(tmp_path: Path, whole: Folder, algorithm: str) -> None:
    run = train(tmp_path / "run", algorithm, STEPS, callback=lambda row: row["step"] == 150)
    assert run.metrics[-1]["step"] == last_step(tmp_path / "run") == 150
    run.resume(display=None)
    assert_same_outcome(tmp_path / "run", whole(algorithm))


@pytest.mark.parametrize("algorithm", TINY)
def test_going_on_beyond_the_original_end(tmp_path: Path, algorithm: str) -> None:
    """The buffers have another capacity then. Only the number of steps in the plan is another one."""
    train(tmp_path / "whole", algorithm, 200)
    run = train(tmp_path / "run", algorithm, 100)
    run.resume(200, display=None)
    assert run.config.steps == 200
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == 200
    assert_same_outcome(tmp_path / "run", tmp_path / "whole")


def test_an_end_between_two_evaluations_leaves_its_row_and_changes_nothing_else(tmp_path: Path) -> None:
    train(tmp_path / "whole", "sac", 200)
    train(tmp_path / "run", "sac", 120).resume(200, display=None)
    rows = [row for row in series(tmp_path / "run", "metrics") if row["step"] != 120]

    def learned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # Which training episodes a row sums up does depend on when the last one was written.
        return [{name: value for name, value in row.items() if not name.startswith("train/")} for row in rows]

    assert learned(rows) == learned(series(tmp_path / "whole", "metrics"))
    assert digests(tmp_path / "run") == digests(tmp_path / "whole")


@pytest.mark.parametrize("cut", [25, 57])
def test_on_the_simulator(tmp_path: Path, cut: int) -> None:
    make = partial(gymnasium.make, "InvertedPendulum-v5")
    train(tmp_path / "whole", TINY_SAC, 90, make)
    with pytest.raises(mbpo.StoppedBySignal):
        train(tmp_path / "run", TINY_SAC, 90, interrupted(cut, task=make))
    load(tmp_path / "run", make).resume(display=None)
    assert_same_outcome(tmp_path / "run", tmp_path / "whole")


def test_an_environment_that_cannot_repeat_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(mbpo.StoppedBySignal):
        train(tmp_path / "run", "sac", 100, interrupted(43, task=Forgetful))
    run = load(tmp_path / "run", Forgetful).resume(display=True)
    assert "did not repeat its episode" in capsys.readouterr().out
    assert [row["step"] for row in run.metrics] == [50, 100]


def test_killed_before_the_first_save(tmp_path: Path, whole: Folder) -> None:
    """Such a folder holds a configuration, perhaps rows, and no checkpoint."""
    run = train(tmp_path / "run", "sac", STEPS, callback=lambda _row: True)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.rename(tmp_path / path.name)
    with pytest.raises(mbpo.UsageError, match="has no checkpoint yet"):
        load(run.path).predict([0.0])
    run.resume(display=None)
    assert_same_outcome(tmp_path / "run", whole("sac"))


def test_a_finished_run_says_so_and_changes_nothing(whole: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    path = whole("sac")
    before = {name: (path / name).read_bytes() for name in ("metrics.jsonl", "config.json")}
    checkpoints = {
        file: hashlib.sha256(file.read_bytes()).hexdigest() for file in (path / "checkpoints").rglob("*.json")
    }
    load(path).resume(display=True)
    assert "The run has all of its 260 steps; to go on, give resume a larger total" in capsys.readouterr().out
    assert before == {name: (path / name).read_bytes() for name in before}
    after = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in (path / "checkpoints").rglob("*.json")}
    assert checkpoints == after


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [tear, flip, Path.unlink])
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, whole: Folder, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], Any]
) -> None:
    with pytest.raises(mbpo.StoppedBySignal):
        train(tmp_path / "run", "sac", STEPS, interrupted(60))
    with pytest.raises(mbpo.StoppedBySignal):
        load(tmp_path / "run", interrupted(100)).resume(display=None)
    newest = last_step(tmp_path / "run")
    assert newest > 60
    damage(tmp_path / "run" / "checkpoints" / f"step-{newest:09d}" / "state.safetensors")
    load(tmp_path / "run").resume(display=True)
    said = capsys.readouterr().out
    assert f"The checkpoint 'step-{newest:09d}' was not used: its state.safetensors is" in said
    assert "The run goes on from step 60." in said
    assert_same_outcome(tmp_path / "run", whole("sac"))


def test_a_foreign_checkpoint_is_not_taken(tmp_path: Path, whole: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(mbpo.StoppedBySignal):
        train(tmp_path / "run", "sac", STEPS, interrupted(60))
    foreign = max((whole("sac") / "checkpoints").iterdir())
    (tmp_path / "run" / "checkpoints" / foreign.name).mkdir()
    for file in foreign.iterdir():
        (tmp_path / "run" / "checkpoints" / foreign.name / file.name).write_bytes(file.read_bytes())
    load(tmp_path / "run").resume(display=True)
    said = capsys.readouterr().out
    assert "belongs to another run" in said
    assert "The run goes on from step 60." in said
    assert_same_outcome(tmp_path / "run", whole("sac"))


def test_none_left_is_a_clear_error(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "sac", 20)
    for file in (tmp_path / "run" / "checkpoints").rglob("state.safetensors"):
        tear(file)
    with pytest.raises(mbpo.RunError, match=r"No checkpoint in .* is good"):
        run.resume(30, display=None)

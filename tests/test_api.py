"""mbpo from Python: train, predict, evaluate, save, load and resume; and what goes wrong inside a run."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.wrappers import RescaleAction

import mbpo
from mbpo import config, evaluate
from mbpo.addresses import Purpose, seed_at
from mbpo.algorithms import ALGORITHMS
from mbpo.envs.adapter import open_environment
from mbpo.envs.faults import EnvironmentFault
from mbpo.envs.probes import EndlessProbe, endless_probe, point_line_probe
from mbpo.envs.tasks import TASKS
from mbpo.presets import find_preset
from mbpo.run_folder import RunFolder
from runs import everything
from training import TINY_SAC, Env, assert_same_outcome, digests, series, tear, train

STEPS = 100


def wide_probe() -> Env:
    """The point on the line with actions from 10 to 20."""
    return RescaleAction(point_line_probe(), np.float32([10]), np.float32([20]))


def load(path: Path, task: Any = wide_probe) -> mbpo.Run:
    return mbpo.load(path, env=task)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test changes."""
    path = tmp_path_factory.mktemp("finished") / "run"
    train(path, "sac", STEPS, wide_probe)
    return path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


# The names


def test_the_public_names_are_complete_sorted_and_explained() -> None:
    assert sorted(mbpo.__all__, key=lambda name: (not name.isupper(), name.islower(), name)) == mbpo.__all__
    assert set(mbpo.__all__) == set(mbpo._HOMES)
    assert set(mbpo.__all__) <= set(dir(mbpo))
    for name in mbpo.__all__:
        public = getattr(mbpo, name)
        assert public.__name__ == name
        assert public.__doc__
    with pytest.raises(AttributeError, match="module 'mbpo' has no attribute 'trian'"):
        _ = mbpo.trian


def test_every_algorithm_is_public() -> None:
    assert {kind.__name__ for kind in ALGORITHMS.values()} <= set(mbpo.__all__)


# A run and what it leaves behind


def test_a_run_says_what_it_is(finished: Path) -> None:
    run = load(finished)
    assert repr(run) == f"<Run '{finished}': sac on wide_probe, 100 steps>"
    assert run.algorithm == TINY_SAC
    assert (run.path, run.config.seed, run.config.custom_environment) == (finished, 0, True)
    assert run.config.command.startswith("mbpo.train(wide_probe, SAC(")
    assert json.loads((finished / "config.json").read_text()) == config.as_mapping(run.config)


def test_the_config_says_all_that_is_needed_to_repeat_the_run(finished: Path) -> None:
    said = json.loads((finished / "config.json").read_text())
    assert said["hyperparameters"] == json.loads(json.dumps(dataclasses.asdict(TINY_SAC)))
    assert {"mbpo", "jax", "gymnasium", "mujoco", "python"} <= set(said["versions"])
    assert said["versions"]["jax"] == jax.__version__
    assert {"algorithm", "task", "preset", "seed", "steps", "evaluate_every", "episodes", "commit"} <= set(said)


def test_a_row_an_evaluation_with_its_keys(finished: Path) -> None:
    rows = load(finished).metrics
    assert rows == [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [50, 100]
    parts = {f"seconds/{part}" for part in ("env", "policy", "model", "rollout", "eval", "checkpoint", "compile")}
    for row in rows:
        assert parts | {"seconds", "eval/return", "eval/return_std", "policy_updates", "model_updates"} <= set(row)
        assert (row["eval/episodes"], row["policy_updates"], row["model_updates"]) == (2, row["step"] - 40, 0)
        assert sum(row[part] for part in parts) <= row["seconds"]
    assert all(rows[0][part] <= rows[1][part] for part in (*parts, "seconds"))


def test_the_preset_of_a_name_and_an_algorithm_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on a task that cannot start: what it was asked for is known before."""
    asked: list[mbpo.Run] = []
    monkeypatch.setattr(mbpo.Run, "start", lambda run, _session: asked.append(run))
    monkeypatch.chdir(tmp_path)
    mbpo.train("Hopper", "sac")
    mbpo.train("Hopper", TINY_SAC, steps=7, seed=3)
    mbpo.train("HalfCheetah", steps=7, preset="released", evaluate_every=5, episodes=4)
    named, own, other = asked
    preset = find_preset("sac", TASKS["Hopper"])
    assert named.algorithm == preset.algorithm
    assert (named.config.steps, named.config.evaluate_every, named.config.episodes) == (preset.steps, 1000, 10)
    assert (own.algorithm, own.config.algorithm, own.config.steps) == (TINY_SAC, "sac", 7)
    assert [str(run.path) for run in asked] == ["runs/sac-Hopper-0", "runs/sac-Hopper-3", "runs/mbpo-HalfCheetah-0"]
    assert other.config.command == (
        "mbpo.train('HalfCheetah', 'mbpo', steps=7, seed=0, preset='released', evaluate_every=5, episodes=4)"
    )


# Predicting and evaluating


def test_predict_takes_one_observation_or_a_batch(finished: Path) -> None:
    run = load(finished)
    batch = np.linspace(-1, 1, 5)[:, None]
    actions = run.predict(batch)
    assert (actions.shape, actions.dtype) == ((5, 1), np.float32)
    assert len(np.unique(actions)) == 5
    assert ((actions >= 10) & (actions <= 20)).all()
    for obs, action in zip(batch, actions, strict=True):
        np.testing.assert_allclose(run.predict(obs), action, rtol=1e-6)
        np.testing.assert_allclose(run.predict(obs.tolist()), action, rtol=1e-6)
    np.testing.assert_array_equal(run.predict(batch), actions)
    assert run.predict(np.zeros((0, 1))).shape == (0, 1)


def test_predict_may_explore(finished: Path) -> None:
    drawn, again = ([run.predict([0.0], deterministic=False) for _ in range(20)] for run in (load(finished),) * 2)
    assert len(np.unique(drawn)) == 20
    assert not np.array_equal(drawn, again)
    assert np.min(drawn) >= 10
    assert np.max(drawn) <= 20
    other = load(finished)
    np.testing.assert_array_equal(drawn, [other.predict([0.0], deterministic=False) for _ in range(20)])


@pytest.mark.parametrize("shape", [(), (2,), (3, 2), (1, 1, 1)])
def test_predict_refuses_other_shapes(finished: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(mbpo.UsageError, match="has 1 numbers, and this array the shape") as refused:
        load(finished).predict(np.zeros(shape))
    assert f"the shape {shape}; pass (1,) or (batch, 1)." in str(refused.value)


def test_evaluate_is_what_predict_reaches(finished: Path) -> None:
    run = load(finished)
    result = run.evaluate(episodes=3, seed=5)
    env = wide_probe()
    for i in range(3):
        obs, _ = env.reset(seed=seed_at(5, Purpose.PREDICTION, i))
        rewards, over = [], False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(run.predict(obs))
            rewards.append(float(reward))
            over = terminated or truncated
        assert result.lengths[i] == len(rewards)
        assert result.returns[i] == pytest.approx(sum(rewards))
        discounted = sum(reward * run.algorithm.discount**time for time, reward in enumerate(rewards))
        assert result.discounted_returns[i] == pytest.approx(discounted)
    assert (result.mean, result.std) == (pytest.approx(np.mean(result.returns)), pytest.approx(np.std(result.returns)))
    assert run.evaluate(episodes=3, seed=5).returns == result.returns
    assert run.evaluate(episodes=3, seed=6).returns != result.returns


def test_an_episode_without_any_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "MAX_STEPS", 25)
    environments = [open_environment(make) for make in (EndlessProbe, endless_probe)]
    result = evaluate.evaluate(environments, np.zeros_like, seeds=[0, 0], discount=0.5)
    assert (result.returns, result.lengths) == ((25.0, 10.0), (25, 10))


# Saving, loading, resuming


def test_a_saved_run_is_a_run(copied: Path, tmp_path: Path) -> None:
    run = load(copied)
    assert run.save(tmp_path / "new" / "copy") == tmp_path / "new" / "copy"
    saved = load(tmp_path / "new" / "copy")
    assert not list(saved.path.rglob("*.lock"))
    assert digests(saved.path) == digests(copied)
    np.testing.assert_array_equal(saved.predict([[0.1], [0.2]]), run.predict([[0.1], [0.2]]))
    before = everything(copied)
    saved.resume(150, display=False)
    assert everything(copied) == before
    with pytest.raises(mbpo.UsageError, match=r"copy' exists already; choose another place to save the run to"):
        run.save(tmp_path / "new" / "copy")


def test_a_resumed_run_acts_as_it_has_learned_since(copied: Path) -> None:
    run = load(copied)
    before = run.predict([0.3])
    assert run.resume(150, display=None) is run
    assert (run.config.steps, run.metrics[-1]["step"]) == (150, 150)
    assert run.predict([0.3]) != before
    assert run.predict([0.3]) == load(copied).predict([0.3])


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(copied: Path) -> None:
    run = load(copied)
    run.resume(101, display=None)
    tear(copied / "checkpoints" / "step-000000101" / "state.safetensors")
    with pytest.warns(mbpo.RunWarning, match="'step-000000101' was not used: its state.safetensors is"):
        action = load(copied).predict([0.3])
    shutil.rmtree(copied / "checkpoints" / "step-000000101")
    assert load(copied).predict([0.3]) == action


def test_a_run_on_a_function_needs_that_function_again(finished: Path) -> None:
    with pytest.raises(mbpo.UsageError, match=r"given as a function \(wide_probe\); .*mbpo\.load\(path, env=function"):
        mbpo.load(finished)


def test_another_environment_than_that_of_the_run(finished: Path) -> None:
    pendulum = load(finished, lambda: gymnasium.make("Pendulum-v1"))
    with pytest.raises(mbpo.RunError, match=r"made by other hyper-parameters or in another environment"):
        pendulum.evaluate(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has the format 2 and this program reads 1; use the version of mbpo that made the run"),
        ({"seed": "0"}, "has '0' as seed; restore the file as the run wrote it"),
        ({"seed": None}, "has None as seed; restore the file"),
        ({"steps": 1.5}, "has 1.5 as steps; restore the file"),
        ({"hyperparameters": []}, r"has \[\] as hyperparameters; restore the file"),
        ({"algorithm": "pets"}, "was made by the algorithm 'pets', which this mbpo does not have"),
        ({"hyperparameters": {"width": 3}}, "SAC has no hyper-parameter 'width'; the run was made by another version"),
        ({"hyperparameters": {"batch_size": 0}}, "batch_size of SAC is 0; it must be at least 1"),
    ],
)
def test_a_configuration_that_was_changed_is_told(copied: Path, change: dict[str, Any], message: str) -> None:
    file = copied / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(mbpo.UsageError, match=message):
        load(copied).predict([0.0])


def test_a_configuration_that_lacks_something_is_told(copied: Path) -> None:
    file = copied / "config.json"
    said = json.loads(file.read_text())
    del said["seed"], said["commit"]
    file.write_text(json.dumps(said))
    with pytest.raises(mbpo.UsageError, match="lacks commit, seed; it is not the config of a run"):
        load(copied)


# Callbacks


def test_a_callback_gets_every_row_and_loses_none_when_it_raises(tmp_path: Path, finished: Path) -> None:
    rows: list[dict[str, Any]] = []

    def callback(row: dict[str, Any]) -> None:
        rows.append(dict(row))
        row.clear()
        raise ValueError("no such plot")

    with pytest.raises(
        mbpo.RunError, match=r"The callback raised ValueError at step 50 \(no such plot\); .*resume the"
    ):
        train(tmp_path / "run", "sac", STEPS, wide_probe, callback=callback)
    run = load(tmp_path / "run").resume(callback=rows.append, display=None)
    assert rows == run.metrics
    assert_same_outcome(tmp_path / "run", finished)


# An environment that fails within a run


class Faulty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """In one real step its result is changed."""

    def __init__(self, at: int, change: Callable[[list[Any]], Any]):
        super().__init__(wide_probe())
        self.steps_left, self.change = at, change

    def step(self, action: Any) -> Any:
        self.steps_left -= 1
        result = list(super().step(action))
        if self.steps_left == 0:
            self.change(result)
        return tuple(result)


def is_nan(result: list[Any]) -> None:
    result[0] = np.float32([np.nan])


def raises(result: list[Any]) -> None:
    raise OSError("no such port")


FAULTS = {
    is_nan: "returned NaN in observation[0]",
    raises: "raised OSError: no such port in step",
}


@pytest.mark.parametrize("change", FAULTS)
def test_a_fault_is_told_with_its_place_after_everything_before_it_was_saved(
    tmp_path: Path, finished: Path, change: Callable[[list[Any]], None]
) -> None:
    made: list[Env] = []

    def task() -> Env:
        """The first environment made is the one that is trained on."""
        made.append(wide_probe() if made else Faulty(73, change))
        return made[-1]

    with pytest.raises(EnvironmentFault) as fault:
        train(tmp_path / "run", "sac", STEPS, task)
    said = str(fault.value)
    assert f"environment 'PointLineProbe' {FAULTS[change]} at step 73 (seed 0) after action [1" in said
    assert said.endswith(", then resume the run.")
    assert (tmp_path / "run" / "checkpoints" / "step-000000072").is_dir()
    load(tmp_path / "run").resume(display=None)
    assert_same_outcome(tmp_path / "run", finished)


def test_a_fault_in_an_evaluation_repeats_it_after_the_resume(tmp_path: Path, finished: Path) -> None:
    made: list[Env] = []

    def task() -> Env:
        made.append(Faulty(5, raises) if len(made) == 2 else wide_probe())
        return made[-1]

    with pytest.raises(EnvironmentFault, match=r"raised OSError: no such port in step at step 50 \(seed 0\)"):
        train(tmp_path / "run", "sac", STEPS, task)
    assert series(tmp_path / "run", "metrics") == []
    load(tmp_path / "run").resume(display=None)
    assert_same_outcome(tmp_path / "run", finished)


# What is refused


def test_a_run_in_use_is_not_resumed(copied: Path) -> None:
    with RunFolder.open(copied).lock(), pytest.raises(mbpo.UsageError, match="in use by process"):
        load(copied).resume(150, display=None)
    assert load(copied).config.steps == STEPS


REFUSED = {
    'mbpo.train("Hoper")': "'Hoper' is neither a task nor a registered Gymnasium id; did you mean 'Hopper'?",
    'mbpo.train("Hopper", "sca")': "There is no algorithm 'sca'; did you mean 'sac'?",
    'mbpo.train("Hopper", mbpo.SAC)': "is no algorithm of mbpo; take a name or an instance of: mbpo, ppo, sac.",
    "mbpo.train(3)": "'int' is no environment that can be opened; give a function that returns it.",
    "mbpo.train(EndlessProbe())": "'EndlessProbe' is no environment that can be opened; give a function",
    'mbpo.train("CartPole-v1")': "has the action space Discrete(2); a Box of one axis",
    'mbpo.train("Hopper", steps=1e5)': "steps is 100000.0; it must be a whole number, at least 1.",
    'mbpo.train("Hopper", steps=True)': "steps is True; it must be a whole number, at least 1.",
    'mbpo.train("Hopper", seed="0")': "seed is '0'; it must be a whole number, between 0 and 4,294,967,295.",
    'mbpo.train("Hopper", episodes=0)': "episodes is 0; it must be a whole number, at least 1.",
    'mbpo.train("Hopper", callback=3)': "callback is 3; give a function of an evaluation's row.",
    'mbpo.train("Hopper", sinks="wandb")': "sinks is 'wandb'; give a tuple of names: ('wandb',).",
    'mbpo.train("Hopper", sinks=("wandbb",))': "There is no sink 'wandbb'; did you mean 'wandb'?",
    'mbpo.train("Hopper", display=3)': "display is 3; give True, False or a stream.",
    'mbpo.train("Hopper", env_module="none.py")': "'none.py' is no Python file; give the path of an existing .py file.",
    'mbpo.SAC(updates_per_step="x")': "updates_per_step of SAC is 'x'; it must be a whole number.",
    "mbpo.SAC(hidden_sizes=8)": "hidden_sizes of SAC is 8; it must be a tuple, each entry a whole number.",
    "mbpo.SAC(learning_rate=-1.0)": "learning_rate of SAC is -1.0; it must be above 0.",
    'mbpo.load("nowhere")': "'nowhere' does not exist, so it is no run; name a folder",
}


def test_bad_input_is_refused_in_a_sentence_and_creates_nothing(tmp_path: Path) -> None:
    """In a process of its own, where no type checker is in the way."""
    program = "import mbpo\nfrom mbpo.envs.probes import EndlessProbe\n" + "".join(
        f"""
try:
    {line}
    print("accepted")
except mbpo.UsageError as error:
    print(error)
"""
        for line in REFUSED
    )
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100
    )
    said = process.stdout.splitlines()
    assert [line for line, answer in zip(REFUSED, said, strict=True) if REFUSED[line] not in answer] == []
    assert everything(tmp_path) == []

"""The command line: what every command answers, what bad input gets, and that the program is the Python API's."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box

import mbpo
from mbpo import cli
from mbpo.algorithms import ALGORITHMS, MBPO, SAC
from mbpo.cli import COMMANDS, main
from mbpo.command_lines import flags, train_command
from mbpo.envs.probes import register_probes
from mbpo.envs.tasks import TASKS
from mbpo.presets import VARIANTS
from mbpo.run_folder import RunFolder
from runs import everything, write_run
from soak import SETTINGS, TASK
from training import TINY_SAC, assert_same_outcome, interrupted, train

SMALL = [*" ".join(SETTINGS["sac"]).split(), "--evaluate-every", "50", "--episodes", "2"]
TRAIN = ["train", "--algorithm", "sac", "--task", TASK, "--steps", "100", *SMALL]


@dataclass(frozen=True)
class Answer:
    code: Any
    out: str
    err: str


def call(*arguments: str, encoding: str = "utf-8") -> Answer:
    """What the program answers, run in this process."""
    with (
        TemporaryFile("w+", encoding=encoding) as out,
        TemporaryFile("w+", encoding=encoding) as err,
        warnings.catch_warnings(action="always", category=mbpo.RunWarning),
    ):
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
            main(arguments)
        out.seek(0)
        err.seek(0)
        return Answer(end.value.code, out.read(), err.read())


class Room(gymnasium.Env[Any, Any]):
    """An environment of any spaces, which nobody enters."""

    def __init__(self, observations: Any = None, actions: Any = None):
        self.observation_space = observations or Box(-1, 1, (2,))
        self.action_space = actions or Box(-1, 1, (1,))


def register(name: str, make: Callable[[], Any]) -> None:
    gymnasium.register(name, entry_point=lambda **_nothing: make())


@pytest.fixture(autouse=True)
def _world(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes have names, and JAX, which this process has imported, is left as it is."""
    monkeypatch.setattr(cli, "prepare_jax", lambda: None)
    register_probes()
    register("Dict-v0", lambda: Room(observations=spaces.Dict(eye=Box(0, 1, (2,)))))
    register("Image-v0", lambda: Room(observations=Box(0, 255, (8, 8, 3), np.uint8)))
    register("Endless-v0", lambda: Room(actions=Box(-np.inf, np.inf, (1,))))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "run"


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return []


@pytest.fixture
def answer(_world: None, store: Path, answers: list[Answer]) -> Answer:
    """To a training of 100 steps with --json, which is made once."""
    if not answers:
        answers.append(call(*TRAIN, "--json", "--out", str(store)))
    return answers[0]


@pytest.fixture
def run(answer: Answer, store: Path) -> Path:
    """The folder of that training, a copy of its own for every test."""
    return Path(shutil.copytree(store, "run"))


# Help


def test_help_names_every_command() -> None:
    for arguments in ([], ["--help"], ["-h"], ["help"]):
        answer = call(*arguments)
        assert (answer.code, answer.err) == (0, "")
        listed = [line.split()[0] for line in answer.out.splitlines() if line.startswith("  ") and "  " in line[2:]]
        assert listed == list(COMMANDS)
    assert call("--version") == Answer(0, f"mbpo {mbpo.__version__}\n", "")


@pytest.mark.parametrize("command", ["resume", "evaluate", "plot", "export", "list", "bench", "theory"])
def test_every_command_explains_itself(command: str) -> None:
    answer = call(command, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"mbpo {command}" in answer.out


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_hyper_parameter_is_a_flag_with_the_value_of_the_preset(algorithm: str) -> None:
    preset = train_command(["--algorithm", algorithm, "--task", "Humanoid"])[1]
    known = [name for name in flags(type(preset), f"{algorithm}.") if name]
    answer = call("train", "--algorithm", algorithm, "--task", "Humanoid", "--help")
    assert answer.code == 0
    words = answer.out.replace("│", " ").split()
    assert len(known) > 8
    assert set(known) <= set(words)
    if algorithm != "ppo":
        assert "(default: -2.0)" in " ".join(words), "the target entropy of Humanoid"


def test_help_without_jax() -> None:
    """In a process of its own, for all commands but those whose answer needs it."""
    program = """
import contextlib, io, sys
from mbpo.cli import main

for line in ("--help", "--version", "trian", "resume --help", "evaluate --help", "plot --help", "export --help"):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(line.split())
    print(line, sorted({"jax", "gymnasium", "matplotlib"} & set(sys.modules)))
    if line == "--help":
        assert not {"numpy", "tyro", "rich"} & set(sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.count("[]") == len(said.splitlines()) == 7


def test_the_module_is_the_program() -> None:
    for arguments in ([], ["trian"]):
        process = subprocess.run(
            [sys.executable, "-m", "mbpo", *arguments], capture_output=True, text=True, check=False
        )
        assert Answer(process.returncode, process.stdout, process.stderr) == call(*arguments)
    (script,) = entry_points(group="console_scripts", name="mbpo")
    assert script.load() is main


def test_the_list_says_what_there_is() -> None:
    said = call("list").out
    for name in (*TASKS, *(task.env_id for task in TASKS.values()), *ALGORITHMS, *VARIANTS):
        assert name in said.replace(",", " ").split()
    known = json.loads(call("list", "--json").out)
    assert known["tasks"] == {name: task.env_id for name, task in TASKS.items()}
    assert set(known["algorithms"]) == set(known["presets"]) == set(ALGORITHMS)
    assert known["presets"]["mbpo"]["Hopper"]["steps"] == 125_000
    assert known["presets"]["sac"]["Hopper"]["hyperparameters"]["target_entropy"] == -1.0


# What the flags mean


@pytest.mark.parametrize(
    ("line", "algorithm"),
    [
        ("--task InvertedPendulum --algorithm sac", SAC(random_steps=500, target_entropy=-0.05)),
        (
            "--sac.batch_size=8 --algorithm=sac --task=Hopper --sac.hidden-sizes 4 5",
            SAC(random_steps=5000, target_entropy=-1.0, batch_size=8, hidden_sizes=(4, 5)),
        ),
        ("--task Pusher-v5 --algorithm sac --sac.target-entropy -3", SAC(target_entropy=-3.0)),
        ("--task Pusher-v5 --mbpo.sac.updates-per-step 7", MBPO(sac=SAC(updates_per_step=7))),
        # Given twice, the last one counts: for the preset as for the task itself.
        ("--task Hopper --algorithm sac --task Pusher-v5", SAC()),
        ("--algorithm ppo --task=Pusher-v5 --algorithm=sac", SAC()),
    ],
)
def test_flags_stand_over_the_preset(line: str, algorithm: Any) -> None:
    command, chosen = train_command(line.split())
    assert chosen == algorithm
    assert command.task == line.replace("=", " ").rpartition("--task ")[2].split()[0]


def test_every_preset_is_another() -> None:
    paper, released, fast = (train_command(["--task", "Hopper", "--preset", name])[1] for name in VARIANTS)
    assert [m.rollout_length.to_epoch for m in (paper, released, fast)] == [100, 150, 100]
    assert [m.sac.batch_size for m in (paper, released, fast)] == [256, 256, 128]


# What bad input gets

REFUSED = {
    # Commands and options
    "trian --task Hopper": "There is no command 'trian'; did you mean 'train'?",
    "xyz": "There is no command 'xyz'; known are: train, resume, evaluate, plot, export, list, bench, theory.",
    "--task Hopper": "There is no command '--task'; known are: train,",
    "train": "mbpo train needs --task; see `mbpo train --help`.",
    "train Hopper": "mbpo train needs --task;",
    "train --task": "--task has no value; it must be a text;",
    "train --task Hopper more": "'more' is one argument too many;",
    "train --task Hopper --step 9": "There is no option '--step'; did you mean '--steps'?",
    "train --task Hopper --out": "--out has no value; it must be a path or None;",
    "train --task Hopper --json yes": "'yes' is one argument too many;",
    "resume": "mbpo resume needs a path;",
    "resume run --seed 1": "There is no option '--seed'; did you mean",
    "resume run --sac.batch-size 7": "'--sac.batch-size' is one of `mbpo train`: a run keeps its hyper-parameters;",
    "evaluate": "mbpo evaluate needs a path;",
    "evaluate run other": "'other' is one argument too many;",
    "export": "mbpo export needs a path;",
    "plot run": "mbpo plot needs --out;",
    "list --jsn": "There is no option '--jsn'; did you mean '--json'?",
    # Tasks and algorithms
    "train --task hoper": "'hoper' is neither a task nor a registered Gymnasium id; did you mean 'Hopper'?",
    "train --task Hopper-v55": "'Hopper-v55' is neither a task nor a registered Gymnasium id; did you mean 'Hopper-v",
    "train --task ''": "'' is no task name; give a task or a Gymnasium id",
    "train --task os:system": "'os:system' is no task name; give a task or a Gymnasium id",
    "train --task Hopper --algorithm sca": "There is no algorithm 'sca'; did you mean 'sac'?",
    "train --algorithm PP0 --task Hopper": "There is no algorithm 'PP0'; did you mean 'ppo'?",
    "train --task Hopper --preset release": "There is no preset 'release'; did you mean 'released'?",
    # Spaces
    "train --task CartPole-v1": "'CartPole-v1' has the action space Discrete(2); a Box of one axis",
    "train --task Taxi-v4": "'Taxi-v4' has the observation space Discrete(500); a Box of one axis",
    "train --task Dict-v0": "'Dict-v0' has the observation space Dict('eye': Box(",
    "train --task Image-v0": "'Image-v0' has the observation space Box(0, 255, (8, 8, 3), uint8); a Box of one axis",
    "train --task Endless-v0": "the action space Box(-inf, inf, (1,), float32) with an infinite bound; give every",
    # Hyper-parameters
    "train --task Hopper --mbpo.sac.update-per-step 2": "did you mean '--mbpo.sac.updates-per-step'?",
    "train --task Hopper --sac.batch-size 8": "'--sac.batch-size' is one of --algorithm sac; choose that, or leave it",
    "train --task Hopper --mbpo.model.members many": "--mbpo.model.members is 'many'; it must be a whole number;",
    "train --task Hopper --mbpo.model.members 1.5": "--mbpo.model.members is '1.5'; it must be a whole number;",
    "train --task Hopper --mbpo.model.members": "--mbpo.model.members has no value; it must be a whole number;",
    "train --task Hopper --mbpo.rollout-length.last 0": "--mbpo.rollout-length.last is 0; it must be at least 1;",
    "train --task Hopper --mbpo.real-fraction 2": "--mbpo.real-fraction is 2.0; it must be between 0 and 1;",
    "train --task Hopper --mbpo.termination no": "--mbpo.termination is 'no'; it must be 'task' or 'learned';",
    "train --task Hopper --mbpo.model.elites 9": "--mbpo.model.elites is 9, and there are 7 members; take fewer elites",
    "train --task Hopper --mbpo.model.weight-decay 0 0": "--mbpo.model.weight-decay has 2 entries, and its networks 5",
    "train --task Hopper --algorithm sac --sac.discount nan": "--sac.discount is nan; it must be between 0 and 1",
    "train --task Hopper --algorithm ppo --ppo.hidden-sizes 8 x": "--ppo.hidden-sizes is '8 x'; it must be a tuple,",
    # Numbers
    "train --task Hopper --steps 0": "steps is 0; it must be a whole number, at least 1.",
    "train --task Hopper --steps 1e5": "--steps is '1e5'; it must be a whole number",
    "train --task Hopper --seed -1": "seed is -1; it must be a whole number, between 0 and 4,294,967,295.",
    "train --task Hopper --seed x": "--seed is 'x'; it must be a whole number;",
    "train --task Hopper --episodes 0": "episodes is 0; it must be a whole number, at least 1.",
    "train --task Hopper --evaluate-every 0": "evaluate_every is 0; it must be a whole number, at least 1.",
    "evaluate run --episodes 0": "episodes is 0; it must be a whole number, at least 1.",
    "evaluate run --seed -1": "seed is -1; it must be a whole number, at least 0.",
    "evaluate run --at-least much": "--at-least is 'much'; it must be a number",
    "resume run --steps 99": "run was to have 100 steps and cannot be cut to 99; the number given to resume is the new",
    # Sinks and modules
    "train --task Hopper --sinks tensorbord": "There is no sink 'tensorbord'; did you mean 'tensorboard'?",
    "train --task Hopper --env-module none.py": "'none.py' is no Python file; give the path of an existing .py file.",
    # Folders
    "train --task Hopper --out run": "'run' already holds a run; continue it with `mbpo resume run`, or choose another",
    "train --task Hopper --out file": "'file' is a file; choose a folder for the run.",
    "train --task Hopper --out full": "'full' is not empty (it holds 'thesis.tex') and is no run; choose another",
    "train --task Hopper --out file/run": "No run can be made at 'file/run' (Not a directory); choose another folder.",
    "resume nowhere": "'nowhere' does not exist, so it is no run; name a folder that `mbpo train --out` made.",
    "resume full": "'full' is no run: it holds no config.json; name a folder that `mbpo train --out` made.",
    "evaluate file": "'file' is a file, so it is no run; name a folder",
    "evaluate full --json": "'full' is no run: it holds no config.json; name a folder",
    "export full --out x.csv": "'full' is no run: give the folder that `mbpo train --out` made.",
    "export run --out x.txt": "A result file is a .csv, not 'x.txt'; give a name that ends in .csv.",
    "plot full --out x.png": "'full' is no run: give the folder that `mbpo train --out` made.",
    "plot run nowhere --out x.png": "There is no 'nowhere'; give a run folder or a result file.",
    "plot run --out x.gif": "A figure cannot be written as 'x.gif'; end its name in .png, .pdf or .svg.",
    "plot run --out x.png --y eval/retrun": "'run' has no column 'eval/retrun'; did you mean 'eval/return'?",
    "plot run --out x.png --x time": "--x is 'time'; it must be 'step' or 'seconds';",
    "plot run run --out x.png": "'run' and 'run' are both seed 0 of SAC on PointLineProbe-v0",
    "plot --out x.png": "There is nothing to plot; give at least one run folder or result file.",
}


@pytest.mark.parametrize("line", REFUSED)
def test_bad_input_is_one_sentence_and_creates_nothing(line: str, run: Path) -> None:
    Path("full").mkdir()
    Path("full", "thesis.tex").write_text("precious")
    Path("file").write_text("precious")
    before = everything(Path())
    answer = call(*shlex.split(line))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("mbpo: ")
    assert answer.err.count("\n") == 1
    assert REFUSED[line] in answer.err
    assert everything(Path()) == before


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "UTF-8"])
def test_whatever_the_terminal_can_say(run: Path, encoding: str) -> None:
    """tyro draws other boxes where standard output is not "utf-8", and a letter that it lacks ends no command."""
    for line in ("train", "train --task Hopper --mbpo.model.members many"):
        answer = call(*line.split(), encoding=encoding)
        assert answer.code == 2
        assert REFUSED[line] in answer.err
    assert call("train", "--task", "Hopper", "--help", encoding=encoding).code == 0
    answer = call("evaluate", "run", "--episodes", "2", encoding=encoding)
    assert answer.code == 0
    assert ("?" in answer.out) == (encoding == "ascii")


# Training, resuming, evaluating


def test_the_answer_of_a_training_is_one_line_of_json(answer: Answer, store: Path) -> None:
    assert answer.code == 0
    (line,) = answer.out.splitlines()
    rows = [json.loads(row) for row in (store / "metrics.jsonl").read_text().splitlines()]
    assert json.loads(line) == {
        "return_mean": rows[-1]["eval/return"],
        "return_std": rows[-1]["eval/return_std"],
        "episodes": 2,
        "step": 100,
        "run": str(store),
    }
    assert "step 50 " in answer.err


def test_the_program_does_what_python_does(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "python", TINY_SAC, 100, TASK)
    assert_same_outcome(run, tmp_path / "python")


def test_a_training_tells_its_plan_and_every_evaluation() -> None:
    answer = call(*TRAIN, "--seed", "3")
    assert (answer.code, answer.err) == (0, "")
    folder = Path("runs", f"sac-{TASK}-3")
    assert f"100 steps into {folder}" in answer.out
    assert "a checkpoint at most" in answer.out
    assert [line.split()[1] for line in answer.out.splitlines() if line.startswith("step")] == ["50", "100"]
    assert f"The learning curve is in {folder / 'curve.png'}." in answer.out
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_resume_goes_on_to_a_new_total(run: Path) -> None:
    answer = call("resume", "--json", "--steps", "150", "run")
    assert answer.code == 0
    assert json.loads(answer.out.splitlines()[-1])["step"] == 150
    assert mbpo.load(run).config.steps == 150
    assert "The run has all of its 150 steps; to go on, give resume a larger total" in call("resume", "run").out


def test_evaluate_prints_a_sentence_or_json(run: Path) -> None:
    before = everything(run)
    answer = call("evaluate", "run", "--episodes", "3", "--json")
    said = json.loads(answer.out.splitlines()[-1])
    assert answer.code == 0
    assert (said["episodes"], len(said["returns"]), len(said["lengths"])) == (3, 3, 3)
    assert said["return_mean"] == pytest.approx(np.mean(said["returns"]))
    assert said["return_std"] == pytest.approx(np.std(said["returns"]))
    assert call("evaluate", "run", "--episodes", "3", "--json") == answer
    assert call("evaluate", "run", "--episodes", "3", "--json", "--seed", "1") != answer
    assert call("evaluate", "run").out.endswith("over 10 episodes\n")
    assert everything(run) == before


@pytest.mark.parametrize(("least", "code"), [("-1000", 0), ("1000", 1), ("nan", 1)])
def test_evaluate_fails_below_what_was_asked_for(run: Path, least: str, code: int) -> None:
    answer = call("evaluate", "run", "--json", "--at-least", least)
    assert answer.code == code
    assert json.loads(answer.out)["episodes"] == 10
    assert (f"is below the {float(least):,.1f} that was asked for" in answer.err) == (code == 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(run: Path, number: signal.Signals, code: int) -> None:
    register("Stopped-v0", interrupted(63, number))
    answer = call(*TRAIN, "--task", "Stopped-v0", "--out", "stopped")
    assert answer.code == code
    assert answer.err == f"mbpo: Stopped by {number.name}; go on with `mbpo resume stopped`.\n"
    assert Path("stopped", "checkpoints", "step-000000063").is_dir()
    assert call("resume", "stopped").code == 0
    assert_same_outcome(Path("stopped"), run)


def test_a_second_signal_leaves_at_once() -> None:
    program = """
import signal
from mbpo.signals import StopSignals

with StopSignals() as signals:
    signal.raise_signal(signal.SIGINT)
    print(signals.received.name, flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("still here", flush=True)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (-signal.SIGTERM, "SIGINT\n")


def test_ctrl_c_outside_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "list", lambda _arguments: signal.raise_signal(signal.SIGINT))
    assert call("list") == Answer(130, "", "")


def test_a_second_program_on_a_run_is_refused_and_lookers_are_not(run: Path) -> None:
    with RunFolder.open(run).lock():
        answer = call("resume", "run", "--steps", "150")
        assert answer.code == 2
        assert "'run' is in use by process" in answer.err
        assert "wait until that has ended, or stop it" in answer.err
        for line in ("evaluate run", "plot run --out curve.png", "export run --out run.csv"):
            assert call(*line.split()).code == 0
    assert json.loads(Path("run", "config.json").read_text())["steps"] == 100


# An environment of the user's own

MODULE = """
import gymnasium
from mbpo.envs.probes import point_line_probe

gymnasium.register("Mine-v0", entry_point=lambda **_nothing: point_line_probe())
"""


def test_a_run_on_a_module_of_the_users_own_needs_it_again(run: Path) -> None:
    file = Path("module_of_mine.py").absolute()
    file.write_text(MODULE)
    mine = ["--env-module", file.name]
    assert call(*TRAIN, "--task", "Mine-v0", "--out", "mine", *mine).code == 0
    assert_same_outcome(Path("mine"), run)
    recorded = json.loads(Path("mine", "config.json").read_text())["env_module"]
    assert (recorded["path"], recorded["sha256"]) == (str(file), sha256(MODULE.encode()).hexdigest())

    del sys.modules["module_of_mine"], gymnasium.registry["Mine-v0"]
    before = everything(Path("mine"))
    for command in ("evaluate", "resume"):
        answer = call(command, "mine")
        assert answer.code == 2
        assert f"mine needs its environment module; add --env-module {file}" in answer.err
    assert "module_of_mine" not in sys.modules
    assert everything(Path("mine")) == before

    assert call("evaluate", "mine", *mine).code == 0
    assert call("resume", "mine", *mine).code == 0
    file.write_text(f"{MODULE}# changed\n")
    answer = call("evaluate", "mine", *mine)
    assert answer.code == 0
    assert answer.err.startswith(f"mbpo: {file} is not the file that mine was trained with (SHA-256 ")
    assert answer.err.count("\n") == 1


# Pictures and result files


def test_plot_draws_runs_and_result_files(run: Path) -> None:
    write_run(Path("other"), seed=1, task=TASK)
    assert call("export", "--out", "results/run.csv", "run") == Answer(0, "results/run.csv\n", "")
    assert json.loads(Path("results", "run.json").read_text()) == json.loads((run / "config.json").read_text())
    lines: Sequence[tuple[str, bytes]] = [
        ("plot run --out one.png", b"\x89PNG"),
        ("plot --out two.pdf results/run.csv other", b"%PDF"),
        ("plot run --out new/folder/three.svg --y train/return --x seconds --smooth 2", b"<?xml"),
        ("plot run --reference results/run.csv --out four.png", b"\x89PNG"),
    ]
    for line, magic in lines:
        words = line.split()
        out = words[words.index("--out") + 1]
        assert call(*words) == Answer(0, f"{out}\n", "")
        assert Path(out).read_bytes().startswith(magic)

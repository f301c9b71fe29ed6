"""Runs from Python: train, load, resume, predict, evaluate. The command line calls nothing else."""

import dataclasses
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np

from mbpo import checkpoint, words
from mbpo.addresses import Purpose, key_at, seed_at
from mbpo.algorithms import ALGORITHMS
from mbpo.config import (
    RunConfig,
    as_mapping,
    command_line,
    from_mapping,
    recorded_machine,
    recorded_versions,
    source_commit,
)
from mbpo.display import open_display
from mbpo.envs.adapter import EnvFactory, Environment, open_environment
from mbpo.envs.tasks import Task, find_task
from mbpo.envs.user_module import import_module_or_file
from mbpo.errors import UsageError
from mbpo.evaluate import Evaluation, evaluate
from mbpo.figures.curves import plot_run
from mbpo.memory import check_memory
from mbpo.presets import Preset, find_preset
from mbpo.run_folder import RunFolder
from mbpo.runner import Callback, Plan, Runner
from mbpo.sinks import check_sinks, open_sinks
from mbpo.state_arrays import restore_state
from mbpo.types import Algorithm


def train(
    task: str | EnvFactory,
    algorithm: str | Algorithm[Any] = "mbpo",
    *,
    steps: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    preset: str = "paper",
    evaluate_every: int | None = None,
    episodes: int = 10,
    env_module: str | Path | None = None,
    callback: Callback | None = None,
    sinks: Sequence[str] = (),
    display: TextIO | None = sys.stdout,
) -> "Run":
    """A finished run of `algorithm` on `task`, in the folder `out` (by default `runs/<algorithm>-<task>-<seed>`).

    `task` is one of the six tasks, any Gymnasium id with Box spaces, or a function that makes an environment;
    `env_module` is a file or module to import first, which may register the id. `algorithm` is a name, which takes
    the task's preset, or an instance with hyper-parameters of your own: `train("Hopper", mbpo.SAC(discount=0.98))`.
    `callback` is called with the row of every evaluation and stops the run by returning True. `display` is where a
    person is shown what happens; None shows nothing.
    """
    check_sinks(sinks)
    module = import_module_or_file(str(env_module)) if env_module is not None else None
    source = find_task(task) if isinstance(task, str) else task
    named = source if isinstance(source, Task) else Task(name=factory_name(source), env_id="")
    name, chosen = choose_algorithm(algorithm, named, preset)
    config = RunConfig(
        algorithm=name,
        task=named.name,
        preset=preset,
        seed=seed,
        steps=chosen.steps if steps is None else steps,
        evaluate_every=chosen.evaluate_every if evaluate_every is None else evaluate_every,
        episodes=episodes,
        hyperparameters=as_mapping(chosen.algorithm),
        env_module={"path": module.path, "sha256": module.sha256} if module else None,
        custom_environment=not isinstance(task, str),
        command=command_line(),
        commit=source_commit(),
        versions=recorded_versions(),
        machine=recorded_machine(),
    )
    check_config(config)
    path = Path(out) if out is not None else Path("runs") / f"{name}-{named.name}-{seed}"
    run = Run(path, config, source)
    with ExitStack() as stack:
        environments = open_environments(stack, source, 1 + episodes)
        facts = run.check_plan(environments[0])
        run.go(RunFolder.create(path, config.to_json()), environments, facts, callback, sinks, display)
    return run


def load(path: str | Path, *, env: EnvFactory | None = None, env_module: str | Path | None = None) -> "Run":
    """The run in a folder. One on an environment of the user's own needs that environment again."""
    path = Path(path)
    config = RunConfig.from_json(RunFolder.open(path).config, path / "config.json")
    return Run(path, config, find_source(path, config, env, env_module))


class Run:
    """A run folder, and the agent that its newest checkpoint holds."""

    def __init__(self, path: Path, config: RunConfig, source: Task | EnvFactory) -> None:
        self.path = path
        self.config = config
        self._source = source
        self._draws = 0
        self.stopped_by: signal.Signals | None = None
        """The signal that stopped the last `train` or `resume`, if one did."""

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, one an evaluation."""
        return RunFolder.open(self.path).read("metrics")

    def predict(self, obs: Any, deterministic: bool = True) -> np.ndarray:
        """The action, in the environment's own units, for one observation or a batch of them."""
        rows = np.asarray(obs, np.float32)
        size = self._environment.spec.obs_size
        if rows.ndim not in (1, 2) or rows.shape[-1] != size:
            raise UsageError(
                f"An observation of {self.config.task} has {size} numbers, and this array the shape {rows.shape}; "
                f"pass ({size},) or (batch, {size})."
            )
        self._draws += 1
        key = key_at(jax.random.key(self.config.seed), Purpose.PREDICTION, self._draws)
        action = self._algorithm.act(self._state, jnp.asarray(rows), key, explore=not deterministic)
        return self._environment.to_box(np.asarray(action))

    def evaluate(self, episodes: int = 10, seed: int = 0) -> Evaluation:
        """The returns of whole deterministic episodes in fresh environments."""
        if episodes < 1:
            raise UsageError(f"An evaluation of {episodes} episodes says nothing; ask for at least 1.")
        seeds = [seed_at(seed, Purpose.PREDICTION, i) for i in range(episodes)]
        with ExitStack() as stack:
            environments = open_environments(stack, self._source, episodes)
            return evaluate(environments, self._act, seeds, self._algorithm.discount)

    def resume(
        self,
        steps: int | None = None,
        *,
        callback: Callback | None = None,
        sinks: Sequence[str] = (),
        display: TextIO | None = sys.stdout,
    ) -> "Run":
        """The run after going on from its newest checkpoint to `steps` (its new total; by default the old one)."""
        check_sinks(sinks)
        if steps is not None and steps < self.config.steps:
            raise UsageError(
                f"{self.path} was to have {self.config.steps:,} steps and cannot be cut to {steps:,}; "
                "the number given to resume is the new total."
            )
        folder = RunFolder.open(self.path)
        run = Run(self.path, dataclasses.replace(self.config, steps=steps or self.config.steps), self._source)
        with ExitStack() as stack:
            environments = open_environments(stack, self._source, 1 + self.config.episodes)
            facts = run.check_plan(environments[0])
            run.go(folder, environments, facts, callback, sinks, display)
        return run

    def save(self, path: str | Path) -> Path:
        """Copies the run (its config, series and checkpoints) to a new folder, which `mbpo.load` reads."""
        path = Path(path)
        if path.exists():
            raise UsageError(f"{path} exists already; choose another place to save the run to.")
        shutil.copytree(self.path, path, ignore=shutil.ignore_patterns("*.lock", ".*", "*.aside"))
        return path

    def check_plan(self, environment: Environment) -> list[str]:
        """Sentences on what the run will need; refused where the machine or its disk has less."""
        init = partial(self._algorithm.init, environment.spec, self.config.steps)
        state = jax.eval_shape(init, jax.random.key(0))
        memory, size = check_memory(state), checkpoint.checkpoint_bytes(state)
        checkpoint.ensure_room(self.path / "checkpoints", size)
        config = self.config
        task = f"{config.steps:,} steps of {config.task} with {config.algorithm}, seed {config.seed}, into {self.path}"
        return [
            task,
            f"memory for the state {words.size(memory)}, a checkpoint at most {words.size(size)}",
        ]

    def go(
        self,
        folder: RunFolder,
        environments: Sequence[Environment],
        facts: Sequence[str],
        callback: Callback | None,
        sinks: Sequence[str],
        stream: TextIO | None,
    ) -> None:
        """Trains to the end or a signal, under the folder's lock."""
        config = self.config
        with folder.lock(), ExitStack() as stack:
            if folder.config != config.to_json():
                folder.write_config(config.to_json())
            display = open_display(stream)
            stack.callback(display.stop)
            opened = open_sinks(sinks, self.path, config.to_json(), report=display.message)
            for sink in opened:
                stack.enter_context(closing(sink))
            title = f"{config.algorithm} on {config.task}, seed {config.seed}"
            plan = Plan(config.seed, config.steps, config.evaluate_every, title, facts)
            runner = Runner(self._algorithm, environments[0], environments[1:], folder, plan, display, opened, callback)
            self.stopped_by = runner.run()
            if self.metrics:
                plot_run(self.path, self.path / "curve.png")
            if self.stopped_by:
                display.stop(f"Stopped by {self.stopped_by.name}; go on with: mbpo resume {self.path}")

    @cached_property
    def _algorithm(self) -> Algorithm[Any]:
        return from_mapping(ALGORITHMS[self.config.algorithm], self.config.hyperparameters)

    @cached_property
    def _environment(self) -> Environment:
        return open_environment(self._source)

    @cached_property
    def _state(self) -> Any:
        loaded = checkpoint.load_newest(self.path / "checkpoints")
        if loaded is None:
            raise UsageError(f"{self.path} has no checkpoint yet; go on with `mbpo resume {self.path}` first.")
        init = partial(self._algorithm.init, self._environment.spec, self.config.steps)
        return restore_state(jax.eval_shape(init, jax.random.key(0)), loaded.state)

    def _act(self, obs: np.ndarray) -> np.ndarray:
        key = jax.random.key(0)
        return np.asarray(self._algorithm.act(self._state, jnp.asarray(obs), key, explore=False))


def find_source(
    path: Path, config: RunConfig, env: EnvFactory | None, env_module: str | Path | None
) -> Task | EnvFactory:
    """The environment of a run that exists. Nothing is imported because a folder says so: the user names it again."""
    if env is not None:
        return env
    if config.custom_environment:
        raise UsageError(
            f"{path} was trained on an environment given as a function ({config.task}); "
            "give it again: mbpo.load(path, env=function)."
        )
    if env_module is not None:
        import_module_or_file(str(env_module))
    elif config.env_module is not None:
        raise UsageError(
            f"{path} needs its environment module; add --env-module {config.env_module['path']} (in Python, "
            f"env_module=...), the file whose SHA-256 was {config.env_module['sha256'][:12]}... when it was trained."
        )
    return find_task(config.task)


def factory_name(factory: EnvFactory) -> str:
    """A name for an environment that only its function makes."""
    return getattr(factory, "__name__", type(factory).__name__)


def choose_algorithm(algorithm: str | Algorithm[Any], task: Task, variant: str) -> tuple[str, Preset]:
    """The algorithm's name, and its preset with the user's own hyper-parameters, if they were given."""
    if isinstance(algorithm, str):
        return algorithm, find_preset(algorithm, task, variant)
    for name, known in ALGORITHMS.items():
        if type(algorithm) is known:
            return name, dataclasses.replace(find_preset(name, task, variant), algorithm=algorithm)
    raise UsageError(f"{algorithm!r} is no algorithm of mbpo; take a name or an instance of: {', '.join(ALGORITHMS)}.")


def check_config(config: RunConfig) -> None:
    """Refuses numbers that no run can have."""
    for name, least in (("steps", 1), ("evaluate_every", 1), ("episodes", 1), ("seed", 0)):
        number = getattr(config, name)
        if number < least:
            raise UsageError(f"--{name.replace('_', '-')} is {number}; it must be at least {least}.")


def open_environments(stack: ExitStack, source: Task | EnvFactory, count: int) -> list[Environment]:
    """So many environments, closed with the stack."""
    return [stack.enter_context(closing(open_environment(source))) for _ in range(count)]

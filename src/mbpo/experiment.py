"""Runs from Python: train, load, resume, predict, evaluate. The command line calls nothing else."""

import dataclasses
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from mbpo import checkpoint
from mbpo.addresses import Purpose, key_at, seed_at
from mbpo.algorithms import ALGORITHMS
from mbpo.config import (
    RunConfig,
    command_line,
    from_mapping,
    recorded_machine,
    recorded_versions,
    source_commit,
)
from mbpo.display import Display, open_display
from mbpo.envs.adapter import Environment, open_environment
from mbpo.envs.tasks import Task, find_task
from mbpo.envs.user_module import import_module_or_file
from mbpo.errors import UsageError
from mbpo.evaluate import Evaluation, evaluate
from mbpo.figures.curves import plot_run
from mbpo.run_folder import RunFolder
from mbpo.runner import Callback, Plan, Runner
from mbpo.sinks import open_sinks
from mbpo.types import Algorithm

EnvFactory = Callable[[], gymnasium.Env[Any, Any]]


def train(
    task: str | EnvFactory,
    algorithm: str | Algorithm[Any] = "sac",
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
    quiet: bool = False,
) -> "Run":
    """A finished run of `algorithm` on `task`, in the folder `out` (by default `runs/<algorithm>-<task>-<seed>`).

    `task` is one of the six tasks, any Gymnasium id with Box spaces, or a function that makes an environment;
    `env_module` is a file or module to import first, which may register the id. `algorithm` is a name, which takes
    the task's preset, or an instance with hyper-parameters of your own: `train("Hopper", mbpo.SAC(discount=0.98))`.
    `callback` is called with the row of every evaluation and stops the run by returning True.
    """
    module = import_module_or_file(str(env_module)) if env_module is not None else None
    source = find_task(task) if isinstance(task, str) else task
    named = source if isinstance(source, Task) else Task(name=factory_name(source), env_id="")
    name, chosen = resolve(algorithm, named, preset)
    config = RunConfig(
        algorithm=name,
        task=named.name,
        preset=preset,
        seed=seed,
        steps=chosen.steps if steps is None else steps,
        evaluate_every=chosen.evaluate_every if evaluate_every is None else evaluate_every,
        episodes=episodes,
        hyperparameters=dataclasses.asdict(typed_dataclass(chosen.algorithm)),
        env_module=module.as_json() if module else None,
        custom_environment=not isinstance(task, str),
        command=command_line(),
        commit=source_commit(),
        versions=recorded_versions(),
        machine=recorded_machine(),
    )
    check_config(config)
    path = Path(out) if out is not None else Path("runs") / f"{name}-{named.name}-{seed}"
    with ExitStack() as stack:
        environments = open_environments(stack, source, 1 + episodes)
        check_plan(chosen.algorithm, environments[0].spec, config, path)
        folder = RunFolder.create(path, config.to_json())
        run = Run(folder.path, config, source)
        run._go(folder, environments, callback, sinks, quiet)
    return run


def load(path: str | Path, *, env: EnvFactory | None = None, env_module: str | Path | None = None) -> "Run":
    """The run in a folder. One on an environment of the user's own needs that environment again."""
    path = Path(path)
    config = RunConfig.from_json(RunFolder.open(path).config, path / "config.json")
    return Run(path, config, find_source(path, config, env, env_module))


class Run:
    """A run folder, and the agent that its newest checkpoint holds."""

    def __init__(self, path: Path, config: RunConfig, source: "Task | EnvFactory") -> None:
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
            return evaluate(environments, self._act, seeds)

    def resume(
        self,
        steps: int | None = None,
        *,
        callback: Callback | None = None,
        sinks: Sequence[str] = (),
        quiet: bool = False,
    ) -> "Run":
        """The run after going on from its newest checkpoint to `steps` (its new total; by default the old one)."""
        if steps is not None and steps < self.config.steps:
            raise UsageError(
                f"{self.path} was to have {self.config.steps:,} steps and cannot be cut to {steps:,}; "
                "the number given to resume is the new total."
            )
        folder = RunFolder.open(self.path)
        config = dataclasses.replace(self.config, steps=steps or self.config.steps)
        with ExitStack() as stack:
            environments = open_environments(stack, self._source, 1 + config.episodes)
            check_plan(self._algorithm, environments[0].spec, config, self.path)
            run = Run(self.path, config, self._source)
            run._go(folder, environments, callback, sinks, quiet)
        return run

    def save(self, path: str | Path) -> Path:
        """Copies the run (its config, series and checkpoints) to a new folder, which `mbpo.load` reads."""
        path = Path(path)
        if path.exists():
            raise UsageError(f"{path} exists already; choose another place to save the run to.")
        shutil.copytree(self.path, path, ignore=shutil.ignore_patterns("*.lock", "*.tmp*"))
        return path

    def _go(
        self,
        folder: RunFolder,
        environments: Sequence[Environment],
        callback: Callback | None,
        sinks: Sequence[str],
        quiet: bool,
    ) -> None:
        """Trains to the end or a signal, under the folder's lock."""
        with folder.lock():
            folder.write_config(self.config.to_json())
            display: Display = open_display(quiet)
            plan = Plan(self.config.seed, self.config.steps, self.config.evaluate_every, self.config.episodes)
            runner = Runner(
                self._algorithm,
                environments[0],
                environments[1:],
                folder,
                plan,
                display,
                open_sinks(sinks, self.path, self.config.to_json()),
                callback,
            )
            self.stopped_by = runner.run()
            plot_run(self.path, self.path / "curve.png")

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
        return checkpoint.restore_state(jax.eval_shape(init, jax.random.key(0)), loaded.state)

    def _act(self, obs: np.ndarray) -> np.ndarray:
        key = jax.random.key(0)
        return np.asarray(self._algorithm.act(self._state, jnp.asarray(obs), key, explore=False))

"""Runs from Python: train, load, resume, predict, evaluate. The command line calls nothing else."""

import dataclasses
import re
import shutil
import sys
import uuid
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np

from mbpo import checkpoint, config, words
from mbpo.addresses import Purpose, key_at, seed_at
from mbpo.algorithms import ALGORITHMS
from mbpo.config import RunConfig
from mbpo.display import Display, open_display
from mbpo.envs.adapter import EnvFactory, Environment, open_environment
from mbpo.envs.tasks import Task, find_task
from mbpo.envs.user_module import ModuleRecord, import_module_or_file
from mbpo.errors import RunWarning, StoppedBySignal, UsageError
from mbpo.evaluate import MAX_STEPS, Evaluation, evaluate
from mbpo.memory import check_memory
from mbpo.presets import Preset, find_preset
from mbpo.run_folder import CONFIG, RunFolder
from mbpo.runner import Callback, Plan, Runner
from mbpo.sinks import check_sinks, open_sinks
from mbpo.state_arrays import restore_state
from mbpo.types import Algorithm

LARGEST_SEED = 2**32 - 1


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
    display: TextIO | bool | None = True,
    command: str | None = None,
) -> "Run":
    """A finished run of `algorithm` on `task`, in the folder `out` (by default `runs/<algorithm>-<task>-<seed>`).

    `task` is one of the six tasks, any Gymnasium id with Box spaces, or a function that makes an environment;
    `env_module` is a file or module to import first, which may register the id. `algorithm` is a name, which takes
    the task's preset, or an instance with hyper-parameters of your own: `train("Hopper", mbpo.SAC(discount=0.98))`.
    `steps` and `evaluate_every` are by default the preset's. `callback` is called with the row of every evaluation
    and stops the run by returning True. `display` is where a person is shown what happens: True for standard output,
    False for nowhere, or a stream. `command` is what the run folder records as its origin, by default this call.

    Ctrl-C and SIGTERM save the run and then raise `StoppedBySignal`, a KeyboardInterrupt; `load(out).resume()` goes on.
    """
    session = Session(callback, sinks, display)
    module = import_module_or_file(str(env_module)) if env_module is not None else None
    source = find_task(task) if isinstance(task, str) else task
    named = source if isinstance(source, Task) else Task(name=config.function_name(source), env_id="")
    name, chosen = choose_algorithm(algorithm, named, preset)
    path = Path(out) if out is not None else Path("runs") / folder_name(name, named.name, seed)
    run_config = RunConfig(
        id=uuid.uuid4().hex,
        algorithm=name,
        task=named.name,
        preset=preset,
        seed=whole_number("seed", seed, 0, LARGEST_SEED),
        steps=whole_number("steps", chosen.steps if steps is None else steps, 1),
        evaluate_every=whole_number(
            "evaluate_every", chosen.evaluate_every if evaluate_every is None else evaluate_every, 1
        ),
        episodes=whole_number("episodes", episodes, 1),
        hyperparameters=config.as_mapping(chosen.algorithm),
        env_module=dataclasses.asdict(module) if module else None,
        custom_environment=not isinstance(task, str),
        command=command
        or config.python_call(
            "train",
            task,
            algorithm,
            steps=steps,
            seed=seed,
            out=out,
            preset=preset,
            evaluate_every=evaluate_every,
            episodes=episodes,
            env_module=env_module,
        ),
        commit=config.source_commit(),
        versions=config.recorded_versions(),
        machine=config.recorded_machine(),
    )
    run = Run(path, run_config, source)
    run.start(session)
    return run


def load(path: str | Path, *, env: EnvFactory | None = None, env_module: str | Path | None = None) -> "Run":
    """The run in a folder. One on an environment of the user's own needs that environment again."""
    path = Path(path)
    run_config = RunConfig.from_json(RunFolder.open(path).config, path / CONFIG)
    if run_config.algorithm not in ALGORITHMS:
        raise UsageError(f"{path} was made by the algorithm '{run_config.algorithm}', which this mbpo does not have.")
    return Run(path, run_config, find_source(path, run_config, env, env_module))


@dataclasses.dataclass(frozen=True)
class Session:
    """How one session of a run is watched."""

    callback: Callback | None
    sinks: Sequence[str]
    stream: TextIO | bool | None

    def __post_init__(self) -> None:
        check_sinks(self.sinks)
        if self.callback is not None and not callable(self.callback):
            raise UsageError(f"callback is {self.callback!r}; give a function of an evaluation's row.")
        if not (self.stream is None or isinstance(self.stream, bool) or hasattr(self.stream, "write")):
            raise UsageError(f"display is {self.stream!r}; give True, False or a stream.")

    def open_display(self) -> Display:
        if isinstance(self.stream, bool):
            return open_display(sys.stdout if self.stream else None)
        return open_display(self.stream)


class Run:
    """A run folder, and the agent that its newest checkpoint holds."""

    def __init__(self, path: Path, run_config: RunConfig, source: Task | EnvFactory) -> None:
        """Made by `train` and `load`."""
        self.path = path
        self.config = run_config
        self._source = source
        self._draws = 0

    def __repr__(self) -> str:
        return f"<Run '{self.path}': {self.config.algorithm} on {self.config.task}, {self.config.steps:,} steps>"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, one an evaluation."""
        return RunFolder.open(self.path).read("metrics")

    @cached_property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm with the hyper-parameters of the run."""
        return config.from_mapping(ALGORITHMS[self.config.algorithm], self.config.hyperparameters)

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
        action = self.algorithm.act(self._state, jnp.asarray(rows), key, explore=not deterministic)
        return self._environment.to_box(np.asarray(action))

    def evaluate(self, episodes: int = 10, seed: int = 0) -> Evaluation:
        """The returns of whole deterministic episodes in fresh environments."""
        whole_number("episodes", episodes, 1)
        whole_number("seed", seed, 0)
        seeds = [seed_at(seed, Purpose.PREDICTION, i) for i in range(episodes)]
        state, unused = self._state, jax.random.key(0)

        def act(obs: np.ndarray) -> np.ndarray:
            return np.asarray(self.algorithm.act(state, jnp.asarray(obs), unused, explore=False))

        with ExitStack() as stack:
            environments = open_environments(stack, self._source, episodes)
            return evaluate(environments, act, seeds, self.algorithm.discount)

    def resume(
        self,
        steps: int | None = None,
        *,
        callback: Callback | None = None,
        sinks: Sequence[str] = (),
        display: TextIO | bool | None = True,
    ) -> "Run":
        """This run, after going on from its newest checkpoint to `steps` (its new total; by default the old one)."""
        session = Session(callback, sinks, display)
        total = self.config.steps if steps is None else whole_number("steps", steps, 1)
        if total < self.config.steps:
            raise UsageError(
                f"{self.path} was to have {self.config.steps:,} steps and cannot be cut to {total:,}; "
                "the number given to resume is the new total."
            )
        further = Run(self.path, dataclasses.replace(self.config, steps=total), self._source)
        try:
            further.go_on(session)
        finally:
            self.config = RunConfig.from_json(RunFolder.open(self.path).config, self.path / CONFIG)
            self.__dict__.pop("_state", None)  # of the checkpoint before
        return self

    def save(self, path: str | Path) -> Path:
        """Copies the run (its config, series and checkpoints) to a new folder, which `mbpo.load` reads."""
        path = Path(path)
        if path.exists():
            raise UsageError(f"'{path}' exists already; choose another place to save the run to.")
        shutil.copytree(self.path, path, ignore=shutil.ignore_patterns("*.lock", ".*"))
        return path

    # --- one session ------------------------------------------------------------------------------------------------

    def start(self, session: Session) -> None:
        """Makes the folder, when everything that can be refused has been, and trains."""
        with ExitStack() as stack:
            environments = open_environments(stack, self._source, 1 + self.config.episodes)
            facts = self._plan(environments[0])
            self._go(RunFolder.create(self.path, self.config.to_json()), environments, facts, session)

    def go_on(self, session: Session) -> None:
        """Trains from the newest checkpoint on."""
        folder = RunFolder.open(self.path)
        with ExitStack() as stack:
            environments = open_environments(stack, self._source, 1 + self.config.episodes)
            facts = [*self._plan(environments[0]), *version_facts(self.config)]
            self._go(folder, environments, facts, session)

    def _plan(self, environment: Environment) -> list[str]:
        """Sentences on what the run will need; refused where the machine or its disk has less."""
        state = self._template(environment)
        memory, size = check_memory(state), checkpoint.checkpoint_bytes(state)
        checkpoint.ensure_room(self.path / "checkpoints", size)
        facts = [
            f"{self.config.steps:,} steps into {self.path}",
            f"memory for the state {words.size(memory)}, a checkpoint at most {words.size(size)}",
        ]
        if environment.spec.time_limit is None:
            facts.append(f"no time limit is known: an evaluated episode is cut after {MAX_STEPS:,} steps")
        return facts

    def _template(self, environment: Environment) -> Any:
        """The shapes of the state. Nothing is allocated."""
        init = partial(self.algorithm.init, environment.spec, self.config.steps)
        return jax.eval_shape(init, jax.random.key(0))

    def _go(
        self, folder: RunFolder, environments: Sequence[Environment], facts: Sequence[str], session: Session
    ) -> None:
        """Trains to the end or a signal, under the folder's lock."""
        run_config = self.config
        with folder.lock(), ExitStack() as stack:
            if folder.config != run_config.to_json():
                folder.write_config(run_config.to_json())
            display = session.open_display()
            stack.callback(display.stop)
            runner = Runner(
                self.algorithm,
                environments[0],
                environments[1:],
                folder,
                Plan(
                    run_config.id,
                    run_config.seed,
                    run_config.steps,
                    run_config.evaluate_every,
                    f"{run_config.algorithm} on {run_config.task}, seed {run_config.seed}",
                    facts,
                ),
                display,
                lambda step: open_sinks(
                    session.sinks, self.path, run_config.to_json(), report=display.message, step=step
                ),
                session.callback,
            )
            stopped_by = runner.run()
            if stopped_by is None:
                self._draw_curve(display)
        if stopped_by is not None:
            raise StoppedBySignal(stopped_by, f"`mbpo resume {self.path}`")

    def _draw_curve(self, display: Display) -> None:
        """`curve.png`. The run is complete without it, so that no failure here is the run's."""
        if not self.metrics:
            return
        picture = self.path / "curve.png"
        try:
            from mbpo.figures.curves import plot_run

            plot_run(self.path, picture)
        except Exception as error:
            display.stop(f"{picture} could not be drawn ({type(error).__name__}: {error}); the run is complete.")
        else:
            display.stop(f"The learning curve is in {picture}.")

    # --- the agent --------------------------------------------------------------------------------------------------

    @cached_property
    def _environment(self) -> Environment:
        return open_environment(self._source)

    @cached_property
    def _state(self) -> Any:
        template = self._template(self._environment)
        loaded = checkpoint.load_newest(self.path / "checkpoints", template, self.config.id)
        if loaded is None:
            raise UsageError(f"{self.path} has no checkpoint yet; go on with `mbpo resume {self.path}` first.")
        for problem in loaded.skipped:
            warnings.warn(problem, RunWarning, stacklevel=3)
        return restore_state(template, loaded.state)


def find_source(
    path: Path, run_config: RunConfig, env: EnvFactory | None, env_module: str | Path | None
) -> Task | EnvFactory:
    """The environment of a run that exists. Nothing is imported because a folder says so: the user names it again."""
    if env is not None:
        return env
    if run_config.custom_environment:
        raise UsageError(
            f"{path} was trained on an environment given as a function ({run_config.task}); "
            "give it again in Python: mbpo.load(path, env=function)."
        )
    recorded = ModuleRecord(**run_config.env_module) if run_config.env_module else None
    if env_module is not None:
        module = import_module_or_file(str(env_module))
        if recorded and recorded.sha256 != module.sha256:
            warnings.warn(
                f"{module.path} is not the file that {path} was trained with (SHA-256 {module.sha256[:12]}... instead "
                f"of {recorded.sha256[:12]}...); if its environment behaves otherwise, so will the agent.",
                RunWarning,
                stacklevel=3,
            )
    elif recorded:
        raise UsageError(
            f"{path} needs its environment module; add --env-module {recorded.name} (in Python, env_module=...), "
            f"which was {recorded.path} when the run was made."
        )
    return find_task(run_config.task)


def choose_algorithm(algorithm: str | Algorithm[Any], task: Task, variant: str) -> tuple[str, Preset]:
    """The algorithm's name, and its preset with the user's own hyper-parameters, if they were given."""
    if isinstance(algorithm, str):
        return algorithm, find_preset(algorithm, task, variant)
    for name, known in ALGORITHMS.items():
        if type(algorithm) is known:
            return name, dataclasses.replace(find_preset(name, task, variant), algorithm=algorithm)
    raise UsageError(f"{algorithm!r} is no algorithm of mbpo; take a name or an instance of: {', '.join(ALGORITHMS)}.")


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The value, if it is a whole number in this range; those of NumPy are."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if whole and value >= least and (most is None or value <= most):
        return int(value)
    bounds = f"at least {least}" if most is None else f"between {least} and {most:,}"
    raise UsageError(f"{name} is {value!r}; it must be a whole number, {bounds}.")


def folder_name(algorithm: str, task: str, seed: int) -> str:
    """The default folder of a run: of letters that every file system takes."""
    return re.sub(r"[^\w.-]+", "-", f"{algorithm}-{task}-{seed}")


def version_facts(run_config: RunConfig) -> list[str]:
    changed = config.changed_versions(run_config.versions)
    if not changed:
        return []
    return [f"made with other versions ({', '.join(changed)}), so numbers may differ in their last digits from here on"]


def open_environments(stack: ExitStack, source: Task | EnvFactory, count: int) -> list[Environment]:
    """So many environments, closed with the stack."""
    return [stack.enter_context(closing(open_environment(source))) for _ in range(count)]

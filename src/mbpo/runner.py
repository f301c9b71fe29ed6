"""Collect, observe, update, evaluate, log, save: the only loop over a real environment."""

import dataclasses
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from mbpo import checkpoint
from mbpo.addresses import Purpose, key_at, seed_at
from mbpo.clock import Clock
from mbpo.display import Display
from mbpo.display import Plan as Picture
from mbpo.envs.adapter import Environment, Outcome, Snapshot
from mbpo.envs.faults import EnvironmentFault
from mbpo.errors import RunError
from mbpo.evaluate import Evaluation, evaluate
from mbpo.guards import Guard
from mbpo.memory import peak_bytes
from mbpo.run_folder import RunFolder
from mbpo.signals import StopSignals
from mbpo.sinks import Sink
from mbpo.state_arrays import restore_state
from mbpo.types import Algorithm, Interrupted, Transition

Row = dict[str, Any]
Callback = Callable[[Row], bool | None]
"""Called with every evaluation's row; True stops the run."""
OpenSinks = Callable[[int], Sequence[Sink]]

MAX_CORRUPT_IN_A_ROW = 100


@dataclass(frozen=True)
class Plan:
    """What a run is to do, apart from its algorithm and environment."""

    run: str
    """Whose checkpoints these are."""
    seed: int
    steps: int
    evaluate_every: int
    title: str = ""
    facts: Sequence[str] = ()
    """Sentences for the user, said once at the start."""


@dataclass
class Progress:
    """The counters of a run: what a checkpoint holds beside the algorithm and the environment."""

    step: int = 0
    prepared: int = -1
    """The last step before which the algorithm prepared itself."""
    evaluated: int = 0
    """The step of the last evaluation."""
    episodes: int = 0
    """Begun so far."""
    episode_over: bool = True
    episode_return: float = 0.0
    finished_returns: list[float] = field(default_factory=list[float])
    """Of the training episodes that ended since the last evaluation."""
    corrupt: int = 0
    largest_reward: float = 0.0
    """In absolute value, of all real steps."""
    metrics: dict[str, int | float | None] = field(default_factory=dict[str, int | float | None])
    """The algorithm's newest metrics."""

    @property
    def marks(self) -> tuple[int, ...]:
        """Equal where nothing happened in between."""
        return self.step, self.prepared, self.evaluated


class Runner:
    """One session of a run: from its newest checkpoint, or from nothing, to its last step, a signal or a callback.

    `open_sinks` is called with the step at which the session begins; the runner closes what it returns.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        environment: Environment,
        evaluators: Sequence[Environment],
        folder: RunFolder,
        plan: Plan,
        display: Display,
        open_sinks: OpenSinks = lambda _step: (),
        callback: Callback | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.environment = environment
        self.evaluators = evaluators
        self.folder = folder
        self.plan = plan
        self.display = display
        self.open_sinks = open_sinks
        self.sinks: Sequence[Sink] = ()
        self.callback = callback
        self.clock = Clock()
        self.guard = Guard(algorithm.discount, environment.spec.action_size)
        self.signals = StopSignals()
        self.saves = checkpoint.SaveSchedule()
        self._saved: tuple[int, ...] = ()
        self.root = jax.random.key(plan.seed)
        self.progress = Progress()
        self.state: Any = None
        self.obs: np.ndarray = np.zeros(environment.spec.obs_size, np.float32)

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> signal.Signals | None:
        """Runs to the end; the signal that stopped it before, if one did. Everything done is saved.

        A fault of the environment, or of the callback, is raised when everything before it has been saved. After a
        divergence nothing is: the last good checkpoint stays.
        """
        with self.signals, ExitStack() as stack:
            self._begin()
            self.sinks = [stack.enter_context(closing(sink)) for sink in self.open_sinks(self.progress.step)]
            try:
                self._loop()
            except CallbackError:
                self._save_news()
                raise
            except EnvironmentFault as fault:
                if fault.step is None:
                    fault.locate(self.progress.step + 1, self.plan.seed)
                self._save_news()
                raise
            self._save_news()
        return self.signals.received

    def _loop(self) -> None:
        """Until the last step, or until somebody wants to stop: at a moment when everything can be saved."""
        with suppress(Interrupted):
            while True:
                stopped = self._evaluation_is_due and self._evaluate()
                if self.saves.due(self.clock.total):
                    self._save()
                if self.progress.step >= self.plan.steps or self.interrupted() or stopped:
                    return
                self._advance()

    def _advance(self) -> None:
        """One real step, and all the learning that belongs to it."""
        progress, algorithm = self.progress, self.algorithm
        if progress.prepared != progress.step:
            key = key_at(self.root, Purpose.PREPARE, progress.step)
            self.state = algorithm.prepare(self.state, progress.step, key, self)
            progress.prepared = progress.step
        transition = self._collect()
        progress.step += 1
        progress.largest_reward = max(progress.largest_reward, abs(float(transition.reward)))
        self.state = algorithm.observe(self.state, transition, self)
        key = key_at(self.root, Purpose.UPDATE, progress.step)
        self.state, metrics = algorithm.update(self.state, progress.step, key, self)
        self._take_metrics({name: float(value) for name, value in metrics.items()})

    def _collect(self) -> Transition:
        """The next real transition. One that the simulator corrupted is dropped, and the episode with it."""
        for _ in range(MAX_CORRUPT_IN_A_ROW):
            if self.progress.episode_over:
                self._start_episode()
            action = self._action()
            with self.clock("env"):
                outcome = self.environment.step(action)
            if not outcome.corrupt:
                return self._accept(action, outcome)
            self.progress.episode_over = True
            self.progress.corrupt += 1
            self.display.message(
                f"The simulator became unstable and reset itself after step {self.progress.step:,}; "
                "that transition was dropped and the episode ended."
            )
        raise EnvironmentFault(
            self.environment.spec.name,
            f"has a simulator that reset itself {MAX_CORRUPT_IN_A_ROW} times in a row",
            "check the time step of its model, which is unstable from the first step",
            action=None,
        )

    def _accept(self, action: np.ndarray, outcome: Outcome) -> Transition:
        """The transition of an outcome. Its arrays are NumPy's: the call that takes it in moves them at once."""
        progress = self.progress
        arrays: Any = (
            self.obs,
            action,
            np.float32(outcome.reward),
            outcome.obs,
            np.bool_(outcome.terminated),
            np.bool_(outcome.truncated),
        )
        self.obs = outcome.obs
        progress.episode_return += outcome.reward
        progress.episode_over = outcome.terminated or outcome.truncated
        if progress.episode_over:
            progress.finished_returns.append(progress.episode_return)
        return Transition(*arrays)

    def _action(self) -> np.ndarray:
        key = key_at(self.root, Purpose.ACT, self.progress.step)
        with self.clock("policy"):
            if self.progress.step < self.algorithm.random_steps:
                return np.asarray(random_action(key, self.environment.spec.action_size))
            return np.asarray(self.algorithm.act(self.state, self.obs, key, explore=True))

    def _start_episode(self) -> None:
        with self.clock("env"):
            self.obs = self.environment.reset(seed_at(self.plan.seed, Purpose.EPISODE, self.progress.episodes))
        self.progress.episodes += 1
        self.progress.episode_over = False
        self.progress.episode_return = 0.0

    def _take_metrics(self, metrics: Mapping[str, int | float | None]) -> None:
        """Remembers what the next evaluation row will say, unless it shows that learning has diverged."""
        if metrics:
            self.guard.check(self.progress.step, metrics, self.progress.largest_reward)
            self.progress.metrics.update(metrics)

    # --- evaluation ---------------------------------------------------------------------------------------------

    @property
    def _evaluation_is_due(self) -> bool:
        step, plan = self.progress.step, self.plan
        return step > self.progress.evaluated and (step % plan.evaluate_every == 0 or step == plan.steps)

    def _evaluate(self) -> bool:
        """Writes one row; true if the callback wants the run to stop. Interrupted, it leaves no trace."""
        with self.clock("eval"):
            result = self._play()
            value = float(np.mean(self.algorithm.value(self.state, jnp.asarray(result.first_obs))))
        row = self._row(result, value)
        self.folder.append("metrics", row)
        for sink in self.sinks:
            sink.write(row)
        self.display.evaluation(row)
        self.progress.finished_returns = []
        self.progress.evaluated = self.progress.step
        return self._callback_stops(row)

    def _callback_stops(self, row: Row) -> bool:
        try:
            return bool(self.callback and self.callback(dict(row)))
        except Exception as error:
            raise CallbackError(
                f"The callback raised {type(error).__name__} at step {row['step']:,} ({error}); "
                "everything up to there is saved: correct it, then resume the run."
            ) from error

    def _play(self) -> Evaluation:
        unused = key_at(self.root, Purpose.EVALUATION)
        seeds = [
            seed_at(self.plan.seed, Purpose.EVALUATION, self.progress.step, i) for i in range(len(self.evaluators))
        ]

        def act(obs: np.ndarray) -> np.ndarray:
            if self.interrupted():
                raise Interrupted
            return np.asarray(self.algorithm.act(self.state, jnp.asarray(obs), unused, explore=False))

        try:
            return evaluate(self.evaluators, act, seeds, self.algorithm.discount)
        except EnvironmentFault as fault:
            fault.locate(self.progress.step, self.plan.seed)
            raise

    def _row(self, result: Evaluation, value: float) -> Row:
        """Everything that is known at this step, as one line of `metrics.jsonl`."""
        policy_updates, model_updates = self.algorithm.counts(self.state)
        finished = self.progress.finished_returns
        return {
            "step": self.progress.step,
            "eval/return": result.mean,
            "eval/return_std": result.std,
            "eval/episodes": len(result.returns),
            "eval/length": float(np.mean(result.lengths)),
            "eval/discounted_return": float(np.mean(result.discounted_returns)),
            "eval/value": value,
            "train/return": float(np.mean(finished)) if finished else None,
            "train/episodes": len(finished),
            "env/corrupt": self.progress.corrupt + result.corrupt,
            "policy_updates": policy_updates,
            "model_updates": model_updates,
            **{name: self.progress.metrics.get(name) for name in self.algorithm.metric_names},
            **self.clock.read(),
            "machine/memory": peak_bytes(),
        }

    # --- what an algorithm may ask of its host --------------------------------------------------------------------

    def interrupted(self) -> bool:
        """Asked whenever stopping is possible, so it is also where the display learns that time goes by."""
        self.display.tick(self.progress.step)
        return self.signals.received is not None

    def message(self, text: str) -> None:
        self.display.message(text)

    def record(self, series: str, row: Mapping[str, Any]) -> None:
        self.folder.append(series, {"step": self.progress.step, **row})
        self._take_metrics({name: row[name] for name in self.algorithm.metric_names if name in row})

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Starts from the newest good checkpoint, or from step 0 where there is none."""
        init = partial(self.algorithm.init, self.environment.spec, self.plan.steps)
        template = jax.eval_shape(init, self.root)
        loaded = checkpoint.load_newest(self.folder.checkpoints, template, self.plan.run)
        if loaded is None:
            self.state = jax.jit(init)(key_at(self.root, Purpose.INIT))
        else:
            self._take_up(loaded, template)
        self._cut()
        self._start_display(loaded.skipped if loaded else [])
        if loaded:
            self._restore_episode(loaded)
        self.saves = checkpoint.SaveSchedule(last=self.clock.total)

    def _take_up(self, loaded: checkpoint.Loaded, template: Any) -> None:
        self.state = restore_state(template, loaded.state)
        self.progress = Progress(**loaded.values["progress"])
        self.guard.remember(loaded.values["guard"])
        self.clock = Clock(loaded.values["clock"])
        self._saved = self.progress.marks

    def _start_display(self, problems: Sequence[str]) -> None:
        rows = self.folder.read("metrics")
        picture = Picture(self.plan.title, self.plan.steps, self.progress.step, self.plan.facts, rows)
        self.display.start(picture, self._now)
        for problem in problems:
            self.display.message(f"{problem} The run goes on from step {self.progress.step:,}.")
        if self.progress.step >= self.plan.steps and not self._evaluation_is_due:
            self.display.message(
                f"The run has all of its {self.plan.steps:,} steps; to go on, give resume a larger total (--steps)."
            )

    def _now(self) -> Row:
        """What the display shows between evaluations."""
        return {"policy_updates": self.algorithm.counts(self.state)[0], **self.clock.read()}

    def _cut(self) -> None:
        """Forgets what was logged after the checkpoint: it will be done, and logged, again."""
        for series in self.folder.series():
            self.folder.cut(series, self.progress.evaluated if series == "metrics" else self.progress.prepared)

    def _restore_episode(self, loaded: checkpoint.Loaded) -> None:
        if self.progress.episode_over:
            return
        snapshot = Snapshot(loaded.values["episode_seed"], loaded.extra["actions"], loaded.extra["obs"])
        with self.clock("env"):
            repeated = self.environment.restore(snapshot)
        self.obs = snapshot.obs
        if not repeated:
            self.display.message(
                f"{self.environment.spec.name} did not repeat its episode when given the same seed and actions, "
                "so this resumed run begins a new episode and will differ from an uninterrupted one."
            )
            self.progress.episode_over = True

    def _save_news(self) -> None:
        if self._saved != self.progress.marks:
            self._save()

    def _save(self) -> None:
        snapshot = self.environment.snapshot()
        with self.clock("checkpoint"):
            self.folder.sync()
            saved = checkpoint.save(
                self.folder.checkpoints,
                self.progress.step,
                self.state,
                arrays={"actions": snapshot.actions, "obs": snapshot.obs} if snapshot else {},
                values={
                    "progress": dataclasses.asdict(self.progress),
                    "guard": self.guard.remembered(),
                    "clock": self.clock.read(),
                    "episode_seed": snapshot.seed if snapshot else None,
                },
                run=self.plan.run,
            )
        self._saved = self.progress.marks
        self.saves.saved(self.clock.total, saved.seconds)


class CallbackError(RunError):
    """The user's callback raised."""


@partial(jax.jit, static_argnums=1)
def random_action(key: Key[Array, ""], size: int) -> Float[Array, " A"]:
    """Uniform in [−1, 1]."""
    return jax.random.uniform(key, (size,), minval=-1.0, maxval=1.0)

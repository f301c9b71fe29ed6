"""Collect, observe, update, evaluate, log, save: the only loop over a real environment."""

import dataclasses
import signal
from collections.abc import Callable, Mapping, Sequence
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
from mbpo.envs.adapter import Environment, EnvironmentFault, Outcome, Snapshot
from mbpo.errors import RunError
from mbpo.evaluate import Evaluation, evaluate
from mbpo.run_folder import RunFolder
from mbpo.signals import StopSignals
from mbpo.sinks import Sink
from mbpo.types import Algorithm, Interrupted, Transition

Row = dict[str, Any]
Callback = Callable[[Row], bool | None]
"""Called with every evaluation's row; True stops the run."""

MAX_CORRUPT_IN_A_ROW = 100


@dataclass(frozen=True)
class Plan:
    """What a run is to do, apart from its algorithm and environment."""

    seed: int
    steps: int
    evaluate_every: int
    episodes: int = 10


@dataclass
class Progress:
    """The counters of a run: what a checkpoint holds beside the algorithm and the environment."""

    step: int = 0
    prepared: int = -1
    """The last step before which the algorithm prepared itself."""
    episode: int = -1
    episode_return: float = 0.0
    finished_returns: list[float] = field(default_factory=list[float])
    """Of the training episodes that ended since the last evaluation."""
    corrupt: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """The algorithm's newest metrics."""


class Runner:
    """One session of a run: from its newest checkpoint, or from nothing, to its last step or a signal."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
        environment: Environment,
        evaluators: Sequence[Environment],
        folder: RunFolder,
        plan: Plan,
        display: Display,
        sinks: Sequence[Sink] = (),
        callback: Callback | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.environment = environment
        self.evaluators = evaluators
        self.folder = folder
        self.plan = plan
        self.display = display
        self.sinks = sinks
        self.callback = callback
        self.clock = Clock()
        self.signals = StopSignals()
        self.saves = checkpoint.SaveSchedule()
        self.root = jax.random.key(plan.seed)
        self.progress = Progress()
        self.state: Any = None
        self.obs: np.ndarray = np.zeros(environment.spec.obs_size, np.float32)
        self.rows: list[Row] = []

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> signal.Signals | None:
        """Runs to the end; the signal that stopped it before, if one did. Everything done is saved."""
        with self.signals:
            self._begin()
            stopped = False
            while self.progress.step < self.plan.steps and not self.signals.received and not stopped:
                try:
                    self._advance()
                except Interrupted:
                    break
                except EnvironmentFault as fault:
                    self._save()
                    raise RunError(fault.at(step=self.progress.step + 1, seed=self.plan.seed)) from fault
                self.display.tick(self.progress.step, self._policy_updates)
                if self._evaluation_is_due:
                    stopped = self._evaluate()
                if self.saves.due(self.clock.total):
                    self._save()
            self._save()
            return self.signals.received

    def _advance(self) -> None:
        """One real step, and all the learning that belongs to it."""
        progress, algorithm = self.progress, self.algorithm
        if progress.prepared != progress.step:
            key = key_at(self.root, Purpose.PREPARE, progress.step)
            self.state = algorithm.prepare(self.state, progress.step, key, self)
            progress.prepared = progress.step
        transition = self._collect()
        progress.step += 1
        self.state = algorithm.observe(self.state, jax.device_put(transition))
        key = key_at(self.root, Purpose.UPDATE, progress.step)
        self.state, metrics = algorithm.update(self.state, progress.step, key, self)
        if metrics:
            progress.metrics = {name: float(value) for name, value in jax.device_get(metrics).items()}
            self.guard.check(progress.step, progress.metrics)

    def _collect(self) -> Transition:
        """The next real transition. One that the simulator corrupted is dropped, and the episode with it."""
        for _ in range(MAX_CORRUPT_IN_A_ROW):
            action = self._action()
            with self.clock("env"):
                obs, outcome = self.obs, self.environment.step(action)
            if not outcome.corrupt:
                return self._accept(obs, action, outcome)
            self.progress.corrupt += 1
            self.display.message(
                f"The simulator became unstable and reset itself after step {self.progress.step:,}; "
                "that transition was dropped and a new episode begun."
            )
            self._start_episode()
        raise RunError(
            f"The simulator of {self.environment.spec.name} reset itself {MAX_CORRUPT_IN_A_ROW} times in a row "
            f"(last at step {self.progress.step}); its model is unstable from the first step: check its time step."
        )

    def _accept(self, obs: np.ndarray, action: np.ndarray, outcome: Outcome) -> Transition:
        """The transition of an outcome; begins the next episode where this one ended."""
        self.progress.episode_return += outcome.reward
        self.obs = outcome.obs
        if outcome.terminated or outcome.truncated:
            self.progress.finished_returns.append(self.progress.episode_return)
            self._start_episode()
        as_array: Any = np.asarray
        return Transition(
            obs,
            action,
            as_array(outcome.reward, np.float32),
            outcome.obs,
            as_array(outcome.terminated),
            as_array(outcome.truncated),
        )

    def _action(self) -> np.ndarray:
        key = key_at(self.root, Purpose.ACT, self.progress.step)
        with self.clock("policy"):
            if self.progress.step < self.algorithm.random_steps:
                return np.asarray(random_action(key, self.environment.spec.action_size))
            return np.asarray(self.algorithm.act(self.state, jnp.asarray(self.obs), key, explore=True))

    def _start_episode(self) -> None:
        self.progress.episode += 1
        self.progress.episode_return = 0.0
        with self.clock("env"):
            self.obs = self.environment.reset(seed_at(self.plan.seed, Purpose.EPISODE, self.progress.episode))

    # --- evaluation ---------------------------------------------------------------------------------------------

    @property
    def _evaluation_is_due(self) -> bool:
        return self.progress.step % self.plan.evaluate_every == 0 or self.progress.step == self.plan.steps

    def _evaluate(self) -> bool:
        """Writes one row; true if the callback wants the run to stop."""
        with self.clock("eval"):
            result = self._play()
        row = self._row(result)
        self.rows.append(row)
        self.folder.append("metrics", row)
        for sink in self.sinks:
            sink.write(row)
        self.display.evaluation(row)
        self.progress.finished_returns = []
        return bool(self.callback and self.callback(row))

    def _play(self) -> Evaluation:
        unused = key_at(self.root, Purpose.EVALUATION)
        seeds = [seed_at(self.plan.seed, Purpose.EVALUATION, self.progress.step, i) for i in range(self.plan.episodes)]

        def act(obs: np.ndarray) -> np.ndarray:
            return np.asarray(self.algorithm.act(self.state, jnp.asarray(obs), unused, explore=False))

        return evaluate(self.evaluators, act, seeds)

    def _row(self, result: Evaluation) -> Row:
        """Everything that is known at this step, as one line of `metrics.jsonl`."""
        policy_updates, model_updates = self.algorithm.counts(self.state)
        finished = self.progress.finished_returns
        return {
            "step": self.progress.step,
            "eval/return": result.mean,
            "eval/return_std": result.std,
            "eval/episodes": len(result.returns),
            "eval/length": float(np.mean(result.lengths)),
            "train/return": float(np.mean(finished)) if finished else None,
            "train/episodes": len(finished),
            "env/corrupt": self.progress.corrupt + result.corrupt,
            "policy_updates": policy_updates,
            "model_updates": model_updates,
            **{name: self.progress.metrics.get(name) for name in self.algorithm.metric_names},
            **self.clock.read(),
        }

    # --- what an algorithm may ask of its host --------------------------------------------------------------------

    def interrupted(self) -> bool:
        return self.signals.received is not None

    def record(self, series: str, row: Mapping[str, Any]) -> None:
        self.folder.append(series, {"step": self.progress.step, **row})

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Starts from the newest good checkpoint, or from step 0 where there is none."""
        init = partial(self.algorithm.init, self.environment.spec, self.plan.steps)
        loaded = checkpoint.load_newest(self.folder.checkpoints)
        if loaded is None:
            self._cut(step=-1, prepared=-1)
            self.state = jax.jit(init)(key_at(self.root, Purpose.INIT))
            self._start_episode()
            return
        for problem in loaded.skipped:
            self.display.message(problem)
        template = jax.eval_shape(init, self.root)
        self.state = checkpoint.restore_state(template, loaded.state)
        self.progress = Progress(**loaded.values["progress"])
        self.clock = Clock(loaded.values["clock"])
        self._cut(self.progress.step, self.progress.prepared)
        self._restore_episode(Snapshot(loaded.values["episode_seed"], loaded.extra["actions"], loaded.extra["obs"]))

    def _cut(self, step: int, prepared: int) -> None:
        """Forgets what was logged after the checkpoint: it will be done, and logged, again."""
        for series in self.folder.series():
            self.folder.cut(series, step if series == "metrics" else prepared)

    def _restore_episode(self, snapshot: Snapshot) -> None:
        with self.clock("env"):
            repeated = self.environment.restore(snapshot)
        self.obs = snapshot.obs
        if not repeated:
            self.display.message(
                f"{self.environment.spec.name} did not repeat its episode when given the same seed and actions, "
                "so this resumed run begins a new episode and will differ from an uninterrupted one."
            )
            self._start_episode()

    def _save(self) -> None:
        snapshot = self.environment.snapshot()
        saved = checkpoint.save(
            self.folder.checkpoints,
            self.progress.step,
            self.state,
            arrays={"actions": snapshot.actions, "obs": snapshot.obs},
            values={
                "progress": dataclasses.asdict(self.progress),
                "clock": self.clock.read(),
                "episode_seed": snapshot.seed,
            },
        )
        self.saves.saved(self.clock.total, saved.seconds)


@partial(jax.jit, static_argnums=1)
def random_action(key: Key[Array, ""], size: int) -> Float[Array, " A"]:
    """Uniform in [−1, 1]."""
    return jax.random.uniform(key, (size,), minval=-1.0, maxval=1.0)

"""The ensemble's gradient step against its limit, and what a whole fit adds to its steps."""

import time
from collections.abc import Iterator
from contextlib import suppress

import jax
import jax.numpy as jnp
import numpy as np

from mbpo.bench.products import Net, Product, Workload
from mbpo.bench.report import Line, Report
from mbpo.bench.synthetic import smooth_buffer
from mbpo.bench.timing import interleave
from mbpo.compiler import NO_YNNPACK, options_for_one
from mbpo.model import Model
from mbpo.model_fit import CHUNK, FitLearner, FitReport, fit, input_scale, judge, train_chunk
from mbpo.types import EnvSpec, Interrupted


def measure(model: Model, spec: EnvSpec, rounds: int, rows: int, fits: int) -> Report:
    """A gradient step against the products that it needs; then whole fits to `rows` transitions."""
    limit, bench = workload(model, spec), FitBench(model, spec, rows)
    timings = interleave({"limit": limit.contestant(CHUNK), "gradient step": bench.steps}, rounds)
    facts = bench.whole_fit(fits) if fits else {}
    widths = " x ".join(map(str, model.hidden_sizes))
    return Report(
        bench="model",
        task=spec.name,
        title=(
            f"model fit: {spec.obs_size} observations, {spec.action_size} actions, {model.members} members, "
            f"batch {model.batch_size}, {widths} hidden"
        ),
        unit="gradient step",
        gflop=limit.flop / 1e9,
        lines=tuple(Line(name, timing.per(CHUNK)) for name, timing in timings.items()),
        facts=facts,
        notes=(fit_sentence(facts),) if fits else (),
    )


class FitBench:
    """A model, and a buffer to fit it to."""

    def __init__(self, model: Model, spec: EnvSpec, rows: int) -> None:
        self.model = model
        self.buffer = smooth_buffer(spec, jax.random.key(0), rows)
        self.ensemble = model.init(spec, jax.random.key(1))
        self.scale = input_scale(self.buffer, jnp.ones(rows, bool))
        self.learner = FitLearner(*jax.tree.map(jnp.copy, (self.ensemble.networks, self.ensemble.optimizer)))
        shape = (CHUNK, model.members, model.batch_size)
        self.ages = jnp.asarray(np.random.default_rng(0).integers(rows, size=shape), jnp.int32)

    def steps(self) -> None:
        """As many gradient steps as a fit makes in one call."""
        chunk, rows = jnp.int32(CHUNK), jnp.int32(CHUNK * self.model.batch_size)
        self.learner = train_chunk(self.model, self.learner, self.scale, self.buffer, self.ages, chunk, rows)
        jax.block_until_ready(self.learner)

    def whole_fit(self, fits: int) -> dict[str, float]:
        """The best of several fits from the same start, taken apart.

        Each is followed by its gradient steps alone, so that a machine that slows down for a minute slows both.
        """
        self._compile()
        timed = [self._timed_fit() for _ in range(fits)]
        fit_seconds, step_seconds = (min(times) for times in zip(*[times for times, _ in timed], strict=True))
        report = timed[0][1]
        holdout = (report.epochs + 1) * self._judge_seconds(report)
        return {
            "rows": float(report.rows),
            "updates": float(report.updates),
            "epochs": float(report.epochs),
            "fit": fit_seconds,
            "fit_steps": step_seconds,
            "fit_holdout": holdout,
            "fit_other": fit_seconds - step_seconds - holdout,
            "fit_overhead": (fit_seconds - holdout) / step_seconds - 1.0,
        }

    def _compile(self) -> None:
        """Runs what an epoch runs, so that no fit is timed with its compilation."""
        with suppress(Interrupted):
            fit(self.model, self.ensemble, self.buffer, jax.random.key(2), interrupted=lambda: True)

    def _timed_fit(self) -> tuple[tuple[float, float], FitReport]:
        """The seconds of a fit, and of its gradient steps alone; every fit makes the same."""
        begin = time.perf_counter()
        fitted, report = fit(self.model, self.ensemble, self.buffer, jax.random.key(2))
        jax.block_until_ready(fitted)
        return (time.perf_counter() - begin, self._steps_seconds(report)), report

    def _steps_seconds(self, report: FitReport) -> float:
        """What the gradient steps of all epochs take, in the same calls, with nothing between them."""
        begin, rows = time.perf_counter(), report.rows - report.holdout_rows
        for _ in range(report.epochs):
            for left in range(report.updates // report.epochs, 0, -CHUNK):
                steps = jnp.int32(min(left, CHUNK))
                self.learner = train_chunk(
                    self.model, self.learner, self.scale, self.buffer, self.ages, steps, jnp.int32(rows)
                )
        jax.block_until_ready(self.learner)
        return time.perf_counter() - begin

    def _judge_seconds(self, report: FitReport) -> float:
        """What one look at the holdout rows takes, at best."""
        networks, ages = self.learner.networks, np.arange(report.holdout_rows, dtype=np.int32)
        timings = interleave({"judge": lambda: judge(networks, self.scale, self.buffer, ages)}, rounds=5)
        return timings["judge"].best


def fit_sentence(facts: dict[str, float]) -> str:
    return (
        f"a fit to {facts['rows']:,.0f} rows: {facts['fit']:.2f} s for {facts['updates']:,.0f} gradient steps in "
        f"{facts['epochs']:.0f} epochs\n"
        f"  the steps alone {facts['fit_steps']:.2f} s, judging {facts['fit_holdout']:.2f} s, bookkeeping and data "
        f"movement {facts['fit_other']:.2f} s ({facts['fit_overhead']:.1%} of the steps)"
    )


def workload(model: Model, spec: EnvSpec) -> Workload:
    """The products of one gradient step."""
    sizes = (spec.obs_size + spec.action_size, *model.hidden_sizes, 2 * (1 + spec.obs_size))
    members = [Net(f"member{i}", sizes) for i in range(model.members)]
    inputs = {f"rows{i}": (model.batch_size, sizes[0]) for i in range(model.members)}
    for net in members:
        inputs |= net.weights | net.turned_inputs(model.batch_size)
    return Workload(inputs, tuple(products_of_step(members)), options_for_one(NO_YNNPACK))


def products_of_step(members: list[Net]) -> Iterator[Product]:
    """Each member on its own rows, and back to its weights."""
    for i, member in enumerate(members):
        yield from member.forward(f"rows{i}", member.name)
    for i, member in enumerate(members):
        yield from member.backward(f"rows{i}", member.name, turned=True)

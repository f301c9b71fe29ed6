"""What a budget of gradient steps does to the model: the same real steps of a run, fitted again under each budget.

`python benchmarks/fit_budget.py runs/hopper --begin 8000 --end 12000 --out results/bench/fit-budget.json`. No policy
learns here, so a budget is judged by what it is for: the model's error on the next real steps, before it is fitted to
them. All budgets begin with the same faithful fit.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import mbpo
from mbpo.bench.report import circumstances, write_report
from mbpo.buffer import Buffer, export_rows, import_rows
from mbpo.model import Ensemble, Model
from mbpo.model_fit import fit, judge
from mbpo.types import EnvSpec, Transition


@dataclass(frozen=True)
class Replay:
    """Which real steps to fit to again, and under which budgets."""

    run: tyro.conf.Positional[Path]
    """A run folder of MBPO."""
    begin: int = 8000
    """Real steps at the first fit."""
    end: int = 12_000
    """Real steps at the last."""
    budgets: tuple[int, ...] = (200, 400, 800, 1600)
    """Gradient steps in a fit; the faithful one, without a budget, is always measured too."""
    out: Path | None = None
    """A JSON file for the numbers."""


def main() -> None:
    replay = tyro.cli(Replay)
    run = mbpo.load(replay.run)
    mbpo_, state = run.algorithm, run._state
    rows = export_rows(state.sac.buffer)

    def buffer(steps: int) -> Buffer[Transition]:
        return import_rows(state.sac.buffer, jax.tree.map(lambda leaf: leaf[:steps], rows))

    model = replace(mbpo_.model, max_updates_per_fit=None)
    first, _ = fit(model, first_ensemble(model, rows), buffer(replay.begin), jax.random.key(0))
    found = {}
    print(f"{'budget':>10}{'updates':>10}{'seconds':>10}{'fresh mse':>12}{'fresh nll':>12}{'holdout mse':>13}")
    for budget in (*replay.budgets, None):
        chosen = replace(model, max_updates_per_fit=budget)
        line = follow(chosen, first, buffer, range(replay.begin + mbpo_.fit_every, replay.end + 1, mbpo_.fit_every))
        found[str(budget or "none")] = line
        print(
            f"{budget or 'none':>10}{sum(line['updates']):>10,}{line['seconds']:>10.1f}"
            f"{np.median(line['fresh_mse']):>12.4f}{np.median(line['fresh_nll']):>12.3f}"
            f"{np.median(line['holdout_mse']):>13.4f}",
            flush=True,
        )
    if replay.out is not None:
        report = {
            "bench": "fit budget",
            "run": run.path.name,
            "task": run.config.task,
            "begin": replay.begin,
            "end": replay.end,
            "budgets": found,
            **circumstances(),
        }
        write_report(replay.out, report)


def first_ensemble(model: Model, rows: Transition) -> Ensemble:
    """An ensemble of the sizes of the rows, before its first fit."""
    spec = EnvSpec("replayed", obs_size=rows.obs.shape[1], action_size=rows.action.shape[1])
    return model.init(spec, jax.random.key(1))


def follow(model: Model, ensemble: Ensemble, buffer: Any, steps: range) -> dict[str, Any]:
    """Fit after fit, each judged first by the elites of the one before on the newest rows."""
    columns: dict[str, list[float]] = {name: [] for name in ("fresh_mse", "fresh_nll", "holdout_mse", "updates")}
    seconds = 0.0
    for step in steps:
        newest, elites = np.arange(steps.step, dtype=np.int32), np.asarray(ensemble.elites)
        mse, nll = judge(ensemble.networks, ensemble.scale, buffer(step), newest)
        begin = time.perf_counter()
        ensemble, report = fit(model, ensemble, buffer(step), jax.random.key(step))
        seconds += time.perf_counter() - begin
        columns["fresh_mse"].append(float(mse[elites].mean()))
        columns["fresh_nll"].append(float(nll[elites].mean()))
        columns["holdout_mse"].append(float(np.take(report.holdout_mse, report.elites).mean()))
        columns["updates"].append(report.updates)
    return {**columns, "seconds": seconds}


if __name__ == "__main__":
    main()

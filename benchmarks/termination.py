"""How well termination is learned from few ends: the default networks, and the same without a price on inputs.

`python benchmarks/termination.py --out results/bench/termination.json`. Random steps of each task, judged by the
environment's own word on other random steps; and made-up ends on HalfCheetah's steps, of shapes that no threshold has.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import tyro

from mbpo.bench.report import circumstances, write_report
from mbpo.buffer import import_rows, init_buffer
from mbpo.envs.adapter import open_environment
from mbpo.envs.tasks import find_task
from mbpo.termination import TerminationModel, end_probability
from mbpo.types import EnvSpec, Transition, blank_transition

TASKS = ("Hopper", "Walker2d", "Ant", "Humanoid", "InvertedPendulum")
# Deviations of HalfCheetah's observations under random actions.
STD = np.array([0.1, 0.9, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.7, 0.8, 1.6, 5.6, 6.8, 7.1, 6.1, 6.8, 6.0])
MODELS = {"dense": TerminationModel(input_sparsity=0.0), "sparse": TerminationModel()}


@dataclass(frozen=True)
class Exam:
    """How much there is to learn from, and to be judged by."""

    rows: int = 5000
    """Random steps to fit to; of InvertedPendulum, which ends often, 2,000 at most."""
    judges: int = 8000
    """Random steps to be judged by."""
    fits: int = 4
    """Fits one after the other, as in a run."""
    out: Path | None = None
    """A JSON file for the numbers."""


def random_steps(task: str, steps: int, seed: int) -> tuple[EnvSpec, Transition]:
    """The environment's sizes, and steps of uniformly random actions."""
    rng, rows = np.random.default_rng(seed), []
    with closing(open_environment(find_task(task))) as environment:
        spec, obs = environment.spec, environment.reset(seed)
        while len(rows) < steps:
            action = rng.uniform(-1.0, 1.0, spec.action_size).astype(np.float32)
            end = environment.step(action)
            reward, terminated, truncated = np.float32(end.reward), np.bool_(end.terminated), np.bool_(end.truncated)
            rows.append(Transition(obs, action, reward, end.obs, terminated, truncated))
            obs = environment.reset(seed + len(rows)) if end.terminated or end.truncated else end.obs
    return spec, jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


MADE_UP: dict[str, Callable[[Transition], np.ndarray]] = {
    "radius over six": lambda rows: np.square(rows.next_obs[:, 8:14] / STD[8:14]).sum(1),
    "actions": lambda rows: rows.action[:, 0] + rows.action[:, 1] + 0.3 * rows.next_obs[:, 3],
    "plane over all": lambda rows: (rows.next_obs / STD) @ np.sin(np.arange(17) + 1.0),
    "change": lambda rows: (rows.next_obs - rows.obs)[:, 3],
}


def questions(exam: Exam) -> Iterator[tuple[str, EnvSpec, Transition, Transition]]:
    """(name, sizes, rows to learn from, rows to be judged by)."""
    for task in TASKS:
        rows = min(exam.rows, 2000) if task == "InvertedPendulum" else exam.rows
        spec, known = random_steps(task, rows, seed=0)
        yield task, spec, known, random_steps(task, exam.judges, seed=10**6)[1]
    spec, known = random_steps("HalfCheetah", exam.rows, seed=0)
    _, judges = random_steps("HalfCheetah", exam.judges, seed=10**6)
    for name, measure in MADE_UP.items():
        limit = np.quantile(measure(known), 0.97)
        known, judges = (replace(rows, terminated=measure(rows) > limit) for rows in (known, judges))
        yield name, spec, known, judges


def answer(
    model: TerminationModel, spec: EnvSpec, known: Transition, judges: Transition, fits: int
) -> dict[str, float]:
    """What the fitted networks say of the judges."""
    networks = model.init(spec, jax.random.key(0))
    buffer = import_rows(init_buffer(blank_transition(spec), len(known.reward)), known)
    for fit in range(fits):
        networks, _ = model.fit(networks, buffer, jax.random.key(fit))
    probability = end_probability(
        networks, *(jax.numpy.asarray(x) for x in (judges.obs, judges.action, judges.next_obs))
    )
    p, ended = np.clip(np.asarray(probability, np.float64), 1e-6, 1 - 1e-6), judges.terminated
    return {
        "ends": int(known.terminated.sum()),
        "missed": float(np.mean(p[ended] <= 0.5)),
        "false": float(np.mean(p[~ended] > 0.5)),
        "nll": float(-np.mean(np.where(ended, np.log(p), np.log(1.0 - p)))),
    }


def main() -> None:
    exam = tyro.cli(Exam)
    found: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{'':<18}{'':<8}{'ends':>6}{'missed':>9}{'false':>10}{'nll':>9}")
    for name, spec, known, judges in questions(exam):
        found[name] = {label: answer(model, spec, known, judges, exam.fits) for label, model in MODELS.items()}
        for label, line in found[name].items():
            print(
                f"{name:<18}{label:<8}{line['ends']:>6}{line['missed']:>9.3f}{line['false']:>10.5f}{line['nll']:>9.4f}"
            )
    if exam.out is not None:
        write_report(exam.out, {"bench": "termination", "rows": exam.rows, "found": found, **circumstances()})


if __name__ == "__main__":
    main()

"""The whole of MBPO on a real environment: where a real step's time goes."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mbpo.algorithms.mbpo import MBPO
from mbpo.bench.report import circumstances
from mbpo.clock import PARTS
from mbpo.envs.tasks import Task

NAMES = {"model": "fit", "rollout": "rollout", "policy": "policy", "env": "simulator"}
APART = ("eval", "checkpoint")
"""What a run does besides learning, and not a part of a real step."""


@dataclass(frozen=True)
class TrainReport:
    """Seconds by part over `steps` real steps that follow `rows` random ones."""

    task: str
    rows: int
    steps: int
    seconds: Mapping[str, float]
    compile_seconds: float
    model_updates: int
    policy_updates: int
    peer: Mapping[str, Any] | None = None
    """mbrl-lib's numbers for the same steps: `steps_per_second`, `seconds` by part, `versions`, ..."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "bench": "train",
            "task": self.task,
            "rows": self.rows,
            "steps": self.steps,
            "seconds": {**self.seconds, "total": self.total, "compile": self.compile_seconds},
            "shares": {part: spent / self.total for part, spent in self.seconds.items()},
            "steps_per_second": self.steps / self.total,
            "model_updates": self.model_updates,
            "policy_updates": self.policy_updates,
            "peers": {"mbrl-lib": self.peer} if self.peer else {},
            **circumstances(),
        }

    def to_text(self) -> str:
        lines = [f"  {part:<12}{spent:>9.2f} s{spent / self.total:>8.1%}" for part, spent in self.seconds.items()]
        head = (
            f"MBPO on {self.task}: {self.steps:,} real steps after {self.rows:,} random ones, "
            f"{self.steps / self.total:.2f} steps/s"
        )
        updates = f"{self.model_updates:,} gradient steps of the model, {self.policy_updates:,} of the policy"
        compilation = f"  compilation, not in the shares: {self.compile_seconds:.2f} s"
        return "\n".join([head, updates, *lines, compilation, *self._peer_lines()])

    def _peer_lines(self) -> list[str]:
        if self.peer is None:
            return []
        peer, parts = self.peer, ", ".join(f"{part} {spent:.1f} s" for part, spent in self.peer["seconds"].items())
        updates = f"{peer['model_updates']:,} gradient steps of the model, {peer['policy_updates']:,} of the policy"
        faster = (self.steps / self.total) / peer["steps_per_second"]
        theirs, ours = peer["seconds"]["fit"] / peer["model_updates"], self.seconds["fit"] / self.model_updates
        return [
            f"mbrl-lib: {peer['steps_per_second']:.2f} steps/s; {updates}",
            f"  {parts}",
            f"ours is {faster:.2f}x as fast a real step, and {theirs / ours:.2f}x as fast a gradient step of a fit",
        ]


def measure(mbpo: MBPO, task: Task, rows: int, steps: int) -> TrainReport:
    """A real run, whose buffer its own random steps prepare; the clock is the run's own."""
    from mbpo import experiment

    algorithm = replace(mbpo, sac=replace(mbpo.sac, random_steps=rows))
    with tempfile.TemporaryDirectory() as folder:
        run = experiment.train(
            task.name,
            algorithm,
            steps=rows + steps,
            evaluate_every=rows,
            episodes=1,
            out=Path(folder) / "run",
            display=None,
        )
        return split(task.name, rows, steps, run.metrics)


def split(task: str, rows: int, steps: int, metrics: Sequence[Mapping[str, Any]]) -> TrainReport:
    """The time between the end of the random steps and the end of the run, by part."""
    first, last = metrics[0], metrics[-1]

    def between(column: str) -> float:
        return last[column] - first[column]

    parts = {part: between(f"seconds/{part}") for part in PARTS}
    compiled = between("seconds/compile")
    seconds = {name: parts[part] for part, name in NAMES.items()}
    seconds["rest"] = between("seconds") - sum(parts.values()) - compiled
    return TrainReport(
        task,
        rows,
        steps,
        seconds,
        compiled,
        model_updates=last["model_updates"],
        policy_updates=last["policy_updates"],
    )

"""`mbpo bench`: which benchmark, of what size, and where its numbers go."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mbpo.algorithms.mbpo import MBPO
from mbpo.bench import model, policy, rollout, train
from mbpo.bench.peers import policy_peers, train_peer
from mbpo.bench.report import Report, write_report
from mbpo.bench.train import TrainReport
from mbpo.command_lines import parse
from mbpo.envs.adapter import open_environment
from mbpo.envs.tasks import Task, find_task
from mbpo.presets import find_preset
from mbpo.types import EnvSpec

DEFAULT_TASK = {"policy": "Walker2d", "model": "Hopper", "rollout": "Hopper", "train": "Hopper"}
DEFAULT_ROWS = {"policy": 10_000, "model": 5_000, "rollout": 10_000, "train": 10_000}


@dataclass(frozen=True)
class Bench:
    """Measures how fast a part is here, next to the time that its matrix products alone would take."""

    part: Annotated[Literal["policy", "model", "rollout", "train"], tyro.conf.Positional]
    """The policy's update, the model's gradient step and fit, the imagined rollout, or the whole of training."""
    task: str | None = None
    """Whose sizes to take; by default Walker2d for the policy and Hopper for the rest."""
    rounds: int = 10
    """Turns of every contestant; the best and the median are shown."""
    updates: int = 20
    """Policy updates a real step (G) in the policy's benchmark."""
    rows: int | None = None
    """Transitions in the buffer; by default 5,000 for the model and 10,000 for the rest."""
    fits: int = 2
    """Whole fits in the model's benchmark, of which the best counts; 0 leaves them out."""
    steps: int = 500
    """Real steps in the benchmark of training."""
    peers: bool = False
    """Measure other code bases beside ours, for the policy and for training; `make peers` fetches them."""
    out: Path | None = None
    """A JSON file for the numbers."""
    json: bool = False
    """End with one line of JSON on standard output; everything else goes to standard error."""


def main(arguments: Sequence[str]) -> int:
    """Measures, and says what was found; the exit code."""
    command = parse(Bench, arguments, "mbpo bench")
    print(f"measuring {command.part} ...", file=sys.stderr)
    report = measure(command)
    print(report.to_text(), file=sys.stderr if command.json else sys.stdout)
    if command.out is not None:
        write_report(command.out, report.to_json())
    if command.json:
        print(json.dumps(report.to_json()))
    return 0


def measure(command: Bench) -> Report | TrainReport:
    """The report of the benchmark that was asked for."""
    task = find_task(command.task or DEFAULT_TASK[command.part])
    rows = command.rows or DEFAULT_ROWS[command.part]
    mbpo = paper_preset(task)
    if command.part == "train":
        peer = train_peer(task.name, rows, command.steps) if command.peers else None
        return replace(train.measure(mbpo, task, rows, command.steps), peer=peer)
    spec = task_spec(task)
    if command.part == "policy":
        sac = replace(mbpo.sac, updates_per_step=command.updates)
        with policy_peers(sac, spec, rows) if command.peers else nullcontext([]) as peers:
            return policy.measure(sac, spec, command.rounds, rows, peers)
    if command.part == "model":
        return model.measure(mbpo.model, spec, command.rounds, rows, command.fits)
    return rollout.measure(mbpo, spec, command.rounds, rows)


def paper_preset(task: Task) -> MBPO:
    """MBPO with the task's hyper-parameters."""
    preset = find_preset("mbpo", task).algorithm
    assert isinstance(preset, MBPO)
    return preset


def task_spec(task: Task) -> EnvSpec:
    """The sizes of a task, and its termination function."""
    with closing(open_environment(task)) as environment:
        return environment.spec

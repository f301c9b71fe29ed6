"""Seconds from the start of the process to the first evaluation that reaches a return, for several seeds.

`python benchmarks/time_to_return.py --preset fast --out results/bench/balance-fast-warm.json`. Run it alone: a second
busy program on the machine makes its numbers worthless.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from mbpo.bench.report import circumstances, write_report


@dataclass(frozen=True)
class Race:
    """What to train, and how far."""

    task: str = "InvertedPendulum"
    preset: str = "paper"
    at_least: float = 950.0
    """The mean return of ten episodes that ends a run."""
    seeds: int = 5
    steps: int = 5000
    """A run that has not reached it by then counts as one that never does."""
    cold: bool = False
    """Every run compiles everything anew; otherwise a first run, which does not count, has filled the cache."""
    out: Path | None = None
    """A JSON file for the numbers."""


@dataclass(frozen=True)
class Arrival:
    seed: int
    seconds: float | None
    step: int | None


def run_race(race: Race) -> list[Arrival]:
    with tempfile.TemporaryDirectory() as cache:
        if not race.cold:
            arrive(race, seed=1000, cache=cache)
        arrivals = []
        for seed in range(race.seeds):
            with tempfile.TemporaryDirectory() as fresh:
                arrivals.append(arrive(race, seed, fresh if race.cold else cache))
            print(arrivals[-1], file=sys.stderr)
    return arrivals


def arrive(race: Race, seed: int, cache: str) -> Arrival:
    """Trains in a process of its own until an evaluation is good enough."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings = {"task": race.task, "preset": race.preset, "seed": seed, "steps": race.steps, "out": run}
        flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        begin = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "mbpo", "train", *flags],
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache},
            stdout=subprocess.DEVNULL,
        ) as process:
            while process.poll() is None:
                time.sleep(0.05)
                if row := first_good_row(run / "metrics.jsonl", race.at_least):
                    seconds = time.perf_counter() - begin
                    process.send_signal(signal.SIGKILL)
                    return Arrival(seed, seconds, row["step"])
    return Arrival(seed, None, None)


def first_good_row(metrics: Path, at_least: float) -> Mapping[str, Any] | None:
    """The first evaluation in the file that reaches the return."""
    if not metrics.exists():
        return None
    rows = (json.loads(line) for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n"))
    return next((row for row in rows if row["eval/return"] >= at_least), None)


def main() -> None:
    race = tyro.cli(Race)
    arrivals = run_race(race)
    median = statistics.median(float("inf") if a.seconds is None else a.seconds for a in arrivals)
    cache = "cold" if race.cold else "warm"
    print(f"{race.task}, preset {race.preset}, {cache}: median {median:.1f} s to a return of {race.at_least:g}")
    if race.out is not None:
        found = {
            "bench": "time to return",
            "task": race.task,
            "preset": race.preset,
            "at_least": race.at_least,
            "cache": cache,
            "median_seconds": median if median < float("inf") else None,
            "seeds": [vars(arrival) for arrival in arrivals],
            **circumstances(),
        }
        write_report(race.out, found)


if __name__ == "__main__":
    main()

"""Kills real training processes with SIGKILL at random moments, resumes them, and compares what they end with.

    python -m tests.soak --algorithm sac --kills 50 --log results/soak/sac.log

A run that is killed again and again must end exactly as the one that never was: the same metrics, the same fits of the
model, and the same SHA-256 over all parameters, optimiser states and buffers. Only times may differ.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASKS = Path(__file__).with_name("soak_tasks.py")
TASK = "PointLineProbe-v0"

TINY_SAC = ["hidden-sizes 8 8", "batch-size 8", "random-steps 40", "buffer-size 150"]
SETTINGS: Mapping[str, Iterable[str]] = {
    "sac": [f"--sac.{flag}" for flag in TINY_SAC],
    "ppo": ["--ppo.hidden-sizes 8 8", "--ppo.steps-per-update 32", "--ppo.batch-size 16", "--ppo.passes 2"],
    # Several fits, k from 1 to 3, and termination learned: everything that MBPO has to remember.
    "mbpo": [
        *(f"--mbpo.sac.{flag}" for flag in TINY_SAC),
        "--mbpo.sac.updates-per-step 2",
        "--mbpo.model.hidden-sizes 8",
        "--mbpo.model.weight-decay 0 0",
        "--mbpo.model.members 3",
        "--mbpo.model.elites 2",
        "--mbpo.model.batch-size 16",
        "--mbpo.model.max-updates-per-fit 60",
        "--mbpo.fit-every 25",
        "--mbpo.epoch-steps 50",
        "--mbpo.rollouts-per-step 4",
        "--mbpo.rollout-length.last 3",
        "--mbpo.rollout-length.from-epoch 0",
        "--mbpo.rollout-length.to-epoch 4",
        "--mbpo.termination learned",
        "--mbpo.termination-networks.hidden-sizes 8",
        "--mbpo.termination-networks.round-updates 5",
        "--mbpo.termination-networks.max-rounds 3",
    ],
}
STARTUP_SHARE = 0.2
"""Of the kills: at any moment since the start of the process, be it importing, compiling or restoring."""
STARTUP_SECONDS = 4.0
MOST_STEPS = 80
"""The other kills: once the process has saved a step up to so many further on, and a moment later."""
MOMENT = 0.1
PATIENCE = 300.0


@dataclass(frozen=True)
class Kill:
    """One killed process."""

    seconds: float
    """How long it lived."""
    step: int
    """Of its newest checkpoint, 0 before the first."""
    saving: bool
    """It died while it was writing a checkpoint."""

    def __str__(self) -> str:
        return f"killed after {self.seconds:5.2f} s at step {self.step:4d}{', while saving' if self.saving else ''}"


def arguments(algorithm: str, steps: int) -> list[str]:
    """The settings of a run, as words of a command line."""
    words = f"--algorithm {algorithm} --task {TASK} --steps {steps} --evaluate-every 50 --episodes 2"
    return " ".join([words, *SETTINGS[algorithm]]).split()


def start(words: list[str], cache: Path) -> subprocess.Popen[str]:
    """A process of the program. What it compiles is kept in `cache`, for those after it."""
    own = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
    cached = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0"}
    return subprocess.Popen(
        [sys.executable, "-m", "mbpo", *words, "--env-module", str(TASKS)],
        env={**os.environ, **own, **cached},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Waits for a process that is to end well."""
    _, said = process.communicate(timeout=PATIENCE)
    if process.returncode != 0:
        raise AssertionError(f"the program ended with {process.returncode}: {said}")


def uninterrupted(run: Path, algorithm: str, steps: int, cache: Path) -> None:
    finish(start(["train", *arguments(algorithm, steps), "--out", str(run)], cache))


def killed(
    run: Path, algorithm: str, steps: int, cache: Path, chance: random.Random, kills: int, report: Callable[[str], None]
) -> int:
    """Trains into `run`, killed up to `kills` times, to its end; how often it was killed."""
    done = 0
    while True:
        # Killed before its folder was made, there is nothing to resume.
        exists = (run / "config.json").exists()
        words = ["resume", str(run)] if exists else ["train", *arguments(algorithm, steps), "--out", str(run)]
        process = start(words, cache)
        kill = attempt(process, run, chance) if done < kills else None
        if kill is None:
            finish(process)
            return done
        done += 1
        report(str(kill))


def attempt(process: subprocess.Popen[str], run: Path, chance: random.Random) -> Kill | None:
    """Kills the process at a random moment; None if it has ended before."""
    begin = time.perf_counter()
    if chance.random() < STARTUP_SHARE:
        patience = chance.uniform(0.0, STARTUP_SECONDS)
    else:
        target = newest_step(run) + chance.randint(1, MOST_STEPS)
        while newest_step(run) < target and process.poll() is None:
            time.sleep(0.002)
        patience = chance.uniform(0.0, MOMENT)
    try:
        process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        saving = any((run / "checkpoints").glob(".saving-*"))
        return Kill(time.perf_counter() - begin, newest_step(run), saving)
    return None


def newest_step(run: Path) -> int:
    """Of the run's checkpoints, 0 before the first."""
    return max((int(path.name.split("-")[1]) for path in (run / "checkpoints").glob("step-*")), default=0)


def outcome(run: Path) -> dict[str, Any]:
    """All that two runs of one seed must have in common: rows without times, and digests of the newest checkpoint."""
    newest = max((run / "checkpoints").glob("step-*"))
    manifest = json.loads((newest / "manifest.json").read_bytes())
    rows = {
        path.stem: [timeless(line) for line in path.read_text().splitlines()] for path in sorted(run.glob("*.jsonl"))
    }
    values = manifest["values"]
    return {**rows, "state": manifest["files"]["state.safetensors"]["sha256"], "progress": values["progress"]}


def timeless(line: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(line).items() if not name.startswith(("seconds", "machine"))}


def soak(algorithm: str, kills: int, steps: int, seed: int, report: Callable[[str], None]) -> None:
    """Rounds of killed runs until there were so many kills, each compared with the run that was not killed."""
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        cache = folder / "cache"
        begin = time.perf_counter()
        uninterrupted(folder / "whole", algorithm, steps, cache)
        expected = outcome(folder / "whole")
        seconds = time.perf_counter() - begin
        report(f"{algorithm}: {steps} steps uninterrupted in {seconds:.1f} s, state {expected['state']}")
        begin, done = time.perf_counter(), 0
        while done < kills:
            run = folder / f"killed-{done}"
            done += killed(run, algorithm, steps, cache, chance, min(kills - done, 10), report)
            if outcome(run) != expected:
                raise AssertionError(f"after {done} kills the run differs from the uninterrupted one; see {run}")
            report(f"finished after {done} kills in all: the same metrics, and the same state {outcome(run)['state']}")
            shutil.rmtree(run)
        report(f"{algorithm}: {done} kills, {(time.perf_counter() - begin) / done:.1f} s each, nothing lost")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=sorted(SETTINGS), required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which processes are killed")
    parser.add_argument("--log", type=Path, help="where the report goes besides standard output")
    chosen = parser.parse_args()
    if chosen.log:
        chosen.log.parent.mkdir(parents=True, exist_ok=True)
        chosen.log.unlink(missing_ok=True)

    def report(line: str) -> None:
        print(line, flush=True)
        if chosen.log:
            with chosen.log.open("a") as log:
                log.write(f"{line}\n")

    soak(chosen.algorithm, chosen.kills, chosen.steps, chosen.seed, report)


if __name__ == "__main__":
    main()

"""Other code bases, measured in turns with ours: each in its own process, in an environment apart from ours.

The product never imports them. `make peers` builds their environment, so they belong to a checkout.
"""

import json
import subprocess
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbpo.algorithms.sac import SAC
from mbpo.errors import RunError, UsageError
from mbpo.types import EnvSpec

PYTHON = Path(".peers/bin/python")
PROGRAMS = Path("benchmarks/peers")
POLICY_PEERS = {"Stable-Baselines3": "sb3", "SBX": "sbx"}


@dataclass(frozen=True)
class Peer:
    """A program that has said which versions it runs, and now does its work once for every line it is sent."""

    name: str
    process: subprocess.Popen[str]
    versions: Mapping[str, str]

    def __call__(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        read_line(self.name, self.process)


@contextmanager
def policy_peers(sac: SAC, spec: EnvSpec, rows: int) -> Generator[list[Peer]]:
    """Those that make the same policy updates, ready to run."""
    sizes = {
        "obs": spec.obs_size,
        "action": spec.action_size,
        "batch": sac.batch_size,
        "hidden": list(sac.hidden_sizes),
        "updates": sac.updates_per_step,
        "rows": rows,
    }
    with ExitStack() as stack:
        peers: list[Peer] = []
        for name, library in POLICY_PEERS.items():
            process = stack.enter_context(start("sac.py", library, json.dumps(sizes)))
            stack.callback(process.terminate)
            peers.append(Peer(name, process, json.loads(read_line(name, process))))
        yield peers


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """A peer's program, running in the peers' environment."""
    path = PROGRAMS / program
    if not (PYTHON.exists() and path.exists()):
        missing = path if PYTHON.exists() else PYTHON
        raise UsageError(f"There is no {missing} here; peers need a checkout of mbpo, and `make peers` in it.")
    # -P: the program's folder must not stand before the packages that it imports.
    command = [str(PYTHON), "-P", str(path), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_line(name: str, process: subprocess.Popen[str]) -> str:
    """The next line that the program says."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RunError(f"{name} ended with exit code {process.wait()}; build its environment again with `make peers`.")
    return line


def train_peer(task: str, rows: int, steps: int) -> dict[str, Any]:
    """What mbrl-lib needs for the same real steps: the last line of its program."""
    with start("mbrl_mbpo.py", json.dumps({"task": task, "rows": rows, "steps": steps})) as process:
        return json.loads(read_line("mbrl-lib", process))

"""Tiny runs of every algorithm, and what two runs must have in common to count as equal."""

import hashlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import mbpo
from mbpo import checkpoint
from mbpo.envs.probes import PointLineProbe, point_line_probe

TINY_SAC = mbpo.SAC(hidden_sizes=(8, 8), batch_size=8, random_steps=40, buffer_size=150)
TINY_PPO = mbpo.PPO(hidden_sizes=(8, 8), steps_per_update=32, batch_size=16, passes=2)
TINY_MBPO = mbpo.MBPO(
    sac=mbpo.SAC(hidden_sizes=(8, 8), batch_size=8, random_steps=40, updates_per_step=2),
    model=mbpo.Model(
        hidden_sizes=(8,), weight_decay=(0.0, 0.0), members=3, elites=2, batch_size=16, max_updates_per_fit=60
    ),
    rollout_length=mbpo.RolloutLength(1, 3, from_epoch=0, to_epoch=4),
    rollouts_per_step=4,
    epoch_steps=50,
    fit_every=25,
    termination="learned",
    termination_networks=mbpo.TerminationModel(hidden_sizes=(8,), round_updates=5, max_rounds=3),
)
"""Fits before steps 41, 66, 91...; k is 1 up to step 140, then 2, and 3 from step 240 on."""

TINY = {"sac": TINY_SAC, "ppo": TINY_PPO, "mbpo": TINY_MBPO}

Env = gymnasium.Env[Any, Any]


def train(out: Path, algorithm: Any, steps: int, task: Any = point_line_probe, **settings: Any) -> mbpo.Run:
    """A run with an evaluation of two episodes every 50 steps, shown to nobody."""
    chosen = TINY[algorithm] if isinstance(algorithm, str) else algorithm
    given = {"evaluate_every": 50, "episodes": 2, "display": None, **settings}
    return mbpo.train(task, chosen, steps=steps, out=out, **given)


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(("seconds", "machine"))}


def series(run: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a series without what depends on the clock."""
    path = run / f"{name}.jsonl"
    return [timeless(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def digests(run: Path) -> dict[str, str]:
    """The SHA-256 of every array of the newest checkpoint."""
    loaded = checkpoint.load_newest(run / "checkpoints")
    assert loaded is not None
    return {name: hashlib.sha256(np.ascontiguousarray(array)).hexdigest() for name, array in loaded.state.items()}


def assert_same_outcome(run: Path, other: Path) -> None:
    """The same metrics, fits and bits of all that was learned."""
    for name in ("metrics", "fits"):
        assert series(run, name) == series(other, name)
    assert digests(run) == digests(other)


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


class Interrupting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Calls a function in the middle of the given real step, as a signal may come in the middle of anything."""

    def __init__(self, env: Env, at: int, act: Callable[[], None]):
        super().__init__(env)
        self.steps_left, self.act = at, act

    def step(self, action: Any) -> Any:
        self.steps_left -= 1
        if self.steps_left == 0:
            self.act()
        return super().step(action)


def interrupted(at: int, number: signal.Signals = signal.SIGTERM, task: Callable[[], Env] = point_line_probe) -> Any:
    """The task, of which the first environment made (the one that is trained on) raises a signal at a step."""
    made: list[Env] = []

    def interrupted_task() -> Env:
        env = task() if made else Interrupting(task(), at, lambda: signal.raise_signal(number))
        made.append(env)
        return env

    return interrupted_task


class Forgetful(PointLineProbe):
    """Cannot repeat itself: every reset starts elsewhere, whatever the seed."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self._x = float(self.random.uniform(-0.5, 0.5))
        return np.array([self._x], np.float32), {}

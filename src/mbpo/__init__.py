"""Model-Based Policy Optimization: a good policy from few real steps.

>>> run = mbpo.train("Hopper", "sac", steps=100_000, seed=0, out="runs/x")
>>> run.predict(obs)
>>> run.evaluate(episodes=10).mean
>>> mbpo.load("runs/x").resume(steps=200_000)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mbpo.algorithms.mbpo import MBPO
    from mbpo.algorithms.ppo import PPO
    from mbpo.algorithms.sac import SAC
    from mbpo.envs.tasks import register_task
    from mbpo.errors import RunError, RunWarning, StoppedBySignal, UsageError
    from mbpo.evaluate import Evaluation
    from mbpo.experiment import Run, load, train
    from mbpo.model import Model
    from mbpo.schedule import RolloutLength
    from mbpo.termination import TerminationModel

__version__ = "0.1.0"

__all__ = [
    "MBPO",
    "PPO",
    "SAC",
    "Evaluation",
    "Model",
    "RolloutLength",
    "Run",
    "RunError",
    "RunWarning",
    "StoppedBySignal",
    "TerminationModel",
    "UsageError",
    "load",
    "register_task",
    "train",
]

# Resolved when they are first asked for, so that `import mbpo` and `mbpo --help` need not import JAX.
_HOMES = {
    "MBPO": "algorithms.mbpo",
    "PPO": "algorithms.ppo",
    "SAC": "algorithms.sac",
    "Evaluation": "evaluate",
    "Model": "model",
    "RolloutLength": "schedule",
    "Run": "experiment",
    "RunError": "errors",
    "RunWarning": "errors",
    "StoppedBySignal": "errors",
    "TerminationModel": "termination",
    "UsageError": "errors",
    "load": "experiment",
    "register_task": "envs.tasks",
    "train": "experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mbpo' has no attribute '{name}'")
    return getattr(importlib.import_module(f"mbpo.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

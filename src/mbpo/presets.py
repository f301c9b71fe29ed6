"""Which hyper-parameters a task is run with, and for how long, unless the user says otherwise."""

from dataclasses import dataclass
from typing import Any

from mbpo.algorithms import ALGORITHMS, PPO, SAC
from mbpo.envs.tasks import Task
from mbpo.errors import UsageError, nearest
from mbpo.types import Algorithm

VARIANTS = ("paper",)

# Reference: the released configurations; for actions in [−1, 1]. Other tasks get −(number of actions).
TARGET_ENTROPY = {
    "InvertedPendulum": -0.05,
    "Hopper": -1.0,
    "Walker2d": -3.0,
    "HalfCheetah": -3.0,
    "Ant": -4.0,
    "Humanoid": -2.0,
}


@dataclass(frozen=True)
class Preset:
    """An algorithm with its hyper-parameters, the length of the run, and how often it is evaluated."""

    algorithm: Algorithm[Any]
    steps: int
    evaluate_every: int


def find_preset(algorithm: str, task: Task, variant: str = "paper") -> Preset:
    """The preset of a known algorithm for a task; a task without one gets the algorithm's defaults."""
    if algorithm not in ALGORITHMS:
        raise UsageError(f"There is no algorithm '{algorithm}'; {nearest(algorithm, ALGORITHMS)}")
    if variant not in VARIANTS:
        raise UsageError(f"There is no preset '{variant}'; {nearest(variant, VARIANTS)}")
    return BY_ALGORITHM[algorithm](task)


def sac(task: Task) -> Preset:
    return Preset(sac_for(task, updates_per_step=1), steps=1_000_000, evaluate_every=evaluate_every(task))


def ppo(task: Task) -> Preset:
    return Preset(PPO(), steps=1_000_000, evaluate_every=evaluate_every(task))


def sac_for(task: Task, updates_per_step: int) -> SAC:
    """Soft actor-critic with the task's target entropy and warm-up."""
    if task.name not in TARGET_ENTROPY:
        return SAC(updates_per_step=updates_per_step)
    return SAC(
        updates_per_step=updates_per_step,
        target_entropy=TARGET_ENTROPY[task.name],
        random_steps=500 if task.name == "InvertedPendulum" else 5000,
    )


def evaluate_every(task: Task) -> int:
    return 250 if task.name == "InvertedPendulum" else 1000


BY_ALGORITHM = {"ppo": ppo, "sac": sac}

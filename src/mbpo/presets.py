"""Which hyper-parameters a task is run with, and for how long, unless the user says otherwise."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mbpo.algorithms import ALGORITHMS, MBPO, PPO, SAC
from mbpo.envs.tasks import Task
from mbpo.errors import UsageError, nearest
from mbpo.model import Model
from mbpo.schedule import RolloutLength
from mbpo.types import Algorithm

VARIANTS = ("paper", "released", "fast")

# Reference: the released configurations; for actions in [−1, 1]. Other tasks get −(number of actions).
TARGET_ENTROPY = {
    "InvertedPendulum": -0.05,
    "Hopper": -1.0,
    "Walker2d": -3.0,
    "HalfCheetah": -3.0,
    "Ant": -4.0,
    "Humanoid": -2.0,
}

# Paper: Table 2, the number of epochs N, of 1000 steps each.
EPOCHS = {"InvertedPendulum": 15, "Hopper": 125, "Walker2d": 300, "HalfCheetah": 400, "Ant": 300, "Humanoid": 300}


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
    instance, steps = BY_ALGORITHM[algorithm](task, variant)
    return Preset(instance, steps, evaluate_every=250 if task.name == "InvertedPendulum" else 1000)


def mbpo(task: Task, variant: str) -> tuple[MBPO, int]:
    """The paper's Table 2; where `released` differs from it, the authors' code; or what needs less time."""
    paper = MBPO(sac=sac_for(task, updates_per_step=20))
    steps = 1000 * EPOCHS.get(task.name, 100)
    preset = MBPO_BY_TASK.get(task.name, lambda m: m)(paper)
    if variant == "released":
        preset = RELEASED_BY_TASK.get(task.name, lambda m: m)(preset)
        steps = RELEASED_STEPS.get(task.name, steps)
    if variant == "fast":
        preset = faster(preset)
    return preset, steps


def faster(m: MBPO) -> MBPO:
    """The same with short fits after the first one, and half the rows in a policy update.

    docs/performance.md has what this saves and what it does to the model.
    """
    bounded = replace(m.model, max_updates_per_fit=200, max_updates_first_fit=5000)
    return replace(m, model=bounded, sac=replace(m.sac, batch_size=128))


def hopper(m: MBPO) -> MBPO:
    return replace(m, rollout_length=RolloutLength(1, 15, from_epoch=20, to_epoch=100))


def half_cheetah(m: MBPO) -> MBPO:
    return replace(m, sac=replace(m.sac, updates_per_step=40))


def ant(m: MBPO) -> MBPO:
    return replace(m, rollout_length=RolloutLength(1, 25, from_epoch=20, to_epoch=100))


def humanoid(m: MBPO) -> MBPO:
    wide = Model(hidden_sizes=(400, 400, 400, 400))
    return replace(m, model=wide, rollout_length=RolloutLength(1, 25, from_epoch=20, to_epoch=300))


MBPO_BY_TASK: dict[str, Callable[[MBPO], MBPO]] = {
    "Hopper": hopper,
    "HalfCheetah": half_cheetah,
    "Ant": ant,
    "Humanoid": humanoid,
}


def released_inverted_pendulum(m: MBPO) -> MBPO:
    # Reference: epochs of 250 steps with 10 updates a step.
    return replace(m, sac=replace(m.sac, updates_per_step=10), epoch_steps=250)


def released_hopper(m: MBPO) -> MBPO:
    # Reference: k grows to 15 at epoch 150, so that it is 12 when the run ends at epoch 125.
    return replace(m, rollout_length=RolloutLength(1, 15, from_epoch=20, to_epoch=150))


def released_humanoid(m: MBPO) -> MBPO:
    # Reference: one fit an epoch, 100 rollouts a step, imagined data kept for five epochs.
    return replace(m, fit_every=1000, rollouts_per_step=100, retained_epochs=5)


RELEASED_BY_TASK: dict[str, Callable[[MBPO], MBPO]] = {
    "InvertedPendulum": released_inverted_pendulum,
    "Hopper": released_hopper,
    "Humanoid": released_humanoid,
}

# Reference: 80 epochs of 250 steps.
RELEASED_STEPS = {"InvertedPendulum": 20_000}


def sac(task: Task, variant: str) -> tuple[SAC, int]:
    return sac_for(task, updates_per_step=1), 1_000_000


def ppo(task: Task, variant: str) -> tuple[PPO, int]:
    return PPO(), 1_000_000


def sac_for(task: Task, updates_per_step: int) -> SAC:
    """Soft actor-critic with the task's target entropy and warm-up."""
    if task.name not in TARGET_ENTROPY:
        return SAC(updates_per_step=updates_per_step)
    return SAC(
        updates_per_step=updates_per_step,
        target_entropy=TARGET_ENTROPY[task.name],
        random_steps=500 if task.name == "InvertedPendulum" else 5000,
    )


BY_ALGORITHM: dict[str, Callable[[Task, str], tuple[Algorithm[Any], int]]] = {"mbpo": mbpo, "ppo": ppo, "sac": sac}

"""What there is to choose from, for `mbpo list`."""

import dataclasses
from typing import Any

from mbpo import words
from mbpo.algorithms import ALGORITHMS
from mbpo.envs.tasks import TASKS
from mbpo.presets import VARIANTS, find_preset


def catalogue() -> dict[str, Any]:
    """Tasks with their Gymnasium ids, algorithms with their first sentence, and every preset."""
    return {
        "tasks": {name: task.env_id for name, task in TASKS.items()},
        "algorithms": {name: str(kind.__doc__).splitlines()[0] for name, kind in ALGORITHMS.items()},
        "presets": {algorithm: {task: preset_of(algorithm, task) for task in TASKS} for algorithm in ALGORITHMS},
        "variants": list(VARIANTS),
    }


def preset_of(algorithm: str, task: str) -> dict[str, Any]:
    preset = find_preset(algorithm, TASKS[task])
    return {
        "steps": preset.steps,
        "evaluate_every": preset.evaluate_every,
        "hyperparameters": dataclasses.asdict(preset.algorithm),  # pyright: ignore[reportArgumentType]
    }


def catalogue_text() -> str:
    """The catalogue for a person."""
    known = catalogue()
    lines = ["tasks (any Gymnasium id with Box observations and actions will do as well):"]
    lines += [f"  {name:<18}{env_id}" for name, env_id in known["tasks"].items()]
    lines += ["", "algorithms:"]
    lines += [f"  {name:<18}{sentence}" for name, sentence in known["algorithms"].items()]
    lines += ["", "real steps of a run by default:"]
    for algorithm, presets in known["presets"].items():
        steps = ", ".join(f"{task} {words.count(preset['steps'])}" for task, preset in presets.items())
        lines.append(f"  {algorithm:<18}{steps}")
    lines += ["", f"presets: {', '.join(known['variants'])} (mbpo train --preset)"]
    return "\n".join(lines)

"""Run folders as the runner leaves them, with invented numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def config(algorithm: str = "sac", task: str = "Hopper", seed: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "task": task,
        "seed": seed,
        "steps": 5000,
        "preset": "paper",
        "command": f"mbpo train --algorithm {algorithm} --task {task} --seed {seed}",
        "commit": None,
        "versions": {"mbpo": "0.1.0", "jax": "0.10.2"},
        "machine": {"cores": 2},
        "hyperparameters": {"updates_per_step": 1, "network": {"width": 256}},
        **changes,
    }


def row(step: int, **changes: Any) -> dict[str, Any]:
    return {
        "step": step,
        "seconds": step / 8,
        "eval/return": step / 3,
        "eval/return_std": 12.5,
        "eval/episodes": 10,
        "policy_updates": 20 * step,
        "model_updates": 0,
        "seconds/env": step / 80,
        "train/return": None,
        **changes,
    }


def write_run(folder: Path, steps: range | list[int] | None = None, **settings: Any) -> Path:
    rows = [row(step) for step in (range(1000, 6000, 1000) if steps is None else steps)]
    return write_rows(folder, rows, config(**settings))


def write_rows(folder: Path, rows: list[dict[str, Any]], settings: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return folder


def everything(path: Path) -> list[tuple[str, bytes | None]]:
    """All there is below a path: to see that a refusal left no trace."""
    return sorted((str(entry), entry.read_bytes() if entry.is_file() else None) for entry in path.rglob("*"))

"""MBPO of mbrl-lib from a buffer of random real steps, with the paper's settings.

Runs in .peers, in a process of its own. `python mbrl_mbpo.py '{"task": "Hopper", "rows": 10000, "steps": 500}'` says
how many seconds each part took, as one line of JSON; what is counted begins with the first fit, when mbrl-lib begins to
learn. With `"seed": 0, "learn": true` it prints a learning curve instead: a CSV of evaluations every 1000 steps.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import gymnasium
import mbrl.algorithms.mbpo as algorithm
import mbrl.env.termination_fns as termination_fns
import mbrl.models
import mbrl.util.common
import numpy as np
import torch
import yaml
from gymnasium.spaces import Box
from mbrl.third_party.pytorch_sac_pranz24.sac import SAC
from omegaconf import OmegaConf

# Gymnasium id, mbrl-lib's termination function, target entropy.
TASKS = {
    "Hopper": ("Hopper-v5", "hopper", -1.0),
    "InvertedPendulum": ("InvertedPendulum-v5", "inverted_pendulum", -0.05),
}

FIT_EVERY = 250


class EnoughError(Exception):
    """All the steps that were asked for are done."""


def box(low: list, high: list, shape: list) -> Box:
    """The action space: mbrl-lib hands its bounds on as lists."""
    return Box(np.array(low, np.float32), np.array(high, np.float32), tuple(shape))


class Clock:
    """Seconds and calls of mbrl-lib's functions, from the first fit on."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.begin: float | None = None

    def wrap(self, part: str, holder: object, name: str) -> None:
        original = getattr(holder, name)

        def timed(*args, **kwargs):
            begin = time.perf_counter()
            if part == "fit" and self.begin is None:
                self.begin = begin
            if self.begin is None:
                return original(*args, **kwargs)
            # The first fit came within a step, whose policy updates count: it is the first of those asked for.
            if part == "simulator" and self.calls["simulator"] == self.steps - 1:
                raise EnoughError
            result = original(*args, **kwargs)
            self.seconds[part] += time.perf_counter() - begin
            self.calls[part] += 1
            return result

        setattr(holder, name, timed)


def config(wanted: dict) -> OmegaConf:
    """mbrl-lib's own settings for MBPO, with the paper's numbers in place of those that differ."""
    rows = wanted["rows"]
    conf = Path(mbrl.__file__).parent / "examples" / "conf"
    names = {"algorithm": "algorithm/mbpo", "dynamics_model": "dynamics_model/gaussian_mlp_ensemble"}
    parts = {part: yaml.safe_load((conf / f"{name}.yaml").read_text()) for part, name in names.items()}
    overrides = yaml.safe_load((conf / "overrides" / "mbpo_hopper.yaml").read_text())
    parts["algorithm"] |= {
        "initial_exploration_steps": rows,
        "random_initial_explore": True,
        "real_data_ratio": 0.05,
        "dataset_size": rows + wanted["steps"],
        "num_eval_episodes": 10,
    }
    parts["algorithm"]["agent"]["action_space"]["_target_"] = "__main__.box"
    # Otherwise hydra builds the activation's configuration before the model can read it.
    parts["dynamics_model"]["_recursive_"] = False
    overrides |= {
        "num_steps": wanted["steps"],
        "epoch_length": 1000,
        "num_sac_updates_per_step": 20,
        "sac_hidden_size": 256,
        "sac_target_update_interval": 1,
        "sac_automatic_entropy_tuning": True,
        "sac_target_entropy": TASKS[wanted["task"]][2],
        "rollout_schedule": [20, 100, 1, 1],
    }
    common = {"seed": wanted.get("seed", 0), "device": "cpu", "log_frequency_agent": 1000, "debug_mode": False}
    return OmegaConf.create(parts | common | {"overrides": overrides})


def train(wanted: dict) -> None:
    """All the steps that are wanted, or an `EnoughError` from within."""
    env_id, terminal, _ = TASKS[wanted["task"]]
    seed = wanted.get("seed", 0)
    # mbrl-lib draws its networks and actions from the global generators, which its own entry point seeds.
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    environments = [gymnasium.make(env_id) for _ in range(2)]
    for environment in environments:
        environment.reset(seed=seed)
        environment.action_space.seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        function = getattr(termination_fns, terminal)
        algorithm.train(*environments, function, config(wanted), silent=True, work_dir=folder)


def learn(wanted: dict) -> None:
    """Prints an evaluation every 1000 steps; the random ones at the start are counted, as everywhere here."""
    evaluate, begin, step = algorithm.evaluate, time.perf_counter(), wanted["rows"]

    def say(*args):
        nonlocal step
        step, mean = step + 1000, float(evaluate(*args))
        print(f"{step},{time.perf_counter() - begin:.1f},{mean:.1f}", flush=True)
        return mean

    algorithm.evaluate = say
    print("step,seconds,eval/return")
    train(wanted)


def measure(wanted: dict) -> None:
    """Prints the seconds by part."""
    clock = Clock(wanted["steps"])
    clock.wrap("fit", mbrl.util.common, "train_model_and_save_model_and_data")
    clock.wrap("rollout", algorithm, "rollout_model_and_populate_sac_buffer")
    clock.wrap("policy", SAC, "update_parameters")
    clock.wrap("simulator", mbrl.util.common, "step_env_and_add_to_buffer")
    clock.wrap("gradient step", mbrl.models.OneDTransitionRewardModel, "update")
    try:
        # More than will be made: `EnoughError` ends it.
        train({**wanted, "steps": 10_000})
    except EnoughError:
        total = time.perf_counter() - clock.begin
    parts = ("fit", "rollout", "policy", "simulator")
    seconds = {part: clock.seconds[part] for part in parts}
    found = {
        "steps_per_second": wanted["steps"] / total,
        "seconds": {**seconds, "rest": total - sum(seconds.values()), "total": total},
        "model_updates": clock.calls["gradient step"],
        "gradient_step_seconds": clock.seconds["gradient step"],
        "policy_updates": clock.calls["policy"],
        "versions": {name: version(name) for name in ("mbrl", "torch")},
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    if wanted.get("learn"):
        learn(wanted)
    else:
        measure(wanted)


if __name__ == "__main__":
    main()

"""Policy updates of Stable-Baselines3 (sb3) or SBX (sbx), made whenever a line comes in on standard input.

Runs in .peers, in a process of its own: `python sac.py sb3 '{"obs": 17, ...}'`.
"""

import json
import sys
from importlib.metadata import version

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from stable_baselines3.common.logger import configure


class Blank(gymnasium.Env):
    """An environment that has sizes and is never stepped."""

    def __init__(self, obs: int, action: int) -> None:
        self.observation_space = Box(-np.inf, np.inf, (obs,), np.float32)
        self.action_space = Box(-1.0, 1.0, (action,), np.float32)


def agent(library: str, sizes: dict):
    """SAC with the same networks, batch and buffer as ours."""
    if library == "sb3":
        from stable_baselines3 import SAC
    else:
        from sbx import SAC

    model = SAC(
        "MlpPolicy",
        Blank(sizes["obs"], sizes["action"]),
        policy_kwargs={"net_arch": list(sizes["hidden"])},
        batch_size=sizes["batch"],
        buffer_size=sizes["rows"],
        ent_coef="auto",
        seed=0,
        **({"device": "cpu"} if library == "sb3" else {}),
    )
    model.set_logger(configure(None, []))
    fill(model.replay_buffer, sizes)
    return model


def fill(buffer, sizes: dict) -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(sizes["rows"] + 1, sizes["obs"])).astype(np.float32)
    action = rng.uniform(-1.0, 1.0, size=(sizes["rows"], sizes["action"])).astype(np.float32)
    no = np.zeros(1, bool)
    for i in range(sizes["rows"]):
        buffer.add(obs[i : i + 1], obs[i + 1 : i + 2], action[i : i + 1], obs[i + 1, :1], no, [{}])


def main() -> None:
    library, sizes = sys.argv[1], json.loads(sys.argv[2])
    model = agent(library, sizes)

    def improve() -> None:
        # Both read their losses back at the end, and so wait for the result.
        model.train(gradient_steps=sizes["updates"], batch_size=sizes["batch"])

    improve()
    names = {"sb3": ("stable-baselines3", "torch"), "sbx": ("sbx-rl", "jax")}[library]
    print(json.dumps({name: version(name) for name in names}), flush=True)
    for _ in sys.stdin:
        improve()
        print("done", flush=True)


if __name__ == "__main__":
    main()

"""Learning curves of Stable-Baselines3's or SBX's SAC with our settings: a CSV of evaluations, on standard output.

Runs in .peers: `python learn_sac.py sbx '{"env": "Hopper-v5", "seed": 0, "steps": 100000, "target_entropy": -1.0}'`.
It answers whether a return that disappoints is ours alone.
"""

import json
import sys

import gymnasium
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy


class Evaluate(BaseCallback):
    """Every 5000 steps, ten deterministic episodes on an environment of their own."""

    def __init__(self, env_id: str) -> None:
        super().__init__()
        self.environment = gymnasium.make(env_id)

    def _on_step(self) -> bool:
        if self.num_timesteps % 5000 == 0:
            mean, std = evaluate_policy(self.model, self.environment, n_eval_episodes=10, warn=False)
            print(f"{self.num_timesteps},{mean:.1f},{std:.1f}", flush=True)
        return True


def main() -> None:
    library, wanted = sys.argv[1], json.loads(sys.argv[2])
    if library == "sb3":
        from stable_baselines3 import SAC
    else:
        from sbx import SAC

    model = SAC(
        "MlpPolicy",
        wanted["env"],
        policy_kwargs={"net_arch": [256, 256]},
        learning_rate=3e-4,
        batch_size=256,
        buffer_size=wanted["steps"],
        learning_starts=5000,
        target_entropy=wanted["target_entropy"],
        seed=wanted["seed"],
        **({"device": "cpu"} if library == "sb3" else {}),
    )
    print("step,eval/return,eval/return_std")
    model.learn(wanted["steps"], callback=Evaluate(wanted["env"]))


if __name__ == "__main__":
    main()

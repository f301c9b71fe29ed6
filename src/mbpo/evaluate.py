"""How good a policy is: whole episodes, acting deterministically, on environments of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mbpo.envs.adapter import Environment

Act = Callable[[np.ndarray], np.ndarray]


MAX_STEPS = 10_000
"""The length of an evaluated episode on an environment that has neither an end nor a time limit."""


@dataclass(frozen=True)
class Evaluation:
    """One entry an episode."""

    returns: tuple[float, ...]
    discounted_returns: tuple[float, ...]
    lengths: tuple[int, ...]
    first_obs: np.ndarray
    corrupt: int
    """Episodes that the simulator cut short by resetting itself."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """The population deviation over episodes."""
        return float(np.std(self.returns))


def evaluate(environments: Sequence[Environment], act: Act, seeds: Sequence[int], discount: float) -> Evaluation:
    """The returns of one episode in each environment, reset with its seed.

    The episodes go in step, so that one call of the policy serves all; a finished one keeps its last row.
    """
    obs = np.stack([env.reset(seed) for env, seed in zip(environments, seeds, strict=True)])
    first_obs = obs.copy()
    returns, discounted, lengths = np.zeros(len(seeds)), np.zeros(len(seeds)), np.zeros(len(seeds), int)
    longest = [env.spec.time_limit or MAX_STEPS for env in environments]
    alive, corrupt = list(range(len(seeds))), 0
    while alive:
        actions = act(obs)
        for i in tuple(alive):
            outcome = environments[i].step(actions[i])
            corrupt += outcome.corrupt
            if not outcome.corrupt:
                obs[i] = outcome.obs
                returns[i] += outcome.reward
                discounted[i] += discount ** lengths[i] * outcome.reward
                lengths[i] += 1
            if outcome.corrupt or outcome.terminated or outcome.truncated or lengths[i] == longest[i]:
                alive.remove(i)
    return Evaluation(tuple(returns.tolist()), tuple(discounted.tolist()), tuple(lengths.tolist()), first_obs, corrupt)

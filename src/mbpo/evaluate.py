"""How good a policy is: whole episodes, acting deterministically, on environments of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mbpo.envs.adapter import Environment

Act = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Evaluation:
    """One entry an episode."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    corrupt: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """The population deviation over episodes."""
        return float(np.std(self.returns))


def evaluate(environments: Sequence[Environment], act: Act, seeds: Sequence[int]) -> Evaluation:
    """The returns of one episode in each environment, reset with its seed.

    The episodes go in step, so that one call of the policy serves all; a finished one keeps its last row.
    """
    obs = np.stack([env.reset(seed) for env, seed in zip(environments, seeds, strict=True)])
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), int)
    alive, corrupt = set(range(len(seeds))), 0
    while alive:
        actions = act(obs)
        for i in sorted(alive):
            outcome = environments[i].step(actions[i])
            if outcome.corrupt:
                corrupt += 1
                alive.discard(i)
                continue
            obs[i] = outcome.obs
            returns[i] += outcome.reward
            lengths[i] += 1
            if outcome.terminated or outcome.truncated:
                alive.discard(i)
    return Evaluation(tuple(returns.tolist()), tuple(lengths.tolist()), corrupt)

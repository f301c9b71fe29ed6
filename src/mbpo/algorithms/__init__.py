"""The algorithms, one file each."""

from typing import Any

from mbpo.algorithms.ppo import PPO
from mbpo.algorithms.sac import SAC
from mbpo.types import Algorithm

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "ppo": PPO,
    "sac": SAC,
}

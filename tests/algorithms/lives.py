"""Tiny algorithms, and the loop that a runner drives them in, without a runner."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples import QuietHost, random_rows, row_of
from mbpo.addresses import Purpose, key_at
from mbpo.algorithms import MBPO, PPO, SAC
from mbpo.envs.adapter import Environment
from mbpo.model import Model
from mbpo.schedule import RolloutLength
from mbpo.termination import TerminationModel
from mbpo.types import Algorithm, EnvSpec, Transition

ROOT = jax.random.key(0)

TINY_SAC = SAC(updates_per_step=2, random_steps=8, batch_size=8, hidden_sizes=(8, 8), buffer_size=32)
TINY_MODEL = Model(
    members=3, elites=2, hidden_sizes=(8,), weight_decay=(1e-4, 1e-4), batch_size=8, max_updates_per_fit=10
)
TINY_MBPO = MBPO(
    sac=TINY_SAC,
    model=TINY_MODEL,
    rollout_length=RolloutLength(1, 3, from_epoch=0, to_epoch=2),
    rollouts_per_step=2,
    epoch_steps=8,
    fit_every=4,
    real_fraction=0.25,
    termination_networks=TerminationModel(members=1, hidden_sizes=(4,), batch_size=8, round_updates=5, max_rounds=2),
)
TINY: dict[str, Algorithm[Any]] = {
    "mbpo": TINY_MBPO,
    "ppo": PPO(steps_per_update=8, passes=2, batch_size=4, hidden_sizes=(8,)),
    "sac": TINY_SAC,
}


def ends_above_one(_obs: Any, _action: Any, next_obs: Any) -> Any:
    """A termination function."""
    return next_obs[..., 0] > 1.0


@cache
def stream(spec: EnvSpec) -> Transition:
    """Forty steps of a world that takes no notice of actions: each starts where the last one ended, or anew.

    Episodes end where the world's function says so.
    """
    rows = random_rows(41, spec.obs_size, spec.action_size)
    next_obs = jnp.concatenate([rows.obs[1:], rows.next_obs[-1:]])
    ended = (spec.terminal or ends_above_one)(rows.obs, rows.action, next_obs)
    fresh = jnp.concatenate([jnp.zeros(1, bool), ended[:-1]])
    obs = jnp.where(fresh[:, None], rows.next_obs, rows.obs)
    return Transition(obs, rows.action, rows.reward, next_obs, ended, rows.truncated)


def live(
    algorithm: Algorithm[Any], spec: EnvSpec, state: Any, begin: int, end: int, host: QuietHost, root: Any = ROOT
) -> tuple[Any, list[dict[str, Any]]]:
    """The state after the real steps `begin` + 1 to `end` of the stream, and the metrics of their updates."""
    metrics = []
    for step in range(begin, end):
        state = algorithm.prepare(state, step, key_at(root, Purpose.PREPARE, step), host)
        state = algorithm.observe(state, row_of(stream(spec), step), host)
        state, found = algorithm.update(state, step + 1, key_at(root, Purpose.UPDATE, step + 1), host)
        if found:
            metrics.append({name: float(value) for name, value in found.items()})
    return state, metrics


def begin(algorithm: Algorithm[Any], spec: EnvSpec, root: Any = ROOT) -> Any:
    return algorithm.init(spec, 40, key_at(root, Purpose.INIT))


def learn(
    algorithm: Algorithm[Any],
    environment: Environment,
    steps: int,
    seed: int = 0,
    every: Callable[[Any], None] | None = None,
) -> Any:
    """The state after so many steps of a real environment through its adapter, as the runner would make them."""
    root, host = jax.random.key(seed), QuietHost()
    state = algorithm.init(environment.spec, steps, key_at(root, Purpose.INIT))
    obs, episodes = environment.reset(0), 1
    random = np.random.default_rng(seed)
    for step in range(steps):
        state = algorithm.prepare(state, step, key_at(root, Purpose.PREPARE, step), host)
        if step < algorithm.random_steps:
            action = random.uniform(-1, 1, environment.spec.action_size).astype(np.float32)
        else:
            key = key_at(root, Purpose.ACT, step)
            action = np.asarray(algorithm.act(state, jnp.asarray(obs), key, explore=True))
        outcome = environment.step(action)
        arrays = (obs, action, np.float32(outcome.reward), outcome.obs)
        flags = (np.bool_(outcome.terminated), np.bool_(outcome.truncated))
        state = algorithm.observe(state, Transition(*jax.device_put((*arrays, *flags))), host)
        state, _ = algorithm.update(state, step + 1, key_at(root, Purpose.UPDATE, step + 1), host)
        obs = outcome.obs
        if outcome.terminated or outcome.truncated:
            obs, episodes = environment.reset(episodes), episodes + 1
    return state

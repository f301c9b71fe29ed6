"""Transitions of an invented environment, for benchmarks that need rows and no simulator."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from mbpo.buffer import Buffer, import_rows, init_buffer
from mbpo.types import EnvSpec, Transition, blank_transition


def smooth_buffer(spec: EnvSpec, key: Key[Array, ""], rows: int) -> Buffer[Transition]:
    """A full buffer of smooth, slightly noisy dynamics without an end: something to learn for policy and model."""
    obs_key, action_key, flow_key, push_key, noise_key = jax.random.split(key, 5)
    obs = jax.random.normal(obs_key, (rows, spec.obs_size))
    action = jax.random.uniform(action_key, (rows, spec.action_size), minval=-1.0, maxval=1.0)
    flow = jax.random.normal(flow_key, (spec.obs_size, spec.obs_size)) / spec.obs_size**0.5
    push = jax.random.normal(push_key, (spec.action_size, spec.obs_size))
    noise = 0.01 * jax.random.normal(noise_key, obs.shape)
    next_obs = obs + 0.2 * jnp.tanh(obs @ flow + action @ push) + noise
    reward = next_obs[:, 0] - 0.1 * jnp.sum(jnp.square(action), axis=-1)
    no = jnp.zeros(rows, bool)
    return import_rows(init_buffer(blank_transition(spec), rows), Transition(obs, action, reward, next_obs, no, no))

"""Targets: what a value should be, given rewards and later values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def td_target(
    reward: Float[Array, "*B"], terminated: Bool[Array, "*B"], next_value: Float[Array, "*B"], discount: float
) -> Float[Array, "*B"]:
    """r + γ (1 − terminated) V(s′). A time limit is not `terminated`: the value goes on behind it."""
    return reward + discount * jnp.where(terminated, 0.0, next_value)


def advantages(
    reward: Float[Array, " H"],
    value: Float[Array, " H"],
    next_value: Float[Array, " H"],
    terminated: Bool[Array, " H"],
    ends: Bool[Array, " H"],
    discount: float,
    trace_decay: float,
) -> Float[Array, " H"]:
    """Generalised advantage estimates: A_t = δ_t + γ λ (1 − ends_t) A_{t+1}, with δ_t = r_t + γ V(s_{t+1}) − V(s_t).

    `ends` marks every last row of an episode, `terminated` those without a value after them.
    """
    delta = td_target(reward, terminated, next_value, discount) - value

    def back(later: Float[Array, ""], row: tuple[Float[Array, ""], Bool[Array, ""]]) -> tuple[Array, Array]:
        error, end = row
        advantage = error + discount * trace_decay * jnp.where(end, 0.0, later)
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, ends), reverse=True)[1]

"""The losses, each a scalar to minimise."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float


def critic_loss(values: Sequence[Float[Array, " B"]], target: Float[Array, " B"]) -> Float[Array, ""]:
    """Σ over critics of ½ E[(Q − y)²]."""
    losses = [0.5 * jnp.mean(jnp.square(value - target)) for value in values]
    return jnp.sum(jnp.stack(losses))


def actor_loss(
    log_prob: Float[Array, " B"], value: Float[Array, " B"], temperature: Float[Array, ""]
) -> Float[Array, ""]:
    """E[α log π(a|s) − Q(s, a)]."""
    return jnp.mean(temperature * log_prob - value)


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, " B"], target_entropy: float
) -> Float[Array, ""]:
    """−E[log α (log π(a|s) + H̄)]: α falls while the policy is more random than its target H̄, and rises below it."""
    return -log_temperature * jnp.mean(log_prob + target_entropy)


def clipped_policy_loss(
    log_prob: Float[Array, " B"],
    old_log_prob: Float[Array, " B"],
    advantage: Float[Array, " B"],
    clip: float,
) -> Float[Array, ""]:
    """−E[min(ρ A, clip(ρ, 1 − c, 1 + c) A)] with ρ = π(a|s) / π_old(a|s)."""
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def clipped_value_loss(
    value: Float[Array, " B"], old_value: Float[Array, " B"], target: Float[Array, " B"], clip: float
) -> Float[Array, ""]:
    """½ E[max((V − R)², (V_clipped − R)²)], where V_clipped moves at most c away from the old value."""
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.mean(jnp.maximum(jnp.square(value - target), jnp.square(near - target)))

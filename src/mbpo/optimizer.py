"""Gradient descent on trees of weights: optax, behind types that keep a tree's class."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

Weights = TypeVar("Weights")


def init_optimizer(optimizer: optax.GradientTransformation, weights: Any) -> optax.OptState:
    """The optimiser's state before the first step."""
    return optimizer.init(weights)


def descend(
    optimizer: optax.GradientTransformation, gradient: Weights, state: optax.OptState, weights: Weights
) -> tuple[Weights, optax.OptState]:
    """The weights after one step against the gradient, and the optimiser's new state."""
    as_tree: Any = gradient
    # optax raises floats to integer powers, which the strict promotion of our tests would refuse.
    with jax.numpy_dtype_promotion("standard"):
        change, state = optimizer.update(as_tree, state)
    return jax.tree.map(jnp.add, weights, change), state

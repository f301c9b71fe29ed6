"""Gradient descent on trees of weights: optax, behind types that keep a tree's class."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

Weights = TypeVar("Weights")


def adam(learning_rate: float) -> optax.GradientTransformation:
    """Optax's Adam with its corrections of both moments drawn together into the length of the step and ε.

    The same step with one division an element in place of three; its state is Optax's.
    """
    mean_decay, square_decay, epsilon = 0.9, 0.999, 1e-8
    optax_adam = optax.adam(learning_rate, mean_decay, square_decay, epsilon)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moments, rest = state
        count = moments.count + 1
        mean = jax.tree.map(lambda m, g: mean_decay * m + (1.0 - mean_decay) * g, moments.mu, updates)
        square = jax.tree.map(lambda v, g: square_decay * v + (1.0 - square_decay) * g * g, moments.nu, updates)
        root = jnp.sqrt(1.0 - square_decay ** jnp.float32(count))
        rate = learning_rate * root / (1.0 - mean_decay ** jnp.float32(count))
        change = jax.tree.map(lambda m, v: -rate * (m / (jnp.sqrt(v) + epsilon * root)), mean, square)
        return change, (optax.ScaleByAdamState(count, mean, square), rest)

    return optax.GradientTransformation(optax_adam.init, update)


def init_optimizer(optimizer: optax.GradientTransformation, weights: Any) -> optax.OptState:
    """The optimiser's state before the first step."""
    return optimizer.init(weights)


def descend(
    optimizer: optax.GradientTransformation, gradient: Weights, state: optax.OptState, weights: Weights
) -> tuple[Weights, optax.OptState]:
    """The weights after one step against the gradient, and the optimiser's new state."""
    as_tree: Any = gradient
    # Optax multiplies integers and floats, which a program with strict promotion of dtypes must not.
    with jax.numpy_dtype_promotion("standard"):
        change, state = optimizer.update(as_tree, state)
    return jax.tree.map(jnp.add, weights, change), state

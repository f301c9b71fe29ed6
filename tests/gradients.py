"""Gradients against central differences, in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree


def assert_gradient(function: Callable[..., Any], *arguments: Any, step: float = 1e-6) -> None:
    """`jax.grad` of a scalar function in all its arguments (trees of numbers) is what moving each number shows."""
    with jax.enable_x64(True):
        arguments = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), arguments)
        flat, rebuild = ravel_pytree(arguments)
        scalar = jax.jit(lambda numbers: function(*rebuild(numbers)))
        found = np.asarray(jax.jit(jax.grad(scalar))(flat))
        moves = step * np.eye(flat.size)
        slopes = [(scalar(flat + jnp.asarray(move)) - scalar(flat - jnp.asarray(move))) / (2 * step) for move in moves]
        np.testing.assert_allclose(found, np.asarray(slopes), rtol=1e-5, atol=1e-8)
        assert np.abs(found).max() > 1e-6, "the function is flat here: the test says nothing"

"""Multi-layer perceptrons as plain trees of arrays."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from mbpo.pytree import pytree

Nets = TypeVar("Nets")
Activation = Callable[[Float[Array, "..."]], Float[Array, "..."]]
Product = Callable[[Float[Array, "*B I"], Float[Array, "I O"]], Float[Array, "*B O"]]
Initializer = Callable[[Key[Array, ""], tuple[int, int]], Float[Array, "I O"]]


@pytree
class Linear:
    """x ↦ x W + b."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]

    def __call__(self, x: Float[Array, "*B I"], product: Product = jnp.matmul) -> Float[Array, "*B O"]:
        return product(x, self.weight) + jnp.broadcast_to(self.bias, (*x.shape[:-1], self.bias.shape[-1]))


@pytree
class MLP:
    """Linear layers with an activation between them; the last one is linear."""

    layers: tuple[Linear, ...]

    def __call__(
        self, x: Float[Array, "*B I"], activation: Activation = jax.nn.relu, product: Product = jnp.matmul
    ) -> Float[Array, "*B O"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = activation(layer(x, product))
        return last(x, product)


@jax.custom_vjp
def turning_product(x: Float[Array, "B I"], weight: Float[Array, "I O"]) -> Float[Array, "B O"]:
    """x W, whose gradient Xᵀ G is taken, on a CPU, in two steps: turn X over, then multiply row by row.

    XLA would fold the two into a product that reads X column by column, which Eigen does a fifth slower. The barrier
    keeps them apart.
    """
    return x @ weight


def _keep_factors(
    x: Float[Array, "B I"], weight: Float[Array, "I O"]
) -> tuple[Float[Array, "B O"], tuple[Float[Array, "B I"], Float[Array, "I O"]]]:
    return x @ weight, (x, weight)


def _turn_and_multiply(
    factors: tuple[Float[Array, "B I"], Float[Array, "I O"]], gradient: Float[Array, "B O"]
) -> tuple[Float[Array, "B I"], Float[Array, "I O"]]:
    x, weight = factors
    turned = jax.lax.platform_dependent(x.T, cpu=jax.lax.optimization_barrier, default=lambda turned: turned)
    return gradient @ weight.T, turned @ gradient


turning_product.defvjp(_keep_factors, _turn_and_multiply)


def init_mlp(key: Key[Array, ""], sizes: Sequence[int], initializers: Sequence[Initializer]) -> MLP:
    """An MLP with `sizes` = (input, hidden..., output), one initializer a layer and zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    shapes = pairwise(sizes)
    return MLP(
        tuple(
            Linear(weight=init(k, shape), bias=jnp.zeros(shape[1]))
            for k, shape, init in zip(keys, shapes, initializers, strict=True)
        )
    )


def glorot_uniform(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "I O"]:
    """W ~ U(−a, a) with a = √(6 / (fan_in + fan_out))."""
    bound = (6.0 / sum(shape)) ** 0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def orthogonal(scale: float) -> Initializer:
    """Initializer: a random orthogonal matrix times `scale`."""

    def init(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "I O"]:
        return scale * jax.random.orthogonal(key, max(shape))[: shape[0], : shape[1]]

    return init


def truncated_normal(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "I O"]:
    """W ~ N(0, σ²) with σ = 1 / (2 √fan_in), cut at 2σ.

    Reference: the dynamics networks of the released code.
    """
    return jax.random.truncated_normal(key, -2.0, 2.0, shape) / (2.0 * shape[0] ** 0.5)


def polyak(target: Nets, online: Nets, rate: float) -> Nets:
    """(1 − τ) target + τ online, leaf by leaf."""
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)

"""Means and standard deviations: of a whole data set at once, and of a stream."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from mbpo.pytree import pytree


@pytree
class RunningMoments:
    """Mean and variance of everything seen so far, one row at a time.

    Reference: OpenAI baselines start with a count of 1e-4 at mean 0 and variance 1.
    """

    count: Float[Array, ""]
    mean: Float[Array, "*D"]
    variance: Float[Array, "*D"]

    def add(self, x: Float[Array, "*D"]) -> "RunningMoments":
        """The moments with one more row: Welford's update of the population variance."""
        count = self.count + 1.0
        shift = x - self.mean
        mean = self.mean + shift / count
        variance = (self.variance * self.count + jnp.square(shift) * (self.count / count)) / count
        return RunningMoments(count, mean, variance)

    def scale(self, x: Float[Array, "*B"]) -> Float[Array, "*B"]:
        """x / σ, without moving the mean."""
        return x / jnp.sqrt(self.variance + 1e-8)

    def normalize(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """(x − mean) / σ."""
        mean, deviation = (jnp.broadcast_to(m, x.shape) for m in (self.mean, jnp.sqrt(self.variance + 1e-8)))
        return (x - mean) / deviation


def init_moments(shape: tuple[int, ...]) -> RunningMoments:
    """The moments before anything was seen."""
    return RunningMoments(jnp.float32(1e-4), jnp.zeros(shape), jnp.ones(shape))

"""The two action distributions: a diagonal Gaussian, and one squashed by tanh."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mbpo.pytree import pytree

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
LOG_TWO = math.log(2.0)


@pytree
class DiagonalGaussian:
    """N(mean, diag(exp(log_std))²) over the last axis."""

    mean: Float[Array, "*B A"]
    log_std: Float[Array, "*B A"]

    def sample(self, noise: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """mean + σ · noise, for standard normal noise."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, x: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """Σ −½ ((x − mean) / σ)² − log σ − ½ log 2π."""
        standard = (x - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * jnp.square(standard) - self.log_std - HALF_LOG_TWO_PI, axis=-1)

    def entropy(self) -> Float[Array, "*B"]:
        """Σ log σ + ½ log 2πe."""
        return jnp.sum(self.log_std + 0.5 + HALF_LOG_TWO_PI, axis=-1)


@pytree
class TanhGaussian:
    """The law of tanh(u), u ~ N(mean, diag(exp(log_std))²): actions inside (−1, 1)."""

    mean: Float[Array, "*B A"]
    log_std: Float[Array, "*B A"]

    def mode(self) -> Float[Array, "*B A"]:
        """tanh(mean), the deterministic action."""
        return jnp.tanh(self.mean)

    def sample(self, noise: Float[Array, "*B A"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
        """An action and its log-density, from standard normal noise.

        log π(a) = log N(u) − Σ log(1 − tanh²u), and log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u)) exactly,
        which stays finite where 1 − tanh²u rounds to 0.
        """
        u = self.mean + jnp.exp(self.log_std) * noise
        log_normal = -0.5 * jnp.square(noise) - self.log_std - HALF_LOG_TWO_PI
        log_slope = 2.0 * (LOG_TWO - u - jax.nn.softplus(-2.0 * u))
        return jnp.tanh(u), jnp.sum(log_normal - log_slope, axis=-1)

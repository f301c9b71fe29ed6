"""One step of descent, by hand."""

import jax.numpy as jnp
import numpy as np
import optax

from mbpo.nets import Linear
from mbpo.optimizer import descend, init_optimizer


def test_adams_first_steps_and_the_class_of_the_weights():
    # m/(1−β₁) = g and v/(1−β₂) = g² at the first step: it is −rate · g / (|g| + ε), the rate in g's direction.
    # With the same gradient again the bias-corrected moments are the same, and so is the step.
    adam, weights = optax.adam(0.1), Linear(jnp.float32([[1.0, 2.0]]), jnp.float32([0.0, 0.0]))
    gradient = Linear(jnp.float32([[3.0, -0.01]]), jnp.float32([0.0, 5.0]))
    state = init_optimizer(adam, weights)
    weights, state = descend(adam, gradient, state, weights)
    assert isinstance(weights, Linear)
    np.testing.assert_allclose(weights.weight, [[0.9, 2.1]], rtol=1e-5)
    np.testing.assert_allclose(weights.bias, [0.0, -0.1], rtol=1e-5)
    weights, _ = descend(adam, gradient, state, weights)
    np.testing.assert_allclose(weights.weight, [[0.8, 2.2]], rtol=1e-5)

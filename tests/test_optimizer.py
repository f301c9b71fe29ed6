"""One step of descent, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mbpo.nets import Linear
from mbpo.optimizer import adam, descend, init_optimizer


def test_adams_first_steps_and_the_class_of_the_weights():
    # m/(1−β₁) = g and v/(1−β₂) = g² at the first step: it is −rate · g / (|g| + ε), the rate in g's direction.
    # With the same gradient again the bias-corrected moments are the same, and so is the step.
    optimizer, weights = adam(0.1), Linear(jnp.float32([[1.0, 2.0]]), jnp.float32([0.0, 0.0]))
    gradient = Linear(jnp.float32([[3.0, -0.01]]), jnp.float32([0.0, 5.0]))
    state = init_optimizer(optimizer, weights)
    weights, state = descend(optimizer, gradient, state, weights)
    assert isinstance(weights, Linear)
    np.testing.assert_allclose(weights.weight, [[0.9, 2.1]], rtol=1e-5)
    np.testing.assert_allclose(weights.bias, [0.0, -0.1], rtol=1e-5)
    weights, _ = descend(optimizer, gradient, state, weights)
    np.testing.assert_allclose(weights.weight, [[0.8, 2.2]], rtol=1e-5)


def test_it_is_the_adam_of_optax():
    """On gradients from far below ε to large, over steps at which the corrections matter and at which they do not."""
    scales = 10.0 ** jnp.linspace(-12.0, 3.0, 64)
    gradients = scales[None, :] * jax.random.normal(jax.random.key(0), (300, 64))
    ours, theirs = adam(1e-3), optax.adam(1e-3)
    state, expected = ours.init(scales), theirs.init(scales)
    for gradient in gradients:
        step, state = ours.update(gradient, state)
        with jax.numpy_dtype_promotion("standard"):
            expected_step, expected = theirs.update(gradient, expected)
        np.testing.assert_allclose(step, expected_step, rtol=1e-5, atol=1e-12)
    assert jax.tree.structure(state) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), state, expected)

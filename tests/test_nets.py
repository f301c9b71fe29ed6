"""Networks against NumPy, and the laws of their first weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mbpo.nets import (
    MLP,
    Linear,
    glorot_uniform,
    init_mlp,
    orthogonal,
    polyak,
    truncated_normal,
    turning_product,
)

KEY = jax.random.key(3)


def test_a_network_is_what_numpy_computes():
    net = init_mlp(KEY, (3, 5, 4, 2), [glorot_uniform] * 3)
    net = jax.tree.map(lambda leaf: leaf + 0.1, net)
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    expected = x
    for i, layer in enumerate(net.layers):
        expected = expected @ np.asarray(layer.weight) + np.asarray(layer.bias)
        expected = np.maximum(expected, 0) if i < 2 else expected
    np.testing.assert_allclose(net(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net(jnp.asarray(x[0])), expected[0], rtol=1e-5, atol=1e-6)


def test_a_turned_product_and_its_gradients_are_those_of_the_plain_one():
    net = init_mlp(KEY, (3, 5, 4, 2), [glorot_uniform] * 3)
    x = jax.random.normal(KEY, (7, 3))

    def loss(net, x, product):
        return jnp.sum(jnp.sin(net(x, jnp.tanh, product)))

    plain, turned = (jax.grad(loss, argnums=(0, 1))(net, x, product) for product in (jnp.matmul, turning_product))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6), plain, turned)
    assert float(loss(net, x, jnp.matmul)) == float(loss(net, x, turning_product))


def test_the_activation_stands_between_layers_only():
    half = Linear(jnp.full((1, 1), 0.5), jnp.zeros(1))
    assert float(MLP((half, half))(jnp.float32([-8.0]), jnp.tanh)[0]) == pytest.approx(0.5 * np.tanh(-4.0))


def test_biases_start_at_zero_and_layers_differ():
    net = init_mlp(KEY, (4, 4, 4), [glorot_uniform] * 2)
    assert all((np.asarray(layer.bias) == 0).all() for layer in net.layers)
    assert not np.array_equal(net.layers[0].weight, net.layers[1].weight)
    with pytest.raises(ValueError, match="zip"):
        init_mlp(KEY, (4, 4, 4), [glorot_uniform])


def test_glorot_is_uniform_up_to_its_bound():
    weight = np.asarray(glorot_uniform(KEY, (300, 100))).ravel()
    bound = np.sqrt(6 / 400)
    assert bound * 0.999 < np.abs(weight).max() <= bound
    assert stats.kstest(weight, stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-4


def test_the_truncated_normal_is_cut_at_two_deviations():
    weight = np.asarray(truncated_normal(KEY, (400, 300))).ravel()
    sigma = 1 / (2 * np.sqrt(400))
    assert 2 * sigma * 0.999 < np.abs(weight).max() <= 2 * sigma * (1 + 1e-6)
    assert stats.kstest(weight / sigma, stats.truncnorm(-2, 2).cdf).pvalue > 1e-4
    # What is left of a normal distribution between −2 and 2 has a deviation of 0.8796.
    assert weight.std() / sigma == pytest.approx(0.8796, abs=0.005)


@pytest.mark.parametrize("shape", [(4, 4), (3, 8), (8, 3), (5, 1)])
def test_the_short_side_of_an_orthogonal_matrix_is_orthogonal(shape):
    weight = np.asarray(orthogonal(1.5)(KEY, shape))
    assert weight.shape == shape
    gram = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
    np.testing.assert_allclose(gram, 1.5**2 * np.eye(min(shape)), atol=1e-5)


def test_polyak_moves_every_leaf_a_little():
    slow, fast = Linear(jnp.full((1, 1), 10.0), jnp.zeros(1)), Linear(jnp.full((1, 1), 20.0), jnp.ones(1))
    moved = polyak(slow, fast, 0.1)
    # 0.9 · 10 + 0.1 · 20 = 11 and 0.9 · 0 + 0.1 · 1 = 0.1
    assert (float(moved.weight[0, 0]), float(moved.bias[0])) == (pytest.approx(11.0), pytest.approx(0.1))

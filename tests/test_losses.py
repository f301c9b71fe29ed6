"""Losses: by hand, and their gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradients import assert_gradient
from mbpo.losses import actor_loss, clipped_policy_loss, clipped_value_loss, critic_loss, temperature_loss

RANDOM = np.random.default_rng(0)
A, B, C = RANDOM.normal(size=(3, 8))


def test_the_critics_loss():
    # ½ · mean(1, 9) = 2.5 and ½ · mean(0, 4) = 1
    values = (jnp.float32([1, 5]), jnp.float32([2, 0]))
    assert float(critic_loss(values, jnp.float32([2, 2]))) == 3.5


def test_the_actors_loss():
    # mean(0.1 · (−1) − 3, 0.1 · 2 − 5) = mean(−3.1, −4.8)
    assert float(actor_loss(jnp.float32([-1, 2]), jnp.float32([3, 5]), jnp.float32(0.1))) == pytest.approx(-3.95)


def test_the_temperature_falls_where_the_policy_is_more_random_than_its_target():
    slope = jax.grad(temperature_loss)
    # Entropy −mean log π = 2 against a target of 1: the loss grows with log α, with slope −(−2 + 1) = 1.
    assert float(slope(jnp.float32(0.3), jnp.float32([-1, -3]), 1.0)) == 1.0
    # Entropy −2 against −1: slope −(2 − 1) = −1, whatever α is.
    assert float(slope(jnp.float32(-4.0), jnp.float32([1, 3]), -1.0)) == -1.0
    # The loss multiplies log α, not α: at α = 1 it is 0.
    assert float(temperature_loss(jnp.float32(0.0), jnp.float32([5.0]), 1.0)) == 0.0


def test_the_clipped_policy_loss():
    # Ratios 1.5, 1.5, 0.5, 0.5 with advantages 1, −1, 1, −1 and c = 0.2:
    # min(1.5, 1.2) = 1.2; min(−1.5, −1.2) = −1.5; min(0.5, 0.8) = 0.5; min(−0.5, −0.8) = −0.8
    ratio, advantage = jnp.float32([1.5, 1.5, 0.5, 0.5]), jnp.float32([1, -1, 1, -1])
    loss = clipped_policy_loss(jnp.log(ratio), jnp.zeros(4), advantage, 0.2)
    assert float(loss) == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)
    # Only where the move pays already is there no gradient.
    slope = jax.grad(lambda log_prob: clipped_policy_loss(log_prob, jnp.zeros(4), advantage, 0.2))(jnp.log(ratio))
    np.testing.assert_array_equal(np.asarray(slope) != 0, [False, True, True, False])


def test_the_clipped_value_loss():
    # From 0 to 1 with c = 0.2: clipped at 0.2. For target 2 max(1, 1.8²) = 3.24, for target 0 max(1, 0.04) = 1.
    loss = partial(clipped_value_loss, jnp.float32([1.0]), jnp.float32([0.0]), clip=0.2)
    assert float(loss(target=jnp.float32([2.0]))) == pytest.approx(1.62)
    assert float(loss(target=jnp.float32([0.0]))) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("loss", "arguments"),
    [
        (lambda first, second, target: critic_loss((first, second), target), (A, B, C)),
        (actor_loss, (A, B, 0.3)),
        (partial(temperature_loss, target_entropy=-1.5), (0.4, A)),
        (partial(clipped_policy_loss, clip=0.2), (A, A + 0.3 * B, C)),
        (partial(clipped_value_loss, clip=0.2), (A, A + 0.3 * B, C)),
    ],
    ids=["critic", "actor", "temperature", "policy", "value"],
)
def test_gradients(loss, arguments):
    assert_gradient(loss, *arguments)

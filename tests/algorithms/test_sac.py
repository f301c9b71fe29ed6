"""Soft Actor-Critic against a plain second version, and its rules."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lives import TINY_SAC, begin, live

from examples import SPEC, QuietHost, buffer_of, copied, random_rows, snapshot
from gradients import assert_gradient
from mbpo.algorithms.sac import SAC, SACState, choose, draw, estimate, policy, values
from mbpo.nets import MLP, Linear

SMALL = replace(TINY_SAC, target_entropy=-0.7, learning_rate=1e-2, polyak_rate=0.1)
ROWS = random_rows(30)
KEY = jax.random.key(5)
BATCHES = jax.tree.map(lambda leaf: leaf.reshape(3, 10, *leaf.shape[1:]), ROWS)


def network(net, x):
    """An MLP written out, so that gradients of it can be taken."""
    *hidden, last = net
    for weight, bias in hidden:
        x = jnp.maximum(x @ weight + bias[None, :], 0.0)
    return x @ last[0] + last[1][None, :]


def layers(net):
    return [(layer.weight, layer.bias) for layer in net.layers]


def squashed(actor, obs, noise):
    """An action of one dimension and its log-density, by the plain formula."""
    out = network(actor, obs)
    mean, log_std = out[:, :1], jnp.clip(out[:, 1:], -20, 2)
    u = mean + jnp.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    return jnp.tanh(u), (normal - jnp.log(1 - jnp.tanh(u) ** 2))[:, 0]


def q(critic, obs, action):
    return network(critic, jnp.concatenate([obs, action], axis=1))[:, 0]


def plain_updates(sac, learner, batches, noises):
    """The updates with an Adam for each network, in the order of the text: all losses first, then all steps."""
    actor, first, second = (layers(net) for net in (learner.weights.actor, *learner.weights.critics))
    targets = [layers(net) for net in learner.target_critics]
    log_alpha = learner.weights.log_temperature
    adam = optax.adam(sac.learning_rate)
    parts = [actor, first, second, log_alpha]
    states = [adam.init(part) for part in parts]
    for g in range(batches.reward.shape[0]):
        batch = jax.tree.map(lambda leaf, g=g: leaf[g], batches)
        actor, first, second, log_alpha = parts
        alpha = jnp.exp(log_alpha)
        next_action, next_log_prob = squashed(actor, batch.next_obs, noises[1][g])
        next_q = jnp.minimum(*(q(net, batch.next_obs, next_action) for net in targets)) - alpha * next_log_prob
        goes_on = 1.0 - batch.terminated.astype(jnp.float32)
        y = batch.reward + sac.discount * goes_on * next_q

        def critic_loss(net, batch=batch, y=y):
            return 0.5 * jnp.mean((q(net, batch.obs, batch.action) - y) ** 2)

        def actor_loss(net, batch=batch, g=g, alpha=alpha, critics=(first, second)):
            action, log_prob = squashed(net, batch.obs, noises[0][g])
            return jnp.mean(alpha * log_prob - jnp.minimum(*(q(net, batch.obs, action) for net in critics)))

        _, log_prob = squashed(actor, batch.obs, noises[0][g])
        gradients = [
            jax.grad(actor_loss)(actor),
            jax.grad(critic_loss)(first),
            jax.grad(critic_loss)(second),
            -jnp.mean(log_prob + sac.target_entropy),
        ]
        for i in range(4):
            with jax.numpy_dtype_promotion("standard"):
                change, states[i] = adam.update(gradients[i], states[i])
            parts[i] = optax.apply_updates(parts[i], change)
        targets = [
            jax.tree.map(lambda t, o: 0.9 * t + 0.1 * o, target, online)
            for target, online in zip(targets, parts[1:3], strict=True)
        ]
    return parts, targets


def test_updates_are_those_of_a_plain_second_version():
    learner = SMALL.init_learner(SPEC, KEY)
    noise = jax.random.normal(jax.random.fold_in(KEY, 3), (2, *BATCHES.action.shape))
    expected, targets = jax.jit(partial(plain_updates, SMALL))(learner, BATCHES, noise)
    found, metrics = SMALL.improve(copied(learner), BATCHES, KEY)
    weights = found.weights
    pairs = zip((weights.actor, *weights.critics, *found.target_critics), (*expected[:3], *targets), strict=True)
    for net, plain in pairs:
        for a, b in zip(jax.tree.leaves(layers(net)), jax.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert float(weights.log_temperature) == pytest.approx(float(expected[3]), rel=1e-4)
    assert int(found.updates) == 3
    # The temperature of the third update; the first step is the learning rate up or down.
    assert float(metrics["temperature"]) == pytest.approx(np.exp(np.linspace(0, 1, 4)[1:] * 3 * 0.01).mean(), rel=0.05)


def constant(outputs, inputs):
    """A network that says the same of everything."""
    return MLP((Linear(jnp.zeros((inputs, len(outputs))), jnp.float32(outputs)),))


def test_the_critics_target_by_hand():
    # μ = 0, σ = e⁰ = 1, noise 0: a′ = 0 and log π = −½ log 2π = −0.9189. min Q̄ = min(5, 3), α = e^0.5 = 1.6487.
    # y = r + 0.9 · (3 + 1.6487 · 0.9189) = r + 0.9 · 4.5151 = r + 4.0636, and r where the episode ended.
    sac = SAC(discount=0.9)
    learner = sac.init_learner(SPEC, KEY)
    weights = replace(learner.weights, actor=constant([0.0, 0.0], 2), log_temperature=jnp.float32(0.5))
    learner = replace(learner, weights=weights, target_critics=(constant([5.0], 3), constant([3.0], 3)))
    rows = replace(random_rows(2), reward=jnp.float32([1, 2]), terminated=jnp.array([False, True]))
    np.testing.assert_allclose(sac.critic_target(learner, rows, jnp.zeros((2, 1))), [5.0636, 2.0], rtol=1e-4)
    # A time limit is no end.
    cut = replace(rows, truncated=jnp.array([True, True]))
    np.testing.assert_allclose(sac.critic_target(learner, cut, jnp.zeros((2, 1))), [5.0636, 2.0], rtol=1e-4)


@pytest.mark.parametrize(("raw", "log_std"), [(-50.0, -20.0), (0.3, 0.3), (50.0, 2.0)])
def test_the_log_deviation_is_clipped(raw, log_std):
    found = policy(constant([0.1, raw], 2), jnp.zeros(2))
    assert float(found.log_std[0]) == pytest.approx(log_std)


@pytest.mark.parametrize(("given", "used"), [(None, -1.0), (3.0, 3.0)])
def test_the_temperature_steers_to_the_target_entropy(given, used):
    """With actor and noise so that log π is known, log α moves against the sign of log π + H̄."""
    sac = SAC(target_entropy=given, learning_rate=0.1, hidden_sizes=(4,))
    learner = sac.init_learner(SPEC, KEY)
    one = jax.tree.map(lambda leaf: leaf[:1], BATCHES)
    found, metrics = sac.improve(copied(learner), one, KEY)
    moved = float(found.weights.log_temperature)
    assert moved == pytest.approx(-0.1 * np.sign(float(metrics["entropy"]) - used), rel=1e-3)


def test_gradients_of_the_actor_and_the_critics():
    learner = SAC(hidden_sizes=(3,)).init_learner(SPEC, KEY)
    rows = jax.tree.map(np.asarray, random_rows(4))
    noise = np.random.default_rng(0).normal(size=(4, 1))

    def loss(actor, critics):
        obs = jnp.asarray(rows.obs, jnp.float64)
        action, log_prob = policy(actor, obs).sample(jnp.asarray(noise))
        return jnp.mean(0.3 * log_prob - jnp.minimum(*values(critics, obs, action)))

    assert_gradient(loss, learner.weights.actor, learner.weights.critics)


def test_nothing_is_learned_before_the_random_steps_are_over():
    host, start = QuietHost(), begin(TINY_SAC, SPEC)
    before = snapshot(start.learner.weights.actor.layers[0].weight)
    state, metrics = live(TINY_SAC, SPEC, start, 0, 8, host)
    assert metrics == []
    np.testing.assert_array_equal(state.learner.weights.actor.layers[0].weight, before)
    assert int(state.buffer.size) == 8
    state, metrics = live(TINY_SAC, SPEC, state, 8, 9, host)
    assert len(metrics) == 1
    assert int(state.learner.updates) == TINY_SAC.updates_per_step


def test_without_updates_there_are_none():
    still = replace(TINY_SAC, updates_per_step=0)
    state, metrics = live(still, SPEC, begin(still, SPEC), 0, 12, QuietHost())
    assert (metrics, still.counts(state)) == ([], (0, 0))


def test_a_buffer_keeps_the_newest_rows_and_is_no_larger_than_the_run():
    state, _ = live(TINY_SAC, SPEC, begin(TINY_SAC, SPEC), 0, 36, QuietHost())
    assert state.buffer.capacity == 32
    assert TINY_SAC.init(SPEC, 20, KEY).buffer.capacity == 20
    assert int(state.buffer.size) == 32


def test_a_batch_is_drawn_from_living_rows():
    batch = draw(buffer_of(ROWS, capacity=1000), KEY, (7, 9))
    assert batch.obs.shape == (7, 9, 2)
    known = {tuple(row) for row in np.asarray(ROWS.obs).tolist()}
    assert {tuple(row) for row in np.asarray(batch.obs).reshape(-1, 2).tolist()} <= known


def test_acting_and_valuing():
    learner = TINY_SAC.init_learner(SPEC, KEY)
    state = SACState(learner, buffer_of(ROWS))
    law = policy(learner.weights.actor, ROWS.obs)
    np.testing.assert_allclose(TINY_SAC.act(state, ROWS.obs, KEY, False), np.tanh(law.mean), rtol=1e-5)
    many = choose(learner.weights.actor, jnp.tile(ROWS.obs[:1], (4000, 1)), KEY, explore=True)
    u = np.arctanh(np.asarray(many)[:, 0])
    assert u.mean() == pytest.approx(float(law.mean[0, 0]), abs=0.1)
    assert u.std() == pytest.approx(float(jnp.exp(law.log_std[0, 0])), rel=0.1)
    both = values(learner.weights.critics, ROWS.obs, law.mode())
    np.testing.assert_allclose(estimate(learner.weights, ROWS.obs), np.minimum(*map(np.asarray, both)), rtol=1e-5)


def test_a_new_learner():
    learner = SAC().init_learner(SPEC, KEY)
    first, second = learner.weights.critics
    assert [layer.weight.shape for layer in first.layers] == [(3, 256), (256, 256), (256, 1)]
    assert [layer.weight.shape for layer in learner.weights.actor.layers] == [(2, 256), (256, 256), (256, 2)]
    assert not np.array_equal(first.layers[0].weight, second.layers[0].weight)
    for online, slow in zip(learner.weights.critics, learner.target_critics, strict=True):
        np.testing.assert_array_equal(online.layers[1].weight, slow.layers[1].weight)
    assert float(learner.weights.log_temperature) == 0.0

"""Proximal Policy Optimization by hand, and against plain second versions of its statistics and its update."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from lives import begin

from examples import SPEC, QuietHost, as_arrays, assert_same, copied, random_rows, row_of
from mbpo.algorithms.ppo import PPO, Batch, Moments, Weights
from mbpo.nets import MLP, Linear
from mbpo.normalizer import RunningMoments
from mbpo.types import EnvSpec, Transition

KEY = jax.random.key(5)
WIDE = EnvSpec("Wide-v0", obs_size=3, action_size=2)
HALVES = PPO(
    steps_per_update=4, passes=1, batch_size=4, anneal_steps=20, learning_rate=0.01, discount=0.5, trace_decay=0.5,
    hidden_sizes=(),
)  # fmt: skip


def chained(rows, fresh):
    """The rows, of which each starts where the one before arrived, but for those marked `fresh`."""
    follows = ~np.append(np.asarray(fresh)[1:], True)
    return replace(rows, next_obs=jnp.where(follows[:, None], jnp.roll(rows.obs, -1, axis=0), rows.next_obs))


def observed(ppo, spec, rows):
    state = begin(ppo, spec)
    for i in range(len(rows.reward)):
        state = ppo.observe(state, row_of(rows, i), QuietHost())
    return state


def linear(weight, bias):
    """x ↦ w · x + b, in the place of a network."""
    return MLP((Linear(jnp.float32(weight)[:, None], jnp.float32([bias])),))


# --- by hand --------------------------------------------------------------------------------------------------------


def test_the_learning_rate_falls_to_nothing_at_a_step_of_its_own():
    """The same gradient step, made at different times. It is as long as the rate is large: 1 − begun / 20, where the
    rollout of 4 steps was begun 4 steps before. The first, Adam's, is the rate itself: 0.01 up or down."""
    state = observed(HALVES, SPEC, chained(random_rows(4), [True, False, False, False]))

    def moved(step):
        return float(HALVES.update(copied(state), step, KEY, QuietHost())[0].weights.log_std[0])

    assert abs(moved(4)) == pytest.approx(0.01, rel=1e-2)
    shares = [moved(step) / moved(4) for step in (4, 8, 12, 20, 24, 40)]
    assert shares == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.0, 0.0], rel=1e-5)
    assert_same(HALVES.init(SPEC, 10, KEY), HALVES.init(SPEC, 10**6, KEY))  # All that is told of the run's length.


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("terminated", "truncated", "fresh", "third"),
    [(True, False, True, -0.9258), (False, True, True, -0.9258), (False, False, True, -0.9258),
     (False, False, False, -1.3587)],
    ids=["terminated", "truncated", "ended unmarked", "went on"],
)  # fmt: skip
def test_rewards_are_divided_by_the_deviation_of_the_return(terminated, truncated, fresh, third, sign):
    # γ = ½, rewards 2, 2, −2. One return alone has no deviation: the reward is cut at 10.
    # Returns 2 and 2 + ½ · 2 = 3: variance ¼, 2 / ½ = 4; the mean is not subtracted.
    # A new episode: −2. Mean 1, variance (4 + 9 + 4) / 3 − 1 = 14/3, −2 / 2.1602 = −0.9258.
    # The same one: −2 + ½ · 3 = −½. Mean 3/2, variance (4 + 9 + ¼) / 3 − 9/4 = 13/6, −2 / 1.4720 = −1.3587.
    rows = replace(
        chained(random_rows(3), [True, False, fresh]),
        reward=sign * jnp.float32([2, 2, -2]),
        terminated=jnp.array([False, terminated, False]),
        truncated=jnp.array([False, truncated, False]),
    )
    rollout = observed(HALVES, SPEC, rows).rollout
    np.testing.assert_allclose(rollout.rows.reward[:3], sign * np.array([10, 4, third]), rtol=1e-3)
    np.testing.assert_array_equal(rollout.starts[:3], [True, False, fresh])
    assert int(rollout.length) == 3


@pytest.mark.parametrize(
    ("terminated", "truncated", "fresh", "loss"),
    [(True, False, True, 1.5), (False, True, True, 0.5), (False, False, True, 0.5), (False, False, False, 0.5703125)],
    ids=["terminated", "truncated", "ended unmarked", "went on"],
)
def test_a_value_lies_behind_every_row_but_a_terminal_one(terminated, truncated, fresh, loss):
    # V = 4 everywhere, rewards 1, γ = λ = ½. With a value behind it a row has δ = 1 + ½ · 4 − 4 = −1, without −3.
    # Nothing follows on the last three of four rows: A = −1. So has the first where it is cut off; it has −3 where it
    # terminated, and −1 + ¼ · (−1) = −1.25 where the second follows on it.
    # The value loss is ½ mean A²: ½ (9 + 3) / 4, ½ (1 + 3) / 4, ½ (1.5625 + 3) / 4.
    state, first = begin(HALVES, SPEC), jnp.arange(4) == 0
    rows = replace(random_rows(4), reward=jnp.ones(4), terminated=first & terminated, truncated=first & truncated)
    starts = jnp.array([True, fresh, True, True])
    state = replace(
        state,
        weights=replace(state.weights, critic=linear([0, 0], 4)),
        rollout=replace(state.rollout, rows=rows, starts=starts),
    )
    _, metrics = HALVES.update(state, 4, KEY, QuietHost())
    assert float(metrics["value_loss"]) == pytest.approx(loss)


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (5, 1), (0, 20)])
def test_the_loss_of_a_minibatch(shift, scale):
    # Advantages 1, 3 are −1, 1 at mean 0 and deviation 1, and so they are however shifted and scaled. Ratios 1.5, 0.9
    # at c = 0.2: −mean(min(−1.5, −1.2), 0.9) = 0.3. Of two ratios one is beyond 0.2.
    # ρ − 1 − log ρ: mean(0.5 − 0.405465, −0.1 + 0.105361) = 0.049948. σ = 1: H = ½ log 2πe = 1.418939.
    ppo = PPO(entropy_weight=0.1)
    advantage = shift + scale * jnp.float32([1, 3])
    weights = Weights(linear([0, 0], 0), jnp.zeros(1), linear([0, 0], 4))
    log_prob = -0.5 * jnp.log(2 * jnp.pi) - jnp.log(jnp.float32([1.5, 0.9]))
    batch = Batch(jnp.zeros((2, 2)), jnp.zeros((2, 1)), log_prob, jnp.full(2, 4.0), advantage)
    loss, metrics = ppo.loss(weights, batch)
    # The value has not moved, and misses its target by the advantage.
    value_loss = 0.5 * np.mean(np.square(advantage))
    expected = {"approximate_kl": 0.049948, "clip_fraction": 0.5, "entropy": 1.418939, "policy_loss": 0.3}
    assert {n: float(v) for n, v in metrics.items()} == pytest.approx(expected | {"value_loss": value_loss}, rel=1e-4)
    assert float(loss) == pytest.approx(0.3 + 0.5 * value_loss - 0.1 * 1.418939, rel=1e-5)


def test_acting_and_valuing():
    # (5 − 1) / 2 = 2 and (5 + 1) / 3 = 2; (1000 − 1) / 2 is cut at 10, and −1 is the mean, so 0.
    # The actor adds them up: 4 and 10. The critic reads the first, in units of returns of deviation 2: 4 and 20.
    obs = jnp.float32([[5, 5], [1000, -1]])
    moments = RunningMoments(jnp.float32(9), jnp.float32([1, -1]), jnp.float32([4, 9]))
    returns = RunningMoments(jnp.float32(9), jnp.float32(7), jnp.float32(4))
    state = replace(
        begin(HALVES, SPEC),
        weights=Weights(linear([1, 1], 0), jnp.float32([-0.5]), linear([1, 0], 0)),
        moments=Moments(moments, returns, jnp.zeros(())),
    )
    np.testing.assert_allclose(HALVES.act(state, obs, KEY, False), [[4], [10]], rtol=1e-5)
    np.testing.assert_allclose(HALVES.value(state, obs), [4, 20], rtol=1e-5)
    many = np.asarray(HALVES.act(state, jnp.tile(obs[:1], (4000, 1)), KEY, True))
    assert many.mean() == pytest.approx(4.0, abs=0.05)
    assert many.std() == pytest.approx(np.exp(-0.5), rel=0.05)


def test_a_new_learner():
    """Orthogonal layers of gain √2; the heads are one column, of length 0.01 and 1."""
    weights = PPO().init(SPEC, 10, KEY).weights
    for net, head in ((weights.actor, 0.01), (weights.critic, 1.0)):
        first, second, last = (np.asarray(layer.weight) for layer in net.layers)
        np.testing.assert_allclose(first @ first.T, 2 * np.eye(2), atol=1e-5)
        np.testing.assert_allclose(second @ second.T, 2 * np.eye(64), atol=1e-5)
        assert last.shape == (64, 1)
        assert np.linalg.norm(last) == pytest.approx(head, rel=1e-5)
    assert not np.array_equal(weights.actor.layers[0].weight, weights.critic.layers[0].weight)
    np.testing.assert_array_equal(weights.log_std, [0.0])


# --- the plain second versions --------------------------------------------------------------------------------------

COARSE = PPO(
    steps_per_update=24, passes=3, batch_size=8, discount=0.9, trace_decay=0.8, clip=0.1, value_weight=0.7,
    entropy_weight=0.05, max_gradient_norm=0.8, hidden_sizes=(5, 4),
)  # fmt: skip


def eventful() -> Transition:
    """Five episodes in 24 rows: two terminate, one is truncated, one ends without a mark, and one is still running."""
    last = np.isin(np.arange(24), [5, 9, 13, 17])
    rows = chained(random_rows(24, 3, 2), np.append(True, last[:-1]))
    terminated, truncated = (np.isin(np.arange(24), ends) for ends in ([5, 13], [9]))
    return replace(rows, terminated=jnp.array(terminated), truncated=jnp.array(truncated))


def scales(numbers):
    """Mean and deviation of all the numbers so far, and of a ten-thousandth of a row with mean 0 and variance 1."""
    count = len(numbers) + 1e-4
    mean = np.sum(numbers, axis=0) / count
    return mean, np.sqrt((np.sum(np.square(numbers), axis=0) + 1e-4) / count - np.square(mean))


def plain_record(ppo, rows):
    """The rows as they are kept, from lists of everything that was seen before."""
    rows, seen, returns, running, kept = jax.tree.map(np.float64, rows), [], [], 0.0, []
    for t, (obs, reward, next_obs) in enumerate(zip(rows.obs, rows.reward, rows.next_obs, strict=True)):
        mean, deviation = scales(seen) if seen else (0.0, 1.0)
        start = t in (0, 6, 10, 14, 18)
        seen += [obs, next_obs] if start else [next_obs]
        running = reward if start else reward + ppo.discount * running
        returns.append(running)
        after, spread = scales(seen)
        scaled = np.clip(reward / scales(returns)[1], -10, 10)
        kept.append((np.clip((obs - mean) / deviation, -10, 10), scaled, (next_obs - after) / spread, start))
    return [np.stack(column) for column in zip(*kept, strict=True)], scales(seen), scales(returns)


def test_rows_are_scaled_by_all_that_was_seen_before():
    rows = eventful()
    rows = replace(rows, obs=rows.obs.at[18].multiply(100.0))  # The start of an episode: far out, and cut off.
    (obs, reward, next_obs, starts), of_obs, of_returns = plain_record(COARSE, rows)
    state = observed(COARSE, WIDE, rows)
    found = state.rollout.rows
    assert np.abs(obs).max() == np.abs(reward).max() == 10
    for kept, plain in ((found.obs, obs), (found.reward, reward), (found.next_obs, next_obs)):
        np.testing.assert_allclose(kept, plain, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(state.rollout.starts, starts)
    assert_same((found.action, found.terminated, found.truncated), (rows.action, rows.terminated, rows.truncated))
    for moments, (mean, deviation) in ((state.moments.obs, of_obs), (state.moments.returns, of_returns)):
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-4)
        np.testing.assert_allclose(jnp.sqrt(moments.variance), deviation, rtol=1e-4)


def plain_advantages(ppo, weights, rollout):
    """A loop from the last row to the first, in float64; and the values that it started from."""
    rows, starts = jax.tree.map(np.asarray, (rollout.rows, rollout.starts))
    both = [weights.critic(obs, jnp.tanh)[:, 0] for obs in (rollout.rows.obs, rollout.rows.next_obs)]
    value, next_value = np.asarray(both, np.float64)
    found, later = np.zeros(len(starts)), 0.0
    for t in reversed(range(len(starts))):
        over = rows.terminated[t] or rows.truncated[t] or t + 1 == len(starts) or starts[t + 1]
        error = rows.reward[t] - value[t] + (0 if rows.terminated[t] else ppo.discount * next_value[t])
        later = error + (0 if over else ppo.discount * ppo.trace_decay * later)
        found[t] = later
    return found, value


def log_density(weights, obs, action):
    mean, deviation = weights.actor(obs, jnp.tanh), jnp.exp(weights.log_std)[None, :]
    return jnp.sum(jax.scipy.stats.norm.logpdf(action, mean, deviation), axis=1)


def plain_loss(ppo, weights, obs, action, old_log_prob, old_value, advantage):
    """Row by row what the paper's and the release's formulas say."""
    ratio = jnp.exp(log_density(weights, obs, action) - old_log_prob)
    normal = (advantage - advantage.mean()) / advantage.std()
    near = jnp.where(normal > 0, jnp.minimum(ratio, 1 + ppo.clip), jnp.maximum(ratio, 1 - ppo.clip))
    value, target = weights.critic(obs, jnp.tanh)[:, 0], old_value + advantage
    held = jnp.minimum(jnp.maximum(value, old_value - ppo.clip), old_value + ppo.clip)
    entropy = jnp.sum(weights.log_std) + weights.log_std.size * 0.5 * (1 + jnp.log(2 * jnp.pi))
    return (
        -jnp.mean(near * normal)
        + ppo.value_weight * jnp.mean(jnp.maximum((value - target) ** 2, (held - target) ** 2)) / 2
        - ppo.entropy_weight * entropy
    )


plain_slope = jax.jit(jax.grad(plain_loss, argnums=1), static_argnums=0)


def plain_update(ppo, state, rate, key, adam):
    """The weights after an update, as one row of numbers; Adam's two moments and its count; the gradients' norms."""
    (numbers, rebuild), rows = ravel_pytree(state.weights), state.rollout.rows
    advantage, value = plain_advantages(ppo, state.weights, state.rollout)
    known = as_arrays((np.float32(value), np.float32(advantage)))
    columns = (rows.obs, rows.action, log_density(state.weights, rows.obs, rows.action), *known)
    numbers, (first, second, count), norms = np.float64(numbers), adam, []
    for pass_key in jax.random.split(key, ppo.passes):
        for index in jax.random.permutation(pass_key, ppo.steps_per_update).reshape(-1, ppo.batch_size):
            slope = plain_slope(ppo, rebuild(jnp.float32(numbers)), *(column[index] for column in columns))
            gradient = np.float64(ravel_pytree(slope)[0])
            norms.append(np.linalg.norm(gradient))
            gradient *= min(1.0, ppo.max_gradient_norm / norms[-1])
            first, second, count = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2, count + 1
            numbers -= rate * (first / (1 - 0.9**count)) / (np.sqrt(second / (1 - 0.999**count)) + 1e-5)
    return numbers, (first, second, count), norms


def test_two_updates_are_those_of_a_plain_second_version():
    """The second is made on the same rows, with Adam's moments from the first, at another rate."""
    state, adam = observed(COARSE, WIDE, eventful()), (0.0, 0.0, 0)
    for rate, key in ((0.03, KEY), (0.01, jax.random.key(6))):
        advantage, value = plain_advantages(COARSE, state.weights, state.rollout)
        expected, adam, norms = plain_update(COARSE, state, rate, key, adam)
        state, metrics = COARSE._improve(state, jnp.float32(rate), key)
        np.testing.assert_allclose(ravel_pytree(state.weights)[0], expected, rtol=1e-3, atol=2e-5)
        explained = 1 - advantage.var() / (advantage + value).var()
        assert float(metrics["explained_variance"]) == pytest.approx(explained, abs=1e-5)
        assert min(norms) < COARSE.max_gradient_norm < max(norms), "some are cut, some are not"
        assert 0 < float(metrics["clip_fraction"]) < 1
    assert int(state.rollout.length) == 0
    assert COARSE.counts(state) == (18, 0)

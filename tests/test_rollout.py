"""The imagined rollout: its law, a slow twin, non-finite predictions, and gradients through it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import assert_same
from gradients import assert_gradient
from mbpo.rollout import Trajectory, unroll

ROWS = 12
OBS = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, 2)), jnp.float32)
KEY = jax.random.key(7)

roll = jax.jit(unroll, static_argnums=(0, 1, 3))


def act(obs, key):
    """A noisy policy."""
    return jnp.tanh(obs[:, :1] + jax.random.normal(key, (obs.shape[0], 1)))


def step(obs, action, key):
    """A noisy world that ends where the second coordinate is above 0.9."""
    noise = 0.3 * jax.random.normal(key, obs.shape)
    next_obs = 0.9 * obs + jnp.concatenate([action, -action], axis=-1) + noise
    return next_obs, jnp.sum(next_obs, axis=-1), next_obs[:, 1] > 0.9


def breaks(obs, action, key):
    """The same world, where a first coordinate above 0.8 leads to NaN, and the reward of one below −0.8 is infinite."""
    next_obs, reward, terminated = step(obs, action, key)
    next_obs = jnp.where(obs[:, :1] > 0.8, jnp.nan, next_obs)
    return next_obs, jnp.where(obs[:, 0] < -0.8, jnp.inf, reward), terminated


def naive(step, act, obs, horizon, key):
    """The rollout row by row in plain Python: what was stored, as (h, row) -> numbers, and who is left."""
    alive, rows, lost = [True] * len(obs), {}, set()
    obs = np.asarray(obs)
    for h in range(horizon):
        act_key, step_key = jax.random.split(jax.random.fold_in(key, h))
        action = act(jnp.asarray(obs), act_key)
        next_obs, reward, terminated = (np.array(leaf) for leaf in step(jnp.asarray(obs), action, step_key))
        for b in range(len(obs)):
            finite = np.isfinite(next_obs[b]).all() and np.isfinite(reward[b])
            if alive[b] and finite:
                rows[h, b] = (obs[b], np.asarray(action)[b], reward[b], next_obs[b], terminated[b])
            elif alive[b]:
                lost.add((h, b))
            alive[b] = alive[b] and bool(finite) and not terminated[b]
            if not finite:
                next_obs[b] = obs[b]
        obs = next_obs
    return rows, lost, alive


def marked(mask):
    return {(int(h), int(b)) for h, b in zip(*np.nonzero(np.asarray(mask)), strict=True)}


def test_a_rollout_is_that_of_a_plain_loop():
    trajectory = roll(breaks, act, OBS, 6, KEY)
    rows, lost, alive = naive(breaks, act, OBS, 6, KEY)
    assert marked(trajectory.valid) == rows.keys()
    assert marked(trajectory.nonfinite) == lost
    assert trajectory.alive.tolist() == alive
    t = trajectory.transitions
    for at, expected in rows.items():
        for leaf, number in zip((t.obs, t.action, t.reward, t.next_obs, t.terminated), expected, strict=True):
            np.testing.assert_allclose(leaf[at], number, rtol=1e-5, atol=1e-6)
    assert not np.asarray(t.truncated).any()
    # The case is worth something: rows end at different times, by termination too, and some go on.
    assert len(lost) > 1
    assert any(row[-1] for row in rows.values())
    assert 0 < sum(alive) < ROWS


@pytest.mark.parametrize("pieces", [(1,) * 6, (2, 4)])
def test_k_steps_are_so_many_single_steps(pieces):
    whole = roll(breaks, act, OBS, 6, KEY)
    obs, alive, begin, parts = OBS, jnp.ones(ROWS, bool), 0, []
    for horizon in pieces:
        part = roll(breaks, act, obs, horizon, KEY, alive, jnp.int32(begin))
        obs, alive, begin = part.last_obs, part.alive, begin + horizon
        parts.append((part.transitions, part.valid, part.nonfinite))
    joined = Trajectory(*jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts), alive)
    assert_same(joined, whole)


def test_a_row_that_was_over_stays_over():
    trajectory = roll(breaks, act, OBS, 6, KEY, jnp.arange(ROWS) % 2 == 0)
    assert not np.asarray(trajectory.valid)[:, 1::2].any()
    assert not np.asarray(trajectory.alive)[1::2].any()
    assert np.asarray(trajectory.valid)[0, ::2].any()


def test_a_prediction_that_is_not_finite_ends_its_row_and_no_other():
    def astray(obs, action, key):
        next_obs, reward, _ = step(obs, action, key)
        lost = jnp.arange(ROWS) == 2
        return jnp.where(lost[:, None], jnp.inf, next_obs), reward, jnp.zeros(ROWS, bool)

    def well(obs, action, key):
        next_obs, reward, _ = step(obs, action, key)
        return next_obs, reward, jnp.zeros(ROWS, bool)

    trajectory, healthy = (unroll(world, act, OBS, 3, KEY) for world in (astray, well))
    assert marked(trajectory.nonfinite) == {(0, 2)}, "counted once, at the step that went astray"
    assert not np.asarray(trajectory.valid)[:, 2].any()
    assert trajectory.alive.tolist() == [b != 2 for b in range(ROWS)]
    others = np.array([b for b in range(ROWS) if b != 2])
    assert_same(
        jax.tree.map(lambda leaf: leaf[:, others], trajectory.transitions),
        jax.tree.map(lambda leaf: leaf[:, others], healthy.transitions),
    )
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(trajectory.transitions))


def imagined_return(step, gain, obs):
    """The sum of the valid rewards of a rollout under the policy tanh(gain · o)."""
    trajectory = unroll(step, lambda obs, _key: jnp.tanh(gain * obs[:, :1]), obs, 4, KEY)
    return jnp.sum(jnp.where(trajectory.valid, trajectory.transitions.reward, 0.0))


def smooth(obs, action, key):
    noise = 0.1 * jax.random.normal(key, obs.shape, obs.dtype)
    next_obs = 0.9 * obs + jnp.sin(jnp.concatenate([action, -action], axis=-1)) + noise
    return next_obs, -jnp.sum(jnp.square(next_obs), axis=-1), next_obs[:, 0] > 100.0


def overflows(obs, action, key):
    """Smooth for all rows but those above 3, whose derivative is infinite too."""
    next_obs, reward, terminated = smooth(obs, action, key)
    huge = jnp.exp(1e6 * (obs[:, :1] + 0.0 * action - 3.0))
    return jnp.where(obs[:, :1] > 3.0, huge * next_obs, next_obs), reward, terminated


def test_gradients_flow_through_the_rollout():
    assert_gradient(partial(imagined_return, smooth), np.float64(0.7), np.asarray(OBS[:4]))


def test_rows_that_went_astray_do_not_spoil_the_gradient_of_the_others():
    obs = jnp.float32([[0.5, 0.1], [4.0, 0.0], [-0.3, 0.2]])
    gradient = jax.jit(jax.grad(imagined_return, argnums=(1, 2)), static_argnums=0)
    of_gain, of_obs = gradient(overflows, jnp.float32(0.7), obs)
    expected_gain, expected_obs = gradient(smooth, jnp.float32(0.7), obs)
    np.testing.assert_array_equal(of_obs[1], [0.0, 0.0])
    np.testing.assert_allclose(of_obs[jnp.array([0, 2])], expected_obs[jnp.array([0, 2])], rtol=1e-5)
    # The noise of a row depends on its place: leave row 1 where it is, and take its part away.
    alone = jax.jit(jax.grad(valid_part))(jnp.float32(0.7), obs)
    np.testing.assert_allclose(of_gain, alone, rtol=1e-5)
    assert float(expected_gain) != pytest.approx(float(alone))


def valid_part(gain, obs):
    """`imagined_return` without row 1."""
    trajectory = unroll(smooth, lambda obs, _key: jnp.tanh(gain * obs[:, :1]), obs, 4, KEY)
    return jnp.sum(trajectory.transitions.reward[:, jnp.array([0, 2])])

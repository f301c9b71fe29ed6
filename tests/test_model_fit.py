"""Fitting the ensemble: who trains on what, when it stops, what is kept, and that it learns."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import SPEC, assert_same, buffer_of, copied, random_rows, snapshot
from mbpo import model_fit
from mbpo.model import Model
from mbpo.model_fit import (
    CHUNK,
    EarlyStop,
    FitLearner,
    fit,
    fit_loss,
    input_scale,
    judge,
    padded_mask,
    split,
    train_epoch,
)
from mbpo.optimizer import descend
from mbpo.types import EnvSpec, Interrupted, Transition

MODEL = Model(members=3, elites=2, hidden_sizes=(4,), weight_decay=(1e-4, 1e-4), batch_size=4, max_updates_per_fit=40)
ENSEMBLE = MODEL.init(SPEC, jax.random.key(0))
ROWS = random_rows(50)
BUFFER = buffer_of(ROWS, capacity=64)
KEY = jax.random.key(1)


# --- early stop -------------------------------------------------------------------------------------------------------


def epochs_until_the_end(errors):
    """How many epochs a fit has, if the epochs give these errors and then the last ones for ever."""
    stop, epoch = EarlyStop(Model()), 0
    while not stop.finished:
        stop.judge(np.asarray(errors[min(epoch, len(errors) - 1)], np.float64))
        epoch += 1
    assert stop.epochs == epoch
    return epoch


def test_a_fit_without_improvement_has_seven_epochs():
    assert epochs_until_the_end([[1.0, 1.0]]) == 7
    assert epochs_until_the_end([[1.0, 1.0], [2.0, 3.0]]) == 7


def test_one_member_that_improves_keeps_all_of_them_going():
    # The sixth idle epoch in a row would be the seventh; member 1 improves in it, and six more follow.
    assert epochs_until_the_end([[1.0, 1.0]] * 6 + [[1.0, 0.5]]) == 13


def test_an_improvement_is_more_than_a_percent_below_the_members_own_snapshot():
    stop = EarlyStop(Model())
    assert stop.judge(np.array([100.0, 1.0])).tolist() == [True, True]
    # 99 is one percent below 100, and not more; 0.98 is two percent below 1.
    assert stop.judge(np.array([99.0, 0.98])).tolist() == [False, True]
    # Small steps count from the snapshot, not from the last epoch: 98.5 is 1.5 percent below 100.
    assert stop.judge(np.array([98.5, 0.975])).tolist() == [True, False]
    assert stop.best is not None
    assert stop.best.tolist() == [98.5, 0.98]


def test_an_error_that_is_not_finite_is_no_improvement():
    stop = EarlyStop(Model())
    assert stop.judge(np.array([np.nan, np.inf])).tolist() == [False, False]
    assert stop.judge(np.array([5.0, np.nan])).tolist() == [True, False]
    assert epochs_until_the_end([[np.nan, np.nan]]) == 6


# --- which rows -------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40_000), st.integers(0, 3))
def test_a_fifth_is_held_out_and_at_most_5000(rows, seed):
    train, holdout = split(np.random.default_rng(seed), rows, Model())
    assert len(holdout) == max(1, min(rows // 5, 5000))
    np.testing.assert_array_equal(np.sort(np.concatenate([train, holdout])), np.arange(rows))


def test_the_holdout_is_drawn_afresh():
    rng = np.random.default_rng(0)
    first, second = (set(split(rng, 1000, Model())[1].tolist()) for _ in range(2))
    # Two random fifths share a fifth of their rows: 40 of 200.
    assert 10 < len(first & second) < 80


@pytest.fixture
def spied(monkeypatch):
    """What a fit hands to its epochs: their row orders, and the input scale."""
    calls = []

    def spy(model, learner, scale, buffer, order, max_updates):
        calls.append((np.array(order), snapshot(scale)))
        return train_epoch(model, learner, scale, buffer, order, max_updates)

    monkeypatch.setattr(model_fit, "train_epoch", spy)
    return calls


@pytest.fixture
def held_out(monkeypatch):
    """The holdout rows of every fit."""
    seen = []

    def spy(rng, rows, model):
        train, holdout = split(rng, rows, model)
        seen.append((train, holdout))
        return train, holdout

    monkeypatch.setattr(model_fit, "split", spy)
    return seen


def test_each_member_draws_its_own_rows_with_replacement_once_a_fit(spied, held_out):
    fit(MODEL, ENSEMBLE, BUFFER, KEY)
    ((train, holdout),) = held_out
    assert len(spied) > 1
    first, second = spied[0][0], spied[1][0]
    assert first.shape == (3, 40)
    for e in range(3):
        drawn = set(first[e].tolist())
        assert drawn <= set(train.tolist())
        assert not drawn & set(holdout.tolist())
        # 40 draws of 40 rows with replacement find 1 − e⁻¹ of them, about 25.
        assert 15 < len(drawn) < 35
        assert sorted(first[e]) == sorted(second[e]), "the draw stays for the whole fit"
        assert first[e].tolist() != second[e].tolist(), "its order does not"
    assert sorted(first[0]) != sorted(first[1])


def test_the_scale_is_that_of_the_training_rows(spied, held_out):
    ensemble, _ = fit(MODEL, ENSEMBLE, BUFFER, KEY)
    ((train, _),) = held_out
    newest_first = np.concatenate([ROWS.obs, ROWS.action], axis=-1)[::-1]
    for scale in (spied[0][1], ensemble.scale):
        np.testing.assert_allclose(scale.mean, newest_first[train].mean(0), atol=1e-6)
        np.testing.assert_allclose(scale.std, newest_first[train].std(0), rtol=1e-5)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e3 / 7, -2.1])
@pytest.mark.parametrize("count", [37, 50])
def test_a_column_that_never_changes_is_not_scaled_up(constant, count):
    """In float32 the mean of equal numbers is not that number: their deviation would be 1e-8 of it, and not 0."""
    obs = jnp.stack([ROWS.obs[:, 0], jnp.full(50, constant)], axis=-1)
    buffer = buffer_of(replace(ROWS, obs=obs), capacity=64)
    scale = input_scale(buffer, padded_mask(np.arange(count), 64))
    assert float(scale.std[1]) == 1.0
    assert float(scale.mean[1]) == np.float32(constant)


# --- gradient steps ---------------------------------------------------------------------------------------------------


def naive_epoch(learner, scale, order, batch_size, rows):
    """An epoch as a plain loop over slices, the last of which is shorter."""
    gradient = jax.jit(jax.grad(fit_loss, argnums=1), static_argnums=0)
    adam = optax.adam(MODEL.learning_rate)
    newest_first = jax.tree.map(lambda leaf: leaf[::-1], rows)
    for begin in range(0, order.shape[1], batch_size):
        part = order[:, begin : begin + batch_size]
        minibatch = jax.tree.map(lambda leaf, part=part: leaf[part], newest_first)
        change = gradient(MODEL, learner.networks, scale, minibatch, jnp.ones(part.shape[1]))
        learner = FitLearner(*descend(adam, change, learner.optimizer, learner.networks))
    return learner


def test_an_epoch_is_a_plain_loop_with_a_shorter_last_minibatch():
    rng = np.random.default_rng(0)
    # 33 whole minibatches of four and one of two: more than one chunk of compiled steps.
    count = 4 * (CHUNK + 1) + 2
    order = rng.integers(50, size=(3, count)).astype(np.int32)
    scale = input_scale(BUFFER, padded_mask(np.arange(50), 64))
    start = FitLearner(ENSEMBLE.networks, ENSEMBLE.optimizer)
    found, steps = train_epoch(MODEL, copied(start), scale, BUFFER, order, 10**6)
    assert steps == CHUNK + 2
    expected = naive_epoch(start, scale, order, 4, ROWS)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_a_budget_cuts_an_epoch_short():
    order = np.zeros((3, 200), np.int32)
    learner = copied(FitLearner(ENSEMBLE.networks, ENSEMBLE.optimizer))
    learner, steps = train_epoch(MODEL, learner, ENSEMBLE.scale, BUFFER, order, 37)
    assert steps == 37
    assert int(jax.tree.leaves(learner.optimizer)[0]) == 37


def test_a_fit_keeps_to_its_budget():
    ensemble, report = fit(replace(MODEL, max_updates_per_fit=25), ENSEMBLE, BUFFER, KEY)
    # 40 training rows are ten updates an epoch: the third one is cut in half.
    assert (report.epochs, report.updates, int(ensemble.updates)) == (3, 25, 25)


def test_the_first_fit_may_have_a_budget_of_its_own():
    model = replace(MODEL, max_updates_per_fit=10, max_updates_first_fit=25)
    ensemble, first = fit(model, ENSEMBLE, BUFFER, KEY)
    _, second = fit(model, ensemble, BUFFER, KEY)
    assert (first.updates, second.updates) == (25, 10)
    assert Model().budget(0) == Model().budget(7) == np.inf
    assert replace(MODEL, max_updates_per_fit=10).budget(0) == 10


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_each_member_gets_its_own_best_weights_back_and_nothing_else(monkeypatch):
    """Three epochs whose errors are written here: member 0 is best after the first, 1 after the third, 2 the second."""
    errors = iter([[1.0, 9.0, 5.0], [2.0, 8.0, 3.0], [3.0, 7.0, 4.0], [0.3, 0.2, 0.1]])
    after = []

    def scripted(networks, scale, buffer, ages):
        after.append(snapshot(networks))
        error = np.array(next(errors), np.float32)
        return error, -error

    monkeypatch.setattr(model_fit, "judge", scripted)
    model = replace(MODEL, max_updates_per_fit=30)
    ensemble, report = fit(model, ENSEMBLE, BUFFER, KEY)
    assert report.epochs == 3
    for member, epoch in ((0, 0), (1, 2), (2, 1)):
        assert_same(snapshot(ensemble.networks.members[member]), after[epoch].members[member])
    np.testing.assert_array_equal(ensemble.networks.max_log_var, after[2].max_log_var)
    np.testing.assert_array_equal(ensemble.networks.min_log_var, after[2].min_log_var)
    assert not np.array_equal(after[2].max_log_var, after[0].max_log_var)
    # The elites are judged after the restore: the last line of errors, lowest first.
    assert report.elites == (2, 1)
    assert ensemble.elites.tolist() == [2, 1]
    assert report.holdout_mse == pytest.approx((0.3, 0.2, 0.1))
    assert report.holdout_nll == pytest.approx((-0.3, -0.2, -0.1))


def test_weights_and_moments_carry_over_to_the_next_fit():
    first, one = fit(MODEL, ENSEMBLE, BUFFER, KEY)
    second, two = fit(MODEL, first, BUFFER, jax.random.key(9))
    assert int(jax.tree.leaves(second.optimizer)[0]) == one.updates + two.updates == int(second.updates)
    assert (int(first.fits), int(second.fits)) == (1, 2)


def test_a_fit_leaves_its_input_alone_and_repeats_itself():
    before = snapshot((ENSEMBLE, BUFFER))
    fits = [fit(MODEL, ENSEMBLE, BUFFER, KEY) for _ in range(2)]
    assert_same(snapshot((ENSEMBLE, BUFFER)), before)
    assert_same(fits[0][0], fits[1][0])
    assert fits[0][1] == fits[1][1]
    other, _ = fit(MODEL, ENSEMBLE, BUFFER, jax.random.key(2))
    assert not np.array_equal(other.networks.max_log_var, fits[0][0].networks.max_log_var)


def test_a_fit_sees_the_rows_and_not_the_ring_they_lie_in():
    reports = [fit(MODEL, ENSEMBLE, buffer_of(ROWS, capacity), KEY)[1] for capacity in (50, 64)]
    assert reports[0] == reports[1]


def test_a_signal_ends_a_fit_after_an_epoch_and_it_can_be_repeated():
    before, asked = snapshot(ENSEMBLE), []

    def interrupted() -> bool:
        asked.append(True)
        return len(asked) == 2

    with pytest.raises(Interrupted):
        fit(MODEL, ENSEMBLE, BUFFER, KEY, interrupted)
    assert len(asked) == 2
    assert_same(snapshot(ENSEMBLE), before)
    assert_same(fit(MODEL, ENSEMBLE, BUFFER, KEY)[0], fit(MODEL, ENSEMBLE, BUFFER, KEY, lambda: False)[0])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_handful_of_rows_is_enough(count):
    ensemble, report = fit(MODEL, ENSEMBLE, buffer_of(random_rows(count), 64), KEY)
    assert (report.rows, report.holdout_rows) == (count, 1)
    assert all(np.isfinite(report.holdout_mse))
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(ensemble))


def test_judging_in_blocks_is_judging_at_once(monkeypatch):
    monkeypatch.setattr(model_fit, "BLOCK", 16)
    ages = np.random.default_rng(0).permutation(50).astype(np.int32)[:37]
    mse, nll = judge(ENSEMBLE.networks, ENSEMBLE.scale, BUFFER, ages)
    rows = jax.tree.map(lambda leaf: leaf[::-1][ages], ROWS)
    errors = model_fit.member_errors(ENSEMBLE.networks, ENSEMBLE.scale, rows)
    np.testing.assert_allclose(np.stack([mse, nll]), np.asarray(errors).mean(-1), rtol=1e-5)


# --- learning ---------------------------------------------------------------------------------------------------------


def test_a_fit_learns_a_noisy_world_and_how_noisy_it_is():
    """o′ = o + sin 2o + 0.4 a + 0.1 noise and r = o · a + 0.3 noise."""
    rng = np.random.default_rng(0)
    obs, action = rng.uniform(-2, 2, (3000, 1)), rng.uniform(-1, 1, (3000, 1))
    noise = rng.normal(size=(3000, 2))
    reward = (obs * action)[:, 0] + 0.3 * noise[:, 0]
    next_obs = obs + np.sin(2 * obs) + 0.4 * action + 0.1 * noise[:, 1:]
    no = np.zeros(3000, bool)
    rows = Transition(
        *(jnp.asarray(x, jnp.float32) for x in (obs, action, reward, next_obs)), jnp.asarray(no), jnp.asarray(no)
    )
    model = Model(members=3, elites=2, hidden_sizes=(32, 32), weight_decay=(0.0, 0.0, 0.0), batch_size=64)
    ensemble = model.init(EnvSpec("Noisy", 1, 1), jax.random.key(0))
    buffer = buffer_of(rows)
    ensemble, report = fit(model, ensemble, buffer, KEY)
    # What cannot be predicted: (0.3² + 0.1²) / 2 = 0.05.
    assert 0.04 < min(report.holdout_mse) < 0.06
    grid = jnp.linspace(-1.8, 1.8, 200)[:, None]
    for elite in report.elites:
        found = model_fit.predict(ensemble.networks.members[elite], ensemble.networks, ensemble.scale, grid, 0.0 * grid)
        truth = np.stack([np.zeros(200), np.sin(2 * np.asarray(grid)[:, 0])], axis=-1)
        assert np.abs(np.asarray(found.mean) - truth).mean() < 0.07
        deviation = np.exp(0.5 * np.asarray(found.log_var)).mean(0)
        np.testing.assert_allclose(deviation, [0.3, 0.1], rtol=0.2)

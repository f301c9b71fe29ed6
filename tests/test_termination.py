"""Learned termination: known boundaries, none at all, nothing else, and rare ends."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import assert_same, buffer_of, random_rows, snapshot
from gradients import assert_gradient
from mbpo import termination
from mbpo.buffer import take
from mbpo.envs.probes import left_the_line
from mbpo.envs.tasks import TASKS
from mbpo.errors import UsageError
from mbpo.termination import (
    METRICS,
    Scale,
    TerminationModel,
    balanced_loss,
    end_probability,
    input_price,
    input_scale,
    predicts_end,
    train_round,
)
from mbpo.types import EnvSpec, Transition

MODEL = TerminationModel(members=2, hidden_sizes=(32, 32), round_updates=50)
SPEC = EnvSpec("Line", 1, 1)
NEW = MODEL.init(SPEC, jax.random.key(0))
KEY = jax.random.key(1)

predicts = jax.jit(predicts_end)


def rows_of(obs, action, next_obs, ended) -> Transition:
    obs, action, next_obs = (jnp.asarray(x, jnp.float32) for x in (obs, action, next_obs))
    return Transition(obs, action, jnp.zeros(len(obs)), next_obs, jnp.asarray(ended), jnp.zeros(len(obs), bool))


def line(count: int, seed: int) -> Transition:
    """Steps of the point on a line, from everywhere on it; the end outside of ±1."""
    rng = np.random.default_rng(seed)
    obs, action = rng.uniform(-1, 1, (count, 1)), rng.uniform(-1, 1, (count, 1))
    next_obs = (obs + 0.2 * action).astype(np.float32)
    return rows_of(obs, action, next_obs, left_the_line(None, None, next_obs))


def hopper_like(count: int, seed: int) -> Transition:
    """Eleven numbers around a hopping posture, ended by Hopper's function: low, or tilted."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(count, 11)) * ([0.15, 0.1] + [1.0] * 9) + ([1.2, 0.0] + [0.0] * 9)
    next_obs = (obs + 0.05 * rng.normal(size=obs.shape) * ([0.15, 0.1] + [1.0] * 9)).astype(np.float32)
    action = rng.uniform(-1, 1, (count, 3))
    terminal = TASKS["Hopper"].terminal
    assert terminal is not None
    return rows_of(obs, action, next_obs, terminal(obs, action, next_obs))


def mistakes(networks, rows):
    """The share of the ends that are missed, and of the other rows that are taken for ends."""
    found, ended = np.asarray(predicts(networks, rows.obs, rows.action, rows.next_obs)), np.asarray(rows.terminated)
    return 1 - found[ended].mean(), found[~ended].mean()


def test_a_known_boundary_is_found():
    networks, report = MODEL.fit(NEW, buffer_of(line(1500, seed=0)), KEY)
    missed, false = mistakes(networks, line(5000, seed=1))
    # A point that went 1.0 ± 0.02 could be either, for all that 75 ends can tell; that is a fifth of the ends.
    assert missed < 0.2
    assert false < 0.005
    assert report["termination/missed_fraction"] < 0.3
    assert report["termination/false_fraction"] < 0.01
    assert report["termination/holdout_nll"] < 0.06


def test_a_few_fits_find_the_boundary_of_a_hopper():
    networks = MODEL.init(EnvSpec("Hopper", 11, 3), jax.random.key(0))
    rows = hopper_like(20_000, seed=0)
    assert 0.02 < np.asarray(rows.terminated).mean() < 0.1
    for count in (10_000, 15_000, 20_000):
        newest = jax.tree.map(lambda leaf, count=count: leaf[:count], rows)
        networks, report = MODEL.fit(networks, buffer_of(newest, 20_000), jax.random.key(count))
    missed, false = mistakes(networks, hopper_like(20_000, seed=1))
    # Nine of eleven numbers say nothing, and most ends lie just behind the boundary. Without a price on the inputs
    # twice as many are missed.
    assert missed < 0.1
    assert false < 0.005
    assert report["termination/missed_fraction"] == pytest.approx(missed, abs=0.15)


def test_a_row_that_judged_is_not_trained_on_by_later_fits(monkeypatch):
    """The weights carry over: with a fresh split, the next fit's judges would be rows that are known by heart."""
    trained = []

    def spy(model, networks, buffer, ages):
        trained.append(set(np.asarray(take(buffer, ages).obs).ravel().tolist()))
        return train_round(model, networks, buffer, ages)

    monkeypatch.setattr(termination, "train_round", spy)
    model, rows = replace(MODEL, max_rounds=1), line(2000, seed=0)
    networks = NEW
    for count in (1500, 2000):
        newest = jax.tree.map(lambda leaf, count=count: leaf[:count], rows)
        networks, _ = model.fit(networks, buffer_of(newest, 2000), KEY)
    ends = set(np.asarray(rows.obs)[:1500][np.asarray(rows.terminated)[:1500]].ravel().tolist())
    first, second = (ends & round_ for round_ in trained)
    judges = ends - first
    assert len(judges) == pytest.approx(0.2 * len(ends), abs=1)
    # A third more rows move the line between judges and others a little.
    assert len(second & judges) <= 0.2 * len(judges)


def falls(count: int, seed: int) -> Transition:
    """Steps well inside the line, of which one in five hundred ends in a fall far outside of it."""
    rng = np.random.default_rng(seed)
    rows, fell = line(count, seed), np.arange(count) % 500 == 0
    outside = rng.choice([-1, 1], count) * rng.uniform(1.2, 1.6, count)
    next_obs = np.where(fell, outside, 0.9 * np.asarray(rows.next_obs)[:, 0])[:, None]
    return rows_of(0.9 * rows.obs, rows.action, next_obs, fell)


def test_rare_ends_are_found_and_few_others_taken_for_one():
    """Half of every batch are ends: their odds have to be put right, or every doubt would be an end."""
    networks, report = NEW, {}
    for count in (6000, 7000, 8000):
        networks, report = MODEL.fit(networks, buffer_of(falls(count, seed=0), 8000), KEY)
    assert report["termination/ends"] == 16
    missed, false = mistakes(networks, falls(50_000, seed=1))
    assert missed < 0.2
    assert false < 0.001


def test_who_never_saw_an_end_predicts_none():
    rows = replace(line(200, seed=0), terminated=jnp.zeros(200, bool))
    for one in (rows, replace(rows, terminated=rows.terminated.at[7].set(True))):
        networks, report = MODEL.fit(NEW, buffer_of(one), KEY)
        assert not np.asarray(predicts(networks, rows.obs, rows.action, 100 * rows.next_obs)).any()
        assert report["termination/updates"] == 0
        assert report["termination/ends"] == int(np.asarray(one.terminated).sum())


def test_where_every_step_ends_an_end_is_always_predicted():
    rows = replace(line(200, seed=0), terminated=jnp.ones(200, bool))
    networks, report = MODEL.fit(NEW, buffer_of(rows), KEY)
    assert np.asarray(predicts(networks, rows.obs, rows.action, rows.next_obs)).all()
    assert report["termination/ends"] == 200


def test_a_later_fit_learns_from_the_first_row_that_goes_on():
    rows = line(300, seed=0)
    always, _ = MODEL.fit(NEW, buffer_of(replace(rows, terminated=jnp.ones(300, bool))), KEY)
    networks, _ = MODEL.fit(always, buffer_of(rows), KEY)
    assert np.isfinite(float(networks.log_odds))
    assert not np.asarray(predicts(networks, rows.obs, rows.action, 0.0 * rows.next_obs)).any()


@pytest.mark.parametrize("ends", [0, 1, 2, 198, 199, 200])
def test_a_report_is_json_and_always_has_the_same_names(ends):
    rows = replace(line(200, seed=0), terminated=jnp.arange(200) < ends)
    _, report = replace(MODEL, max_rounds=1).fit(NEW, buffer_of(rows), KEY)
    assert tuple(report) == METRICS
    written = json.loads(json.dumps(dict(report), allow_nan=False))
    assert written["termination/ends"] == ends
    taught = 2 <= ends <= 198
    assert all((written[name] is not None) == taught for name in METRICS[2:])


def test_the_odds_of_the_batches_are_put_back_to_those_of_the_data():
    """Networks that say 'even' leave the odds of the data: three ends in 203 rows are a chance of 3/203."""
    even = jax.tree.map(jnp.zeros_like, NEW.members)
    networks = replace(NEW, members=even, log_odds=jnp.float32(np.log(3 / 200)))
    row = jnp.zeros((4, 1))
    np.testing.assert_allclose(end_probability(networks, row, row, row), 3 / 203, rtol=1e-5)


def test_a_prediction_that_is_not_finite_is_left_to_the_rollout():
    networks = replace(NEW, seen=jnp.bool_(True))
    row = jnp.full((1, 1), jnp.nan)
    assert not np.asarray(predicts(networks, row, row, row)).any()


def test_a_fit_repeats_itself_and_leaves_its_input_alone():
    model, buffer = replace(MODEL, max_rounds=1), buffer_of(line(200, seed=0))
    before = snapshot((NEW, buffer))
    first, again = (model.fit(NEW, buffer, KEY) for _ in range(2))
    assert_same(first[0], again[0])
    assert first[1] == again[1]
    assert_same(snapshot((NEW, buffer)), before)


def test_a_column_that_never_changes_is_not_scaled_up():
    rows = random_rows(53, seed=1)
    obs = jnp.stack([rows.obs[:, 0], jnp.full(53, 0.1)], axis=-1)
    scale = input_scale(buffer_of(replace(rows, obs=obs)), jnp.arange(53, dtype=jnp.int32))
    assert (float(scale.std[1]), float(scale.mean[1])) == (1.0, np.float32(0.1))
    x = np.concatenate([obs, rows.action, rows.next_obs], axis=-1)
    np.testing.assert_allclose(scale.mean, x.mean(0), atol=1e-6)
    np.testing.assert_allclose(np.delete(scale.std, 1), np.delete(x.std(0), 1), rtol=1e-5)


def test_the_loss_by_hand_and_its_gradient():
    rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(2, 4, *leaf.shape[1:]), line(8, seed=0))
    scale = Scale(jnp.zeros(3), jnp.ones(3))
    even = jax.tree.map(jnp.zeros_like, NEW.members)
    # Odds of 1 for every row: −log ½ for each of the two members.
    assert float(balanced_loss(even, scale, jax.tree.map(jnp.asarray, rows))) == pytest.approx(2 * np.log(2))

    def loss(members):
        wide = (jnp.asarray(leaf, jnp.float64) for leaf in (rows.obs, rows.action, rows.reward, rows.next_obs))
        scale = Scale(jnp.array([0.1, 0.2, 0.3]), jnp.array([1.0, 2.0, 0.5]))
        return balanced_loss(members, scale, Transition(*wide, *(jnp.asarray(rows.terminated),) * 2))

    small = TerminationModel(members=2, hidden_sizes=(3,)).init(SPEC, jax.random.key(3)).members
    assert_gradient(loss, jax.tree.map(lambda leaf: leaf + 0.05, small))


def test_the_price_of_inputs_by_hand():
    """Weights (3, 4) from the first input, none from the others: a norm of 5 in each of the two members."""
    member = TerminationModel(members=1, hidden_sizes=(2,)).init(SPEC, jax.random.key(0)).members[0]
    first, last = member.layers
    priced = replace(member, layers=(replace(first, weight=jnp.zeros((3, 2)).at[0].set(jnp.array([3.0, 4.0]))), last))
    assert float(input_price((priced, priced))) == pytest.approx(10.0, abs=1e-4)
    # At weights of exactly 0, too, the gradient is finite.
    (gradient,) = jax.grad(input_price)((priced,))
    np.testing.assert_allclose(gradient.layers[0].weight[0], [0.6, 0.8], rtol=1e-6)
    assert np.isfinite(gradient.layers[0].weight).all()


def test_inputs_that_say_nothing_are_given_up():
    """Hopper ends by two of its eleven numbers; the velocities and the action say nothing."""
    networks = MODEL.init(EnvSpec("Hopper", 11, 3), jax.random.key(0))
    networks, _ = MODEL.fit(networks, buffer_of(hopper_like(10_000, seed=0)), KEY)
    deciding, useless = slice(14, 16), [*range(2, 14), *range(16, 25)]
    for member in networks.members:
        norms = np.linalg.norm(member.layers[0].weight, axis=1)
        assert norms[useless].max() < 0.3 * norms[deciding].min()


def test_an_odd_batch_is_refused():
    with pytest.raises(UsageError, match="batch_size of TerminationModel is 7, and half of it are ends; make it even"):
        TerminationModel(batch_size=7).init(SPEC, jax.random.key(0))

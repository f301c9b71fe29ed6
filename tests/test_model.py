"""The ensemble: its likelihood, its regulariser, its gradient, and who imagines which row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from examples import SPEC, as_arrays, random_rows
from gradients import assert_gradient
from mbpo import model as model_module
from mbpo.errors import UsageError
from mbpo.model import (
    Gaussian,
    InputScale,
    Model,
    Networks,
    disagreement,
    elite_members,
    imagine,
    likelihood_loss,
    member_errors,
    predict,
    regularizer,
    target,
)
from mbpo.model_fit import fit_loss
from mbpo.nets import MLP, Linear
from mbpo.types import EnvSpec

SMALL = Model(members=3, elites=2, hidden_sizes=(6, 5), weight_decay=(0.1, 0.2, 0.3), batch_size=4)
ENSEMBLE = SMALL.init(SPEC, jax.random.key(0))
NETWORKS = ENSEMBLE.networks
SCALE = InputScale(jnp.float32([0.5, -0.2, 0.1]), jnp.float32([2.0, 0.5, 1.0]))
ROWS = random_rows(9)

imagine_compiled = jax.jit(imagine)


def numpy_prediction(member, networks, scale, rows):
    """Mean and log-variance of a member, in NumPy."""
    x = np.concatenate([rows.obs, rows.action], axis=-1)
    x = (x - np.asarray(scale.mean)) / np.asarray(scale.std)
    *hidden, last = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in member.layers]
    for weight, bias in hidden:
        x = x @ weight + bias
        x = x / (1 + np.exp(-x))
    mean, raw = np.split(x @ last[0] + last[1], 2, axis=-1)
    high, low = np.asarray(networks.max_log_var), np.asarray(networks.min_log_var)
    clamped = high - np.log1p(np.exp(high - raw))
    return mean, low + np.log1p(np.exp(clamped - low))


def test_the_target_is_reward_and_change():
    y = np.asarray(target(ROWS))
    np.testing.assert_array_equal(y[:, 0], ROWS.reward)
    np.testing.assert_array_equal(y[:, 1:], np.asarray(ROWS.next_obs) - np.asarray(ROWS.obs))


def test_a_prediction_is_what_numpy_computes():
    for member in NETWORKS.members:
        found = predict(member, NETWORKS, SCALE, ROWS.obs, ROWS.action)
        mean, log_var = numpy_prediction(member, NETWORKS, SCALE, ROWS)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.log_var, log_var, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("raw", "log_var"), [(-1e4, -10.0), (-1.0, None), (1e4, 0.5)])
def test_the_log_variance_stays_between_its_bounds(raw, log_var):
    outputs = jnp.full(6, raw)
    member = MLP((Linear(jnp.zeros((3, 6)), outputs),))
    found = np.asarray(predict(member, NETWORKS, SCALE, ROWS.obs, ROWS.action).log_var)
    # Softly: at the upper bound −10 + log(1 + e^10.5) = 0.5000275; below, 0.5 − log(1 + e^1.5) = −1.2014.
    expected = -1.2014 if log_var is None else log_var
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_the_likelihood_by_hand():
    # Row 0: errors 1 and 2, log-variances 0 and log 4: 1 + 0 and 4/4 + log 4; mean 1 + ½ log 4 = 1 + log 2.
    # Row 1: no error, log-variances −2 and 0: mean −1. Row 2 does not count.
    prediction = Gaussian(jnp.float32([[1, 2], [5, 5], [9, 9]]), jnp.float32([[0, np.log(4)], [-2, 0], [3, 3]]))
    y = jnp.float32([[0, 0], [5, 5], [0, 0]])
    loss = likelihood_loss(prediction, y, jnp.float32([1, 1, 0]))
    assert float(loss) == pytest.approx((1 + np.log(2) - 1) / 2, rel=1e-6)


def test_the_regularizer_by_hand():
    def member(size: float) -> MLP:
        return MLP((Linear(jnp.full((1, 2), size), jnp.full(2, 9.0)), Linear(jnp.full((2, 1), 1.0), jnp.full(1, 9.0))))

    # Member 1: ½ · 0.1 · 2 + ½ · 0.4 · 2 = 0.5; member 2: ½ · 0.1 · 2 · 9 + 0.4 = 1.3; biases are free.
    # Bounds: 0.01 · (0.5 + 0.25) − 0.01 · (−10 − 5) = 0.1575
    networks = Networks((member(1.0), member(3.0)), jnp.float32([0.5, 0.25]), jnp.float32([-10, -5]))
    assert float(regularizer(networks, (0.1, 0.4))) == pytest.approx(1.8 + 0.1575, rel=1e-6)


def test_gradients_of_everything_that_is_fitted():
    """Weights, biases and the two bounds, through the clamp, with a row that does not count."""
    model = Model(members=2, elites=1, hidden_sizes=(3,), weight_decay=(0.1, 0.2), batch_size=4)
    networks = model.init(EnvSpec("Line", 1, 1), jax.random.key(1)).networks
    # Bounds close together, so that the clamp bends.
    networks = Networks(networks.members, networks.max_log_var, jnp.full(2, -1.0))
    rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(2, 4, *leaf.shape[1:]), random_rows(8, obs_size=1))

    def loss(networks):
        wide = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else leaf.astype(np.float64), rows)
        scale = InputScale(jnp.array([0.1, 0.2]), jnp.array([2.0, 0.5]))
        return fit_loss(model, networks, scale, as_arrays(wide), jnp.array([1.0, 1.0, 1.0, 0.0]))

    assert_gradient(loss, networks)


def test_errors_of_members_are_those_of_scipy():
    square, nll = np.asarray(member_errors(NETWORKS, SCALE, ROWS))
    y = np.asarray(target(ROWS))
    for e, member in enumerate(NETWORKS.members):
        mean, log_var = numpy_prediction(member, NETWORKS, SCALE, ROWS)
        np.testing.assert_allclose(square[e], ((mean - y) ** 2).mean(-1), rtol=1e-4)
        density = stats.norm(mean, np.exp(log_var / 2)).logpdf(y)
        np.testing.assert_allclose(nll[e], -density.mean(-1), rtol=1e-4)


def test_the_spread_is_that_of_the_means():
    means = [numpy_prediction(member, NETWORKS, SCALE, ROWS)[0] for member in NETWORKS.members]
    found = disagreement(NETWORKS.members, NETWORKS, SCALE, ROWS.obs, ROWS.action)
    assert float(found) == pytest.approx(np.std(means, axis=0).mean(), rel=1e-4)


def test_a_new_ensemble():
    model = Model()
    ensemble = model.init(EnvSpec("Hopper", 11, 3), jax.random.key(0))
    networks = ensemble.networks
    assert len(networks.members) == 7
    for member in networks.members:
        shapes = [layer.weight.shape for layer in member.layers]
        assert shapes == [(14, 200), (200, 200), (200, 200), (200, 200), (200, 24)]
    firsts = [np.asarray(member.layers[0].weight) for member in networks.members]
    assert not any(np.array_equal(firsts[0], other) for other in firsts[1:])
    np.testing.assert_array_equal(networks.max_log_var, np.full(12, 0.5, np.float32))
    np.testing.assert_array_equal(networks.min_log_var, np.full(12, -10, np.float32))
    assert (int(ensemble.updates), int(ensemble.fits), ensemble.elites.tolist()) == (0, 0, [0, 1, 2, 3, 4])


def test_elites_are_members_by_their_index():
    ensemble = jax.tree.map(lambda leaf: leaf, ENSEMBLE)
    chosen = elite_members(type(ensemble)(**{**vars(ensemble), "elites": jnp.int32([2, 0])}))
    assert chosen[0] is ensemble.networks.members[2]
    assert chosen[1] is ensemble.networks.members[0]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Model(hidden_sizes=(64, 64)), "weight_decay has 5 numbers for 2 hidden layers"),
        (Model(elites=8), "8 elites of 7 members"),
        (Model(elites=0), "0 elites of 7 members"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(model, message):
    with pytest.raises(UsageError, match=message):
        model.init(SPEC, jax.random.key(0))


# --- imagine ----------------------------------------------------------------------------------------------------------

CERTAIN = Networks(NETWORKS.members, jnp.full(3, -39.0), jnp.full(3, -40.0))


def naive(elites, networks, scale, rows):
    """What every elite would say of every row: (elite, row, reward and next observation)."""
    means = np.stack([numpy_prediction(member, networks, scale, rows)[0] for member in elites])
    means[:, :, 1:] += np.asarray(rows.obs)
    return means


def chosen_elites(rows, key, count=3):
    """Which elite each row is from: with a variance near 0, the prediction tells."""
    elites = CERTAIN.members[:count]
    next_obs, reward = imagine_compiled(elites, CERTAIN, SCALE, rows.obs, rows.action, key)
    outcome = np.concatenate([np.asarray(reward)[:, None], next_obs], axis=-1)
    distance = np.abs(naive(elites, CERTAIN, SCALE, rows) - outcome[None]).max(-1)
    np.testing.assert_allclose(distance.min(0), 0, atol=1e-4)
    assert (np.sort(distance, axis=0)[1:] > 1e-3).all(), "two members say the same: the test cannot tell them apart"
    return distance.argmin(0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 9])
def test_every_row_is_the_prediction_of_one_elite_in_equal_groups(count):
    rows = random_rows(count, seed=5)
    sizes = np.bincount(chosen_elites(rows, jax.random.key(2)), minlength=3)
    # Groups of ⌈B / 3⌉ rows, of which the last is filled up.
    group = -(-count // 3)
    assert sizes.max() <= group
    assert sizes.sum() == count
    if count % 3 == 0:
        assert sizes.tolist() == [group] * 3


def test_one_elite_imagines_all():
    assert set(chosen_elites(ROWS, jax.random.key(2), count=1)) == {0}


def test_every_elite_is_as_likely_for_every_row():
    choices = np.stack([chosen_elites(ROWS, jax.random.key(seed)) for seed in range(200)])
    shares = np.stack([(choices == elite).mean(0) for elite in range(3)])
    # 200 draws of probability ⅓: a deviation of 0.033.
    assert np.abs(shares - 1 / 3).max() < 5 * 0.033


def test_each_elite_computes_its_own_rows_only(monkeypatch):
    sizes = []

    def counted(member, networks, scale, obs, action):
        sizes.append(obs.shape[0])
        return predict(member, networks, scale, obs, action)

    monkeypatch.setattr(model_module, "predict", counted)
    rows = random_rows(10)
    imagine(NETWORKS.members, NETWORKS, SCALE, rows.obs, rows.action, jax.random.key(0))
    assert sizes == [4, 4, 4]


def test_an_outcome_is_a_sample_of_its_gaussian():
    """One member, so that means and variances are known: what is left is standard normal, and all different."""
    rows, member = random_rows(3000, seed=8), NETWORKS.members[0]
    next_obs, reward = imagine_compiled((member,), NETWORKS, SCALE, rows.obs, rows.action, jax.random.key(4))
    mean, log_var = numpy_prediction(member, NETWORKS, SCALE, rows)
    outcome = np.concatenate([np.asarray(reward)[:, None], np.asarray(next_obs) - np.asarray(rows.obs)], axis=-1)
    noise = (outcome - mean) / np.exp(log_var / 2)
    assert stats.kstest(noise.ravel().astype(np.float64), stats.norm.cdf).pvalue > 1e-4
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 5 / np.sqrt(3000)

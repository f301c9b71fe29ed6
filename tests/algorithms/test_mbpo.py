"""MBPO around its parts: the law that ties it to SAC, when it fits and imagines, what it mixes, and what it refuses."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lives import ROOT, TINY_MBPO, TINY_SAC, begin, ends_above_one, learn, live, stream

from examples import QuietHost, assert_same, buffer_of, random_rows, row_of
from mbpo.addresses import Purpose, key_at
from mbpo.algorithms import MBPO, SAC
from mbpo.algorithms.mbpo import TerminationMismatchError, contradicts, dream_step, pieces_of
from mbpo.buffer import export_rows
from mbpo.envs.adapter import open_environment
from mbpo.envs.probes import LINE_BOUND, left_the_line, point_line_probe
from mbpo.model import Model, member_errors
from mbpo.schedule import RolloutLength
from mbpo.types import EnvSpec, Transition

SPEC = EnvSpec("Small-v0", obs_size=2, action_size=1, terminal=ends_above_one)
ENDLESS = EnvSpec(
    "Endless-v0", obs_size=2, action_size=1, terminal=lambda _obs, _action, next_obs: next_obs[..., 0] > 9
)


# --- the law --------------------------------------------------------------------------------------------------------


def test_with_real_rows_only_it_is_sac_bit_for_bit():
    """The same sampling and the same compiled scan serve both, and no model is ever fitted."""
    only_real, host = replace(TINY_MBPO, real_fraction=1.0), QuietHost()
    state, metrics = live(only_real, SPEC, begin(only_real, SPEC), 0, 33, host)
    expected, expected_metrics = live(TINY_SAC, SPEC, begin(TINY_SAC, SPEC), 0, 33, QuietHost())
    assert_same(state.sac, expected)
    assert metrics == expected_metrics
    assert len(metrics) == 25
    assert host.records == []
    assert only_real.counts(state)[1] == 0


def test_a_model_changes_what_is_learned():
    """The law would be empty if a model made no difference."""
    state, _ = live(TINY_MBPO, SPEC, begin(TINY_MBPO, SPEC), 0, 33, QuietHost())
    expected, _ = live(TINY_SAC, SPEC, begin(TINY_SAC, SPEC), 0, 33, QuietHost())
    assert_same(state.sac.buffer, expected.buffer)
    assert not np.array_equal(
        state.sac.learner.weights.actor.layers[0].weight, expected.learner.weights.actor.layers[0].weight
    )


# --- Algorithm 2: the order of events ------------------------------------------------------------------------------


def test_it_fits_before_the_first_step_after_the_random_ones_and_every_so_many_from_there():
    """`random_steps` 8, a fit every 4; k is 1 + epoch up to 3, in epochs of 8 from the end of the random steps."""
    state, steps, lengths, host = begin(TINY_MBPO, SPEC), [], [], QuietHost()
    for step in range(33):
        known = len(host.records)
        state, _ = live(TINY_MBPO, SPEC, state, step, step + 1, host)
        steps += [step] * (len(host.records) - known)
    lengths = [row["rollout/rollout_length"] for _, row in host.records]
    assert steps == [8, 12, 16, 20, 24, 28, 32]
    assert lengths == [1, 1, 2, 2, 3, 3, 3]
    assert [row["model/rows"] for _, row in host.records] == steps


def test_imagined_rows_are_those_of_the_last_epoch_first_in_first_out():
    """8 rollouts a fit, two fits an epoch: the window is 2 · 8 · k rows, and what was there when k grew is kept."""
    state, sizes, newest = begin(TINY_MBPO, ENDLESS), [], []
    for step in range(29):
        state, _ = live(TINY_MBPO, ENDLESS, state, step, step + 1, QuietHost())
        if step in (8, 12, 16, 20, 24, 28):
            sizes.append(int(state.imagined.size))
            newest.append(np.asarray(export_rows(state.imagined).obs))
    assert sizes == [8, 16, 32, 32, 48, 48]
    np.testing.assert_array_equal(newest[2][:16], newest[1], err_msg="k grew from 1 to 2: the sixteen rows stay")
    np.testing.assert_array_equal(newest[3][:16], newest[2][16:], err_msg="then the oldest go")


def test_rollouts_start_from_real_states_and_go_on_from_what_was_imagined():
    state, _ = live(TINY_MBPO, ENDLESS, begin(TINY_MBPO, ENDLESS), 0, 17, QuietHost())
    rows, real = export_rows(state.imagined), np.asarray(stream(ENDLESS).obs[:16])
    first, second = (jax.tree.map(np.asarray, jax.tree.map(lambda leaf, a=a: leaf[a : a + 8], rows)) for a in (16, 24))
    assert all((real == obs).all(axis=1).any() for obs in first.obs)
    assert len({tuple(obs) for obs in first.obs.tolist()}) > 3, "drawn from all of them"
    np.testing.assert_array_equal(second.obs, first.next_obs)
    assert not rows.truncated.any()


def test_rollouts_act_as_the_policy_explores():
    """Reference: the release samples its actions. From one and the same state, they all differ."""
    state, _ = live(TINY_MBPO, ENDLESS, begin(TINY_MBPO, ENDLESS), 0, 8, QuietHost())
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), state.sac.buffer.storage)
    state = replace(state, sac=replace(state.sac, buffer=replace(state.sac.buffer, storage=same)))
    state = TINY_MBPO.prepare(state, 8, key_at(ROOT, Purpose.PREPARE, 8), QuietHost())
    rows = export_rows(state.imagined)
    assert len(np.unique(np.asarray(rows.obs), axis=0)) == 1
    assert len(np.unique(np.asarray(rows.action))) == 8


def test_rollouts_that_end_are_stored_as_ended_and_not_continued():
    always = EnvSpec("Short-v0", 2, 1, terminal=lambda _obs, _action, next_obs: next_obs[..., 0] == next_obs[..., 0])
    state, host = begin(TINY_MBPO, always), QuietHost()
    state, _ = live(TINY_MBPO, always, state, 0, 33, host)
    rows = export_rows(state.imagined)
    assert rows.terminated.all()
    assert {row["rollout/mean_length"] for _, row in host.records} == {1.0}
    assert {row["rollout/terminated_fraction"] for _, row in host.records} == {1.0}
    assert int(state.imagined.size) == 48, "eight rows a fit, whatever k: the window is that of k = 3"


# --- what is mixed, and what is measured ---------------------------------------------------------------------------


@pytest.mark.parametrize(("fraction", "size", "real"), [(0.05, 256, 12), (0.25, 8, 2), (0.5, 8, 4), (0.0, 8, 0)])
def test_every_batch_has_its_share_of_real_rows(fraction, size, real):
    """Not a coin for each batch, nor one for each row: 0.05 of 256 rows are always 12."""
    algorithm = replace(TINY_MBPO, real_fraction=fraction, sac=replace(TINY_SAC, updates_per_step=5, batch_size=size))
    state, _ = live(TINY_MBPO, SPEC, begin(TINY_MBPO, SPEC), 0, 20, QuietHost())
    marked = [replace(buffer, storage=replace(buffer.storage, reward=jnp.full_like(buffer.storage.reward, mark)))
              for buffer, mark in ((state.sac.buffer, 1.0), (state.imagined, 2.0))]  # fmt: skip
    state = replace(state, sac=replace(state.sac, buffer=marked[0]), imagined=marked[1])
    rewards = np.asarray(algorithm.mixed_batches(state, ROOT).reward)
    assert rewards.shape == (5, size)
    assert ((rewards == 1).sum(axis=1) == real).all()
    assert ((rewards == 2).sum(axis=1) == size - real).all()


def test_batches_come_from_living_rows_of_all_ages():
    """A stale window of the imagined rows trains well for a while, then ruins the policy: no dead row may be drawn."""
    state, _ = live(TINY_MBPO, ENDLESS, begin(TINY_MBPO, ENDLESS), 0, 33, QuietHost())
    large = replace(TINY_MBPO, sac=replace(TINY_SAC, updates_per_step=50))
    drawn = np.asarray(large.mixed_batches(state, ROOT).reward)
    living = [np.unique(np.asarray(export_rows(buffer).reward)) for buffer in (state.sac.buffer, state.imagined)]
    np.testing.assert_array_equal(np.unique(drawn[:, :2]), living[0])
    np.testing.assert_array_equal(np.unique(drawn[:, 2:]), living[1])


def test_fresh_errors_are_those_of_the_model_before_it_was_fitted_to_them():
    state, host = begin(TINY_MBPO, SPEC), QuietHost()
    state, _ = live(TINY_MBPO, SPEC, state, 0, 12, host)
    old, rows = state.ensemble, jax.tree.map(lambda leaf: leaf[8:12], stream(SPEC))
    errors = np.asarray(member_errors(old.networks, old.scale, rows))[:, np.asarray(old.elites)]
    TINY_MBPO.prepare(state, 12, key_at(ROOT, Purpose.PREPARE, 12), host)
    (_, first), (_, second) = host.records
    assert first["model/fresh_mse"] is first["model/fresh_nll"] is None
    assert second["model/fresh_mse"] == pytest.approx(errors[0].mean(), rel=1e-4)
    assert second["model/fresh_nll"] == pytest.approx(errors[1].mean(), rel=1e-4)


def test_predictions_that_are_not_finite_are_counted_and_never_stored():
    state, _ = live(TINY_MBPO, SPEC, begin(TINY_MBPO, SPEC), 0, 13, QuietHost())
    spoilt = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), state.ensemble.networks)
    before = export_rows(state.imagined)
    broken = replace(state, ensemble=replace(state.ensemble, networks=spoilt))
    after, summary = TINY_MBPO._imagine(broken, 2, ROOT)
    assert summary["model/nonfinite_fraction"] == 1.0
    assert summary["rollout/mean_length"] == 1.0
    assert_same(export_rows(after.imagined), before)


@pytest.mark.parametrize(("rows", "pieces"), [(1, 1), (2000, 1), (100_000, 50), (4001, 1), (6000, 3), (7, 1)])
def test_rows_are_cut_into_equal_pieces(rows, pieces):
    """4001 is a prime number: it stays whole."""
    assert pieces_of(rows) == pieces


def test_pieces_change_no_row_of_the_buffer_but_their_noise(monkeypatch):
    """However the rows are cut, each starts where it should and is stored in its place."""
    monkeypatch.setattr("mbpo.algorithms.mbpo.PIECE_ROWS", 2)
    dream_step.clear_cache()
    state, _ = live(TINY_MBPO, ENDLESS, begin(TINY_MBPO, ENDLESS), 0, 17, QuietHost())
    rows = export_rows(state.imagined)
    np.testing.assert_array_equal(rows.obs[24:32], rows.next_obs[16:24])
    dream_step.clear_cache()


# --- where episodes end --------------------------------------------------------------------------------------------


def step_to(x: float, terminated: bool) -> Transition:
    row = row_of(random_rows(1), 0)
    return replace(row, next_obs=jnp.float32([x, 0.0]), terminated=jnp.bool_(terminated))


@pytest.mark.parametrize(("x", "terminated"), [(0.5, True), (1.5, False), (1.001, False), (-3.0, True)])
def test_a_function_that_contradicts_the_environment_stops_the_run(x, terminated):
    host, state = QuietHost(), begin(TINY_MBPO, SPEC)
    with pytest.raises(TerminationMismatchError, match=r"Small-v0 .*next_obs \[.*termination learned"):
        TINY_MBPO.observe(state, step_to(x, terminated), host)


def test_at_the_threshold_function_and_environment_may_differ():
    """1 + 1e-7 is no float32: what the environment decides in float64, the function cannot see."""
    near = [step_to(x, terminated) for x in (1.0, 1.0000001, 0.9999999) for terminated in (True, False)]
    assert not any(bool(contradicts(ends_above_one, row)) for row in near)
    assert bool(contradicts(ends_above_one, step_to(1.00001, False)))


def test_a_mismatch_may_be_a_warning():
    tolerant, host = replace(TINY_MBPO, termination_mismatch="warn"), QuietHost()
    state = tolerant.observe(begin(tolerant, SPEC), step_to(0.5, True), host)
    assert int(state.sac.buffer.size) == 1
    assert len(host.messages) == 1
    assert "Small-v0 ended the episode and the task's termination function says it goes on" in host.messages[0]


def test_termination_is_learned_without_a_function_or_where_asked():
    without = EnvSpec("Small-v0", 2, 1)
    assert begin(TINY_MBPO, SPEC).termination is None
    assert begin(TINY_MBPO, without).termination is not None
    asked = replace(TINY_MBPO, termination="learned")
    state = asked.observe(begin(asked, SPEC), step_to(0.5, True), QuietHost())
    assert state.termination is not None, "and then nothing can contradict it"


def test_learned_ends_end_rollouts():
    """Every real step ended: so does every imagined one."""
    asked = replace(TINY_MBPO, termination="learned")
    state, host = begin(asked, SPEC), QuietHost()
    for step in range(8):
        state = asked.observe(state, replace(row_of(stream(SPEC), step), terminated=jnp.bool_(True)), host)
    state = asked.prepare(state, 8, key_at(ROOT, Purpose.PREPARE, 8), host)
    assert export_rows(state.imagined).terminated.all()
    assert host.records[0][1]["termination/ends"] == 8


# --- the whole -----------------------------------------------------------------------------------------------------


def test_the_point_on_the_line_goes_to_the_middle_and_knows_what_that_is_worth():
    """The best action is −x / 0.2, clipped: it arrives in a few steps and earns 1 a step from then on. The time limit
    is none of the task's, so that V(0) = 1 / (1 − γ) = 10; the entropy bonus is small at a target of −2."""
    sac = SAC(
        updates_per_step=10, random_steps=100, batch_size=64, hidden_sizes=(32, 32), discount=0.9, learning_rate=3e-3,
        target_entropy=-2.0, buffer_size=1000, polyak_rate=0.05,
    )  # fmt: skip
    model = Model(hidden_sizes=(32, 32), weight_decay=(0.0, 0.0, 0.0), members=3, elites=2, batch_size=64)
    algorithm = MBPO(
        sac=sac, model=model, rollout_length=RolloutLength(1, 2, 1, 2),
        rollouts_per_step=20, epoch_steps=100, fit_every=50,
    )  # fmt: skip
    environment = open_environment(point_line_probe)
    environment.spec = replace(environment.spec, terminal=left_the_line)
    state = learn(algorithm, environment, 400)
    xs = jnp.linspace(-0.8, 0.8, 9)[:, None]
    actions = np.asarray(algorithm.act(state, xs, ROOT, explore=False))[:, 0]
    best = np.clip(-np.asarray(xs)[:, 0] / 0.2, -1, 1)
    np.testing.assert_allclose(actions, best, atol=0.35)
    np.testing.assert_allclose(algorithm.value(state, jnp.zeros((1, 1))), [10.0], atol=1.0)
    mean_error = float(jnp.mean(jnp.abs(xs + 0.2 * actions[:, None])))
    assert mean_error < LINE_BOUND


def test_the_example_rows_are_all_different():
    rewards = np.asarray(random_rows(40).reward)
    assert len(np.unique(rewards)) == 40
    assert int(buffer_of(random_rows(40)).size) == 40

"""What every algorithm promises, whoever drives it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lives import ROOT, TINY, TINY_MBPO, begin, ends_above_one, live, stream

from examples import QuietHost, assert_same, row_of, snapshot
from mbpo.algorithms import ALGORITHMS
from mbpo.envs.adapter import open_environment
from mbpo.envs.probes import PROBES
from mbpo.state_arrays import flatten_state, restore_state
from mbpo.types import Algorithm, EnvSpec

SMALL = EnvSpec("Small-v0", obs_size=1, action_size=1, terminal=ends_above_one)
LARGE = EnvSpec("Large-v0", obs_size=60, action_size=3, terminal=ends_above_one)

VARIANTS: dict[str, Algorithm[Any]] = {**TINY, "mbpo, learned": replace(TINY_MBPO, termination="learned")}
each = pytest.mark.parametrize("name", VARIANTS)

STEPS = 33


def test_every_algorithm_is_here():
    assert TINY.keys() == ALGORITHMS.keys()
    assert all(type(algorithm) is ALGORITHMS[name] for name, algorithm in TINY.items())


@pytest.fixture(scope="module")
def lived():
    """For each algorithm: the state after some steps, the metrics of its updates, and what its host recorded."""
    found = {}

    def life(name: str) -> tuple[Any, list[dict[str, Any]], QuietHost]:
        if name not in found:
            host = QuietHost()
            state, metrics = live(VARIANTS[name], SMALL, begin(VARIANTS[name], SMALL), 0, STEPS, host)
            found[name] = (state, metrics, host)
        return found[name]

    return life


@each
def test_it_is_what_the_protocol_says(name):
    algorithm = VARIANTS[name]
    assert isinstance(algorithm, Algorithm)
    assert hash(algorithm) == hash(replace(algorithm)), "a frozen dataclass: compiled functions are kept by its value"
    assert algorithm == replace(algorithm)
    assert algorithm.metric_names == tuple(dict.fromkeys(algorithm.metric_names)), "each name once"


@each
def test_the_same_keys_lead_to_the_same_state(name, lived):
    algorithm, host = VARIANTS[name], QuietHost()
    state, metrics, first_host = lived(name)
    again, metrics_again = live(algorithm, SMALL, begin(algorithm, SMALL), 0, STEPS, host)
    assert_same(again, state)
    assert metrics_again == metrics
    assert repr(host.records) == repr(first_host.records)


@each
def test_other_keys_lead_elsewhere(name, lived):
    algorithm, other = VARIANTS[name], jax.random.key(1)
    first = begin(algorithm, SMALL)
    assert_same(first, begin(algorithm, SMALL))
    assert differ(first, begin(algorithm, SMALL, other))
    state, _ = live(algorithm, SMALL, first, 0, 9, QuietHost(), other)
    expected, _ = live(algorithm, SMALL, begin(algorithm, SMALL), 0, 9, QuietHost())
    assert differ(state, expected)


def differ(left: Any, right: Any) -> bool:
    return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


@each
def test_looking_changes_nothing(name, lived):
    algorithm, (state, _, _) = VARIANTS[name], lived(name)
    before, obs = snapshot(state), stream(SMALL).obs[:5]
    for explore in (True, False):
        algorithm.act(state, obs, ROOT, explore)
    algorithm.value(state, obs)
    algorithm.counts(state)
    algorithm.prepare(state, STEPS, ROOT, QuietHost())
    assert_same(snapshot(state), before)


@each
def test_metrics_are_finite_and_have_fixed_names(name, lived):
    algorithm, (_, metrics, host) = VARIANTS[name], lived(name)
    assert len(metrics) > 1
    assert all(np.isfinite(list(row.values())).all() for row in metrics)
    assert len({tuple(sorted(row)) for row in metrics}) == 1, "every update has the same"
    recorded = [{n: row[n] for n in row if n in algorithm.metric_names} for _, row in host.records]
    assert all(np.isfinite([v for v in row.values() if v is not None]).all() for row in recorded)
    assert len({tuple(row) for row in recorded}) <= 1, "every record has the same"
    names = set().union(*metrics, *recorded)
    expected = set(algorithm.metric_names)
    if name == "mbpo":
        expected = {n for n in expected if not n.startswith("termination/")}
    assert names == expected


@each
def test_actions_are_in_bounds_when_the_environment_sees_them(name, lived):
    algorithm, (state, _, _) = VARIANTS[name], lived(name)
    box = open_environment(PROBES["ActionProbe-v0"])
    many = jnp.float32([[-1e4], [-1.0], [0.0], [1.0], [1e4]])
    for explore in (True, False):
        actions = np.asarray(algorithm.act(state, many, ROOT, explore))
        assert actions.shape == (5, 1)
        assert np.isfinite(actions).all()
        assert np.abs(box.to_box(actions)).max() <= 1
        assert algorithm.act(state, many[0], ROOT, explore).shape == (1,)
    sure = [np.asarray(algorithm.act(state, many, jax.random.key(seed), False)) for seed in (0, 1)]
    np.testing.assert_array_equal(*sure)
    drawn = [np.asarray(algorithm.act(state, many[1:4], jax.random.key(seed), True)) for seed in (0, 1)]
    assert not np.array_equal(*drawn)
    assert algorithm.value(state, many).shape == (5,)


@each
@pytest.mark.parametrize("spec", [SMALL, LARGE], ids=lambda spec: spec.name)
def test_the_memory_plan_is_what_is_allocated(name, spec):
    algorithm = VARIANTS[name]
    plan = jax.eval_shape(partial(algorithm.init, spec, 40), ROOT)
    state = begin(algorithm, spec)
    assert jax.tree.structure(plan) == jax.tree.structure(state)
    for shape, leaf in zip(jax.tree.leaves(plan), jax.tree.leaves(state), strict=True):
        assert (shape.shape, shape.dtype) == (leaf.shape, leaf.dtype)
        assert not leaf.weak_type, "a weak type would compile everything twice"


@each
@pytest.mark.parametrize("cut", [13, 20])
def test_a_restored_state_goes_on_as_if_nothing_had_been(name, cut, lived):
    """Cut where MBPO's next fit is three steps away, and right before a fit and a longer rollout."""
    algorithm, (expected, metrics, _) = VARIANTS[name], lived(name)
    state, before = live(algorithm, SMALL, begin(algorithm, SMALL), 0, cut, QuietHost())
    saved = {n: np.array(array) for n, array in flatten_state(state).items()}
    template = jax.eval_shape(partial(algorithm.init, SMALL, 40), ROOT)
    restored, after = live(algorithm, SMALL, restore_state(template, saved), cut, STEPS, QuietHost())
    assert before + after == metrics
    ends = [flatten_state(end) for end in (restored, expected)]
    assert ends[0].keys() == ends[1].keys()
    for array in ends[0]:
        np.testing.assert_array_equal(ends[0][array], ends[1][array], err_msg=array)


@contextmanager
def compilations() -> Iterator[list[str]]:
    """The programs that are compiled meanwhile."""
    found: list[str] = []

    def listen(event: str, _seconds: float, **details: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(str(details.get("fun_name", event)))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_compilations_are_heard():
    with compilations() as found:
        jax.jit(lambda x: x * 3.25)(jnp.float32(1.0))
    assert found


@each
def test_nothing_is_compiled_once_everything_has_been_done_twice(name):
    """MBPO: none after the second fit, though its rollouts grow from one step to three later. On observations that no
    other test here learns from, so that nothing was compiled before; they are large, too."""
    algorithm, host = VARIANTS[name], QuietHost()
    twice = 16 if name == "ppo" else 13
    with compilations() as warming:
        state, _ = live(algorithm, LARGE, begin(algorithm, LARGE), 0, twice, host)
    with compilations() as found:
        state, metrics = live(algorithm, LARGE, state, twice, STEPS, host)
    assert warming
    assert found == []
    lengths = [row["rollout/rollout_length"] for _, row in host.records]
    assert lengths == ([1, 1, 2, 2, 3, 3, 3] if name.startswith("mbpo") else [])
    assert metrics
    assert algorithm.act(state, stream(LARGE).obs[0], ROOT, True).shape == (3,)
    assert np.isfinite(np.asarray(algorithm.value(state, stream(LARGE).obs))).all()


@each
def test_updates_are_counted(name, lived):
    """After 33 steps: SAC twice a step from the ninth on; PPO four times two passes over eight rows by fours."""
    state, metrics, host = lived(name)
    policy, model = VARIANTS[name].counts(state)
    assert policy == (4 * 2 * 2 if name == "ppo" else 2 * 25)
    assert len(metrics) == (4 if name == "ppo" else 25)
    assert model == sum(row["model/updates"] for _, row in host.records)
    assert (model > 0) == name.startswith("mbpo")


def test_the_stream_that_all_this_rests_on_has_ends_and_rows_that_follow_on_each_other():
    rows = stream(SMALL)
    assert 2 < int(np.asarray(rows.terminated).sum()) < 20
    for i in range(40):
        if not rows.terminated[i]:
            np.testing.assert_array_equal(row_of(rows, i).next_obs, row_of(rows, i + 1).obs)

"""Exact worlds against hand-worked numbers, slow twins, and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbpo.theory import FiniteMDP, branched_return, model_error, policy_return, policy_shift, tabular
from mbpo.theory.worlds import Exact, draw_stack

seeds = st.integers(0, 2**32 - 1)


def walk(discount=0.5):
    """Two states: action 0 stays, action 1 crosses; reward 1 in state 1. π crosses with probability ½."""
    mdp = FiniteMDP(
        dynamics=np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]),
        reward=np.array([[0.0, 0.0], [1.0, 1.0]]),
        start=np.array([1.0, 0.0]),
        discount=np.array(discount),
    )
    return mdp, np.full((2, 2), 0.5)


def test_a_single_world_by_hand():
    mdp, policy = walk()
    # d_0 = (1, 0) and d_t = (½, ½) from then on: η = Σ_(t≥1) ½^t ½ = ½.
    assert policy_return(mdp, policy) == pytest.approx(0.5)
    np.testing.assert_allclose(tabular.state_distribution(mdp, policy, 3), [0.5, 0.5])
    np.testing.assert_allclose(
        tabular.occupancy(mdp.start, tabular.chain(mdp.dynamics, policy), mdp.discount), [1.5, 0.5]
    )
    # A model in which crossing fails: wrong by 1 at the crossing pairs, by ½ where π acts, at every time.
    model = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2)).copy()
    assert model_error(mdp, model, policy) == (0.5, 0.5)
    always = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert model_error(mdp, model, always) == (1.0, 1.0)
    assert policy_shift(policy, always) == 0.5


@pytest.mark.parametrize(("k", "expected"), [(0, 0.5), (1, 0.75), (2, 0.625), (3, 0.6875)])
def test_branched_return_by_hand(k, expected):
    # π_D: ½ : ½ as above. π crosses always, its model is right: after k steps the state is state 0 or 1 in turn
    # for t ≤ k (0, 1, 0, 1, ...), and ½ : ½ from any branch point later than 0.
    # k = 1: t = 0 → 0; t = 1 → 1, from d_0; t ≥ 2 → ½: η = ½ + ½(¼ + ⅛ + ...) = ½ + ¼.
    # k = 2: 0, 1, 0 then ½: ½ + ½·¼ = 0.625.   k = 3: 0, 1, 0, 1 then ½: ½ + ⅛ + ½·⅛ = 0.6875.
    mdp, data_policy = walk()
    always = np.array([[0.0, 1.0], [0.0, 1.0]])
    before, after = (tabular.chain(mdp.dynamics, policy) for policy in (data_policy, always))
    assert branched_return(mdp, before, after, mdp.reward[:, 0], np.array(k)) == pytest.approx(expected)


def test_branched_return_is_the_sum_of_its_definition():
    x = Exact(draw_stack(np.random.default_rng(0), 60, 3, 2, 0.5))
    for i in np.flatnonzero(x.discount < 0.9):
        k, before, after = x.worlds.rollout_length[i], x.real_old[i], x.model_new[i]
        total = 0.0
        for t in range(250):
            steps = np.linalg.matrix_power(before, max(t - k, 0)) @ np.linalg.matrix_power(after, min(t, k))
            total += x.discount[i] ** t * (x.worlds.mdp.start[i] @ steps @ x.reward_new[i])
        assert x.branched_return[i] == pytest.approx(total, abs=1e-9)


@given(seeds)
@settings(max_examples=15)
def test_laws_of_the_branched_return(seed):
    x = Exact(draw_stack(np.random.default_rng(seed), 8, 3, 2, 0.5))
    k = x.worlds.rollout_length
    # Branching into the same chain changes nothing, and an endless branch never meets π_D.
    np.testing.assert_allclose(x.branched(x.real_new, x.real_new, k), x.return_new, rtol=1e-9, atol=1e-9)
    soon = x.discount < 0.7
    endless = x.branched(x.real_old, x.model_new, np.full(8, 80))
    np.testing.assert_allclose(endless[soon], x.model_return_new[soon], atol=1e-9)


@given(seeds)
@settings(max_examples=10)
def test_returns_agree_with_time(seed):
    x = Exact(draw_stack(np.random.default_rng(seed), 5, 4, 3, 0.5))
    distribution, total, power = x.worlds.mdp.start, np.zeros(5), np.ones(5)
    for _ in range(500):
        total += power * (distribution * x.reward_new).sum(-1)
        distribution, power = tabular.advance(distribution, x.real_new), power * x.discount
    np.testing.assert_allclose(x.return_new, total, atol=1.01 * (power / (1 - x.discount)).max() + 1e-8)
    np.testing.assert_allclose(policy_return(x.worlds.mdp, x.worlds.policy), x.return_new, rtol=1e-8, atol=1e-8)


@given(seeds)
@settings(max_examples=15)
def test_largest_over_time_brackets_the_truth(seed):
    rng = np.random.default_rng(seed)
    x = Exact(draw_stack(rng, 10, 4, 2, rng.choice([0.02, 0.5])))
    lower, upper = tabular.largest_over_time(x.real_old, x.worlds.mdp.start, x.error_old, doublings=3)
    longer, tighter = tabular.largest_over_time(x.real_old, x.worlds.mdp.start, x.error_old, doublings=8)
    assert (lower <= longer + 1e-12).all()
    assert (longer <= tighter + 1e-12).all()
    assert (tighter <= upper + 1e-9).all()
    assert (tabular.discounted_mean(x.worlds.mdp, x.real_old, x.error_old) <= tighter + 1e-9).all()


def test_largest_over_time_where_it_is_reached_late_or_never():
    # A chain that leaves state 0 with probability 1/1000 a step, for an error of 1: the supremum is 1, at t = ∞.
    slow = np.array([[0.999, 0.001], [0.0, 1.0]])
    lower, upper = tabular.largest_over_time(slow, np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert lower == pytest.approx(1 - 0.999**511)
    assert upper == pytest.approx(1.0)
    # From a state that never reaches the error the bracket closes.
    assert tabular.largest_over_time(np.eye(2), np.array([1.0, 0.0]), np.array([0.0, 1.0])) == (0.0, 0.0)
    # Two absorbing states, reached with probability ½ each at the first step: the supremum is ½.
    fork = np.array([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    both = tabular.largest_over_time(fork, np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(both, 0.5, rtol=1e-12)


def test_maximum_likelihood_model():
    counts = np.array([[[3.0, 1.0]], [[0.0, 0.0]]])
    np.testing.assert_allclose(tabular.maximum_likelihood_model(counts), [[[0.75, 0.25]], [[0.5, 0.5]]])


def test_samples_follow_the_discounted_visits():
    mdp, policy = walk()
    counts = tabular.sample_counts(np.random.default_rng(0), mdp, policy, 400_000)
    # Visits 1.5 and 0.5 of a total of 2, each action half the time, every transition deterministic.
    expected = 400_000 * np.array([0.75, 0.25])[:, None, None] * 0.5 * mdp.dynamics
    np.testing.assert_allclose(counts, expected, rtol=0.01)


@given(seeds)
@settings(max_examples=25)
def test_no_policy_beats_the_optimal_one(seed):
    rng = np.random.default_rng(seed)
    mdp = tabular.random_mdp(rng, 3, 2, np.full(4, 0.95), 0.3)
    best = policy_return(mdp, tabular.optimal_policy(mdp))
    for actions in np.ndindex(2, 2, 2):
        policy = np.broadcast_to(np.eye(2)[list(actions)], (4, 3, 2))
        assert (policy_return(mdp, policy) <= best + 1e-9).all()

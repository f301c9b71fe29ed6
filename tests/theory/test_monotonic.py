"""Algorithm 1: the printed penalty never allows a step; the corrected one allows steps that never lose."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbpo.theory import bounds, checks, monotonic, tabular
from mbpo.theory.examples import single_world
from mbpo.theory.worlds import Exact, draw_stack

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_the_printed_objective_falls_by_half_its_charge_at_least(seed, allowance):
    # The best policy within any distance of π_D, against π_D in the model and against π_D's true return.
    x = Exact(draw_stack(np.random.default_rng(seed), 10, 3, 3, 0.3))
    model = replace(x.worlds.mdp, dynamics=x.worlds.model)
    policy = monotonic.best_policy_within(model, x.worlds.data_policy, np.full(10, allowance))
    shift = tabular.policy_shift(x.worlds.data_policy, policy)
    objective = tabular.policy_return(model, policy) - bounds.monotonic_gap(x.model_error, shift, x.discount, 1.0)
    half = 2 * shift / (1 - x.discount) ** 2
    rounding = 1e-9 / (1 - x.discount) ** 2
    at_home = x.model_return_old - bounds.monotonic_gap(x.model_error, 0.0, x.discount, 1.0)
    assert (objective <= at_home - half + rounding).all()
    assert (objective <= x.return_old - half + rounding).all()


def test_printed_steps_over_random_worlds():
    steps = checks.printed_steps(200, seed=0)
    assert steps.moved == 0
    assert 0 < steps.gain_over_charge <= 0.5
    assert steps.certified_sharper <= steps.moved_sharper


def test_equal_returns_do_not_tie_unless_unvisited_states_are_left_out():
    # State 1 is never visited; π differs from π_D there alone. ε_π is a maximum over all states, so the printed
    # objective is lower all the same; over visited states ε_π would be 0, and the two would tie.
    dynamics = [[[1, 0], [1, 0]], [[1, 0], [1, 0]]]
    x = Exact(single_world(dynamics, dynamics, [1, 0], [[1, 0], [1, 0]], [[1, 0], [0, 1]], discount=0.5))
    assert x.model_return_new == x.model_return_old
    assert x.policy_shift == 1
    assert x.mean_policy_shift == 0
    assert bounds.monotonic_gap(x.model_error, x.policy_shift, 0.5, 1.0) == 4 / 0.5**2


def leap(probability, discount):
    """π leaves hell (−1) for paradise (+1, on leaving already) where π_D stays; the model is right."""
    dynamics = [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]
    worlds = single_world(
        dynamics=dynamics,
        model=dynamics,
        reward=[-1, 1],
        data_policy=[[1, 0], [1, 0]],
        policy=[[1 - probability, probability], [1, 0]],
        discount=discount,
    )
    reward = worlds.mdp.reward.copy()
    reward[0, 0, 1] = 1.0
    return replace(worlds, mdp=replace(worlds.mdp, reward=reward))


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_the_gain_comes_as_near_to_half_the_charge_as_one_likes(discount):
    # Rewards differ by 2(1 − (1−ε)^(t+1)): gain 2ε/((1−γ)(1−γ+γε)), charge 4ε/(1−γ)².
    x = Exact(leap(1e-6, discount))
    gain = x.model_return_new - x.model_return_old
    charge = bounds.monotonic_gap(0.0, 1e-6, discount, 1.0)
    assert gain / charge == pytest.approx([0.5], rel=1e-3)
    assert gain < charge / 2


def test_the_sharper_penalty_does_allow_a_step():
    # γ = 1/10, the model right, ε = 1: gain 2/((1−γ)) = 20/9, sharper charge 2γ/(1−γ)² = 20/81.
    x = Exact(leap(1.0, 0.1))
    gain = (x.model_return_new - x.model_return_old).item()
    assert gain == pytest.approx(20 / 9)
    assert bounds.sharp_monotonic_gap(0.0, 1.0, 0.1, 1.0) == pytest.approx(20 / 81)
    assert bounds.monotonic_gap(0.0, 1.0, 0.1, 1.0) == pytest.approx(2 * 2 / 0.9**2)


@given(seeds, st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_best_policy_within_a_distance(seed, allowance):
    rng = np.random.default_rng(seed)
    mdp = tabular.random_mdp(rng, 3, 3, np.full(4, 0.9), 0.5)
    old = tabular.random_policy(rng, (4, 3, 3))
    best = monotonic.best_policy_within(mdp, old, np.full(4, allowance))
    np.testing.assert_allclose(best.sum(-1), 1)
    assert (best >= 0).all()
    assert (tabular.policy_shift(old, best) <= allowance + 1e-12).all()
    # No mixture with another policy that keeps the distance does better.
    for _ in range(5):
        other = (1 - allowance) * old + allowance * tabular.random_policy(rng, (4, 3, 3), 0.1)
        assert (tabular.policy_return(mdp, other) <= tabular.policy_return(mdp, best) + 1e-9).all()


def test_best_policy_within_the_whole_distance_is_optimal():
    mdp = tabular.random_mdp(np.random.default_rng(0), 4, 3, np.full(10, 0.9), 0.5)
    old = np.full((10, 4, 3), 1 / 3)
    best = tabular.policy_return(mdp, tabular.optimal_policy(mdp))
    within = monotonic.best_policy_within(mdp, old, np.ones(10))
    np.testing.assert_allclose(tabular.policy_return(mdp, within), best, atol=1e-9)


@given(
    seeds,
    st.sampled_from([0.5, 0.9, 0.99]),
    st.sampled_from([50, 2_000, 500_000]),
    st.sampled_from(["mean", "largest"]),
)
@settings(max_examples=12, deadline=None)
def test_the_true_return_never_falls(seed, discount, transitions, over_time):
    rng = np.random.default_rng(seed)
    mdp = tabular.random_mdp(rng, 3, 2, np.full(40, discount), 0.3)
    before = None
    for epoch in monotonic.improve(rng, mdp, transitions, epochs=4, over_time=over_time):
        assert before is None or (epoch.before == before).all()
        assert (epoch.after >= epoch.before).all()
        assert (epoch.after[epoch.admitted] >= epoch.guaranteed[epoch.admitted]).all()
        assert (epoch.after[epoch.admitted] > epoch.before[epoch.admitted]).all()
        before = epoch.after


def test_steps_are_admitted_and_more_data_admit_more():
    rows = checks.admissions(300, seed=0)
    assert all(row.falls == 0 for row in rows)
    for discount in checks.DISCOUNTS:
        ever = [row.ever for row in rows if row.discount == discount]
        assert ever[0] <= ever[2] <= ever[-1]
        assert ever[-1] > 0.9


def test_guarantees_hold_for_every_policy_and_either_size_over_time():
    rng = np.random.default_rng(0)
    mdp = tabular.random_mdp(rng, 3, 2, np.full(200, 0.9), 0.3)
    model = replace(mdp, dynamics=0.9 * mdp.dynamics + 0.1 * tabular.random_distributions(rng, (200, 3, 2, 3), 0.3))
    error = tabular.transition_error(mdp.dynamics, model.dynamics)
    policy = tabular.random_policy(rng, (200, 3, 2))
    true = tabular.policy_return(mdp, policy)
    mean = monotonic.guaranteed_return(model, policy, error, 1.0)
    largest = monotonic.guaranteed_return(model, policy, error, 1.0, "largest")
    assert (largest <= mean + 1e-9).all()
    assert (mean <= true).all()
    assert (true <= monotonic.largest_return(model, policy, error, 1.0)).all()
    best = monotonic.most_guaranteed_policy(model, error, 1.0)
    assert (mean <= monotonic.guaranteed_return(model, best, error, 1.0) + 1e-9).all()


def test_beating_the_old_guarantee_is_not_enough():
    # From state 0 action 0 leads to paradise (+1) and action 1 to nothing (0); the model has action 0 lead to
    # hell (−1) and is right about action 1. γ = ½: the old policy's guarantee is −1 − 2·½·½·2 = −3 or so, the
    # new one's is exactly 0, and yet the true return falls from γ/(1−γ) = 1 to 0.
    absorbed = np.eye(4)[1:, None, :].repeat(2, axis=1)
    first = np.array([[[0.0, 1, 0, 0], [0, 0, 1, 0]]])
    wrong = np.array([[[0.0, 0, 0, 1], [0, 0, 1, 0]]])
    reward = np.array([0.0, 1, 0, -1])[:, None].repeat(2, axis=1)
    mdp = tabular.FiniteMDP(np.concatenate([first, absorbed]), reward, np.eye(4)[0], np.array(0.5))
    model = replace(mdp, dynamics=np.concatenate([wrong, absorbed]))
    error = tabular.transition_error(mdp.dynamics, model.dynamics)
    old, new = np.eye(2)[[0, 0, 0, 0]], np.eye(2)[[1, 0, 0, 0]]
    # Mean error (1−γ)·1 = ½, penalty 2γ·½/(1−γ)² = 2, model return −1.
    assert monotonic.guaranteed_return(model, old, error, 1.0) == pytest.approx(-3)
    assert monotonic.guaranteed_return(model, new, error, 1.0) == pytest.approx(0)
    assert (tabular.policy_return(mdp, old), tabular.policy_return(mdp, new)) == (1, 0)


def test_confidence_radius_covers_the_truth():
    rng = np.random.default_rng(0)
    mdp = tabular.random_mdp(rng, 3, 2, np.full(2000, 0.9), 1.0)
    policy = np.full((2000, 3, 2), 0.5)
    for transitions in (30, 1000):
        counts = tabular.sample_counts(rng, mdp, policy, transitions)
        error = tabular.transition_error(mdp.dynamics, tabular.maximum_likelihood_model(counts))
        missed = (error > monotonic.confidence_radius(counts)).any((-1, -2))
        assert missed.mean() <= monotonic.FAILURE_PROBABILITY
    # An untried pair: anything is possible.
    assert (monotonic.confidence_radius(np.zeros((2, 1, 2))) == 1).all()


def test_from_data_alone_steps_are_rarer_and_still_never_lose():
    known, unknown = checks.admissions(100, 3), checks.admissions(100, 3, "confidence")
    assert sum(row.steps for row in unknown) < sum(row.steps for row in known)
    assert all(row.falls == 0 for row in unknown)

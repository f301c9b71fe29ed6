"""The bounds: hand-worked numbers, the sums they close, the search behind k*, and refused arguments."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbpo.theory import (
    best_rollout_length,
    bounds,
    branched_gap,
    branched_gap_current_error,
    branched_returns_gap,
    extrapolated_model_error,
    learned_reward_gap,
    monotonic_gap,
    returns_gap,
    sharp_branched_gap,
    sharp_branched_gap_current_error,
    sharp_monotonic_gap,
    state_shift,
)

errors = st.floats(0, 1)
discounts = st.floats(0.01, 0.999)
lengths = st.integers(0, 40)


# With γ = 1/2: 1/(1−γ) = 2, 1/(1−γ)² = 4, γ/(1−γ)² = 2.
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # 2·½·3·(0.1 + 2·0.05)·4 + 4·3·0.05·2 = 2.4 + 1.2
        (monotonic_gap(model_error=0.1, policy_shift=0.05, discount=0.5, max_reward=3), 3.6),
        # 2·[⅛·0.05·4 + (¼ + 2)·2·0.05 + 2·2·(0.1 + 0.1)] = 2·[0.025 + 0.225 + 0.8]
        (branched_gap(rollout_length=2, model_error=0.1, policy_shift=0.05, discount=0.5, max_reward=1), 2.1),
        # 2·[⅛·0.05·4 + ¼·2·0.05 + 2·2·0.1] = 2·[0.025 + 0.025 + 0.4]
        (
            branched_gap_current_error(
                rollout_length=2, model_error=0.1, policy_shift=0.05, discount=0.5, max_reward=1
            ),
            0.9,
        ),
        (state_shift(steps=7, divergence=0.1), 0.7),
        # 2·[2·(0.05 + 0.1) + 2·0.05]
        (returns_gap(model_error=0.1, policy_shift=0.05, discount=0.5, max_reward=1), 0.8),
        # k = 1: 2·[¼·4·(0.1 + 0.3) + 1·2·(0.2 + 0.4) + ½·2·0.3 + 2·0.4] = 2·[0.4 + 1.2 + 0.3 + 0.8]
        (
            branched_returns_gap(
                rollout_length=1,
                model_error_before=0.1,
                model_error_after=0.2,
                policy_shift_before=0.3,
                policy_shift_after=0.4,
                discount=0.5,
                max_reward=1,
            ),
            5.4,
        ),
        (extrapolated_model_error(model_error=0.05, policy_shift=0.1, slope=0.5), 0.1),
        (learned_reward_gap(model_error=0.1, discount=0.5, max_reward=1), 0.4),
        (sharp_monotonic_gap(model_error=0.1, policy_shift=0.05, discount=0.5, max_reward=1), 0.6),
        # 2·2·[0.05 + ¾·0.1] and 2·2·[¼·0.05 + ¾·0.1]
        (sharp_branched_gap(rollout_length=2, model_error=0.1, policy_shift=0.05, discount=0.5, max_reward=1), 0.5),
        (
            sharp_branched_gap_current_error(
                rollout_length=2, model_error=0.1, policy_shift=0.05, discount=0.5, max_reward=1
            ),
            0.35,
        ),
    ],
)
def test_hand_worked_numbers(value, expected):
    assert isinstance(value, float)
    assert value == pytest.approx(expected, rel=1e-12)


@given(errors, errors, st.floats(0.01, 0.95))
def test_lemma_b3_is_the_sum_over_time(error, shift, discount):
    # Σ_t γ^t 2 r_max [t (ε_m + ε_π) + ε_π], far enough that the rest is below rounding.
    t = np.arange(1500)
    series = (discount**t * 2 * (t * (error + shift) + shift)).sum()
    assert returns_gap(error, shift, discount, 1.0) == pytest.approx(series, rel=1e-9)


@given(errors, errors, st.floats(0.01, 0.95), lengths)
def test_sharper_branched_bounds_are_the_sums_over_time(error, shift, discount, k):
    # At time t the branch has made t − min(t, k) steps before its branch point and min(t, k) after it.
    t = np.arange(1500)
    inside = np.minimum(t, k)
    under_data = (discount**t * 2 * (t * shift + inside * error)).sum()
    under_current = (discount**t * 2 * ((t - inside) * shift + inside * error)).sum()
    assert sharp_branched_gap(k, error, shift, discount, 1.0) == pytest.approx(under_data, rel=1e-9)
    assert sharp_branched_gap_current_error(k, error, shift, discount, 1.0) == pytest.approx(under_current, rel=1e-9)


@given(errors, errors, discounts, lengths)
def test_sharper_forms_are_never_above_the_printed_ones(error, shift, discount, k):
    given_ = (error, shift, discount, 1.0)
    slack = 1e-9 / (1 - discount) ** 2
    assert sharp_monotonic_gap(*given_) <= monotonic_gap(*given_) + slack
    assert sharp_branched_gap(k, *given_) <= branched_gap(k, *given_) + slack
    assert sharp_branched_gap_current_error(k, *given_) <= branched_gap_current_error(k, *given_) + slack


@given(errors, errors, discounts, lengths)
def test_theorems_are_the_lemma_applied_as_in_their_proofs(error, shift, discount, k):
    def lemma(before=0.0, after=0.0, shift_before=0.0, shift_after=0.0):
        return branched_returns_gap(k, before, after, shift_before, shift_after, discount, 1.0)

    first = lemma(shift_before=shift)
    assert branched_gap_current_error(k, error, shift, discount, 1.0) == pytest.approx(first + lemma(after=error))
    third, fourth = lemma(after=error, shift_after=shift), lemma(shift_after=shift)
    assert branched_gap(k, error, shift, discount, 1.0) == pytest.approx(first + third + fourth)


def test_terms_sum_to_the_bound_and_broadcast():
    error, shift = np.array([0.1, 0.2]), np.array([[0.0], [0.3], [1.0]])
    terms = bounds.branched_terms(3, error, shift, 0.9, 2.0)
    total = branched_gap(3, error, shift, 0.9, 2.0)
    assert total.shape == (3, 2)
    assert total.dtype == np.float64
    np.testing.assert_allclose(sum(terms.values()), total)


def searched_rollout_length(error, shift, discount):
    """k* by walking down the bound in exact arithmetic: the twin of the closed form."""
    error, shift, discount = Fraction(error), Fraction(shift), Fraction(discount)
    k, power = 0, Fraction(1)
    while power * shift > error:
        k, power = k + 1, power * discount
    return k


@settings(max_examples=200)
@given(st.floats(1e-3, 1), st.floats(1e-3, 1), st.floats(0.05, 0.98))
def test_best_rollout_length_is_found_by_search(error, shift, discount):
    closed = best_rollout_length(error, shift, discount)
    k = np.arange(500)
    values = branched_gap_current_error(k, error, shift, discount, 1.0)
    assert values[int(closed)] <= values.min() * (1 + 1e-12)
    # A rational search differs only where two neighbours are equal to rounding.
    searched = searched_rollout_length(error, shift, discount)
    assert closed == searched or values[int(closed)] == pytest.approx(values[searched], rel=1e-13)


@pytest.mark.parametrize(
    ("error", "shift", "discount", "expected"),
    [
        (0.05, 0.1, 0.5, 1),  # b(1) = b(2) exactly: γ ε_π = ε_m', the shorter of two equals
        (0.025, 0.1, 0.5, 2),
        (0.0729, 0.1, 0.9, 3),  # 0.1·0.9³ = ε_m', though not in floats
        (0.1, 0.1, 0.99, 0),
        (0.2, 0.1, 0.99, 0),
        (0.05, 0.1, 0.99, 69),  # ln 2 / 0.010050 = 68.97
        (1e-3, 0.1, 0.9999, 46050),  # ln 100 / 1.00005e-4 = 46049.4
        (0.0, 0.1, 0.9, np.inf),
        (0.0, 0.0, 0.9, 0),
        (0.1, 0.0, 0.9, 0),
        (1e-300, 1.0, 0.5, 997),  # 300·ln 10/ln 2 = 996.6
    ],
)
def test_best_rollout_length_by_hand(error, shift, discount, expected):
    assert best_rollout_length(error, shift, discount) == expected


def test_best_rollout_length_near_a_discount_of_one():
    # At every exact tie of dyadic numbers, and one ulp to either side of it.
    discount, shift = 1 - 2.0**-13, 0.5
    k = np.array([1, 10, 1000, 10_000, 60_000])
    tie = shift * discount**k
    assert (best_rollout_length(tie, shift, discount) == k).all()
    assert (best_rollout_length(tie * (1 + 1e-9), shift, discount) == k).all()
    assert (best_rollout_length(tie * (1 - 1e-9), shift, discount) == k + 1).all()


@given(errors, errors, discounts)
def test_sharper_theorem_knows_only_no_rollout_or_an_endless_one(error, shift, discount):
    values = sharp_branched_gap_current_error(np.arange(30), error, shift, discount, 1.0)
    steps = np.diff(values)
    assert (steps <= 1e-12 * values.max()).all() or (steps >= -1e-12 * values.max()).all()


def test_with_the_model_error_under_the_data_policy_no_rollout_is_ever_best():
    k = np.arange(200)
    for error in (0.0, 0.01, 0.5):
        for discount in (0.5, 0.9, 0.99, 0.999):
            assert branched_gap(k, error, 0.1, discount, 1.0).argmin() == 0


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("model_error", -0.1),
        ("model_error", 1.5),
        ("model_error", float("nan")),
        ("policy_shift", [0.1, 1.1]),
        ("policy_shift", "much"),
        ("discount", 0.0),
        ("discount", 1.0),
        ("discount", float("nan")),
        ("max_reward", -1.0),
        ("max_reward", float("inf")),
        ("rollout_length", -1),
        ("rollout_length", 1.5),
    ],
)
def test_bad_arguments_are_named(argument, value):
    good = {"rollout_length": 2, "model_error": 0.1, "policy_shift": 0.1, "discount": 0.9, "max_reward": 1.0}
    with pytest.raises(ValueError, match=rf"^{argument} .*\.$"):
        branched_gap(**{**good, argument: value})


def test_every_function_refuses_bad_arguments():
    with pytest.raises(ValueError, match=r"^steps = -1 is not a count"):
        state_shift(-1, 0.1)
    with pytest.raises(ValueError, match=r"^divergence = 2 is outside \[0, 1\]"):
        state_shift(1, 2)
    with pytest.raises(ValueError, match=r"^slope = nan is not finite"):
        extrapolated_model_error(0.1, 0.1, float("nan"))
    with pytest.raises(ValueError, match=r"^policy_shift_after = -0.5"):
        branched_returns_gap(1, 0, 0, 0, -0.5, 0.9, 1)
    with pytest.raises(ValueError, match=r"^discount = 1 is outside \(0, 1\)"):
        best_rollout_length(0.1, 0.2, 1)

"""The checks themselves: true claims survive them, false ones do not, and a planted mistake is found."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbpo.theory import checks
from mbpo.theory.adversary import hardest
from mbpo.theory.claims import CLAIMS
from mbpo.theory.worlds import Exact, draw_stack

TRUE = [claim for claim in CLAIMS if claim.holds]
FALSE = [claim for claim in CLAIMS if not claim.holds]


def named(claim):
    return f"{claim.label}, {claim.statement}"


@pytest.fixture(scope="module")
def tallies():
    return {named(tally.claim): tally for tally in checks.check(1000, seed=1)}


@pytest.mark.parametrize("claim", TRUE, ids=named)
def test_true_claims_hold_in_random_worlds(claim, tallies):
    tally = tallies[named(claim)]
    assert (tally.violations, tally.failed, tally.worlds) == (0, False, 1000)
    assert tally.tightest >= 1 - 1e-6


@given(
    seed=st.integers(0, 2**32 - 1),
    states=st.integers(1, 5),
    actions=st.integers(1, 3),
    concentration=st.sampled_from([0.01, 0.1, 1.0]),
)
@settings(max_examples=15, deadline=None)
def test_true_claims_hold_in_worlds_of_any_size(seed, states, actions, concentration):
    exact = Exact(draw_stack(np.random.default_rng(seed), 8, states, actions, concentration))
    for claim in TRUE:
        gap, bound = checks.compare(claim, exact)
        assert not checks.violated(gap, bound, exact).any(), claim


@pytest.mark.parametrize("claim", FALSE, ids=named)
def test_a_search_finds_worlds_against_false_claims(claim):
    found, _ = hardest(claim, np.random.default_rng(0), 0.5, rounds=50)
    assert found < 1


@pytest.mark.parametrize("claim", [claim for claim in TRUE if claim.form == "sharper"], ids=named)
def test_a_search_comes_near_equality_and_no_further(claim):
    # The sharper forms cannot be improved: worlds come as near to them as one likes, at any discount.
    found, worlds = hardest(claim, np.random.default_rng(1), 0.9, rounds=60)
    assert 1 - 1e-6 <= found < 1.01
    exact = Exact(worlds)
    gap, bound = checks.compare(claim, exact)
    assert checks.ratio(gap, bound, exact).item() == found


def test_a_mistake_in_a_bound_is_found():
    # Without its factor 2 (total variation for L1 distance) Theorem 4.1 would fail, and the sweep says so.
    (claim,) = (c for c in TRUE if c.label == "Theorem 4.1 / A.1" and c.form == "sharper")
    halved = replace(claim, sides=lambda x: (claim.sides(x)[0], claim.sides(x)[1] / 2))
    difficulty, _ = hardest(halved, np.random.default_rng(0), 0.9, rounds=60)
    assert difficulty < 0.6


def test_largest_errors_are_above_their_means():
    exact = Exact(draw_stack(np.random.default_rng(3), 50, 3, 2, 0.1))
    assert (exact.mean_model_error <= exact.model_error + 1e-9).all()
    assert (exact.mean_current_model_error <= exact.current_model_error + 1e-9).all()
    assert (exact.mean_policy_shift <= exact.policy_shift + 1e-9).all()


def test_progress_reaches_the_number_of_worlds():
    heard = []
    checks.check(25, seed=0, progress=heard.append)
    assert heard[-1] == 25
    assert heard == sorted(heard)


def test_the_same_seed_gives_the_same_tallies():
    assert checks.check(40, seed=5) == checks.check(40, seed=5)

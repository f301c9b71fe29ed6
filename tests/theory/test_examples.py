"""The counterexamples and the extreme worlds, number by number."""

import numpy as np
import pytest

from mbpo.theory import bounds, tabular
from mbpo.theory.checks import compare
from mbpo.theory.claims import CLAIMS
from mbpo.theory.examples import (
    abandoned_state,
    counterexamples,
    drifting_policy,
    model_leak,
    policy_leak,
    unvisited_state,
    weighted_branch_points,
)
from mbpo.theory.worlds import Exact


def sides(label, form, words):
    """The two sides of the one claim whose statement has these words, in its own counterexample."""
    (claim,) = (c for c in CLAIMS if (c.label, c.form) == (label, form) and words in c.statement)
    gap, bound = compare(claim, Exact(counterexamples()[claim.counterexample].worlds))
    return gap.item(), bound.item()


@pytest.mark.parametrize(
    ("label", "words", "gap", "bound"),
    [
        # One step: |½ − 5/8| against ½ ln(4/5) + ½ ln(4/3) = ½ ln(16/15).
        ("Lemma B.2", "KL", 1 / 8, np.log(16 / 15) / 2),
        # Rewards ±1: from t = 1 on the means differ by 2/8, Σ_(t≥1) ½^t = 1; bound 2·½·KL/(1−½)² = 4 KL.
        ("Lemma B.3", "KL", 1 / 4, 2 * np.log(16 / 15)),
        # γ = ¼: rewards 1 and −1 for ever, 2/(1−γ); bound 2·¼·1/(¾)².
        ("Theorem 4.1", "(s', r), the reward learned", 8 / 3, 8 / 9),
        # Returns: γ/(1−γ) = 1; time t = 0 once, the others twice: 2γ/(1−γ²) = 4/3.
        ("Branched rollout", "weighted by γ^t", 1 / 3, 0),
        # The error under π tends to 1; 0 + 2·¼.
        ("Section 4.3", "ε_m + 2ε_π", 1, 1 / 2),
        # π: 1, −1, −1, ... Branched, k = 4: 1, −1, 1, −1, then for t ≥ 4 four steps from state 0, back to 1.
        # They differ by 2 at t = 2 and all t ≥ 4: 2(¼ + ⅛) = ¾. Bound 2·(½)⁴·1/(1−½)² = ½.
        ("Theorem 4.3", "π_D's states", 3 / 4, 1 / 2),
        # k = 1: from t = 2 on the branch starts in state 1 and ends in 0 in truth, in 1 in the model: 2·Σ_(t≥2) ½^t.
        ("Theorem A.2, proof", "L_2", 1, 0),
        ("Lemma B.4", "marginals", 1, 0),
    ],
)
def test_counterexamples_on_paper(label, words, gap, bound):
    assert sides(label, "printed", words) == pytest.approx((gap, bound), rel=1e-12, abs=1e-12)
    assert gap > bound


def test_every_failing_claim_has_a_counterexample_and_every_counterexample_a_claim():
    named = {claim.counterexample for claim in CLAIMS if not claim.holds}
    assert named == set(counterexamples())
    assert all(not claim.counterexample for claim in CLAIMS if claim.holds)


def test_true_claims_hold_in_every_counterexample():
    for example in counterexamples().values():
        for claim in CLAIMS:
            if claim.holds:
                gap, bound = compare(claim, Exact(example.worlds))
                assert gap <= bound + 1e-12, (claim, example.name)


def test_errors_in_the_counterexamples():
    unvisited = Exact(unvisited_state().worlds)
    assert (unvisited.model_error, unvisited.policy_shift) == (0, 1)
    assert unvisited.current_model_error == pytest.approx(1)  # π's own states do show it
    abandoned = Exact(abandoned_state().worlds)
    assert abandoned.current_model_error == 0
    assert abandoned.largest_in_branch(abandoned.real_old, abandoned.real_new, abandoned.error_new) == 1
    drifting = Exact(drifting_policy().worlds)
    assert (drifting.model_error, drifting.policy_shift) == (0, 0.25)


def test_a_perfect_model_leaves_no_gap_between_branched_and_true_return():
    x = Exact(weighted_branch_points().worlds)
    assert x.branched_return == pytest.approx([1.0])
    assert x.return_new == pytest.approx([1.0])


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("leak", [1e-6, 1e-3, 0.1, 1.0])
def test_leaks_come_as_near_to_equality_as_they_say(discount, leak):
    gap = 2 * discount * leak / ((1 - discount) * (1 - discount + discount * leak))
    loose = 1 + discount * leak / (1 - discount)
    for worlds in (model_leak(leak, discount), policy_leak(leak, discount)):
        x = Exact(worlds)
        assert x.model_return_new - x.return_new == pytest.approx(
            np.sign(x.model_return_new - x.return_new) * gap, rel=1e-6
        )
        sharp = bounds.sharp_monotonic_gap(x.model_error, x.policy_shift, discount, 1.0)
        assert sharp == pytest.approx([loose * gap], rel=1e-6)
    # The printed theorem is exact for the leaking model and 2/γ times the sharper one for the leaking policy.
    assert bounds.monotonic_gap(leak, 0.0, discount, 1.0) == pytest.approx(loose * gap)
    assert bounds.monotonic_gap(0.0, leak, discount, 1.0) == pytest.approx(loose * gap * 2 / discount)


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_a_learned_reward_breaks_the_printed_bound_at_every_discount(discount):
    # The model leaks from r = +1 for ever to r = −1 for ever, −1 on the jump already: s' and r go wrong together
    # with probability ε. Rewards differ by 2(1 − (1−ε)^(t+1)) at time t, so the gap is
    # 2ε/((1−γ)(1−γ+γε)), above the printed 2γε/(1−γ)² for ε < ((1−γ)/γ)².
    error = 0.5 * ((1 - discount) / discount) ** 2
    t = np.arange(20_000)
    gap = (discount**t * 2 * (1 - (1 - error) ** (t + 1))).sum()
    assert gap == pytest.approx(2 * error / ((1 - discount) * (1 - discount + discount * error)))
    printed = bounds.monotonic_gap(error, 0.0, discount, 1.0)
    assert printed < gap <= printed + bounds.learned_reward_gap(error, discount, 1.0)


def test_the_largest_reward_is_not_a_bound_on_its_size():
    # Rewards 0 and −1: the largest is 0, and with it every bound; the model is wrong by 1 all the same.
    worlds = model_leak(1.0, 0.5)
    mdp = worlds.mdp
    shifted = tabular.FiniteMDP(mdp.dynamics, (mdp.reward - 1) / 2, mdp.start, mdp.discount)
    model = tabular.FiniteMDP(worlds.model, shifted.reward, mdp.start, mdp.discount)
    gap = np.abs(tabular.policy_return(shifted, worlds.policy) - tabular.policy_return(model, worlds.policy))
    assert gap == pytest.approx([1.0])
    assert bounds.monotonic_gap(1.0, 0.0, 0.5, max_reward=0.0) == 0.0
    # Half the range of the rewards is enough, and here exactly half of max |r|.
    assert gap <= bounds.monotonic_gap(1.0, 0.0, 0.5, max_reward=0.5)

"""The bounds of the MBPO paper as functions, in its order, and the sharper forms that its own premises allow.

Every argument broadcasts; scalars in, a float out. One vocabulary throughout:

- `model_error`  ε_m: expected total variation between p(s'|s,a) and p̂(s'|s,a), the largest over time;
- `policy_shift` ε_π: the largest total variation over states between π_D(·|s) and π(·|s);
- `discount`     γ, and `max_reward` r_max, a bound on |r| (not on r: see docs/theory.md);
- `rollout_length` k, the steps of a branch under the new policy and the model.

The paper states its lemmas with the Kullback-Leibler divergence and proves them with the total variation.
Deviation: each divergence here is a total variation, with which the statements are true.
"""

import numpy as np

from mbpo.theory.arguments import (
    Bools,
    Floats,
    Numbers,
    Numeric,
    count,
    discount_factor,
    nonnegative,
    number,
    plain,
    total_variation_distance,
)

# Two values of the bound over k that differ by rounding alone count as equal, and the shorter rollout is taken.
TIE = 8 * np.finfo(np.float64).eps


def monotonic_gap(model_error: Numeric, policy_shift: Numeric, discount: Numeric, max_reward: Numeric) -> Numbers:
    """C(ε_m, ε_π), by how much the model may overrate a policy: η[π] ≥ η̂[π] − C.

    C = 2γ r_max (ε_m + 2ε_π)/(1−γ)² + 4 r_max ε_π/(1−γ)

    Paper: Theorems 4.1 and A.1. ε_m is taken under the data policy's own state distributions.
    """
    return _total(monotonic_terms(model_error, policy_shift, discount, max_reward))


def monotonic_terms(
    model_error: Numeric, policy_shift: Numeric, discount: Numeric, max_reward: Numeric
) -> dict[str, Numbers]:
    """The summands of `monotonic_gap`, by what they charge for."""
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    g, scale = _scale(discount, max_reward)
    return {
        "model error": plain(scale * g * e_m / (1 - g) ** 2),
        "state shift": plain(scale * g * 2 * e_pi / (1 - g) ** 2),
        "action shift": plain(scale * 2 * e_pi / (1 - g)),
    }


def branched_gap(
    rollout_length: Numeric,
    model_error: Numeric,
    policy_shift: Numeric,
    discount: Numeric,
    max_reward: Numeric,
) -> Numbers:
    """By how much k-branched returns may overrate a policy, from ε_m under the data policy.

    2 r_max [ γ^(k+1) ε_π/(1−γ)² + (γ^k + 2) ε_π/(1−γ) + k (ε_m + 2ε_π)/(1−γ) ]

    Paper: Theorems 4.2 and A.3.
    """
    return _total(branched_terms(rollout_length, model_error, policy_shift, discount, max_reward))


def branched_terms(
    rollout_length: Numeric,
    model_error: Numeric,
    policy_shift: Numeric,
    discount: Numeric,
    max_reward: Numeric,
) -> dict[str, Numbers]:
    """The summands of `branched_gap`, by what they charge for."""
    k = count("rollout_length", rollout_length)
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    g, scale = _scale(discount, max_reward)
    return {
        "state shift before the branch": plain(scale * g ** (k + 1) * e_pi / (1 - g) ** 2),
        "action shift": plain(scale * (g**k + 2) * e_pi / (1 - g)),
        "model error and state shift in the branch": plain(scale * k * (e_m + 2 * e_pi) / (1 - g)),
    }


def branched_gap_current_error(
    rollout_length: Numeric,
    model_error: Numeric,
    policy_shift: Numeric,
    discount: Numeric,
    max_reward: Numeric,
) -> Numbers:
    """By how much k-branched returns may overrate a policy, from ε_m' under that policy itself.

    2 r_max [ γ^(k+1) ε_π/(1−γ)² + γ^k ε_π/(1−γ) + k ε_m'/(1−γ) ]

    Paper: Theorems 4.3 and A.2. Deviation: `model_error` is ε_m' under the *new* policy's own state
    distributions, as in the appendix; with the data policy's, as section 4.3 prints it, the bound is false.
    """
    return _total(branched_current_error_terms(rollout_length, model_error, policy_shift, discount, max_reward))


def branched_current_error_terms(
    rollout_length: Numeric,
    model_error: Numeric,
    policy_shift: Numeric,
    discount: Numeric,
    max_reward: Numeric,
) -> dict[str, Numbers]:
    """The summands of `branched_gap_current_error`, by what they charge for."""
    k = count("rollout_length", rollout_length)
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    g, scale = _scale(discount, max_reward)
    return {
        "state shift before the branch": plain(scale * g ** (k + 1) * e_pi / (1 - g) ** 2),
        "action shift": plain(scale * g**k * e_pi / (1 - g)),
        "model error in the branch": plain(scale * k * e_m / (1 - g)),
    }


def extrapolated_model_error(model_error: Numeric, policy_shift: Numeric, slope: Numeric) -> Numbers:
    """ε̂_m'(ε_π) = ε_m + ε_π · slope, the model error guessed at a policy that has moved by ε_π.

    Paper: section 4.3, with the slope dε_m'/dε_π measured. A straight line knows no limits: outside [0, 1]
    it has left its range of validity, and the bounds refuse it.
    """
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    return plain(e_m + e_pi * number("slope", slope))


def best_rollout_length(model_error: Numeric, policy_shift: Numeric, discount: Numeric) -> Numbers:
    """k*, the rollout length with the least `branched_gap_current_error`; the shortest one where several tie.

    Up to the factor 2 r_max/(1−γ) the bound is b(k) = γ^k ε_π/(1−γ) + k ε_m', and a further step changes it
    by b(k+1) − b(k) = ε_m' − γ^k ε_π, which grows with k. So k* is the first k with γ^k ε_π ≤ ε_m':

    k* = max(0, ⌈ln(ε_π/ε_m') / ln(1/γ)⌉)

    0 exactly when ε_m' ≥ ε_π, infinite when ε_m' = 0 < ε_π. Paper: section 4.3, the argmin over k.
    """
    e_m, e_pi, g = np.broadcast_arrays(
        total_variation_distance("model_error", model_error),
        total_variation_distance("policy_shift", policy_shift),
        discount_factor("discount", discount),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        k = np.ceil((np.log(e_pi) - np.log(e_m)) / -np.log(g))
    # The quotient of logarithms can land on the wrong side of an integer; the criterion itself decides.
    k = np.where(e_pi <= e_m, 0.0, k)
    k = np.where((k >= 1) & np.isfinite(k) & _no_gain(k - 1, e_m, e_pi, g), k - 1, k)
    k = np.where(np.isfinite(k) & ~_no_gain(k, e_m, e_pi, g), k + 1, k)
    return plain(k)


def state_shift(steps: Numeric, divergence: Numeric) -> Numbers:
    """t δ, how far two Markov chains from one start are apart after t steps, in total variation.

    Paper: Lemma B.2. Deviation: `divergence` δ is the expected total variation of a step under either chain,
    not the KL divergence, with which the statement is false. Beyond 1 the bound says nothing.
    """
    return plain(count("steps", steps) * total_variation_distance("divergence", divergence))


def returns_gap(model_error: Numeric, policy_shift: Numeric, discount: Numeric, max_reward: Numeric) -> Numbers:
    """|η_1 − η_2| for two policies under two dynamics: 2 r_max [ γ (ε_π + ε_m)/(1−γ)² + ε_π/(1−γ) ].

    Paper: Lemma B.3. `model_error` is the expectation of the total variation between p_1(s'|s,a) and
    p_2(s'|s,a) under the first policy and the first dynamics, or under the second of both.
    """
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    g, scale = _scale(discount, max_reward)
    return plain(scale * (g * (e_pi + e_m) / (1 - g) ** 2 + e_pi / (1 - g)))


def branched_returns_gap(
    rollout_length: Numeric,
    model_error_before: Numeric,
    model_error_after: Numeric,
    policy_shift_before: Numeric,
    policy_shift_after: Numeric,
    discount: Numeric,
    max_reward: Numeric,
) -> Numbers:
    """|η_1 − η_2| for two branched rollouts, with the errors before and after the branch point.

    2 r_max [ γ^(k+1) (ε_m^pre + ε_π^pre)/(1−γ)² + k (ε_m^post + ε_π^post)/(1−γ)
              + γ^k ε_π^pre/(1−γ) + ε_π^post/(1−γ) ]

    Paper: Lemma B.4. `model_error_after` must hold at every depth of the branch, from every branch point.
    """
    k = count("rollout_length", rollout_length)
    m_pre = total_variation_distance("model_error_before", model_error_before)
    m_post = total_variation_distance("model_error_after", model_error_after)
    pi_pre = total_variation_distance("policy_shift_before", policy_shift_before)
    pi_post = total_variation_distance("policy_shift_after", policy_shift_after)
    g, scale = _scale(discount, max_reward)
    before = g ** (k + 1) * (m_pre + pi_pre) / (1 - g) ** 2 + g**k * pi_pre / (1 - g)
    after = (k * (m_post + pi_post) + pi_post) / (1 - g)
    return plain(scale * (before + after))


def learned_reward_gap(model_error: Numeric, discount: Numeric, max_reward: Numeric) -> Numbers:
    """2 r_max ε_m/(1−γ), what to add to any of the bounds where the model predicts the reward too.

    Deviation: section 4.1 takes ε_m over (s', r), but the appendix follows only s' and so forgets the error
    of the reward of the present step.
    """
    e_m = total_variation_distance("model_error", model_error)
    g, scale = _scale(discount, max_reward)
    return plain(scale * e_m / (1 - g))


def sharp_monotonic_gap(model_error: Numeric, policy_shift: Numeric, discount: Numeric, max_reward: Numeric) -> Numbers:
    """2γ r_max (ε_m + ε_π)/(1−γ)², the best constant for Theorem 4.1 under its own premises.

    Deviation: the paper passes through η[π_D] and pays the policy shift twice; coupling the two rollouts of π
    with the one of π_D pays it once (docs/theory.md has the proof and the worlds that reach it).
    """
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    g, scale = _scale(discount, max_reward)
    return plain(scale * g * (e_m + e_pi) / (1 - g) ** 2)


def sharp_branched_gap(
    rollout_length: Numeric,
    model_error: Numeric,
    policy_shift: Numeric,
    discount: Numeric,
    max_reward: Numeric,
) -> Numbers:
    """2γ r_max [ ε_π + (1−γ^k) ε_m ]/(1−γ)², Theorem 4.2 with the policy shift paid once and the sum not rounded up.

    Grows from pure policy shift at k = 0 to `sharp_monotonic_gap` as k → ∞.
    """
    k = count("rollout_length", rollout_length)
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    g, scale = _scale(discount, max_reward)
    return plain(scale * g * (e_pi + _one_minus_power(g, k) * e_m) / (1 - g) ** 2)


def sharp_branched_gap_current_error(
    rollout_length: Numeric,
    model_error: Numeric,
    policy_shift: Numeric,
    discount: Numeric,
    max_reward: Numeric,
) -> Numbers:
    """2γ r_max [ γ^k ε_π + (1−γ^k) ε_m' ]/(1−γ)², Theorem 4.3 with the sum over time carried out exactly.

    A weighted mean of the two errors: the whole trade-off of section 4.3 is which of them is smaller.
    """
    k = count("rollout_length", rollout_length)
    e_m = total_variation_distance("model_error", model_error)
    e_pi = total_variation_distance("policy_shift", policy_shift)
    g, scale = _scale(discount, max_reward)
    return plain(scale * g * (g**k * e_pi + _one_minus_power(g, k) * e_m) / (1 - g) ** 2)


def _scale(discount: Numeric, max_reward: Numeric) -> tuple[Floats, Floats]:
    """γ and 2 r_max, checked. The 2 turns a total variation into the L1 distance that rewards are summed over."""
    return discount_factor("discount", discount), 2 * nonnegative("max_reward", max_reward)


def _total(terms: dict[str, Numbers]) -> Numbers:
    return plain(np.asarray(sum(terms.values()), dtype=np.float64))


def _no_gain(k: Floats, e_m: Floats, e_pi: Floats, g: Floats) -> Bools:
    """Whether step k+1 no longer lowers the bound."""
    return g**k * e_pi * (1 - TIE) <= e_m


def _one_minus_power(g: Floats, k: Floats) -> Floats:
    """1 − γ^k without cancellation for discounts near 1."""
    return -np.expm1(k * np.log(g))

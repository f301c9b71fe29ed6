"""Targets and advantages: by hand, and against a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mbpo.returns import advantages, td_target

LENGTH = 6
DISCOUNT, DECAY = 0.9, 0.8
advantages_compiled = jax.jit(advantages, static_argnums=(5, 6))


def test_the_target_stops_at_an_end_only():
    # 1 + 0.9 · 10 = 10, and 1 without a value behind the end.
    target = td_target(jnp.float32([1, 1]), jnp.array([False, True]), jnp.float32([10, 10]), 0.9)
    np.testing.assert_allclose(target, [10.0, 1.0])


def test_a_value_behind_an_end_cannot_hurt():
    assert float(td_target(jnp.float32(1.0), jnp.array(True), jnp.float32(jnp.nan), 0.9)) == 1.0


def test_advantages_by_hand():
    # γ = ½, λ = ½, so that γλ = ¼. V = 4, 2, 8; V′ = 2, 8, 6; r = 1, 2, 3.
    # δ = 1 + 1 − 4 = −2;  2 + 4 − 2 = 4;  3 + 3 − 8 = −2
    # A₂ = −2;  A₁ = 4 − 2/4 = 3.5;  A₀ = −2 + 3.5/4 = −1.125
    rows = (jnp.float32([1, 2, 3]), jnp.float32([4, 2, 8]), jnp.float32([2, 8, 6]))
    no = jnp.zeros(3, bool)
    np.testing.assert_allclose(advantages_compiled(*rows, no, no, 0.5, 0.5), [-1.125, 3.5, -2.0])
    # The middle row is cut off by a time limit: its value goes on (δ stays), its advantage does not look further.
    cut = jnp.array([False, True, False])
    np.testing.assert_allclose(advantages_compiled(*rows, no, cut, 0.5, 0.5), [-1.0, 4.0, -2.0])
    # It terminates: no value either, δ₁ = 2 − 2 = 0.
    np.testing.assert_allclose(advantages_compiled(*rows, cut, cut, 0.5, 0.5), [-2.0, 0.0, -2.0])


def plain(reward, value, next_value, terminated, ends, discount, decay):
    """Each advantage as its own sum over the rest of the episode: Σ (γλ)^l δ_{t+l}."""
    result = []
    for t in range(len(reward)):
        total, factor = 0.0, 1.0
        for later in range(t, len(reward)):
            after = 0.0 if terminated[later] else next_value[later]
            total += factor * (reward[later] + discount * after - value[later])
            factor *= discount * decay
            if ends[later]:
                break
        result.append(total)
    return result


NUMBERS = st.lists(st.floats(-10, 10, width=32), min_size=LENGTH, max_size=LENGTH)
FLAGS = st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH)


@settings(max_examples=100, deadline=None)
@given(NUMBERS, NUMBERS, NUMBERS, FLAGS, FLAGS)
def test_the_scan_is_the_sum_it_stands_for(reward, value, next_value, terminated, truncated):
    ends = [a or b for a, b in zip(terminated, truncated, strict=True)]
    arrays = (jnp.float32(reward), jnp.float32(value), jnp.float32(next_value), jnp.array(terminated), jnp.array(ends))
    found = advantages_compiled(*arrays, DISCOUNT, DECAY)
    expected = plain(reward, value, next_value, terminated, ends, DISCOUNT, DECAY)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

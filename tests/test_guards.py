"""The guards: each reason fires, and normal learning passes."""

import math
import re

import numpy as np
import pytest

from mbpo.guards import DivergedError, Guard


def feed(guard: Guard, metrics: list[dict[str, float | None]], largest_reward: float = 1.0) -> None:
    for step, row in enumerate(metrics):
        guard.check(step, row, largest_reward)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stops_the_run(value):
    with pytest.raises(DivergedError, match=r"actor_loss is -?(nan|inf) at step 1,234: .* lower learning rate"):
        Guard(0.99, 1).check(1234, {"entropy": 1.0, "actor_loss": value}, 1.0)


@pytest.mark.parametrize(("name", "cause"), [("critic_loss", "critic"), ("model/holdout_mse", "model")])
def test_an_exploding_squared_error_stops_the_run(name, cause):
    guard = Guard(0.99, 1)
    feed(guard, [{name: 1.0}] * 50)
    guard.check(50, {name: 0.9e6}, 1.0)
    with pytest.raises(DivergedError, match=f"a million times its recent median of 1: the {cause} has diverged"):
        guard.check(51, {name: 1.1e6}, 1.0)


def test_an_explosion_moves_the_median_slowly():
    # 10 losses of 1 and then ten times as large each time: the sixth after them is more than a million medians.
    with pytest.raises(DivergedError, match="at step 16"):
        feed(Guard(0.99, 1), [{"critic_loss": 1.0}] * 10 + [{"critic_loss": 10.0**i} for i in range(1, 9)])


def test_a_value_out_of_reach_stops_the_run():
    # γ = 0.99: 100 · (1 + ln 2) = 169 is what rewards of 1 and one random action can sum up to; ten times that is 1690.
    metrics = {"temperature": 0.1, "entropy": 0.5}
    Guard(0.99, 1).check(0, metrics | {"q": 1690.0}, 1.0)
    for q in (1700.0, -1700.0):
        with pytest.raises(
            DivergedError, match=rf"expects {re.escape(f'{q:.3g}')} at step 0, .*\(at most 1\) exceeds 169"
        ):
            Guard(0.99, 1).check(0, metrics | {"q": q}, 1.0)


def test_normal_learning_passes():
    random = np.random.default_rng(0)
    guard = Guard(0.99, 6)
    for step in range(2000):
        progress = step / 2000
        row = {
            "q": 300.0 * progress,
            "critic_loss": float(np.exp(random.normal(3 * progress, 1))),
            "temperature": math.exp(-6 * progress),
            "entropy": -6.0 * progress,
            "model/holdout_mse": None if step % 10 else float(0.01 * np.exp(random.normal())),
        }
        guard.check(step, row, 5.0)


def test_the_first_reward_after_many_zeros_is_no_explosion():
    guard = Guard(0.99, 1)
    feed(guard, [{"critic_loss": 1e-9}] * 101, largest_reward=0.0)
    # A reward of 100 in one row of 256: ½ · 100² / 256.
    guard.check(101, {"critic_loss": 0.5 * 100**2 / 256}, 100.0)
    # PPO divides rewards by their scale, and cuts them at 10: at most ½ · 10².
    ppo = Guard(0.99, 1)
    feed(ppo, [{"value_loss": 1e-9}] * 101, largest_reward=0.0)
    ppo.check(101, {"value_loss": 50.0}, 1e-3)


def test_a_value_learned_while_the_temperature_was_high_is_no_divergence():
    # Six random actions were worth ln 2 · 6 = 4.2 a step at temperature 1, and the critics remember it for long.
    Guard(0.99, 6).check(0, {"q": 100.0, "temperature": 1e-3, "entropy": 0.1}, 0.0)


def test_without_discount_no_value_is_out_of_reach():
    Guard(1.0, 1).check(0, {"q": 1e9, "temperature": 0.1, "entropy": 0.5}, 1.0)

"""What each algorithm makes of the probes, through a real adapter. Their docstrings derive the values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lives import learn

from mbpo.algorithms import MBPO, PPO, SAC
from mbpo.envs.adapter import open_environment
from mbpo.envs.probes import PROBES
from mbpo.model import Model
from mbpo.termination import TerminationModel

SOLVING_SAC = SAC(
    updates_per_step=6, random_steps=64, batch_size=32, discount=0.9, learning_rate=5e-3, polyak_rate=0.05,
    hidden_sizes=(32,), target_entropy=-2.0,
)  # fmt: skip
SOLVING_MBPO = MBPO(
    sac=SOLVING_SAC,
    model=Model(
        members=2, elites=2, hidden_sizes=(16,), weight_decay=(0.0, 0.0), learning_rate=5e-3, batch_size=32,
        max_updates_per_fit=300,
    ),
    termination_networks=TerminationModel(members=1, hidden_sizes=(16,), batch_size=32, round_updates=50, max_rounds=4),
    rollouts_per_step=10, epoch_steps=64, fit_every=64, real_fraction=0.1,
)  # fmt: skip
SOLVING_PPO = PPO(
    steps_per_update=16, passes=10, batch_size=8, anneal_steps=2000, discount=0.9, learning_rate=1e-2,
    hidden_sizes=(16,),
)  # fmt: skip
SOLVERS = {"sac": (SOLVING_SAC, 256), "ppo": (SOLVING_PPO, 640), "mbpo": (SOLVING_MBPO, 384)}
each = pytest.mark.parametrize("name", SOLVERS)


def solve(name, probe):
    algorithm, steps = SOLVERS[name]
    return algorithm, learn(algorithm, open_environment(PROBES[probe]), steps)


def chosen(algorithm, state, obs):
    return np.asarray(algorithm.act(state, obs, jax.random.key(0), explore=False))


# Actions make no difference here: SAC's temperature goes to 0, and with it what the entropy adds to a value.
@each
@pytest.mark.parametrize(
    ("probe", "values"),
    [("SignProbe-v0", {-1: -1, 1: 1}), ("DelayProbe-v0", {0: 0.9, 1: 1}), ("EndlessProbe-v0", {0: 10})],
)
def test_values_are_those_that_follow(name, probe, values):
    """γ = 0.9: V = o; V(1) = 1 and V(0) = 0.9 · 1; V = 1 / (1 − 0.9)."""
    algorithm, state = solve(name, probe)
    obs = jnp.float32([[o] for o in values])
    np.testing.assert_allclose(algorithm.value(state, obs), list(values.values()), rtol=0.05)


@each
def test_the_value_of_a_constant_reward(name):
    """It is the reward, 1. PPO divides it by its deviation, which goes to 0, and cuts it at 10: that is its value."""
    algorithm, state = solve(name, "ConstantProbe-v0")
    (value,) = np.asarray(algorithm.value(state, jnp.zeros((1, 1))))
    if name == "ppo":
        deviation = float(jnp.sqrt(state.moments.returns.variance))
        assert deviation < 1e-3
        assert value / deviation == pytest.approx(10.0, rel=0.05)
    else:
        assert value == pytest.approx(1.0, rel=0.05)


@each
@pytest.mark.parametrize(
    ("probe", "best"), [("ActionProbe-v0", {0: 0.5}), ("FollowProbe-v0", {-0.8: -0.4, -0.4: -0.2, 0: 0, 0.8: 0.4})]
)
def test_the_best_action_is_found_and_its_worth_is_known(name, probe, best):
    """It earns 0, where a random one earns less than −0.4. What PPO loses by still exploring is its variance, 0.002."""
    algorithm, state = solve(name, probe)
    obs = jnp.float32([[o] for o in best])
    np.testing.assert_allclose(chosen(algorithm, state, obs)[:, 0], list(best.values()), atol=0.1)
    np.testing.assert_allclose(algorithm.value(state, obs), 0.0, atol=0.05)


@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_the_point_on_the_line_goes_to_the_middle(name):
    """At half of the best speed it leaves 0.5 through 0.4, 0.3 and 0.2: from the fifth step on it is within one step's
    reach of the middle. V(0) = 1 / (1 − 0.9); it would be 1 / (1 − 0.9 · 29/30) = 7.7 if the limit were an end."""
    algorithm, state = solve(name, "PointLineProbe-v0")
    environment = open_environment(PROBES["PointLineProbe-v0"])
    for seed in range(100, 110):
        path, over = [environment.reset(seed)], False
        while not over:
            outcome = environment.step(chosen(algorithm, state, path[-1]))
            path, over = [*path, outcome.obs], outcome.terminated or outcome.truncated
        assert len(path) == 31
        assert np.abs(path[5:]).max() <= 0.2
    np.testing.assert_allclose(algorithm.value(state, jnp.zeros((1, 1))), [10.0], rtol=0.05)

"""The terminal functions against the simulator: the same answer on every transition that it makes."""

import gymnasium
import numpy as np
import pytest

from mbpo.envs.adapter import open_environment
from mbpo.envs.simulator import SelfResetWatch
from mbpo.envs.tasks import TASKS, find_task

# The simulator decides on float64 states, the function on float32 observations: this far apart they may differ.
RELATIVE_MOVE = 1e-6


def transitions(env, rng):
    """(next_obs, terminated) of random and of violent actions, and of steps from states put far outside."""
    simulation = env.unwrapped
    watch = SelfResetWatch(simulation)
    for episode in range(12):
        env.reset(seed=episode)
        for _ in range(60):
            size = env.action_space.shape
            unit = rng.uniform(-1, 1, size) if episode % 2 else rng.choice([-1.0, 1.0], size)
            obs, _, terminated, _, _ = env.step((unit * env.action_space.high).astype(np.float32))
            yield obs.astype(np.float32), terminated
            if terminated:
                break
    for spread in (0.01, 0.1, 0.5, 2.0, 90.0, 300.0):
        for _ in range(60):
            env.reset(seed=0)
            speed = min(spread, 20.0)
            qpos = simulation.init_qpos + rng.normal(0.0, spread, simulation.model.nq)
            simulation.set_state(qpos, rng.normal(0.0, speed, simulation.model.nv))
            obs, _, terminated, _, _ = env.step(np.zeros(env.action_space.shape, np.float32))
            if not watch.take() and visible(simulation):
                yield obs.astype(np.float32), terminated


def visible(simulation):
    """False where Hopper ends because of a velocity beyond 100, which its observation shows as 10."""
    return simulation.spec.id != "Hopper-v5" or bool((np.abs(simulation.data.qvel) < 100).all())


def agrees(terminal, obs, terminated):
    moved = [obs * np.float32(1 + move) for move in (0.0, -RELATIVE_MOVE, RELATIVE_MOVE)]
    return terminated in {bool(terminal(near, None, near)) for near in moved}


@pytest.mark.parametrize("name", [*TASKS, "Ant-v5", "Humanoid-v5"])
def test_terminal_agrees_with_the_simulator(name):
    task = find_task(name)
    env = gymnasium.make(task.env_id, disable_env_checker=True, **task.env_kwargs)
    rows = list(transitions(env, np.random.default_rng(0)))
    wrong = [(obs[:3], terminated) for obs, terminated in rows if not agrees(task.terminal, obs, terminated)]
    assert wrong == []
    ended = sum(terminated for _, terminated in rows)
    assert len(rows) > 200
    assert ended == 0 if name == "HalfCheetah" else 50 < ended < len(rows) - 50


# Which column decides, and the two values between which an episode goes on.
LIMITS = {
    "InvertedPendulum": [(1, -0.2, 0.2)],
    "Hopper": [(0, 0.7, np.inf), (1, -0.2, 0.2)],
    "Walker2d": [(0, 0.8, 2.0), (1, -1.0, 1.0)],
    "Ant": [(0, 0.2, 1.0)],
    "Humanoid": [(0, 1.0, 2.0)],
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_simulator_was_seen_beyond_every_limit(name):
    task = find_task(name)
    env = gymnasium.make(task.env_id, disable_env_checker=True, **task.env_kwargs)
    rows = list(transitions(env, np.random.default_rng(0)))
    for column, low, high in LIMITS[name]:
        below = [terminated for obs, terminated in rows if obs[column] < low]
        above = [terminated for obs, terminated in rows if obs[column] > high]
        assert below
        assert all(below)
        assert above or high == np.inf
        assert all(above)


def test_the_tasks_have_the_sizes_and_limits_of_the_paper():
    sizes = {}
    for name, task in TASKS.items():
        environment = open_environment(task)
        spec = environment.spec
        assert environment.reset(0).shape == (spec.obs_size,)
        assert (spec.name, spec.time_limit, spec.terminal) == (name, 1000, task.terminal)
        sizes[name] = (spec.obs_size, spec.action_size)
    assert sizes == {
        "InvertedPendulum": (4, 1),
        "Hopper": (11, 3),
        "Walker2d": (17, 6),
        "HalfCheetah": (17, 6),
        "Ant": (27, 8),
        "Humanoid": (45, 17),
    }

"""The tasks by name, and their terminal functions on hand-made rows."""

import subprocess
import sys

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from mbpo.envs import tasks
from mbpo.envs.tasks import TASKS, Task, find_task, register_task
from mbpo.errors import UsageError

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _empty_register(monkeypatch):
    monkeypatch.setattr(tasks, "_registered", {})


def row(size, **columns):
    """A next observation of zeros with some columns set: c0=1.0 is column 0."""
    obs = np.zeros(size, np.float32)
    for column, value in columns.items():
        obs[int(column[1:])] = value
    return obs


# Each row: the task, a next observation, and whether an episode ends there, by the table in the task's documentation.
ROWS = [
    ("InvertedPendulum", row(4), False),
    ("InvertedPendulum", row(4, c1=0.2), False),
    ("InvertedPendulum", row(4, c1=-0.2), False),
    ("InvertedPendulum", row(4, c1=0.201), True),
    ("InvertedPendulum", row(4, c1=-0.201), True),
    ("InvertedPendulum", row(4, c0=5.0, c3=-50.0), False),
    ("Hopper", row(11, c0=1.25), False),
    ("Hopper", row(11, c0=0.69), True),
    ("Hopper", row(11, c0=250.0), False),
    ("Hopper", row(11, c0=1.25, c1=0.21), True),
    ("Hopper", row(11, c0=1.25, c1=-0.21), True),
    ("Hopper", row(11, c0=1.25, c4=99.0), False),
    ("Hopper", row(11, c0=1.25, c4=101.0), True),
    ("Hopper", row(11, c0=1.25, c4=-101.0), True),
    ("Walker2d", row(17, c0=1.25), False),
    ("Walker2d", row(17, c0=0.79), True),
    ("Walker2d", row(17, c0=2.01), True),
    ("Walker2d", row(17, c0=1.25, c1=0.99), False),
    ("Walker2d", row(17, c0=1.25, c1=1.01), True),
    ("Walker2d", row(17, c0=1.25, c1=-1.01), True),
    ("Walker2d", row(17, c0=1.25, c9=1e6), False),
    ("HalfCheetah", row(17, c0=-1e30, c5=1e30), False),
    ("Ant", row(27, c0=0.75), False),
    ("Ant", row(27, c0=0.2), False),
    ("Ant", row(27, c0=1.0), False),
    ("Ant", row(27, c0=0.19), True),
    ("Ant", row(27, c0=1.01), True),
    ("Ant", row(27, c0=-5.0), True),
    ("Humanoid", row(45, c0=1.4), False),
    ("Humanoid", row(45, c0=1.0), True),
    ("Humanoid", row(45, c0=2.0), True),
    ("Humanoid", row(45, c0=-1.4), True),
    ("Humanoid", row(45, c0=1.4, c44=1e6), False),
]
ALIVE = {"InvertedPendulum": 0.0, "Hopper": 1.25, "Walker2d": 1.25, "HalfCheetah": 0.0, "Ant": 0.7, "Humanoid": 1.4}
SIZES = {"InvertedPendulum": 4, "Hopper": 11, "Walker2d": 17, "HalfCheetah": 17, "Ant": 27, "Humanoid": 45}


def ends(task, next_obs):
    action = np.zeros((*next_obs.shape[:-1], 1), np.float32)
    return task.terminal(np.zeros_like(next_obs), action, next_obs)


@pytest.mark.parametrize(("name", "next_obs", "terminal"), ROWS)
def test_terminal_on_hand_made_rows(name, next_obs, terminal):
    assert ends(TASKS[name], next_obs) == terminal
    assert ends(TASKS[name], jnp.asarray(next_obs)) == terminal


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_row_that_is_not_finite_ends_every_task(name, value):
    for column in range(SIZES[name]):
        next_obs = row(SIZES[name], c0=ALIVE[name])
        assert not ends(TASKS[name], next_obs)
        next_obs[column] = value
        assert ends(TASKS[name], next_obs)
        assert ends(TASKS[name], jnp.asarray(next_obs))


@pytest.mark.parametrize("name", TASKS)
def test_terminal_keeps_the_leading_axes_and_reads_only_the_next_observation(name):
    next_obs = np.random.default_rng(0).normal(1.0, 0.5, (5, 3, SIZES[name])).astype(np.float32)
    flags = ends(TASKS[name], next_obs)
    assert flags.shape == (5, 3)
    assert flags.dtype == bool
    assert all(flags[i, j] == ends(TASKS[name], next_obs[i, j]) for i in range(5) for j in range(3))
    nonsense = np.full_like(next_obs, NAN)
    np.testing.assert_array_equal(TASKS[name].terminal(nonsense, nonsense, next_obs), flags)
    compiled = ends(TASKS[name], jnp.asarray(next_obs))
    np.testing.assert_array_equal(compiled, flags)


def test_the_six_names_find_the_six_tasks():
    assert list(TASKS) == ["InvertedPendulum", "Hopper", "Walker2d", "HalfCheetah", "Ant", "Humanoid"]
    assert all(find_task(name) == task for name, task in TASKS.items())


def test_a_plain_id_of_the_same_environment_is_the_task():
    assert find_task("Hopper-v5") == TASKS["Hopper"]


@pytest.mark.parametrize("name", ["Ant", "Humanoid"])
def test_a_plain_id_of_another_observation_keeps_the_terminal_function(name):
    plain = find_task(f"{name}-v5")
    assert (plain.name, plain.env_id, dict(plain.env_kwargs)) == (f"{name}-v5", f"{name}-v5", {})
    assert plain.terminal is TASKS[name].terminal


def test_any_other_name_is_a_gymnasium_id():
    assert find_task("Pendulum-v1") == Task("Pendulum-v1", "Pendulum-v1")


@pytest.mark.parametrize("name", ["", "os:system", "package.module:Env-v0"])
def test_a_name_that_gymnasium_would_import_is_refused(name):
    with pytest.raises(UsageError, match="is no task name"):
        find_task(name)


def test_register_task_adds_replaces_and_takes_away():
    def first(_obs, _action, next_obs):
        return next_obs[..., 0] > 0

    register_task("Mine-v0", terminal=first)
    register_task("Hopper-v5", terminal=first)
    assert find_task("Mine-v0").terminal is first
    assert find_task("Hopper").terminal is first
    assert find_task("Hopper-v5").terminal is first
    register_task("Hopper")
    assert find_task("Hopper").terminal is None
    register_task("Mine-v0")
    assert find_task("Mine-v0").terminal is None
    assert TASKS["Hopper"].terminal is not None


def test_a_terminal_that_is_no_function_is_refused():
    # In a process of its own, where no type checker is in the way.
    program = "import mbpo.envs.tasks as t; t.register_task('Mine-v0', terminal=True)"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "UsageError: the terminal of 'Mine-v0' is True; give a function" in failed.stderr


def test_naming_the_tasks_needs_neither_jax_nor_gymnasium():
    program = (
        "import sys; import mbpo.envs.tasks; print([m for m in ('jax', 'numpy', 'gymnasium') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_the_task_ids_are_registered_with_gymnasium():
    assert {task.env_id for task in TASKS.values()} <= set(gymnasium.registry)

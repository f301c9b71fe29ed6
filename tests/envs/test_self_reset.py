"""A simulator that resets itself silently: the step is found out, through any wrappers, and leaves nothing behind."""

import logging
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward

from mbpo.envs.adapter import open_environment
from mbpo.envs.simulator import SelfResetWatch

ZERO = np.zeros(3, np.float32)


@pytest.fixture
def hopper():
    """A Hopper inside wrappers, and its simulation."""
    env = TransformReward(gymnasium.make("Hopper-v5", disable_env_checker=True), float)
    return open_environment(lambda: env), env.unwrapped


@pytest.mark.parametrize("field", ["qpos", "qvel"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e12])
def test_the_step_is_corrupt_and_the_episode_over(hopper, field, value):
    environment, simulation = hopper
    first = environment.reset(0)
    good = environment.step(ZERO)
    getattr(simulation.data, field)[1] = value
    bad = environment.step(ZERO)
    assert not good.corrupt
    assert bad.corrupt
    assert not bad.terminated
    assert not bad.truncated
    assert bad.reward == 0.0
    # Without the counter nothing would show: the simulator has gone back to its start and stepped from there.
    assert np.isfinite(simulation.data.qpos).all()
    assert environment.snapshot() is None
    assert environment.reset(0).tobytes() == first.tobytes()
    assert not environment.step(ZERO).corrupt


def test_a_huge_acceleration(hopper):
    environment, simulation = hopper
    environment.reset(0)
    simulation.data.qfrc_applied[0] = 1e15
    assert environment.step(ZERO).corrupt
    environment.reset(0)
    assert not environment.step(ZERO).corrupt


def test_it_is_found_out_every_time(hopper):
    environment, simulation = hopper
    for seed in range(3):
        environment.reset(seed)
        simulation.data.qvel[0] = np.nan
        assert environment.step(ZERO).corrupt


def test_a_stale_warning_does_not_reach_the_next_episode(hopper):
    environment, simulation = hopper

    class StaleReset(gymnasium.Wrapper):
        def reset(self, *, seed=None, options=None):
            result = self.env.reset(seed=seed, options=options)
            self.unwrapped.data.warning[int(mujoco.mjtWarning.mjWARN_BADQACC)].number = 5
            return result

    stale = open_environment(lambda: StaleReset(simulation))
    stale.reset(0)
    assert not stale.step(ZERO).corrupt
    del environment


def test_a_simulation_that_is_built_anew_in_reset_is_watched():
    class Rebuilt(gymnasium.Wrapper):
        def reset(self, *, seed=None, options=None):
            self.unwrapped.data = mujoco.MjData(self.unwrapped.model)
            return self.env.reset(seed=seed, options=options)

    env = Rebuilt(gymnasium.make("Hopper-v5", disable_env_checker=True))
    environment = open_environment(lambda: env)
    for seed in range(2):
        environment.reset(seed)
        assert not environment.step(ZERO).corrupt
        env.unwrapped.data.qpos[1] = np.nan
        assert environment.step(ZERO).corrupt


def test_other_warnings_are_none_of_our_business(hopper):
    environment, simulation = hopper
    environment.reset(0)
    simulation.data.warning[int(mujoco.mjtWarning.mjWARN_CONTACTFULL)].number = 1
    assert not environment.step(ZERO).corrupt


def test_restoring_an_episode_that_now_breaks_the_simulator_says_no(hopper, monkeypatch):
    environment, simulation = hopper
    environment.reset(0)
    environment.step(ZERO)
    snapshot = environment.snapshot()
    assert snapshot is not None
    reset_model = type(simulation).reset_model

    def broken_reset(self):
        obs = reset_model(self)
        self.data.qvel[0] = np.nan
        return obs

    monkeypatch.setattr(type(simulation), "reset_model", broken_reset)
    assert not environment.restore(snapshot)


@pytest.mark.parametrize("data", [None, {"warning": []}, 3])
def test_data_that_is_not_a_simulation(data):
    class Holder:
        pass

    holder = Holder()
    holder.data = data
    assert not SelfResetWatch(holder).take()
    assert not SelfResetWatch(Holder()).take()


def test_nothing_is_printed_and_no_file_appears(tmp_path):
    # In a process of its own, where nothing has been sent to the log beforehand.
    program = (
        "import gymnasium, numpy as np\n"
        "from mbpo.envs.adapter import open_environment\n"
        "from mbpo.envs.tasks import TASKS\n"
        "for task in TASKS.values():\n"
        "    environment = open_environment(task)\n"
        "    environment.reset(0)\n"
        "    environment._env.unwrapped.data.qpos[1] = np.nan\n"
        "    assert environment.step(np.zeros(environment.spec.action_size, np.float32)).corrupt\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_the_warning_can_be_read_in_the_log(hopper, caplog):
    environment, simulation = hopper
    environment.reset(0)
    simulation.data.qpos[1] = np.nan
    with caplog.at_level(logging.INFO, logger="mbpo.mujoco"):
        environment.step(ZERO)
    assert "huge value in QPOS" in caplog.text


def test_an_environment_without_mujoco_does_not_import_it():
    program = (
        "import sys\n"
        "from mbpo.envs.adapter import open_environment\n"
        "from mbpo.envs.probes import point_line_probe\n"
        "import numpy as np\n"
        "environment = open_environment(point_line_probe)\n"
        "environment.reset(0)\n"
        "environment.step(np.zeros(1, np.float32))\n"
        "print('mujoco' in sys.modules)\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"

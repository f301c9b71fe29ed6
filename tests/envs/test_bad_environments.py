"""What a bad environment gets: before the run a sentence with the remedy, within the run one that says what it did."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box

from mbpo.envs.adapter import open_environment
from mbpo.envs.faults import EnvironmentFault
from mbpo.envs.tasks import find_task
from mbpo.errors import RunError, UsageError

ACTION = np.float32([0.5, -1.0])


class Scripted(gymnasium.Env):
    """Returns what it is told to, after one good step."""

    def __init__(self, **changes):
        self.observation_space, self.action_space = Box(-9, 9, (3,), np.float32), Box(0, 4, (2,), np.float32)
        self.changes = changes
        self.time = 0
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.time = 0
        return self.result("reset", (np.zeros(3, np.float32), {}))

    def step(self, action):
        self.time += 1
        if self.time == 1:
            return np.ones(3, np.float32), 1.0, False, False, {}
        fields = {"obs": np.ones(3, np.float32), "reward": 1.0, "terminated": False, "truncated": False}
        return self.result("step", (*(self.changes.get(name, value) for name, value in fields.items()), {}))

    def result(self, method, normal):
        changed = self.changes.get(method, normal)
        if isinstance(changed, BaseException):
            raise changed
        return changed

    def close(self):
        self.closed = True


def fault_of(**changes):
    """The message of the fault in the second step of an environment changed in this way."""
    environment = open_environment(lambda: Scripted(**changes))
    environment.reset(0)
    environment.step(ACTION)
    with pytest.raises(EnvironmentFault) as caught:
        environment.step(ACTION)
    assert isinstance(caught.value, RunError)
    # The episode stays as it was before the fault, so that the run can be saved and taken up again.
    snapshot = environment.snapshot()
    assert snapshot is not None
    np.testing.assert_array_equal(snapshot.actions, [ACTION])
    np.testing.assert_array_equal(snapshot.obs, [1, 1, 1])
    return caught.value


def ones_but(value, place=1, dtype=np.float64):
    array = np.ones(3, dtype)
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"obs": ones_but(np.nan)}, "returned NaN in observation[1]"),
        ({"obs": ones_but(np.inf, place=2)}, "returned inf in observation[2]"),
        ({"obs": ones_but(-np.inf, place=0)}, "returned -inf in observation[0]"),
        ({"obs": ones_but(1e300)}, "returned 1e+300, which float32 cannot hold, in observation[1]"),
        ({"obs": np.ones(2)}, "returned an observation of shape (2,) where its space has (3,)"),
        ({"obs": np.ones((1, 3))}, "returned an observation of shape (1, 3) where its space has (3,)"),
        ({"obs": None}, "returned an observation of shape () where its space has (3,)"),
        ({"obs": [1.0, [2.0], 3.0]}, "returned 'list' as an observation, which is no array"),
        ({"obs": np.array([1, None, 2])}, "returned an observation of dtype object where its space has float32"),
        ({"obs": np.array(["1", "2", "3"])}, "returned an observation of dtype <U1 where its space has float32"),
        ({"obs": np.ones(3, complex)}, "returned an observation of dtype complex128 where its space has float32"),
        ({"reward": float("nan")}, "returned NaN as reward"),
        ({"reward": np.float64("-inf")}, "returned -inf as reward"),
        ({"reward": 1e300}, "returned 1e+300, which float32 cannot hold, as reward"),
        ({"reward": "1.0"}, "returned a reward of dtype <U3 and shape ()"),
        ({"reward": 1j}, "returned a reward of dtype complex128 and shape ()"),
        ({"reward": None}, "returned a reward of dtype object and shape ()"),
        ({"reward": [1.0, 2.0]}, "returned a reward of dtype float64 and shape (2,)"),
        ({"terminated": 1}, "returned 'int' as terminated"),
        ({"terminated": None}, "returned 'NoneType' as terminated"),
        ({"truncated": "no"}, "returned 'str' as truncated"),
        ({"step": (np.ones(3), 1.0, False, {})}, "returned a tuple of 4 from step"),
        ({"step": [np.ones(3), 1.0, False, False, {}]}, "returned 'list' from step"),
        ({"step": None}, "returned 'NoneType' from step"),
        ({"step": ValueError("the arm\nis stuck")}, "raised ValueError: the arm is stuck in step"),
        ({"step": KeyError()}, "raised KeyError in step"),
        ({"step": SystemError("bad call")}, "raised SystemError: bad call in step"),
    ],
)
def test_a_fault_in_step(changes, problem):
    fault = fault_of(**changes)
    message = str(fault)
    assert message.startswith(f"environment 'Scripted' {problem} after action [3, 0]: ")
    assert message.endswith(", then resume the run.")
    fault.locate(step=1234, seed=7)
    assert f"{problem} at step 1234 (seed 7) after action [3, 0]: " in str(fault)
    assert "\n" not in message


def test_flags_may_be_numpy_booleans():
    environment = open_environment(lambda: Scripted(terminated=np.True_, truncated=np.False_))
    environment.reset(0)
    environment.step(ACTION)
    outcome = environment.step(ACTION)
    assert outcome.terminated is True
    assert outcome.truncated is False


def test_an_exception_keeps_its_cause():
    cause = ValueError("stuck")
    assert fault_of(step=cause).__cause__ is cause


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ((ones_but(np.nan), {}), "returned NaN in observation[1]"),
        (np.ones(3), "returned 'ndarray' from reset"),
        ((np.ones(3), {}, 1), "returned a tuple of 3 from reset"),
        (OSError("no such port"), "raised OSError: no such port in reset"),
    ],
)
def test_a_fault_in_reset(result, problem):
    environment = open_environment(lambda: Scripted(reset=result))
    with pytest.raises(EnvironmentFault) as caught:
        environment.reset(0)
    assert str(caught.value).startswith(f"environment 'Scripted' {problem}: ")
    assert environment.snapshot() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_passes_through(error):
    environment = open_environment(lambda: Scripted(step=error))
    environment.reset(0)
    environment.step(ACTION)
    with pytest.raises(type(error)):
        environment.step(ACTION)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("hopper", "did you mean 'Hopper'?"),
        ("Hoper", "did you mean 'Hopper'?"),
        ("HalfCheetah-v55", "did you mean 'HalfCheetah-v5'?"),
        ("Pendulum", "did you mean 'Pendulum-v1'?"),
        ("MyRobot-v0", "--env-module"),
    ],
)
def test_an_unknown_name(name, hint):
    with pytest.raises(UsageError, match=f"'{name}' is neither a task nor a registered Gymnasium id") as caught:
        open_environment(find_task(name))
    assert hint in str(caught.value)


def with_spaces(observation_space=None, action_space=None):
    env = Scripted()
    env.observation_space = observation_space or env.observation_space
    env.action_space = action_space or env.action_space
    return env


@pytest.mark.parametrize(
    ("observation_space", "shown", "remedy"),
    [
        (spaces.Discrete(4), "Discrete(4)", "FlattenObservation"),
        (spaces.Dict(a=Box(0, 1)), "Dict('a'", "FlattenObservation"),
        (Box(0, 255, (8, 8, 3), np.uint8), "Box(0, 255, (8, 8, 3), uint8)", "FlattenObservation"),
        (Box(0, 1, ()), "Box(0.0, 1.0, (), float32)", "FlattenObservation"),
        (Box(0, 1, (0,)), "Box([], [], (0,), float32)", "FlattenObservation"),
    ],
)
def test_an_observation_space_that_does_not_fit(observation_space, shown, remedy):
    env = with_spaces(observation_space=observation_space)
    with pytest.raises(UsageError, match="environment 'Scripted' has the observation space") as caught:
        open_environment(lambda: env)
    assert shown in str(caught.value)
    assert remedy in str(caught.value)
    assert env.closed


@pytest.mark.parametrize(
    ("action_space", "shown", "remedy"),
    [
        (spaces.Discrete(4), "Discrete(4)", "choose one with continuous actions"),
        (spaces.MultiDiscrete([2, 3]), "MultiDiscrete([2 3])", "choose one with continuous actions"),
        (spaces.Tuple([Box(0, 1)]), "Tuple(Box(", "choose one with continuous actions"),
        (Box(-1, 1, (2, 2)), "(2, 2), float32)", "TransformAction"),
        (Box(-1, 1, (0,)), "Box([], [], (0,), float32)", "TransformAction"),
        (Box(-np.inf, 1, (2,)), "with an infinite bound", "finite bounds"),
        (Box(np.float32([0, 0]), np.float32([1, np.inf])), "with an infinite bound", "finite bounds"),
        (Box(-np.inf, np.inf, (2,), np.int8), "with an infinite bound", "finite bounds"),
        (Box(0, 2**62, (1,), np.int64), "with an infinite bound", "finite bounds"),
        (Box(np.float32([0, 2]), np.float32([1, 2])), "action[1] can only be 2.0", "leave out"),
    ],
)
def test_an_action_space_that_does_not_fit(action_space, shown, remedy):
    env = with_spaces(action_space=action_space)
    with pytest.raises(UsageError, match="environment 'Scripted' has the action space") as caught:
        open_environment(lambda: env)
    assert shown in str(caught.value)
    assert remedy in str(caught.value)
    assert env.closed


def test_spaces_that_were_forgotten():
    class Bare(gymnasium.Env):
        pass

    with pytest.raises(UsageError, match="'Bare' has the observation space None"):
        open_environment(Bare)


def test_an_environment_that_cannot_be_constructed():
    def broken():
        raise FileNotFoundError("no robot.xml\nanywhere")

    with pytest.raises(UsageError, match=r"'broken' could not be constructed \(FileNotFoundError: no robot.xml any"):
        open_environment(broken)


def test_a_registered_environment_that_cannot_be_constructed():
    gymnasium.register("BrokenByTest-v0", entry_point="missing_module_of_mine:Env")
    try:
        with pytest.raises(
            UsageError, match=r"'BrokenByTest-v0' could not be constructed \(ModuleNotFoundError: No mod"
        ):
            open_environment(find_task("BrokenByTest-v0"))
    finally:
        del gymnasium.registry["BrokenByTest-v0"]


@pytest.mark.parametrize(
    ("construct", "kind"),
    [(lambda: gymnasium.make_vec("Pendulum-v1", num_envs=2), "SyncVectorEnv"), (lambda: None, "NoneType")],
)
def test_what_is_no_single_environment(construct, kind):
    with pytest.raises(UsageError, match=f"is of type '{kind}'; give a single gymnasium.Env"):
        open_environment(construct)


def test_an_environment_instead_of_a_function():
    # In a process of its own, where no type checker is in the way.
    program = (
        "from mbpo.envs.probes import EndlessProbe; from mbpo.envs.adapter import open_environment;"
        "open_environment(EndlessProbe())"
    )
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "UsageError: 'EndlessProbe' is no environment that can be opened; give a function" in failed.stderr


def test_a_fault_shows_a_long_action_on_one_line():
    fault = EnvironmentFault("X", "did it", "mend it", np.linspace(-0.4, 0.4, 17, dtype=np.float32))
    assert str(fault).startswith("environment 'X' did it after action [-0.4, -0.35, -0.3, ")
    assert "..." not in str(fault)
    assert "\n" not in str(fault)

"""The adapter on good environments: actions, observations, time limits, and episodes that can be repeated."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit, TransformReward

from mbpo.envs import tasks
from mbpo.envs.adapter import SEEDS, Snapshot, open_environment
from mbpo.envs.probes import CountingProbe, EndlessProbe, PointLineProbe, endless_probe
from mbpo.envs.tasks import TASKS, register_task
from mbpo.errors import RunError


class Recorder(gymnasium.Env):
    """Keeps the actions it is given; `results` are the observations it returns."""

    def __init__(self, action_space, observation_space=None, results=None):
        self.action_space = action_space
        self.observation_space = observation_space or Box(-1, 1, (1,), np.float32)
        self.results = results or [np.zeros(self.observation_space.shape, self.observation_space.dtype)] * 100
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return self.results[0], {}

    def step(self, action):
        self.actions.append(action)
        return self.results[len(self.actions)], 0.0, False, False, {}


def sent(action_space, *actions):
    """What an environment with this action space receives for these actions."""
    env = Recorder(action_space)
    environment = open_environment(lambda: env)
    environment.reset(0)
    for action in actions:
        environment.step(np.array(action, np.float32))
    return env.actions


class TestActions:
    """middle + half · a, worked by hand."""

    def test_asymmetric_box(self):
        # [0, 4] and [−3, −1]: middles 2 and −2, halves 2 and 1.
        low, high = np.array([0, -3], np.float32), np.array([4, -1], np.float32)
        received = sent(Box(low, high), [-1, -1], [1, 1], [0, 0], [0.5, -0.5])
        np.testing.assert_array_equal(received, [[0, -3], [4, -1], [2, -2], [3, -2.5]])

    def test_outside_is_clipped(self):
        np.testing.assert_array_equal(sent(Box(-3, 3, (1,)), [1.5], [-9.0]), [[3], [-3]])

    @pytest.mark.parametrize(("name", "bound"), [("Humanoid", 0.4), ("InvertedPendulum", 3.0), ("Hopper", 1.0)])
    def test_the_tasks(self, name, bound):
        env = gymnasium.make(TASKS[name].env_id, disable_env_checker=True)
        bound = np.float32(bound)
        for action, expected in [(1.0, bound), (-1.0, -bound), (0.0, 0.0), (0.25, np.float32(0.25) * bound)]:
            (received,) = sent(env.action_space, np.full(env.action_space.shape, action))
            assert received.dtype == np.float32
            np.testing.assert_array_equal(received, np.full(env.action_space.shape, expected, np.float32))

    def test_a_box_of_one_keeps_every_bit(self):
        actions = np.random.default_rng(0).uniform(-1, 1, (1000, 3)).astype(np.float32) ** 9
        received = np.array(sent(Box(-1, 1, (3,)), *actions[:99]))
        assert received.tobytes() == actions[:99].tobytes()

    def test_integers_are_rounded_to_the_nearest(self):
        # [−3, 4]: middle 0.5, half 3.5; 0.5 rounds to even.
        received = sent(Box(-3, 4, (1,), np.int8), [-1.0], [1.0], [0.0], [0.1], [-0.5])
        assert [int(action[0]) for action in received] == [-3, 4, 0, 1, -1]
        assert received[0].dtype == np.int8

    def test_booleans(self):
        assert [bool(action[0]) for action in sent(Box(0, 1, (1,), bool), [-1.0], [1.0])] == [False, True]

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64])
    def test_rounding_never_leaves_the_box(self, dtype):
        rng = np.random.default_rng(0)
        for _ in range(200):
            ends = np.sort(rng.uniform(0, 100, (2, 5)), axis=0).astype(dtype)
            box = Box(ends[0], ends[1] + dtype(1), dtype=dtype)
            received = sent(box, np.ones(5), -np.ones(5), rng.uniform(-1, 1, 5))
            assert all(box.contains(action) for action in received)

    def test_bounds_whose_difference_overflows(self):
        largest = np.finfo(np.float64).max
        received = sent(Box(-largest, largest, (1,), np.float64), [1.0], [0.0], [-1.0], [9.0])
        np.testing.assert_array_equal(received, [[largest], [0], [-largest], [largest]])

    def test_a_wrong_shape_is_refused(self):
        with pytest.raises(ValueError, match=r"the action has shape \(1,\); give \(3,\)"):
            sent(Box(-1, 1, (3,)), [0.5])

    def test_nan_is_not_sent_to_the_environment(self):
        with pytest.raises(RunError, match="diverged"):
            sent(Box(-1, 1, (2,)), [0.5, np.nan])


class TestObservations:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_float32_copies(self, dtype):
        reused = np.zeros(2, dtype)
        env = Recorder(Box(-1, 1, (1,)), Box(-9, 9, (2,), np.float64), [reused] * 9)
        environment = open_environment(lambda: env)
        first = environment.reset(0)
        reused[:] = 0.1
        second = environment.step(np.zeros(1, np.float32)).obs
        assert first.dtype == second.dtype == np.float32
        np.testing.assert_array_equal(first, [0, 0])
        np.testing.assert_array_equal(second, np.float32([0.1, 0.1]))

    @pytest.mark.parametrize("result", [[0.5, 1.0], np.float64([0.5, 1]), np.float16([0.5, 1]), np.array([0, 1])])
    def test_what_casts_to_the_space_is_taken(self, result):
        env = Recorder(Box(-1, 1, (1,)), Box(-9, 9, (2,), np.float32), [result] * 9)
        np.testing.assert_array_equal(open_environment(lambda: env).reset(0), np.float32(result))

    @pytest.mark.parametrize("reward", [1, True, np.float64(1), np.array(1.0), np.array([1.0]), np.int8(1)])
    def test_rewards_become_floats(self, reward):
        env = TransformReward(EndlessProbe(), lambda _: reward)
        environment = open_environment(lambda: env)
        environment.reset(0)
        outcome = environment.step(np.zeros(1, np.float32))
        assert type(outcome.reward) is float
        assert outcome.reward == 1.0


class TestSpec:
    def test_a_limit_of_the_registry(self):
        assert open_environment(tasks.find_task("Pendulum-v1")).spec.time_limit == 200

    def test_a_limit_without_a_spec_inside_other_wrappers(self):
        env = TransformReward(TimeLimit(TransformReward(EndlessProbe(), float), 17), float)
        assert open_environment(lambda: env).spec.time_limit == 17

    def test_the_smallest_of_several_limits(self):
        assert open_environment(lambda: TimeLimit(TimeLimit(EndlessProbe(), 30), 40)).spec.time_limit == 30

    def test_a_limit_given_to_make(self):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=33)
        assert open_environment(lambda: env).spec.time_limit == 33

    def test_a_limit_that_the_environment_keeps_itself(self):
        env = EndlessProbe()
        env.spec = gymnasium.envs.registration.EnvSpec("Own-v0", EndlessProbe, max_episode_steps=12)
        assert open_environment(lambda: env).spec.time_limit == 12

    def test_no_limit(self):
        spec = open_environment(EndlessProbe).spec
        assert (spec.name, spec.obs_size, spec.action_size) == ("EndlessProbe", 1, 1)
        assert spec.time_limit is None
        assert spec.terminal is None

    def test_a_function_registered_for_the_id_comes_with_a_factory(self, monkeypatch):
        monkeypatch.setattr(tasks, "_registered", {})

        def never(_obs, _action, next_obs):
            return next_obs[..., 0] > 9

        register_task("Pendulum-v1", terminal=never)
        assert open_environment(lambda: gymnasium.make("Pendulum-v1")).spec.terminal is never
        # The six functions read columns of their own environments, which a factory may have wrapped.
        assert open_environment(lambda: gymnasium.make("Hopper-v5")).spec.terminal is None


def play(environment, seed, steps):
    """Resets and steps with random actions; the number of steps before the end, or `steps`."""
    rng = np.random.default_rng(seed)
    environment.reset(seed)
    for step in range(steps):
        outcome = environment.step(rng.uniform(-1, 1, environment.spec.action_size).astype(np.float32))
        if outcome.terminated or outcome.truncated:
            return step + 1
    return steps


class TestEpisodes:
    def test_terminated_and_truncated_stay_apart(self):
        environment = open_environment(CountingProbe)
        ends = set()
        for seed in range(30):
            environment.reset(seed)
            for step in range(1, 10):
                outcome = environment.step(np.zeros(1, np.float32))
                if outcome.terminated or outcome.truncated:
                    ends.add((outcome.terminated, outcome.truncated, step % 2))
                    break
        assert ends == {(True, False, 0), (False, True, 1)}

    def test_the_time_limit_truncates(self):
        environment = open_environment(endless_probe)
        environment.reset(0)
        outcomes = [environment.step(np.zeros(1, np.float32)) for _ in range(10)]
        assert [outcome.truncated for outcome in outcomes] == [False] * 9 + [True]
        assert not any(outcome.terminated for outcome in outcomes)

    def test_a_step_needs_a_running_episode(self):
        environment = open_environment(endless_probe)
        assert environment.snapshot() is None
        with pytest.raises(RuntimeError, match="no episode is running in environment 'EndlessProbe'"):
            environment.step(np.zeros(1, np.float32))
        play(environment, seed=0, steps=10)
        assert environment.snapshot() is None
        with pytest.raises(RuntimeError, match="no episode is running"):
            environment.step(np.zeros(1, np.float32))

    def test_the_seed_decides(self):
        environment = open_environment(TASKS["Hopper"])
        first, other = environment.reset(7), environment.reset(8)
        assert environment.reset(7).tobytes() == first.tobytes() != other.tobytes()

    @pytest.mark.parametrize("seed", [-1, SEEDS])
    def test_a_seed_out_of_range_is_refused(self, seed):
        with pytest.raises(ValueError, match=f"the seed {seed} is not in"):
            open_environment(EndlessProbe).reset(seed)

    def test_the_largest_seed(self):
        open_environment(TASKS["Hopper"]).reset(SEEDS - 1)

    def test_closing_twice_and_closing_badly(self):
        class Sticky(EndlessProbe):
            def close(self):
                raise OSError("stuck")

        environment = open_environment(Sticky)
        environment.close()
        environment.close()


def same(left: Snapshot | None, right: Snapshot | None) -> bool:
    assert left is not None
    assert right is not None
    return (
        left.seed == right.seed
        and left.actions.tobytes() == right.actions.tobytes()
        and left.obs.tobytes() == right.obs.tobytes()
    )


class TestRestoring:
    @pytest.mark.parametrize("name", TASKS)
    def test_mid_episode_bit_for_bit(self, name):
        source, target = open_environment(TASKS[name]), open_environment(TASKS[name])
        steps = play(source, seed=3, steps=60)
        play(source, seed=3, steps=steps - 1)
        snapshot = source.snapshot()
        assert snapshot is not None
        assert len(snapshot.actions) == steps - 1
        # On an environment that was used for something else, and once more on the one it came from.
        play(target, seed=4, steps=15)
        for environment in (target, source):
            assert environment.restore(snapshot)
            assert same(environment.snapshot(), snapshot)
        action = np.full(source.spec.action_size, 0.3, np.float32)
        left, right = source.step(action), target.step(action)
        assert left.obs.tobytes() == right.obs.tobytes()
        assert (left.reward, left.terminated, left.truncated) == (right.reward, right.terminated, right.truncated)

    def test_actions_are_kept_as_they_were_given(self):
        environment = open_environment(TASKS["InvertedPendulum"])
        environment.reset(0)
        given = np.float32([[0.1], [-7.5], [1.0000001], [-0.0]])
        for action in given:
            environment.step(action)
        snapshot = environment.snapshot()
        assert snapshot is not None
        assert snapshot.actions.tobytes() == given.tobytes()
        assert environment.restore(snapshot)

    def test_a_snapshot_does_not_change_afterwards(self):
        environment = open_environment(EndlessProbe)
        play(environment, seed=0, steps=3)
        snapshot = environment.snapshot()
        environment.step(np.ones(1, np.float32))
        assert snapshot is not None
        assert snapshot.actions.shape == (3, 1)

    def test_without_an_action_since_the_reset(self):
        environment = open_environment(TASKS["Hopper"])
        environment.reset(5)
        snapshot = environment.snapshot()
        assert snapshot is not None
        assert snapshot.actions.shape == (0, 3)
        play(environment, seed=1, steps=4)
        assert environment.restore(snapshot)
        assert same(environment.snapshot(), snapshot)

    def test_the_time_limit_goes_on_counting_where_it_was(self):
        environment = open_environment(endless_probe)
        play(environment, seed=0, steps=7)
        snapshot = environment.snapshot()
        assert snapshot is not None
        play(environment, seed=0, steps=9)
        assert environment.restore(snapshot)
        truncated = [environment.step(np.zeros(1, np.float32)).truncated for _ in range(3)]
        assert truncated == [False, False, True]

    def test_in_a_restored_episode_a_later_snapshot_holds_every_action(self):
        environment = open_environment(PointLineProbe)
        play(environment, seed=2, steps=3)
        snapshot = environment.snapshot()
        assert snapshot is not None
        environment.restore(snapshot)
        environment.step(np.float32([0.1]))
        later = environment.snapshot()
        assert later is not None
        np.testing.assert_array_equal(later.actions, [*snapshot.actions, np.float32([0.1])])

    @pytest.mark.parametrize(
        "change",
        [
            lambda s: Snapshot(s.seed + 1, s.actions, s.obs),
            lambda s: Snapshot(s.seed, s.actions[:-1], s.obs),
            lambda s: Snapshot(s.seed, s.actions, np.nextafter(s.obs, np.float32(9))),
            lambda s: Snapshot(s.seed, np.ones((30, 1), np.float32), s.obs),
            lambda s: Snapshot(s.seed, np.ones((2, 3), np.float32), s.obs),
            lambda s: Snapshot(s.seed, s.actions, np.concatenate([s.obs, s.obs])),
        ],
        ids=["seed", "a missing action", "one bit", "ends on the way", "action size", "observation size"],
    )
    def test_false_where_it_arrives_elsewhere(self, change):
        environment = open_environment(PointLineProbe)
        play(environment, seed=2, steps=4)
        snapshot = environment.snapshot()
        assert snapshot is not None
        assert not environment.restore(change(snapshot))
        assert environment.snapshot() is None
        environment.reset(0)

    def test_false_where_the_environment_does_not_repeat_itself(self):
        class Forgetful(PointLineProbe):
            def reset(self, *, seed=None, options=None):
                return super().reset(options=options)

        environment = open_environment(Forgetful)
        play(environment, seed=0, steps=3)
        snapshot = environment.snapshot()
        assert snapshot is not None
        assert not environment.restore(snapshot)

    @pytest.mark.parametrize("method", ["reset", "step"])
    def test_false_where_the_environment_fails(self, method, monkeypatch):
        def fail(*_args, **_kwargs):
            raise OSError("the robot is unplugged")

        environment = open_environment(PointLineProbe)
        play(environment, seed=0, steps=3)
        snapshot = environment.snapshot()
        assert snapshot is not None
        with monkeypatch.context() as broken:
            broken.setattr(PointLineProbe, method, fail)
            assert not environment.restore(snapshot)
        assert environment.restore(snapshot)

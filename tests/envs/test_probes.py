"""The probes do what their docstrings derive the answers from, and repeat themselves."""

import gymnasium
import numpy as np
import pytest

from mbpo.envs import tasks
from mbpo.envs.adapter import open_environment
from mbpo.envs.probes import PROBES, point_line_probe, register_probes
from mbpo.envs.tasks import find_task


def episode(environment, seed, policy):
    """The transitions (obs, action, reward, next_obs, terminated, truncated) of one episode."""
    obs, rows = environment.reset(seed), []
    while True:
        action = np.float32([policy(obs)])
        outcome = environment.step(action)
        rows.append((obs, action[0], outcome.reward, outcome.obs, outcome.terminated, outcome.truncated))
        if outcome.terminated or outcome.truncated:
            return rows
        obs = outcome.obs


def play(name, episodes=40):
    environment = open_environment(PROBES[name])
    random = np.random.default_rng(0)
    return [episode(environment, seed, lambda _obs: random.uniform(-1, 1)) for seed in range(episodes)]


@pytest.mark.parametrize("name", PROBES)
def test_an_episode_repeats_from_its_seed(name):
    assert repr(play(name, 5)) == repr(play(name, 5))


@pytest.mark.parametrize("name", PROBES)
def test_the_spaces_hold_what_is_returned(name):
    env = PROBES[name]()
    for rows in play(name, 5):
        assert all(env.observation_space.contains(row[0]) and env.observation_space.contains(row[3]) for row in rows)


@pytest.mark.parametrize(
    ("name", "reward"),
    [
        ("ConstantProbe-v0", lambda _obs, _action: 1.0),
        ("SignProbe-v0", lambda obs, _action: obs),
        ("ActionProbe-v0", lambda _obs, action: -((action - 0.5) ** 2)),
        ("FollowProbe-v0", lambda obs, action: -((action - obs / 2) ** 2)),
    ],
)
def test_one_step_and_its_reward(name, reward):
    for rows in play(name):
        ((obs, action, value, _, terminated, truncated),) = rows
        assert terminated
        assert not truncated
        assert value == pytest.approx(reward(obs[0], action), abs=1e-6)


def test_the_sign_is_either_about_as_often():
    signs = [rows[0][0][0] for rows in play("SignProbe-v0", 100)]
    assert set(signs) == {-1.0, 1.0}
    assert 30 < signs.count(1.0) < 70


def test_the_target_fills_its_range():
    targets = [rows[0][0][0] for rows in play("FollowProbe-v0", 100)]
    assert -1 <= min(targets) < -0.9
    assert 0.9 < max(targets) <= 1


def test_the_delay():
    for rows in play("DelayProbe-v0", 3):
        assert [(row[0][0], row[2], row[3][0], row[4]) for row in rows] == [(0, 0, 1, False), (1, 1, 1, True)]


def test_endless_ends_by_its_limit_alone():
    for rows in play("EndlessProbe-v0", 3):
        assert [row[2] for row in rows] == [1.0] * 10
        assert [row[4:] for row in rows] == [(False, False)] * 9 + [(False, True)]


def test_counting_rows_tell_that_they_belong_together():
    lengths, tags = set(), set()
    for rows in play("CountingProbe-v0"):
        for t, (obs, _, reward, next_obs, _, _) in enumerate(rows):
            assert obs[0] == next_obs[0]
            assert (obs[1], reward, next_obs[1]) == (t, t, t + 1)
        assert rows[-1][4:] == ((True, False) if len(rows) % 2 == 0 else (False, True))
        lengths.add(len(rows))
        tags.add(float(rows[0][0][0]))
    assert lengths == set(range(3, 10))
    assert len(tags) == 40


def test_the_best_policy_on_the_line():
    environment = open_environment(point_line_probe)
    returns = [
        sum(row[2] for row in episode(environment, seed, lambda obs: np.clip(-obs[0] / 0.2, -1, 1)))
        for seed in range(20)
    ]
    assert min(returns) >= 29.9
    assert max(returns) <= 30.0


def test_leaving_the_line_ends_it():
    environment = open_environment(point_line_probe)
    for sign in (-1.0, 1.0):
        rows = episode(environment, 0, lambda _obs, sign=sign: sign)
        assert len(rows) < 10
        assert [row[4] for row in rows] == [False] * (len(rows) - 1) + [True]
        assert 1 < abs(rows[-1][3][0]) <= 1.2


def test_registered_probes_are_found_by_name(monkeypatch):
    monkeypatch.setattr(tasks, "_registered", {})
    before = set(gymnasium.registry)
    try:
        register_probes()
        register_probes()
        assert set(gymnasium.registry) - before == set(PROBES)
        for name in PROBES:
            environment = open_environment(find_task(name))
            assert environment.spec.name == name
            environment.reset(0)
        assert open_environment(find_task("EndlessProbe-v0")).spec.time_limit == 10
        line = open_environment(find_task("PointLineProbe-v0")).spec
        assert line.time_limit == 30
        ends = line.terminal(None, None, np.float32([[0.5], [-1.1], [1.1], [np.nan], [-1.0]]))
        np.testing.assert_array_equal(ends, [False, True, True, True, False])
    finally:
        for name in PROBES:
            gymnasium.registry.pop(name, None)

"""The paper's Table 2 as presets, and where the released code differs from it."""

from dataclasses import replace

import pytest

from mbpo.algorithms import MBPO, PPO, SAC
from mbpo.envs.tasks import TASKS, Task, find_task
from mbpo.errors import UsageError
from mbpo.model import Model
from mbpo.presets import VARIANTS, find_preset
from mbpo.schedule import RolloutLength

ONE = RolloutLength(1, 1)

# Epochs, updates a step, rollout length, width of the model, and the release's target entropy.
TABLE_2 = {
    "InvertedPendulum": (15, 20, ONE, 200, -0.05),
    "Hopper": (125, 20, RolloutLength(1, 15, 20, 100), 200, -1.0),
    "Walker2d": (300, 20, ONE, 200, -3.0),
    "HalfCheetah": (400, 40, ONE, 200, -3.0),
    "Ant": (300, 20, RolloutLength(1, 25, 20, 100), 200, -4.0),
    "Humanoid": (300, 20, RolloutLength(1, 25, 20, 300), 400, -2.0),
}


def mbpo_for(task: str, variant: str = "paper") -> MBPO:
    algorithm = find_preset("mbpo", TASKS[task], variant).algorithm
    assert isinstance(algorithm, MBPO)
    return algorithm


def test_there_is_a_row_for_every_task():
    assert TABLE_2.keys() == TASKS.keys()


@pytest.mark.parametrize("task", TABLE_2)
def test_table_2(task):
    epochs, updates, rollout_length, width, entropy = TABLE_2[task]
    preset, mbpo = find_preset("mbpo", TASKS[task]), mbpo_for(task)
    assert preset.steps == 1000 * epochs
    assert preset.evaluate_every == (250 if task == "InvertedPendulum" else 1000)
    assert mbpo.sac.updates_per_step == updates
    assert mbpo.sac.target_entropy == entropy
    assert mbpo.sac.random_steps == (500 if task == "InvertedPendulum" else 5000)
    assert mbpo.rollout_length == rollout_length
    assert mbpo.model == Model(hidden_sizes=(width,) * 4)
    assert (mbpo.rollouts_per_step, mbpo.epoch_steps, mbpo.fit_every, mbpo.retained_epochs) == (400, 1000, 250, 1)
    assert mbpo.real_fraction == 0.05


def test_the_model_is_that_of_the_release():
    model = Model()
    assert (model.members, model.elites, model.batch_size, model.learning_rate) == (7, 5, 256, 1e-3)
    assert model.weight_decay == (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    assert (model.holdout_fraction, model.max_holdout) == (0.2, 5000)
    assert (model.improvement, model.patience, model.max_updates_per_fit) == (0.01, 5, None)


@pytest.mark.parametrize("task", ["Walker2d", "HalfCheetah", "Ant"])
def test_the_release_agrees_on(task):
    assert find_preset("mbpo", TASKS[task], "released") == find_preset("mbpo", TASKS[task])


def test_the_release_differs_on_the_others():
    assert mbpo_for("Hopper", "released").rollout_length == RolloutLength(1, 15, 20, 150)
    humanoid = mbpo_for("Humanoid", "released")
    assert (humanoid.fit_every, humanoid.rollouts_per_step, humanoid.retained_epochs) == (1000, 100, 5)
    assert humanoid.fit_every * humanoid.rollouts_per_step == 100_000
    pendulum = find_preset("mbpo", TASKS["InvertedPendulum"], "released")
    assert (pendulum.algorithm.sac.updates_per_step, pendulum.algorithm.epoch_steps) == (10, 250)
    assert pendulum.steps == 80 * 250


@pytest.mark.parametrize("task", [*TABLE_2, "Pusher-v5"])
def test_the_fast_preset_bounds_the_fits_and_halves_the_batch_and_nothing_else(task):
    paper, fast = (find_preset("mbpo", find_task(task), variant) for variant in ("paper", "fast"))
    assert isinstance(paper.algorithm, MBPO)
    model = replace(paper.algorithm.model, max_updates_per_fit=200, max_updates_first_fit=5000)
    sac = replace(paper.algorithm.sac, batch_size=128)
    assert fast == replace(paper, algorithm=replace(paper.algorithm, model=model, sac=sac))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_humanoid_stays_below_ten_gibibytes(variant):
    # obs 45, action 17: (2 · 45 + 17 + 1) floats and two flags a row.
    rows = mbpo_for("Humanoid", variant).imagined_capacity(300_000)
    assert rows * ((2 * 45 + 17 + 1) * 4 + 2) < 10 * 2**30


def test_the_imagined_buffer_is_as_large_as_the_longest_rollout_of_the_run():
    hopper = mbpo_for("Hopper")
    # One epoch holds k · 400 · 1000 rows. Epoch 60 (k = 8) begins after 5000 + 60,000 steps, before step 65,001.
    assert hopper.imagined_capacity(1000) == 400_000
    assert hopper.imagined_capacity(65_000) == 7 * 400_000
    assert hopper.imagined_capacity(65_001) == 8 * 400_000
    assert hopper.imagined_capacity(125_000) == 15 * 400_000


def test_a_task_without_a_preset():
    task = find_task("Pusher-v5")
    assert find_preset("mbpo", task).algorithm == MBPO(sac=SAC(updates_per_step=20))
    assert find_preset("mbpo", task).evaluate_every == 1000
    assert find_preset("mbpo", task, "released") == find_preset("mbpo", task)
    sac = find_preset("sac", task).algorithm
    assert sac == SAC()
    assert (sac.updates_per_step, sac.random_steps, sac.target_entropy) == (1, 1000, None)
    assert MBPO().rollout_length == ONE


def test_the_systems_to_compare_with():
    sac = find_preset("sac", TASKS["Hopper"])
    assert sac.algorithm == SAC(updates_per_step=1, target_entropy=-1.0, random_steps=5000)
    assert (sac.algorithm.batch_size, sac.algorithm.discount, sac.algorithm.polyak_rate) == (256, 0.99, 0.005)
    assert (sac.algorithm.hidden_sizes, sac.algorithm.learning_rate) == ((256, 256), 3e-4)
    assert find_preset("ppo", TASKS["Hopper"]).algorithm == PPO()
    ppo = PPO()
    assert (ppo.steps_per_update, ppo.passes, ppo.batch_size, ppo.anneal_steps) == (2048, 10, 64, 1_000_000)
    assert (ppo.learning_rate, ppo.discount, ppo.trace_decay, ppo.clip) == (3e-4, 0.99, 0.95, 0.2)
    assert (ppo.value_weight, ppo.entropy_weight, ppo.max_gradient_norm) == (0.5, 0.0, 0.5)
    assert ppo.hidden_sizes == (64, 64)


def test_unknown_names_are_refused_with_the_nearest():
    task = Task("Hopper", "Hopper-v5")
    with pytest.raises(UsageError, match="no algorithm 'mpbo'; did you mean 'mbpo'"):
        find_preset("mpbo", task)
    with pytest.raises(UsageError, match="no preset 'release'; did you mean 'released'"):
        find_preset("mbpo", task, "release")

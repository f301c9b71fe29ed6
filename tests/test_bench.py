"""The benchmarks: the limit has the products of the real thing and no others, and the numbers add up."""

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mbpo.algorithms.mbpo import DISAGREEMENT_ROWS, MBPO, Dreamer, dream_step, never, pieces_of
from mbpo.algorithms.sac import SAC, draw
from mbpo.bench import command, model, peers, policy, rollout, train
from mbpo.bench.products import Net, Product, Signature, Workload, compiled_products
from mbpo.bench.synthetic import smooth_buffer
from mbpo.bench.timing import Timing, interleave
from mbpo.buffer import init_buffer
from mbpo.cli import run_command
from mbpo.errors import UsageError
from mbpo.model import Model, elite_members
from mbpo.model_fit import train_chunk
from mbpo.types import EnvSpec, blank_transition

# Sizes of which no two are alike, so that no product can be taken for another.
SPEC = EnvSpec("invented", obs_size=5, action_size=3)
SMALL_SAC = SAC(updates_per_step=2, batch_size=24, hidden_sizes=(18,))
SMALL_MODEL = Model(members=2, elites=2, hidden_sizes=(14,), weight_decay=(0.0, 0.0), batch_size=24)
SMALL_MBPO = MBPO(sac=SMALL_SAC, model=SMALL_MODEL, rollouts_per_step=31, fit_every=20)


def compiled(workload: Workload) -> "Counter[Signature]":
    lowered = workload.program.lower(2, workload.random_matrices(), jnp.float32(0.0))
    return compiled_products(lowered.compile().as_text())


def test_limit_of_the_policy_update_has_the_products_of_the_update():
    key = jax.random.key(0)
    batches = draw(smooth_buffer(SPEC, key, 50), key, (SMALL_SAC.updates_per_step, SMALL_SAC.batch_size))
    update = SAC.improve.lower(SMALL_SAC, SMALL_SAC.init_learner(SPEC, key), batches, key)
    limit = policy.workload(SMALL_SAC, SPEC)
    assert compiled_products(update.compile().as_text()) == compiled(limit) == limit.signatures
    # 2 layers and 5 networks, of which actor and critics are used twice: 16 forward. Backward 3 for each critic's own
    # loss, 2 through each critic to the action, 3 for the actor. Of those, four are outer products.
    assert len(limit.products) == 29
    assert limit.signatures.total() == 25


def test_limit_of_the_model_has_the_products_of_a_gradient_step():
    bench = model.FitBench(SMALL_MODEL, SPEC, rows=60)
    steps = train_chunk.lower(
        SMALL_MODEL, bench.learner, bench.scale, bench.buffer, bench.ages, jnp.int32(2), jnp.int32(48)
    )
    limit = model.workload(SMALL_MODEL, SPEC)
    assert compiled_products(steps.compile().as_text()) == compiled(limit) == limit.signatures
    assert limit.signatures.total() == 2 * (2 + 2 + 1)


def test_limit_of_the_rollout_has_the_products_of_an_imagined_step():
    key, batch = jax.random.key(0), 620
    ensemble = SMALL_MODEL.init(SPEC, key)
    actor = SMALL_SAC.init_learner(SPEC, key).weights.actor
    dreamer = Dreamer(elite_members(ensemble), ensemble, None, actor)
    imagined = init_buffer(blank_transition(SPEC), batch)
    obs, alive, zero = jnp.zeros((batch, SPEC.obs_size)), jnp.ones(batch, bool), jnp.int32(0)
    step = dream_step.lower(never, dreamer, imagined, obs, alive, zero, jnp.int32(batch), key)
    limit = rollout.workload(SMALL_MBPO, SPEC, batch // pieces_of(batch))
    done = compiled_products(step.compile().as_text())
    assert compiled(limit) == limit.signatures
    assert limit.signatures <= done
    # The rest are the elites' predictions whose disagreement is measured, on as many rows as there are up to 512.
    sizes = (SPEC.obs_size + SPEC.action_size, *SMALL_MODEL.hidden_sizes, 2 * (1 + SPEC.obs_size))
    assert done - limit.signatures == Counter(
        Signature.of((min(batch, DISAGREEMENT_ROWS), before), (before, after), (1, 0))
        for before, after in pairwise(sizes)
        for _ in range(SMALL_MODEL.elites)
    )


def test_the_limit_computes_its_products_each_after_the_one_before():
    net = Net("net", (3, 4, 2))
    work = Workload({"x": (6, 3), **net.weights}, (*net.forward("x", "y"), *net.backward("x", "y", to_input=True)))
    matrices = {name: np.array(matrix) for name, matrix in work.random_matrices().items()}
    known, last, newest = dict(matrices), 0.0, ""
    for _ in range(2):
        for product in work.products:
            if newest not in (product.left, product.right):
                known[product.left][0, 0] = np.clip(last, -1.0, 1.0)
            left = known[product.left] if product.axes[0] == 1 else known[product.left].T
            right = known[product.right] if product.axes[1] == 0 else known[product.right].T
            newest, known[product.out] = product.out, left @ right
            last = known[product.out][0, 0]
        newest = ""
    found, number = work.run(2, work.random_matrices(), jnp.float32(0.0))
    assert float(number) == pytest.approx(last, rel=1e-4)
    for name in matrices:
        np.testing.assert_allclose(found[name], known[name], rtol=1e-4, atol=1e-6)


def test_flop_and_outer_products_by_hand():
    work = Workload(
        {"a": (4, 3), "b": (3, 5), "u": (4, 1), "v": (1, 5)}, (Product("c", "a", "b"), Product("d", "u", "v"))
    )
    assert work.shapes["c"] == work.shapes["d"] == (4, 5)
    assert work.flop == 2 * 4 * 3 * 5


def test_a_product_over_unequal_axes_is_refused():
    with pytest.raises(ValueError, match="cannot sum"):
        _ = Workload({"a": (4, 3), "b": (4, 5)}, (Product("c", "a", "b"),)).shapes


def test_products_are_read_from_compiled_text_with_their_layouts():
    text = """
      %p.0 = f32[256,12]{1,0} parameter(0)
      %p.1 = f32[256,7]{0,1} parameter(1)
      ROOT %dot.1 = f32[12,7]{1,0} dot(%p.0, %p.1), lhs_contracting_dims={0}, rhs_contracting_dims={0}
    """
    assert compiled_products(text) == Counter([Signature.of((256, 12), (7, 256), (0, 1))])


def test_everyone_has_as_many_turns_and_the_best_counts():
    turns: Counter[str] = Counter()
    timings = interleave({name: lambda name=name: turns.update([name]) for name in "ab"}, rounds=3)
    assert len(timings["a"].rounds) == len(timings["b"].rounds) == 3
    assert turns["a"] > 0
    timing = Timing((4.0, 2.0, 9.0)).per(2)
    assert (timing.best, timing.median) == (1.0, 2.0)


def test_reports_of_policy_model_and_rollout():
    for report in (
        policy.measure(SMALL_SAC, SPEC, rounds=1, rows=50),
        model.measure(SMALL_MODEL, SPEC, rounds=1, rows=60, fits=1),
        rollout.measure(SMALL_MBPO, SPEC, rounds=1, rows=50),
    ):
        found = json.loads(json.dumps(report.to_json()))
        assert found["bench"] == report.bench
        assert all(ratio > 0 for ratio in found["ratios"].values())
        assert report.title in report.to_text()
    assert found["versions"]["jax"] == jax.__version__


def test_training_is_split_by_the_clock_of_the_run():
    begin = {"seconds": 10.0, "seconds/compile": 1.0, "model_updates": 0, "policy_updates": 0} | {
        f"seconds/{part}": 1.0 for part in ("env", "policy", "model", "rollout", "eval", "checkpoint")
    }
    end = {**begin, "seconds": 30.0, "seconds/compile": 3.0, "seconds/model": 9.0, "seconds/policy": 7.0}
    end |= {"seconds/eval": 2.0, "model_updates": 40, "policy_updates": 100}
    report = train.split("Hopper", rows=100, steps=5, metrics=[begin, end])
    # 20 s, of which 2 s compiled and 1 s evaluated.
    assert report.total == pytest.approx(17.0)
    assert report.seconds == {"fit": 8.0, "rollout": 0.0, "policy": 6.0, "simulator": 0.0, "rest": 3.0}
    assert "0.29 steps/s" in report.to_text()


def test_the_command_prints_one_line_of_json_and_writes_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "measure", lambda _: policy.measure(SMALL_SAC, SPEC, rounds=1, rows=50))
    out = tmp_path / "bench" / "policy.json"
    assert run_command(["bench", "policy", "--json", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(out.read_text())


def test_peers_are_asked_for_in_turn_and_their_versions_kept(monkeypatch, tmp_path):
    program = tmp_path / "sac.py"
    program.write_text(
        "import sys\nprint('{\"torch\": \"2\"}', flush=True)\nfor _ in sys.stdin: print('done', flush=True)\n"
    )
    monkeypatch.setattr(peers, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(peers, "PROGRAMS", tmp_path)
    monkeypatch.setattr(peers, "POLICY_PEERS", {"Other": "other"})
    with peers.policy_peers(SMALL_SAC, SPEC, rows=50) as others:
        report = policy.measure(SMALL_SAC, SPEC, rounds=1, rows=50, peers=others)
    assert others[0].process.poll() is not None
    assert report.to_json()["peers"] == {"Other": {"torch": "2"}}
    assert report.facts["times Other"] > 0


def test_peers_that_are_not_there_are_asked_to_be_built(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="make peers"), peers.policy_peers(SMALL_SAC, SPEC, rows=50):
        pass

"""What a run needs is known before it is allocated."""

import jax
import jax.numpy as jnp
import pytest

from mbpo import memory
from mbpo.buffer import init_buffer
from mbpo.errors import UsageError
from mbpo.memory import check_memory, machine_bytes, tree_bytes


def test_bytes_are_counted_alike_for_arrays_and_for_shapes():
    def init():
        return {"a": jnp.zeros((3, 5)), "b": jnp.zeros(7, bool), "c": init_buffer(jnp.zeros(2), 10)}

    # 15 · 4 + 7 + 20 · 4 + two counters of 4
    assert tree_bytes(init()) == tree_bytes(jax.eval_shape(init)) == 60 + 7 + 80 + 8


def test_a_plan_that_fits_says_what_it_takes(monkeypatch):
    monkeypatch.setattr(memory, "machine_bytes", lambda: 5000)
    assert check_memory(jnp.zeros(1000)) == 4000


def test_a_plan_that_does_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(memory, "machine_bytes", lambda: 16 * 2**30)
    plan = jax.eval_shape(lambda: jnp.zeros((10, 2**30)))
    with pytest.raises(
        UsageError, match=r"needs 50.0 GiB of memory and there are 16.0 GiB; .*--mbpo.rollouts-per-step"
    ):
        check_memory(plan)


def test_this_machine_has_memory():
    assert machine_bytes() > 2**28

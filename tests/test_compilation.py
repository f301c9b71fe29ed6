"""What is compiled in a run, and how often."""

from functools import partial

import jax
import pytest

from mbpo.algorithms import ALGORITHMS
from mbpo.types import EnvSpec


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS.keys())
def test_no_array_of_a_first_state_is_weakly_typed(algorithm):
    """An update would return it strongly typed, and everything that takes the state be compiled a second time."""
    init = partial(algorithm().init, EnvSpec("invented", obs_size=5, action_size=3), 100)
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(init, jax.random.key(0)))
    assert [jax.tree_util.keystr(path) for path, leaf in leaves if leaf.weak_type] == []

"""Randomness by address: every random number of a run is a function of its seed, a purpose and a count.

So a resumed run draws what the uninterrupted one would have drawn, and a new consumer cannot shift another's numbers.
"""

from enum import IntEnum
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Int, Key


class Purpose(IntEnum):
    """What a key is for. The numbers are part of every result: append, never renumber."""

    INIT = 0
    ACT = 1
    PREPARE = 2
    UPDATE = 3
    EPISODE = 4
    EVALUATION = 5
    PREDICTION = 6


@partial(jax.jit, static_argnums=1)
def key_at(root: Key[Array, ""], purpose: Purpose, count: int | Int[Array, ""] = 0) -> Key[Array, ""]:
    """The key of a purpose at a count (a step, mostly)."""
    return jax.random.fold_in(jax.random.fold_in(root, purpose), count)


def seed_at(seed: int, purpose: Purpose, *counts: int) -> int:
    """An environment's seed, below 2³¹: the same idea for programs that are not JAX's."""
    return int(np.random.SeedSequence([seed, purpose, *counts]).generate_state(1)[0] & 0x7FFFFFFF)


def host_generator(key: Key[Array, ""]) -> np.random.Generator:
    """NumPy's generator at the same address: permutations of a varying length do not fit compiled code."""
    return np.random.Generator(np.random.Philox(key=np.asarray(jax.random.key_data(key)).view(np.uint64)[0]))

"""What a run will need, before anything is allocated."""

import os
from typing import Any

import jax

from mbpo.errors import UsageError

HEADROOM = 1.25
"""A run needs its state, and then some: temporary arrays, the program itself."""


def tree_bytes(tree: Any) -> int:
    """The bytes of all arrays (or shapes from `jax.eval_shape`) of a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def machine_bytes() -> int:
    """The memory of the device that computes: the accelerator's, or the machine's (its container's, if that is less)."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(state: Any) -> int:
    """The bytes of the state that `jax.eval_shape` describes; refused where the machine has less than it needs."""
    needed, there = tree_bytes(state), machine_bytes()
    if needed * HEADROOM > there:
        raise UsageError(
            f"This run needs {needed * HEADROOM / 2**30:.1f} GiB of memory and the machine has {there / 2**30:.1f} GiB; "
            "take fewer --steps, shorter or fewer imagined rollouts (--mbpo.rollout-length.last, "
            "--mbpo.rollouts-per-step), or a smaller buffer."
        )
    return needed

"""What a run will need, before anything is allocated, and what it has needed."""

import os
import resource
import sys
from pathlib import Path
from typing import Any

import jax

from mbpo.errors import UsageError

HEADROOM = 1.25
"""A run needs its state, and then some: temporary arrays, the program itself."""

CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much a container may have; "max" where it may have all."""


def tree_bytes(tree: Any) -> int:
    """The bytes of all arrays (or shapes from `jax.eval_shape`) of a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def machine_bytes() -> int:
    """The memory of the device that computes: the accelerator's, or the machine's, or what a container has of it."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    said = [path.read_text().strip() for path in CONTAINER_LIMITS if path.is_file()]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *(int(s) for s in said if s.isdigit())])


def check_memory(state: Any) -> int:
    """The bytes of the state that `jax.eval_shape` describes; refused where the machine has less than it needs."""
    needed, there = tree_bytes(state), machine_bytes()
    if needed * HEADROOM > there:
        raise UsageError(
            f"This run needs {needed * HEADROOM / 2**30:.1f} GiB of memory and there are {there / 2**30:.1f} GiB; "
            "take fewer --steps, shorter or fewer imagined rollouts (--mbpo.rollout-length.last, "
            "--mbpo.rollouts-per-step), or a smaller buffer."
        )
    return needed


def peak_bytes() -> int:
    """The most memory that this process has held at a time."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not `ru_maxrss`, which Linux hands down from the program that started this one.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

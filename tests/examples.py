"""Small worlds for the tests: rows, buffers, and a program around an algorithm that only listens."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mbpo.buffer import Buffer, import_rows, init_buffer
from mbpo.types import EnvSpec, Transition

SPEC = EnvSpec("Example-v0", obs_size=2, action_size=1)


def random_rows(count: int, obs_size: int = 2, action_size: int = 1, seed: int = 0) -> Transition:
    """Rows without meaning, all different."""
    random = np.random.default_rng(seed)
    obs, next_obs = random.normal(size=(2, count, obs_size)).astype(np.float32)
    action = random.uniform(-1, 1, (count, action_size)).astype(np.float32)
    reward = random.normal(size=count).astype(np.float32)
    ended = random.random(count) < 0.2
    return as_arrays(Transition(obs, action, reward, next_obs, ended, np.zeros(count, bool)))


def as_arrays(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def row_of(rows: Transition, i: int) -> Transition:
    return jax.tree.map(lambda leaf: leaf[i], rows)


def buffer_of(rows: Transition, capacity: int | None = None) -> Buffer[Transition]:
    """A buffer that holds these rows, the last one the newest."""
    count = len(rows.reward)
    return import_rows(init_buffer(row_of(rows, 0), capacity or count), rows)


def assert_same(left: Any, right: Any) -> None:
    """The same tree with the same bits, NaN included."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for (path, a), b in zip(jax.tree.leaves_with_path(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=jax.tree_util.keystr(path))
        assert a.dtype == b.dtype, jax.tree_util.keystr(path)


def copied(tree: Any) -> Any:
    """A tree that survives when its original is consumed."""
    return jax.tree.map(jnp.copy, tree)


def snapshot(tree: Any) -> Any:
    """The tree's values in memory of their own."""
    return jax.tree.map(lambda leaf: np.array(leaf), tree)


@dataclass
class QuietHost:
    """Hears everything and says nothing, unless `stop` is set."""

    stop: bool = False
    messages: list[str] = field(default_factory=list)
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        yield

    def interrupted(self) -> bool:
        return self.stop

    def message(self, text: str) -> None:
        self.messages.append(text)

    def record(self, series: str, row: Mapping[str, Any]) -> None:
        self.records.append((series, dict(row)))

"""A first-in first-out store of rows that lives on the device.

Rows are addressed by age (0 is the newest), so what a sample sees depends on the rows and never on where in the ring
they happen to lie, or on how large the ring was allocated.
"""

from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from mbpo.pytree import pytree

Rows = TypeVar("Rows")


@pytree
class Buffer(Generic[Rows]):
    """`storage` holds N rows, of which the `size` before `head` (the next place to write) are alive."""

    storage: Rows
    head: Int[Array, ""]
    size: Int[Array, ""]

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.storage)[0].shape[0]


def init_buffer(row: Rows, capacity: int) -> Buffer[Rows]:
    """An empty buffer for rows shaped like `row` (arrays, or shapes from `jax.eval_shape`)."""
    storage = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), row)
    return Buffer(storage, head=jnp.int32(0), size=jnp.int32(0))


def insert(
    buffer: Buffer[Rows], rows: Rows, valid: Bool[Array, " B"], window: int | Int[Array, ""] | None = None
) -> Buffer[Rows]:
    """The buffer with the valid rows appended in order, at most the newest `window` (or `capacity`) rows alive.

    Row i goes to head + (number of valid rows before i); the others go past the end, where the scatter drops them.
    """
    capacity = buffer.capacity
    if valid.shape[0] > capacity:
        raise ValueError(f"{valid.shape[0]} rows at once do not fit a buffer of {capacity}; enlarge the buffer.")
    order = jnp.cumsum(valid, dtype=jnp.int32)
    place = jnp.where(valid, (buffer.head + order - 1) % capacity, capacity)
    storage = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), buffer.storage, rows)
    limit = jnp.asarray(capacity if window is None else window, jnp.int32)
    return Buffer(storage, (buffer.head + order[-1]) % capacity, jnp.minimum(buffer.size + order[-1], limit))


def insert_one(buffer: Buffer[Rows], row: Rows) -> Buffer[Rows]:
    """The buffer with one row (leaves without a leading axis) appended."""
    storage = jax.tree.map(
        lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, buffer.head, axis=0),
        buffer.storage,
        row,
    )
    capacity = buffer.capacity
    return Buffer(storage, (buffer.head + 1) % capacity, jnp.minimum(buffer.size + 1, capacity))


def take(buffer: Buffer[Rows], age: Int[Array, "*B"]) -> Rows:
    """The rows of these ages; 0 is the newest. Ages must lie below `size`."""
    place = (buffer.head - 1 - age) % buffer.capacity
    return jax.tree.map(lambda leaf: leaf[place], buffer.storage)


def sample(buffer: Buffer[Rows], key: Key[Array, ""], shape: tuple[int, ...]) -> Rows:
    """Rows drawn uniformly with replacement from those alive. The buffer must not be empty."""
    return take(buffer, jax.random.randint(key, shape, 0, buffer.size))


def export_rows(buffer: Buffer[Rows]) -> Rows:
    """The rows alive, oldest first, as arrays of `size` rows. Reads the size: not for compiled code."""
    size = int(buffer.size)
    place = (int(buffer.head) - size + jnp.arange(size)) % buffer.capacity
    return jax.tree.map(lambda leaf: leaf[place], buffer.storage)


def import_rows(buffer: Buffer[Rows], rows: Rows) -> Buffer[Rows]:
    """An empty buffer filled with exported rows: the twin of `export_rows` for a ring of any sufficient capacity."""
    leaves: list[Any] = jax.tree.leaves(rows)
    size = leaves[0].shape[0]
    if size > buffer.capacity:
        raise ValueError(f"{size} rows do not fit a buffer of {buffer.capacity}; enlarge the buffer.")
    storage = jax.tree.map(lambda old, new: old.at[:size].set(new), buffer.storage, rows)
    return Buffer(storage, jnp.int32(size % buffer.capacity), jnp.int32(size))

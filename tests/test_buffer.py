"""The ring buffer against `collections.deque`, and what a sample may see."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import assert_same, buffer_of, random_rows
from mbpo.buffer import export_rows, import_rows, init_buffer, insert, insert_one, sample, take

CAPACITY, BATCH = 7, 5
ROW = (jnp.zeros((), jnp.int32), jnp.zeros(2))

insert_compiled, insert_one_compiled = jax.jit(insert), jax.jit(insert_one)
sample_compiled = jax.jit(sample, static_argnums=2)


def numbered(first: int, count: int):
    """Rows (n, (n, −n)) that cannot be mistaken for each other, from `first` on."""
    number = jnp.arange(first, first + count, dtype=jnp.int32)
    wide = number.astype(jnp.float32)
    return number, jnp.stack([wide, -wide], axis=-1)


def contents(buffer) -> list[int]:
    """The numbers of the rows alive, oldest first; each row is whole."""
    number, pair = (np.asarray(leaf) for leaf in export_rows(buffer))
    np.testing.assert_array_equal(pair, np.stack([number, -number], axis=-1))
    return number.tolist()


ONE = st.just("one")
MANY = st.tuples(st.lists(st.booleans(), min_size=BATCH, max_size=BATCH), st.integers(1, CAPACITY))
EMPTY, FULL = [False] * BATCH, [True] * BATCH
OPERATIONS = st.lists(st.one_of(ONE, MANY, MANY, st.tuples(st.sampled_from([EMPTY, FULL]), st.integers(1, CAPACITY))))


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_the_ring_is_a_deque(operations):
    """Rows go in one by one or masked, under windows that grow and shrink, many times around the ring."""
    ring, twin, written = init_buffer(ROW, CAPACITY), deque[int](maxlen=CAPACITY), 0
    for operation in operations:
        if operation == "one":
            number, pair = numbered(written, 1)
            ring = insert_one_compiled(ring, (number[0], pair[0]))
            twin.append(written)
            written += 1
        else:
            valid, window = operation
            ring = insert_compiled(ring, numbered(written, BATCH), jnp.asarray(valid), jnp.int32(window))
            twin.extend(written + i for i in range(BATCH) if valid[i])
            while len(twin) > window:
                twin.popleft()
            written += BATCH
        assert contents(ring) == list(twin)
        ages = jnp.arange(len(twin), dtype=jnp.int32)
        assert np.asarray(take(ring, ages)[0]).tolist() == list(twin)[::-1]


def test_without_a_window_the_capacity_is_the_limit():
    ring = init_buffer(ROW, CAPACITY)
    for first in (0, 5):
        ring = insert(ring, numbered(first, BATCH), jnp.ones(BATCH, bool))
    assert contents(ring) == [3, 4, 5, 6, 7, 8, 9]


def test_what_a_smaller_window_dropped_does_not_come_back():
    ring = insert(init_buffer(ROW, CAPACITY), numbered(0, BATCH), jnp.ones(BATCH, bool), 5)
    none = jnp.zeros(BATCH, bool)
    ring = insert(ring, numbered(5, BATCH), none, 2)
    assert contents(ring) == [3, 4]
    assert contents(insert(ring, numbered(5, BATCH), none, 7)) == [3, 4]


@pytest.mark.parametrize("around", [0, 4])
def test_a_sample_sees_every_living_row_about_as_often_and_no_other(around):
    ring = init_buffer(ROW, CAPACITY)
    ring = insert(ring, numbered(100, BATCH), jnp.arange(BATCH) < around)
    ring = insert(ring, numbered(0, BATCH), jnp.ones(BATCH, bool), 4)
    number, pair = sample_compiled(ring, jax.random.key(0), (100, 40))
    np.testing.assert_array_equal(pair[..., 0], number)
    found, counts = np.unique(np.asarray(number), return_counts=True)
    assert found.tolist() == [1, 2, 3, 4]
    # 4000 draws of 4 rows: 1000 each, with a deviation of √(4000 · ¼ · ¾) = 27.
    assert np.abs(counts - 1000).max() < 5 * 27


def test_a_sample_depends_on_the_rows_and_not_on_where_they_lie():
    rows = random_rows(50)
    wrapped = buffer_of(random_rows(60, seed=1), capacity=64)
    wrapped = insert(wrapped, rows, jnp.ones(50, bool), 50)
    samples = [sample_compiled(ring, jax.random.key(1), (8, 4)) for ring in (buffer_of(rows, 1000), wrapped)]
    assert_same(*samples)


@pytest.mark.parametrize("capacity", [5, 6, 90])
def test_export_and_import_are_twins(capacity):
    ring = init_buffer(ROW, CAPACITY)
    for first in (0, 5):
        ring = insert(ring, numbered(first, BATCH), jnp.ones(BATCH, bool), 5)
    template = jax.eval_shape(lambda: init_buffer(ROW, capacity))
    again = import_rows(template, export_rows(ring))
    assert contents(again) == contents(ring) == [5, 6, 7, 8, 9]
    assert again.capacity == capacity
    after = insert_one(again, (jnp.int32(10), jnp.float32([10, -10])))
    assert contents(after) == ([6, 7, 8, 9, 10] if capacity == 5 else [5, 6, 7, 8, 9, 10])


def test_an_empty_buffer_is_exported_and_imported_too():
    empty = init_buffer(ROW, CAPACITY)
    assert contents(import_rows(empty, export_rows(empty))) == []


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="8 rows at once do not fit a buffer of 7"):
        insert(init_buffer(ROW, CAPACITY), numbered(0, 8), jnp.zeros(8, bool))
    with pytest.raises(ValueError, match="8 rows do not fit a buffer of 7"):
        import_rows(init_buffer(ROW, CAPACITY), numbered(0, 8))

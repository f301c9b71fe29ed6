"""A state as named arrays and back: what a checkpoint stores, apart from how it is stored."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mbpo.buffer import Buffer, import_rows, living_pieces
from mbpo.errors import RunError
from mbpo.tensor_file import Spec


def flatten_state(state: Any) -> dict[str, np.ndarray]:
    """Every array of `state` by a readable name ("learner.actor.layers.0.weight"); of a buffer, the rows alive.

    On the CPU most of them are views: drop them before a compiled function is to consume `state`.
    """
    tensors = state_pieces(state)
    return {name: pieces[0] if len(pieces) == 1 else np.concatenate(pieces) for name, pieces in tensors.items()}


def restore_state(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The state shaped like `template` (a state, or one from `jax.eval_shape`) with these values, bit for bit.

    A buffer may have another capacity than the one that was saved, if the rows fit.
    """
    if wrong := difference(template, arrays):
        raise RunError(f"The checkpoint does not fit this run: {wrong}; it was made by other hyper-parameters.")
    structure = jax.tree.structure(template, is_leaf=_is_buffer)
    return jax.tree.unflatten(structure, [_restore_part(name, part, arrays) for name, part in _parts(template)])


def _restore_part(name: str, part: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(part, Buffer):
        rows = [arrays[leaf_name] for leaf_name, _ in _row_leaves(name, part.storage)]
        return import_rows(part, jax.tree.unflatten(jax.tree.structure(part.storage), rows))
    # Copied either way: parameters must not be views of a file.
    return np.array(arrays[name]) if isinstance(part, np.ndarray) else jnp.array(arrays[name])


def state_pieces(state: Any) -> dict[str, list[np.ndarray]]:
    """Every array of `state`; the rows of a ring in up to two pieces, so that they need not be copied to be joined."""
    tensors: dict[str, list[np.ndarray]] = {}
    for name, part in _parts(state):
        if isinstance(part, Buffer):
            for rows in living_pieces(part):
                for leaf_name, leaf in _row_leaves(name, rows):
                    tensors.setdefault(leaf_name, []).append(leaf)
        else:
            tensors[name] = [np.asarray(part)]
    return tensors


def state_specs(template: Any, full: bool) -> dict[str, Spec]:
    """What a checkpoint of such a state holds: buffers with all their rows if `full`, else with any number of them."""
    specs: dict[str, Spec] = {}
    for name, part in _parts(template):
        if isinstance(part, Buffer):
            for leaf_name, leaf in _row_leaves(name, part.storage):
                specs[leaf_name] = Spec(leaf.dtype.name, (part.capacity if full else None, *leaf.shape[1:]))
        else:
            specs[name] = Spec(part.dtype.name, part.shape)
    return specs


def _parts(state: Any) -> Iterator[tuple[str, Any]]:
    """The arrays and buffers that `state` is made of, each with its name."""
    seen: set[str] = set()
    for path, part in jax.tree.leaves_with_path(state, is_leaf=_is_buffer):
        name = _name(path)
        for leaf_name, leaf in _row_leaves(name, part.storage) if isinstance(part, Buffer) else [(name, part)]:
            if leaf_name in seen:
                raise ValueError(f"Two arrays of the state are named '{leaf_name}'; rename a field or a key.")
            seen.add(leaf_name)
            _check_is_array(leaf_name, leaf)
        yield name, part


def _row_leaves(name: str, rows: Any) -> list[tuple[str, Any]]:
    """The arrays that the rows of the buffer `name` are made of, each with its name."""
    return [
        (".".join(filter(None, (name, "rows", _name(path)))), leaf) for path, leaf in jax.tree.leaves_with_path(rows)
    ]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_buffer(part: Any) -> bool:
    return isinstance(part, Buffer)


def _check_is_array(name: str, part: Any) -> None:
    if not hasattr(part, "dtype") or not hasattr(part, "shape"):
        raise TypeError(f"'{name}' of the state is {part!r}, not an array; make it one, or a static field.")
    if jnp.issubdtype(part.dtype, jax.dtypes.prng_key):
        raise TypeError(f"'{name}' of the state is a random key; derive it from the step, or keep jax.random.key_data.")


def difference(template: Any, arrays: Mapping[str, np.ndarray]) -> str | None:
    """The first thing in which `arrays` are not those of a state like `template`, or None."""
    expected = state_specs(template, full=False)
    found = {name: Spec(array.dtype.name, array.shape) for name, array in arrays.items()}
    for name, spec in expected.items():
        if name not in found:
            return f"it has no '{name}' ({spec})"
        if not _alike(found[name], spec):
            return f"its '{name}' is {found[name]} instead of {spec}"
    for name, spec in found.items():
        if name not in expected:
            return f"it has '{name}' ({spec}), which this run has not"
    return next(filter(None, (_row_difference(name, part, arrays) for name, part in _parts(template))), None)


def _alike(found: Spec, expected: Spec) -> bool:
    shape = found.shape
    if None in expected.shape and shape:
        shape = (None, *shape[1:])
    return (found.dtype, shape) == expected


def _row_difference(name: str, part: Any, arrays: Mapping[str, np.ndarray]) -> str | None:
    if not isinstance(part, Buffer):
        return None
    counts = sorted({len(arrays[leaf_name]) for leaf_name, _ in _row_leaves(name, part.storage)})
    if len(counts) > 1:
        return f"the columns of its '{name}' have {counts[0]} to {counts[-1]} rows"
    if counts[0] > part.capacity:
        return f"its '{name}' has {counts[0]} rows and there is room for {part.capacity}"
    return None

"""One decorator: a frozen dataclass that JAX sees as a tree of arrays."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A field that belongs to the tree's structure, not to its arrays: hashable, compared on every compilation."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """`cls` as a frozen dataclass, registered so that jit, grad, vmap, scan and donation work on it."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))

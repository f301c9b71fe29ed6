"""The limit: the matrix products that a computation cannot do without, and nothing else.

A `Workload` lists them by name. Its program runs them one after the other in one scan; each waits for the one before,
because it reads that one's result, or a matrix into which one number of that result was written. So none can be
skipped, hoisted out of the scan, merged with another or run beside it, and the dependency costs a store.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Shape = tuple[int, int]
Matrices = dict[str, Float[Array, "_ _"]]


@dataclass(frozen=True)
class Product:
    """`out` = `left` · `right`, summed over one axis of each.

    (1, 0) is the plain product; a 0 in the first place transposes `left`, a 1 in the second `right`.
    """

    out: str
    left: str
    right: str
    axes: tuple[int, int] = (1, 0)


@dataclass(frozen=True)
class Signature:
    """What makes two products the same work: both operands as they lie in memory, and the axis summed over.

    The order of the operands does not count: a compiler may transpose the result.
    """

    operands: tuple[tuple[Shape, int], tuple[Shape, int]]

    @classmethod
    def of(cls, left: Shape, right: Shape, axes: tuple[int, int]) -> "Signature":
        first, second = sorted([(left, axes[0]), (right, axes[1])])
        return cls((first, second))

    @property
    def is_outer(self) -> bool:
        """True for the product of a column and a row: XLA multiplies element by element there."""
        (shape, axis), _ = self.operands
        return shape[axis] == 1

    @property
    def flop(self) -> int:
        (left, axis), (right, _) = self.operands
        return 2 * left[0] * left[1] * right[0] * right[1] // left[axis]

    def __str__(self) -> str:
        return " · ".join(f"{rows}x{columns} over axis {axis}" for (rows, columns), axis in self.operands)


@dataclass(frozen=True)
class Workload:
    """Products in order, and the shapes of the matrices that are there before the first."""

    inputs: Mapping[str, Shape]
    products: Sequence[Product]
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the compiler is told: the same as for the real thing."""

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """Of every matrix by name."""
        shapes = dict(self.inputs)
        for product in self.products:
            left, right = shapes[product.left], shapes[product.right]
            if left[product.axes[0]] != right[product.axes[1]]:
                raise ValueError(f"{product} cannot sum over axes of {left} and {right}.")
            shapes[product.out] = (left[1 - product.axes[0]], right[1 - product.axes[1]])
        return shapes

    @property
    def signatures(self) -> "Counter[Signature]":
        """How often each product is there, without the outer ones, which no compiled program has as products."""
        every = (Signature.of(self.shapes[p.left], self.shapes[p.right], p.axes) for p in self.products)
        return Counter(signature for signature in every if not signature.is_outer)

    @property
    def flop(self) -> int:
        return sum(signature.flop * count for signature, count in self.signatures.items())

    def random_matrices(self, seed: int = 0) -> Matrices:
        """Inputs that keep all results near 1, round after round: no product slows down on tiny or infinite numbers."""
        rng = np.random.default_rng(seed)
        return {
            name: jnp.asarray(rng.normal(size=shape, scale=shape[0] ** -0.5 if is_weight(name) else 1.0), jnp.float32)
            for name, shape in self.inputs.items()
        }

    def contestant(self, rounds: int) -> Callable[[], object]:
        """A call of the limit's program: all products `rounds` times."""
        matrices, last = self.random_matrices(), jnp.float32(0.0)

        def call() -> None:
            nonlocal matrices, last
            matrices, last = self.program(rounds, matrices, last)
            jax.block_until_ready(last)

        return call

    @cached_property
    def program(self) -> Any:
        """`run`, compiled."""
        return jax.jit(self.run, static_argnums=0, donate_argnums=1, compiler_options=dict(self.options))

    def run(self, rounds: int, matrices: Matrices, last: Float[Array, ""]) -> tuple[Matrices, Float[Array, ""]]:
        """All products, `rounds` times; `last` is a number from the last result."""

        def once(carry: tuple[Matrices, Float[Array, ""]], _: None) -> tuple[tuple[Matrices, Float[Array, ""]], None]:
            matrices, last = carry
            known, newest = dict(matrices), ""
            for product in self.products:
                if newest not in (product.left, product.right):
                    known[product.left] = known[product.left].at[0, 0].set(jnp.clip(last, -1.0, 1.0))
                newest = product.out
                over = ((product.axes[0],), (product.axes[1],))
                known[newest] = jax.lax.dot_general(known[product.left], known[product.right], (over, ((), ())))
                last = known[newest][0, 0]
            return ({name: known[name] for name in matrices}, last), None

        return jax.lax.scan(once, (matrices, last), length=rounds)[0]


def is_weight(name: str) -> bool:
    return ".w" in name


# --- the products of a multi-layer perceptron ---------------------------------------------------------------------


@dataclass(frozen=True)
class Net:
    """A network by name and widths; its weights are the matrices `<name>.w0`, `<name>.w1`, ..."""

    name: str
    sizes: tuple[int, ...]

    @property
    def weights(self) -> dict[str, Shape]:
        return {f"{self.name}.w{i}": shape for i, shape in enumerate(pairwise(self.sizes))}

    def turned_inputs(self, rows: int) -> dict[str, Shape]:
        """What each layer reads, turned over: `<name>.x0`, `<name>.x1`, ..."""
        return {f"{self.name}.x{i}": (size, rows) for i, size in enumerate(self.sizes[:-1])}

    @property
    def depth(self) -> int:
        return len(self.sizes) - 1

    def forward(self, x: str, tag: str) -> Iterator[Product]:
        """From the rows `x` to the output `<tag>.<depth>`, over `<tag>.1`, ..."""
        for i in range(self.depth):
            yield Product(f"{tag}.{i + 1}", f"{tag}.{i}" if i else x, f"{self.name}.w{i}")

    def backward(
        self, x: str, tag: str, *, to_weights: bool = True, to_input: bool = False, turned: bool = False
    ) -> Iterator[Product]:
        """The gradients of what `forward` did. The output stands for its own gradient: it has the same shape.

        Where `turned`, a gradient with respect to weights has a matrix of `turned_inputs` for its left factor.
        """
        gradient = f"{tag}.{self.depth}"
        for i in reversed(range(self.depth)):
            if to_weights and turned:
                yield Product(f"{tag}.dw{i}", f"{self.name}.x{i}", gradient)
            elif to_weights:
                yield Product(f"{tag}.dw{i}", f"{tag}.{i}" if i else x, gradient, axes=(0, 0))
            if i or to_input:
                yield Product(f"{tag}.d{i}", gradient, f"{self.name}.w{i}", axes=(1, 1))
                gradient = f"{tag}.d{i}"


# --- the products of a compiled program ---------------------------------------------------------------------------

_DEFINITION = re.compile(r"%?([\w.\-]+) = \w+\[([\d,]*)\](?:\{([\d,]*))?")
_DOT = re.compile(
    r" dot\((?:[^%()]*)%?([\w.\-]+), (?:[^%()]*)%?([\w.\-]+)\).*?"
    r"lhs_contracting_dims=\{(\d)\}, rhs_contracting_dims=\{(\d)\}"
)


def compiled_products(hlo: str) -> "Counter[Signature]":
    """The matrix products in the text of a compiled program; those inside a loop count once."""
    layouts = {name: _layout(shape, order) for name, shape, order in _DEFINITION.findall(hlo)}
    found: Counter[Signature] = Counter()
    for left, right, left_axis, right_axis in _DOT.findall(hlo):
        sides = [_in_memory(*layouts[name], int(axis)) for name, axis in ((left, left_axis), (right, right_axis))]
        (left_shape, left_sum), (right_shape, right_sum) = sides
        found[Signature.of(left_shape, right_shape, (left_sum, right_sum))] += 1
    return found


def _layout(shape: str, order: str) -> tuple[list[int], list[int]]:
    numbers = [[int(n) for n in text.split(",") if n] for text in (shape, order)]
    return numbers[0], numbers[1]


def _in_memory(shape: list[int], order: list[int], axis: int) -> tuple[Shape, int]:
    """Shape and axis of a matrix with rows contiguous: one stored by columns is its transpose."""
    if len(shape) != 2:
        raise ValueError(f"A product of an array of shape {shape} is none of matrices.")
    rows, columns = shape
    return ((columns, rows), 1 - axis) if order == [0, 1] else ((rows, columns), axis)

"""Reading and writing safetensors files: a JSON header, then the bytes of each tensor.

Spelled out here because the library's writer needs every tensor in one piece (a copy of gigabytes for a ring buffer
that has wrapped) and the file read again for its hash, and its reader copies what can be looked at in place.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

_CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
"""The types of tensors: their names in NumPy and in the file."""

_DTYPES = {code: jnp.dtype(name) for name, code in _CODES.items()}


class Spec(NamedTuple):
    """Type and shape of a tensor. A size of None stands for any number of rows."""

    dtype: str
    shape: tuple[int | None, ...]

    @property
    def bytes(self) -> int:
        return math.prod(size or 0 for size in self.shape) * jnp.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('rows' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True)
class Written:
    """A file as it should be found again."""

    bytes: int
    sha256: str
    specs: dict[str, Spec]


def write_tensors(path: Path, tensors: Mapping[str, Sequence[np.ndarray]]) -> Written:
    """Writes a new file and makes it durable. A tensor is given in pieces, to be joined along their leading axis."""
    specs = {name: _spec_of_pieces(name, pieces) for name, pieces in tensors.items()}
    blocks: list[bytes | memoryview] = [header(specs)]
    blocks += [_bytes_of(piece) for name in _file_order(specs) for piece in tensors[name]]
    digest = hashlib.sha256()
    with ThreadPoolExecutor(max_workers=1) as hasher, path.open("xb") as file:
        hashed = hasher.map(digest.update, blocks)
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())
        list(hashed)
    return Written(sum(len(block) for block in blocks), digest.hexdigest(), specs)


def view_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file known to be good, as read-only views of it: it is mapped into memory, not read."""
    content = np.asarray(np.memmap(path, np.uint8, mode="r"))
    body = 8 + int.from_bytes(content[:8].tobytes(), "little")
    tensors: dict[str, np.ndarray] = {}
    for name, entry in json.loads(content[8:body].tobytes()).items():
        start, end = entry["data_offsets"]
        tensors[name] = content[body + start : body + end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def header(specs: Mapping[str, Spec]) -> bytes:
    """The beginning of a file: the length of a JSON text, and the text, padded to a multiple of eight bytes."""
    entries: dict[str, Any] = {}
    start = 0
    for name in _file_order(specs):
        spec = specs[name]
        end = start + spec.bytes
        entries[name] = {"dtype": _CODES[spec.dtype], "shape": spec.shape, "data_offsets": (start, end)}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _file_order(specs: Mapping[str, Spec]) -> list[str]:
    """The widest types first, so that every tensor starts at a multiple of its items' size."""
    return sorted(specs, key=lambda name: (-jnp.dtype(specs[name].dtype).itemsize, name))


def _spec_of_pieces(name: str, pieces: Sequence[np.ndarray]) -> Spec:
    first = pieces[0]
    if first.dtype.name not in _CODES:
        raise TypeError(f"'{name}' has the type {first.dtype}, which a checkpoint cannot hold; convert it to numbers.")
    if name == "__metadata__":
        raise ValueError("'__metadata__' is a word of the file format; name that array otherwise.")
    if len(pieces) == 1:
        return Spec(first.dtype.name, first.shape)
    return Spec(first.dtype.name, (sum(len(piece) for piece in pieces), *first.shape[1:]))


def _bytes_of(array: np.ndarray) -> memoryview:
    """The array's bytes in the order of the file. Copied only if they are laid out otherwise."""
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C").reshape(-1).view(np.uint8).data

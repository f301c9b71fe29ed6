"""What XLA's CPU compiler is told, where its own choice is slower. Imports no JAX: one of these stands before it."""

import os
from collections.abc import Mapping
from importlib.metadata import version

KNOWN_TO = "0.10."
"""The versions of jaxlib known to have these flags: any other would end the program at one that it does not know."""

WIDE_VECTORS = "--xla_cpu_prefer_vector_width=512"
"""Element-wise kernels twice as fast where the processor has such vectors, and unchanged where it has not."""

NO_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""Matrix products by Eigen alone, as options of one compiled function."""


def flags_for_all(given: str) -> str:
    """`XLA_FLAGS` with ours before those given, so that the user's own count."""
    return f"{WIDE_VECTORS} {given}".rstrip() if version("jaxlib").startswith(KNOWN_TO) else given


def options_for_one(options: Mapping[str, str]) -> dict[str, str]:
    """The options that this jaxlib knows, and that the user has not set for all functions."""
    if not version("jaxlib").startswith(KNOWN_TO):
        return {}
    given = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if name not in given}

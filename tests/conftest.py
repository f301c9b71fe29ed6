"""Strictness for every test: dtype promotion, rank promotion and warnings are errors; shapes are checked."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gymnasium
import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

install_import_hook("mbpo", "beartype.beartype")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own; what a test imports or registers is forgotten after it."""
    from mbpo.envs import tasks

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(tasks, "_registered", {})
    modules, registry = set(sys.modules), dict(gymnasium.registry)
    yield tmp_path
    for name in set(sys.modules) - modules:
        spec = sys.modules[name].__spec__
        places = [spec.origin or "", *(spec.submodule_search_locations or [])] if spec else []
        # Of others some cannot be imported twice, such as those that hold compiled code.
        if any(place.startswith(str(tmp_path)) for place in places):
            del sys.modules[name]
    gymnasium.registry.clear()
    gymnasium.registry.update(registry)

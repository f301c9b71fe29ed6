"""Strictness for every test: dtype promotion, rank promotion and warnings are errors; shapes are checked."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

install_import_hook("mbpo", "beartype.beartype")

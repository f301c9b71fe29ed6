"""What the compiler is told: the user's own word counts, and a jaxlib that does not know it is told nothing."""

import jax
import jax.numpy as jnp

from mbpo import compiler
from mbpo.compiler import NO_YNNPACK, flags_for_all, options_for_one


def test_the_users_flags_stand_behind_ours():
    assert flags_for_all("") == "--xla_cpu_prefer_vector_width=512"
    assert flags_for_all("--xla_x=1") == "--xla_cpu_prefer_vector_width=512 --xla_x=1"


def test_an_option_that_the_user_set_is_left_alone(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_x=1")
    assert options_for_one(NO_YNNPACK) == NO_YNNPACK
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_DOT")
    assert options_for_one(NO_YNNPACK) == {}


def test_another_jaxlib_is_told_nothing(monkeypatch):
    monkeypatch.setattr(compiler, "version", lambda _: "0.11.0")
    assert flags_for_all("--xla_x=1") == "--xla_x=1"
    assert options_for_one(NO_YNNPACK) == {}


def test_this_jaxlib_knows_the_option():
    product = jax.jit(jnp.matmul, compiler_options=options_for_one(NO_YNNPACK))
    assert "ynn" not in product.lower(jnp.ones((64, 64)), jnp.ones((64, 64))).compile().as_text()

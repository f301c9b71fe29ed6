"""Which room may import from which: read from the source, without running it."""

import ast
from pathlib import Path

import pytest

import mbpo

SOURCE = Path(mbpo.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(path: Path, everywhere: bool = True) -> set[str]:
    """The modules that a file imports, the names of `from m import n` as m.n too; only those on top, or all."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def uses(path: Path, *packages: str) -> set[str]:
    return {
        name for name in imported(path) for package in packages if name == package or name.startswith(package + ".")
    }


def loaded_with(file: str) -> set[str]:
    """All that importing a file imports at once, through other files of the project too."""
    seen: set[str] = set()
    found: set[str] = set()
    waiting = [file]
    while waiting:
        file = waiting.pop()
        if file in seen or file not in FILES:
            continue
        seen.add(file)
        names = imported(FILES[file], everywhere=False)
        found |= names
        for name in names:
            parts = name.split(".")
            if parts[0] == "mbpo":
                inside = "/".join(parts[1:])
                waiting += [f"{inside}.py", f"{inside}/__init__.py".lstrip("/")]
                waiting += ["/".join([*parts[1:i], "__init__.py"]) for i in range(1, len(parts))]
    return found


@pytest.mark.parametrize("file", FILES)
def test_one_room_has_the_simulators_and_one_the_pictures(file):
    if not file.startswith("envs/"):
        assert not uses(FILES[file], "gymnasium", "mujoco")
    if not file.startswith("figures/"):
        assert not uses(FILES[file], "matplotlib")


def test_theory_knows_nothing_of_training():
    allowed = ("mbpo", "mbpo.errors", "mbpo.words", "mbpo.theory", "mbpo.figures")
    for file in FILES:
        if file.startswith("theory/"):
            assert not uses(FILES[file], "jax", "optax")
            others = uses(FILES[file], "mbpo") - uses(FILES[file], *allowed[1:]) - {"mbpo"}
            assert not others


def test_the_runner_knows_no_algorithm():
    assert not uses(FILES["runner.py"], "mbpo.algorithms", "mbpo.presets")


PARTS = [
    *("addresses", "buffer", "distributions", "guards", "losses", "memory", "model", "model_fit", "nets", "normalizer"),
    *("optimizer", "pytree", "returns", "rollout", "schedule", "termination", "types"),
]


@pytest.mark.parametrize("part", PARTS)
def test_parts_know_no_algorithm_and_no_runner(part):
    assert not uses(FILES[f"{part}.py"], "mbpo.algorithms", "mbpo.runner", "mbpo.experiment", "mbpo.presets")


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("algorithms/")])
def test_algorithms_know_no_runner(file):
    assert not uses(FILES[file], "mbpo.runner", "mbpo.experiment", "mbpo.presets", "mbpo.checkpoint", "mbpo.display")


@pytest.mark.parametrize("file", ["cli.py", "__init__.py", "__main__.py", "envs/tasks.py"])
def test_help_and_the_list_of_tasks_load_no_jax(file):
    heavy = {name for name in loaded_with(file) if name.split(".")[0] in ("jax", "optax", "gymnasium", "matplotlib")}
    assert not heavy


def test_the_rules_can_be_broken():
    """The readers above see what they are to see."""
    assert uses(FILES["envs/adapter.py"], "gymnasium")
    assert "jax" in loaded_with("runner.py")
    assert "mbpo.algorithms.SAC" in imported(FILES["presets.py"])
    assert "gymnasium" in loaded_with("runner.py"), "through the adapter"

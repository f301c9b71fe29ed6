"""Checkpoints: what comes back is what was saved, bit for bit; what is damaged is passed over, and it is said."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import ml_dtypes
import numpy as np
import optax
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from mbpo import checkpoint
from mbpo.buffer import Buffer, export_rows, import_rows, init_buffer, insert, insert_one, living_pieces, take
from mbpo.checkpoint import SaveSchedule, checkpoint_bytes, ensure_room, load_newest, save
from mbpo.errors import RunError, UsageError
from mbpo.pytree import pytree, static
from mbpo.state_arrays import flatten_state, restore_state

DTYPES = [
    *(
        np.dtype(code)
        for code in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", ">f4", ">u2"]
    ),
    np.dtype(ml_dtypes.bfloat16),
]


@pytree
class Layer:
    weight: Any
    bias: Any
    name: str = static(default="tanh")


@pytree
class Learner:
    layers: tuple[Layer, ...]
    optimizer: Any
    replay: Any
    updates: Any


@pytree
class Row:
    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any


def learner(rows: int = 5, capacity: int = 8, hidden: int = 4) -> Learner:
    """A state with everything a real one has: nested dataclasses, optax's tuples, a ring, counters, odd types."""
    layers = (
        Layer(jnp.linspace(-1, 1, 3 * hidden).reshape(3, hidden), jnp.zeros(hidden)),
        Layer(jnp.ones((hidden, 1), jnp.bfloat16), jnp.zeros((0,), jnp.int8)),
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)).init(layers)
    replay = init_buffer(transition(0), capacity)
    for number in range(rows):
        replay = insert_one(replay, transition(number))
    return Learner(layers, optimizer, replay, jnp.int32(rows))


def shapes_of(build: Callable[[], Any]) -> Any:
    """`jax.eval_shape` where the fields of trees are arrays by annotation, which shapes are not."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        return jax.eval_shape(build)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def transition(number: int) -> Row:
    obs = jnp.array([number, number + 0.25], jnp.float32)
    done = jnp.bool_(number % 3 == 0)
    return Row(obs, obs[:1], jnp.float32(-number), obs + 1, terminated=done, truncated=~done)


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    """An array such that NaNs, negative zeros and byte orders compare as what they are."""
    array = np.asarray(array)
    return array.dtype.name, array.shape, np.asarray(array, array.dtype.newbyteorder("<"), order="C").tobytes()


def assert_same(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    assert [bits(leaf) for leaf in jax.tree.leaves(left)] == [bits(leaf) for leaf in jax.tree.leaves(right)]


def any_array(draw: Any) -> np.ndarray:
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    count = int(np.prod(shape)) * dtype.itemsize
    content = draw(st.binary(min_size=count, max_size=count))
    if dtype == np.bool_:
        content = bytes(byte & 1 for byte in content)
    return np.frombuffer(content, dtype).reshape(shape)


@st.composite
def trees(draw: Any) -> Any:
    names = st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1, max_size=4)
    arrays = st.composite(any_array)()
    return draw(
        st.recursive(
            arrays, lambda node: st.dictionaries(names, node, max_size=4) | st.lists(node, max_size=3), max_leaves=8
        )
    )


# Bit for bit


@settings(max_examples=60, deadline=None)
@given(tree=trees())
def test_any_tree_of_any_type_and_shape_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, tree: Any
) -> None:
    folder = tmp_path_factory.mktemp("any")
    saved = save(folder, 7, tree, {}, {})
    loaded = load_newest(folder, template=tree)
    assert loaded is not None
    assert_same(restore_state(tree, loaded.state), tree)
    # The library is an independent reader of the same format.
    theirs = safetensors.numpy.load_file(saved.path / "state.safetensors")
    assert {name: bits(array) for name, array in theirs.items()} == {
        name: bits(array) for name, array in loaded.state.items()
    }


def test_a_learner_comes_back_with_arrays_and_values(tmp_path: Path) -> None:
    state = learner()
    arrays = {"actions": np.arange(6.0).reshape(2, 3)[:, ::2], "nan": np.array(np.nan, np.float32)}
    values = {"seconds": 1.5, "rng": {"state": 2**127 + 1}, "text": "γ", "list": [1, None, True]}
    saved = save(tmp_path, 12000, state, arrays, values)
    assert saved.path == tmp_path / "step-000012000"
    assert saved.bytes == sum(file.stat().st_size for file in saved.path.iterdir())
    assert saved.seconds > 0

    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert (loaded.step, loaded.values, loaded.skipped) == (12000, values, [])
    assert {name: bits(array) for name, array in loaded.extra.items()} == {
        name: bits(array) for name, array in arrays.items()
    }
    for template in (state, shapes_of(learner)):
        assert_same(restore_state(template, loaded.state), state)


def test_names_are_readable_and_buffers_hold_their_living_rows_oldest_first() -> None:
    arrays = flatten_state(learner(rows=11, capacity=8))
    assert {"layers.0.weight", "layers.1.bias", "optimizer.1.0.mu.0.weight", "replay.rows.next_obs", "updates"} <= set(
        arrays
    )
    np.testing.assert_array_equal(arrays["replay.rows.reward"], -np.arange(3.0, 11.0))
    assert arrays["replay.rows.terminated"].dtype == np.bool_


@pytest.mark.parametrize("capacity", [5, 7, 100])
@pytest.mark.parametrize("inserted", [0, 1, 5, 7, 9, 14])
def test_a_buffer_of_another_capacity_gives_the_same_rows(tmp_path: Path, capacity: int, inserted: int) -> None:
    state = {"model": ring_of_five(inserted)}
    save(tmp_path, 1, state, {}, {})
    loaded = load_newest(tmp_path)
    assert loaded is not None
    template = shapes_of(lambda: {"model": init_buffer(transition(0), capacity)})
    restored = restore_state(template, loaded.state)["model"]
    assert restored.capacity == capacity
    assert_same(oldest_first(restored), oldest_first(state["model"]))
    assert_same(export_rows(restored), oldest_first(state["model"]))
    # ... and goes on as the old one does.
    grown = insert_one(restored, transition(77))
    assert float(take(grown, jnp.int32(0)).reward) == -77
    assert int(grown.size) == min(int(restored.size) + 1, capacity)


def oldest_first(buffer: Buffer[Row]) -> Row:
    return take(buffer, jnp.arange(int(buffer.size))[::-1])


def ring_of_five(inserted: int) -> Buffer[Row]:
    """A ring that has seen `inserted` rows; with a window of three if nine."""
    buffer = init_buffer(transition(0), 5)
    for number in range(inserted):
        one = jax.tree.map(lambda leaf: leaf[None], transition(number))
        buffer = insert(buffer, one, jnp.array([True]), window=3 if inserted == 9 else None)
    return buffer


def test_the_pieces_of_a_ring_are_views_and_leave_it_free_to_be_donated() -> None:
    buffer = learner(rows=11).replay
    pieces = living_pieces(buffer)
    assert len(pieces) == 2
    assert pieces[1].obs.ctypes.data == buffer.storage.obs.unsafe_buffer_pointer()
    address = buffer.storage.reward.unsafe_buffer_pointer()
    del pieces
    donated = jax.jit(insert_one, donate_argnums=0)(buffer, transition(1))
    assert donated.storage.reward.unsafe_buffer_pointer() == address


def test_restored_parameters_are_no_views_of_the_file(tmp_path: Path) -> None:
    # 4008 bytes each: one of the eight begins at a multiple of 64, where JAX may take memory as it is.
    state = {str(number): jnp.arange(1002.0) for number in range(8)}
    saved = save(tmp_path, 1, state, {}, {})
    loaded = load_newest(tmp_path)
    assert loaded is not None
    restored = restore_state(state, loaded.state)
    with (saved.path / "state.safetensors").open("r+b") as file:
        file.seek(-8 * 4008, os.SEEK_END)
        file.write(b"\xff" * 8 * 4008)
    assert_same(restored, state)


# What cannot be saved or does not fit


def test_a_random_key_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"'actor\.key' of the state is a random key"):
        save(tmp_path, 1, {"actor": {"key": jax.random.key(0)}}, {}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "arrays", "values", "message"),
    [
        ({"rate": 0.5}, {}, {}, "'rate' of the state is 0.5, not an array"),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, {}, {}, r"Two arrays of the state are named 'a\.b'"),
        ({}, {"who": np.array(["x"])}, {}, "'who' has the type <U1"),
        ({}, {"__metadata__": np.ones(1)}, {}, "word of the file format"),
        ({}, {}, {"set": {1}}, "not JSON serializable"),
    ],
)
def test_what_cannot_be_saved_is_refused_and_leaves_nothing(
    tmp_path: Path, state: Any, arrays: Any, values: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        save(tmp_path, 1, state, arrays, values)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (lambda: learner(hidden=5), r"its 'layers\.0\.weight' is float32\[3, 4\] instead of float32\[3, 5\]"),
        (lambda: learner(capacity=3), r"its 'replay' has 5 rows and there is room for 3"),
        (lambda: learner().layers, r"it has no '0\.weight'"),
        (lambda: {**flatten_state(learner()), "more": np.ones(2)}, r"it has no 'more' \(float64\[2\]\)"),
    ],
)
def test_a_state_of_other_hyper_parameters_is_told_apart(template: Any, message: str) -> None:
    with pytest.raises(RunError, match=f"does not fit this run: {message}.*made by other hyper-parameters"):
        restore_state(template(), flatten_state(learner()))


def test_more_arrays_or_uneven_columns_are_told() -> None:
    arrays = flatten_state(learner())
    with pytest.raises(RunError, match=r"it has 'extra' \(float64\[1\]\), which this run has not"):
        restore_state(learner(), {**arrays, "extra": np.ones(1)})
    with pytest.raises(RunError, match=r"the columns of its 'replay' have 4 to 5 rows"):
        restore_state(learner(), {**arrays, "replay.rows.reward": arrays["replay.rows.reward"][:4]})
    with pytest.raises(RunError, match=r"'replay\.rows\.obs' is float32\[5, 1\] instead of float32\[rows, 2\]"):
        restore_state(learner(), {**arrays, "replay.rows.obs": arrays["replay.rows.obs"][:, :1]})


# Damage


def three_checkpoints(folder: Path) -> None:
    for step in (100, 200, 300):
        save(
            folder, step, {"weight": jnp.full((40,), step, jnp.float32)}, {"obs": np.arange(3)}, {"step": step}, keep=3
        )


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def flip_a_bit(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def write_noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def lengthen(path: Path, _: random.Random) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


@pytest.mark.parametrize("name", ["manifest.json", "state.safetensors", "extra.safetensors"])
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, write_noise, lengthen, remove])
def test_damage_anywhere_is_noticed_and_the_one_before_is_used(tmp_path: Path, name: str, damage: Any) -> None:
    original = tmp_path / "original"
    three_checkpoints(original)
    for seed in range(12):
        folder = tmp_path / str(seed)
        shutil.copytree(original, folder)
        damage(folder / "step-000000300" / name, random.Random(seed))
        loaded = load_newest(folder)
        assert loaded is not None
        if loaded.step == 300:  # a blank turned into another blank, or one more: what is said is the same
            assert name == "manifest.json"
            assert (loaded.values, float(loaded.state["weight"][0])) == ({"step": 300}, 300)
            continue
        assert (loaded.step, float(loaded.state["weight"][0]), loaded.values) == (200, 200, {"step": 200})
        (sentence,) = loaded.skipped
        assert sentence.startswith("The checkpoint 'step-000000300' was not used: ")
        assert name in sentence


def test_a_flipped_digit_in_a_counter_of_the_manifest_is_noticed(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    manifest = tmp_path / "step-000000300" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 300\n', '"step": 301\n'))
    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert loaded.step == 200
    assert "manifest.json is damaged (its SHA-256 differs)" in loaded.skipped[0]


def test_foreign_things_are_passed_over_each_with_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    three_checkpoints(folder)
    (folder / "step-000000900").write_text("a file")
    (folder / "step-000000800").mkdir()
    (folder / "step-000000700").mkdir()
    (folder / "step-000000700" / "manifest.json").write_text('{"made by": "another program"}')
    (folder / "step-000000650").mkdir()
    (folder / "step-000000650" / "manifest.json").write_text("[" * 100_000)
    (folder / "notes.txt").write_text("not ours")
    shutil.copytree(folder / "step-000000300", folder / "step-000000600")
    three_checkpoints(tmp_path / "newer format")
    newer = folder / "step-000000500"
    shutil.copytree(folder / "step-000000300", newer)
    manifest = json.loads((newer / "manifest.json").read_text())
    (newer / "manifest.json").write_text(json.dumps({**manifest, "version": 2}))
    save(tmp_path / "other", 400, {"bias": jnp.zeros(2)}, {}, {})
    shutil.move(tmp_path / "other" / "step-000000400", folder)

    template = {"weight": jnp.zeros(40)}
    loaded = load_newest(folder, template)
    assert loaded is not None
    assert loaded.step == 300
    made_otherwise = "so it was made by other hyper-parameters or in another environment"
    reasons = [
        "'step-000000900' was not used: it has no manifest.json",
        "'step-000000800' was not used: it has no manifest.json",
        "'step-000000700' was not used: its manifest.json is not that of a checkpoint of mbpo",
        "'step-000000650' was not used: its manifest.json is torn or damaged (it is not JSON)",
        "'step-000000600' was not used: it was renamed (its manifest.json says step 300)",
        "'step-000000500' was not used: it has the format version 2, and this mbpo reads version 1",
        f"'step-000000400' was not used: it has no 'weight' (float32[40]), {made_otherwise}",
    ]
    assert [f"The checkpoint {reason}." for reason in reasons] == loaded.skipped
    save(folder, 1000, template, {}, {})
    assert names(folder) == ["notes.txt", "step-000000400", "step-000001000"]


def test_a_checkpoint_of_another_run_is_passed_over(tmp_path: Path) -> None:
    state = {"weight": jnp.ones(2)}
    save(tmp_path / "mine", 100, state, {}, {}, run="a1")
    save(tmp_path / "other", 200, state, {}, {}, run="b2")
    shutil.move(tmp_path / "other" / "step-000000200", tmp_path / "mine")
    loaded = load_newest(tmp_path / "mine", run="a1")
    assert loaded is not None
    assert loaded.step == 100
    assert "it belongs to another run ('b2' instead of 'a1')" in loaded.skipped[0]
    # ... and does not take the place of one of this run.
    save(tmp_path / "mine", 300, state, {}, {}, run="a1")
    assert names(tmp_path / "mine") == ["step-000000100", "step-000000300"]


def test_a_value_that_is_not_finite_does_not_keep_a_run_from_saving(tmp_path: Path) -> None:
    values = {"loss": math.nan, "bounds": [math.inf, -math.inf]}
    save(tmp_path, 1, {}, {}, values)
    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert math.isnan(loaded.values["loss"])
    assert loaded.values["bounds"] == values["bounds"]


def test_an_unreadable_file_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_checkpoints(tmp_path)
    digest = checkpoint.hashlib.file_digest

    def failing(stream: Any, name: str) -> Any:
        if "300" in stream.name:
            raise OSError(5, "Input/output error")
        return digest(stream, name)

    monkeypatch.setattr(checkpoint.hashlib, "file_digest", failing)
    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert loaded.step == 200
    assert "cannot be read (Input/output error)" in loaded.skipped[0]


def test_none_good_is_an_error_that_says_why_and_none_at_all_is_none(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "missing") is None
    assert load_newest(tmp_path) is None
    (tmp_path / ".saving-1").mkdir()
    assert load_newest(tmp_path) is None
    three_checkpoints(tmp_path)
    for step in (100, 200, 300):
        remove(tmp_path / f"step-000000{step}" / "state.safetensors", random.Random(0))
    with pytest.raises(RunError) as caught:
        load_newest(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"No checkpoint in '{tmp_path}' is good.")
    assert message.count("its state.safetensors is missing") == 3
    assert "train anew" in message


# Which stay


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def weight(step: int) -> dict[str, jax.Array]:
    return {"weight": jnp.full((3,), step, jnp.float32)}


def test_the_newest_stay_and_leftovers_go(tmp_path: Path) -> None:
    for leftover in (".saving-4711", ".removing-step-000000001"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "state.safetensors").write_text("torn")
    (tmp_path / ".removing-step-000000002").write_text("a file")
    for step in (100, 200, 300, 1_000_000_000):
        save(tmp_path, step, weight(step), {}, {})
    assert names(tmp_path) == ["step-000000300", "step-1000000000"]
    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert loaded.step == 1_000_000_000


def test_a_torn_one_does_not_count_among_those_kept(tmp_path: Path) -> None:
    for step in (100, 200):
        save(tmp_path, step, weight(step), {}, {})
    truncate(tmp_path / "step-000000200" / "state.safetensors", random.Random(0))
    save(tmp_path, 300, weight(300), {}, {})
    assert names(tmp_path) == ["step-000000100", "step-000000300"]


def test_a_run_that_went_on_from_an_earlier_one_leaves_the_later_behind(tmp_path: Path) -> None:
    for step in (100, 200):
        save(tmp_path, step, weight(step), {}, {})
    flip_a_bit(tmp_path / "step-000000200" / "state.safetensors", random.Random(0))
    save(tmp_path, 150, weight(150), {}, {})
    assert names(tmp_path) == ["step-000000100", "step-000000150"]


def test_the_same_step_again_replaces_the_first_only_when_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 100, weight(1), {}, {})
    save(tmp_path, 200, weight(2), {}, {})
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_remove_useless", lambda *_: None)
        save(tmp_path, 200, weight(3), {}, {})
    assert names(tmp_path) == ["step-000000100", "step-000000200", "step-000000200-2"]
    for again in (4, 5):
        save(tmp_path, 200, weight(again), {}, {})
        loaded = load_newest(tmp_path)
        assert loaded is not None
        assert float(loaded.state["weight"][0]) == again
        assert names(tmp_path) == ["step-000000100", f"step-000000200-{again - 1}"]


def test_a_full_disk_is_an_error_that_leaves_the_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 100, weight(1), {}, {})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"step 200 could not be written to .*No space left on device.*intact"):
            save(tmp_path, 200, weight(2), {}, {})
    assert names(tmp_path) == ["step-000000100"]


SAVE_AND_BE_KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from mbpo.checkpoint import load_newest, save

folder, rng = Path(sys.argv[1]), random.Random(0)

def save_forever(step, pipe):
    while True:
        step += 1
        for _ in range(1 + step % 2):
            save(folder, step, {"weight": np.full(300_000, step)}, {}, {"step": step})
        os.write(pipe, b"%d " % step)

last = 0
for _ in range(40):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        save_forever(last, writing)
    time.sleep(rng.uniform(0, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(writing)
    reported = int((b"%d " % last + os.read(reading, 65536)).split()[-1])
    os.close(reading)
    loaded = load_newest(folder)
    last = loaded.step if loaded else 0
    assert reported <= last <= reported + 1, (reported, last)
    if loaded:
        assert loaded.skipped == []
        assert loaded.values == {"step": last}
        assert (loaded.state["weight"] == last).all()
print(last)
"""


def run_program(program: str, *arguments: Path) -> str:
    """A process of its own (without the warning that JAX and fork do not go together, which the child does not use)."""
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout


def test_a_process_killed_while_saving_always_leaves_a_good_one(tmp_path: Path) -> None:
    last = int(run_program(SAVE_AND_BE_KILLED, tmp_path))
    assert last > 10
    save(tmp_path, last + 1, weight(1), {}, {})
    assert len(names(tmp_path)) == 2


END_AT_EACH_CALL = """
import os, shutil, sys
from pathlib import Path
import numpy as np
from mbpo.checkpoint import save

source, target = Path(sys.argv[1]), Path(sys.argv[2])
events = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.listdir", "os.scandir"}
calls_left = -1

def end_at_the_last(event, _):
    global calls_left
    calls_left -= event in events
    if calls_left == 0:
        os._exit(9)

sys.addaudithook(end_at_the_last)
for number in range(1, 200):
    folder = target / str(number)
    shutil.copytree(source, folder)
    child = os.fork()
    if child == 0:
        calls_left = number
        save(folder, 3, {"weight": np.full(3, 3, np.float32)}, {}, {"step": 3})
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
"""


def test_killed_at_every_single_call_of_the_system_a_good_one_is_left(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / "original", step, weight(step), {}, {"step": step})
    run_program(END_AT_EACH_CALL, tmp_path / "original", tmp_path)
    folders = sorted((entry for entry in tmp_path.iterdir() if entry.name.isdigit()), key=lambda path: int(path.name))
    steps: list[int] = []
    for folder in folders:
        loaded = load_newest(folder)
        assert loaded is not None
        assert loaded.skipped == []
        steps.append(loaded.step)
        assert loaded.values == {"step": loaded.step}
        whole = [len(list(entry.iterdir())) == 3 for entry in folder.iterdir() if entry.name.startswith("step-")]
        assert len(whole) >= 2
        assert all(whole)
    assert len(steps) > 10
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (2, 3)


# What it takes, and when


def test_the_bytes_foretold_are_those_of_a_full_checkpoint(tmp_path: Path) -> None:
    template = shapes_of(lambda: learner(capacity=5000))
    full = learner()
    rows = jax.tree.map(lambda leaf: jnp.zeros((5000, *leaf.shape[1:]), leaf.dtype), full.replay.storage)
    full = Learner(full.layers, full.optimizer, import_rows(template.replay, rows), full.updates)
    written = save(tmp_path, 123456, full, {}, {}).bytes
    assert checkpoint_bytes(template) == pytest.approx(written, abs=64)


def test_a_disk_without_room_for_three_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "not" / "yet"
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: SimpleNamespace(free=5_000_000_000))
    ensure_room(folder, 1_600_000_000)
    with pytest.raises(UsageError, match=r"need 5\.1 GB \(3 of 1\.7 GB\) and '.*' has 5\.0 GB free; make room"):
        ensure_room(folder, 1_700_000_000)
    assert not folder.exists()
    saved = save(tmp_path, 1, {"weight": np.zeros(2_000_000, np.uint8)}, {}, {})
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * saved.bytes))
    ensure_room(tmp_path, saved.bytes)
    with pytest.raises(UsageError, match=r"3 of 2\.0 MB"):
        ensure_room(folder, saved.bytes)


@pytest.mark.parametrize("cost", [0.001, 0.05, 0.5, 3.0])
@pytest.mark.parametrize(("hours", "tick"), [(0.05, 0.01), (1.0, 0.1), (10.0, 2.0)])
def test_saving_costs_at_most_two_percent_and_is_never_ten_minutes_off(cost: float, hours: float, tick: float) -> None:
    schedule, now, spent, saves = SaveSchedule(), 0.0, 0.0, [0.0]

    def price() -> float:
        return cost * min(1.0, 0.1 + now / 1000)  # buffers grow

    while now < hours * 3600:
        now += tick
        if schedule.due(now):
            seconds = price()
            spent, now = spent + seconds, now + seconds
            saves.append(now)
            schedule.saved(now, seconds)
    # The newest save is paid for by the pause after it, which may not be over.
    assert spent <= 0.02 * now + price()
    assert max(np.diff([*saves, now])) <= 600 + 2 * tick + cost
    assert saves[1] <= 2 + 2 * tick + cost


def test_a_young_run_loses_seconds_and_an_old_one_saves_seldom() -> None:
    for schedule, next_save in [
        (SaveSchedule(), 2.0),
        (SaveSchedule(last=60.0, cost=0.01), 62.0),
        (SaveSchedule(last=3600.0, cost=0.01), 3672.0),
        (SaveSchedule(last=3600.0, cost=6.0), 4000.0),
        (SaveSchedule(last=3600.0, cost=60.0), 4200.0),
    ]:
        assert not schedule.due(next_save - 0.1)
        assert schedule.due(next_save + 0.1)

"""The state of a run on disk: saved so that a kill at any moment does no harm, loaded only if every byte is right.

A checkpoint is a folder, `step-000012000`, of two safetensors files and a manifest with their SHA-256. It is written
under another name, made durable, and renamed: nothing half-written ever has the name of a checkpoint.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbpo import words
from mbpo.durable import sync_folder, write_synced
from mbpo.errors import RunError, UsageError
from mbpo.state_arrays import difference, state_pieces, state_specs
from mbpo.tensor_file import Written, header, view_tensors, write_tensors

FORMAT = "mbpo checkpoint"
VERSION = 1

_MANIFEST = "manifest.json"
_STATE = "state.safetensors"
_EXTRA = "extra.safetensors"

_SAVING = ".saving-"
_REMOVING = ".removing-"
_NAME = re.compile(r"step-(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Saved:
    """What a save made, and what it cost."""

    path: Path
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Loaded:
    """What a checkpoint held: `state` for `restore_state`, `extra` what was saved as `arrays`, both by name.

    The arrays are read-only views of its files and take no memory of their own.
    `skipped` has a sentence for each newer checkpoint that was not good.
    """

    step: int
    state: dict[str, np.ndarray]
    extra: dict[str, np.ndarray]
    values: dict[str, Any]
    skipped: list[str]


class _NotGood(Exception):  # noqa: N818  (the reason to pass a checkpoint over, not an error)
    """Says what is wrong, to stand after the checkpoint's name and a colon."""


# Saving


def save(
    folder: Path,
    step: int,
    state: Any,
    arrays: Mapping[str, np.ndarray],
    values: Mapping[str, Any],
    keep: int = 2,
    run: str = "",
) -> Saved:
    """Writes the checkpoint of `step` and, once that is safe on disk, removes all but the newest `keep`.

    `values` is what JSON can hold; `run` says whose checkpoint it is. Only one process at a time may save to `folder`:
    the lock of the run sees to that.
    """
    started = time.perf_counter()
    try:
        path, size = _write(folder, step, state, arrays, values, run)
    except OSError as error:
        raise RunError(
            f"The checkpoint of step {step} could not be written to '{folder}' ({error.strerror or error}); "
            "those before it are intact: put that right and resume the run."
        ) from error
    _remove_useless(folder, path, keep, run)
    return Saved(path, size, time.perf_counter() - started)


def _write(
    folder: Path, step: int, state: Any, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any], run: str
) -> tuple[Path, int]:
    """Where the new checkpoint lies, now durable, and its bytes."""
    _make_folder(folder)
    unfinished = folder / f"{_SAVING}{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir()
        files = {
            _STATE: write_tensors(unfinished / _STATE, state_pieces(state)),
            _EXTRA: write_tensors(unfinished / _EXTRA, {name: [array] for name, array in arrays.items()}),
        }
        manifest = _manifest_bytes(step, run, values, files)
        write_synced(unfinished / _MANIFEST, manifest)
        sync_folder(unfinished)
        path = unfinished.rename(_free_name(folder, step))
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_folder(folder)
    return path, len(manifest) + sum(file.bytes for file in files.values())


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(parents=True)
        sync_folder(folder.parent)


def _manifest_bytes(step: int, run: str, values: Mapping[str, Any], files: Mapping[str, Written]) -> bytes:
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "step": step, "run": run, "values": values}
    content["files"] = {name: _describe(file) for name, file in files.items()}
    # Once through JSON, so that the digest is of what a reader will see (where tuples are lists). A NaN is let through
    # as the bare token that Python writes and reads: a run must not be unable to save because one of its counters is.
    content = json.loads(json.dumps(content))
    return json.dumps(content | {"sha256": _digest(content)}, indent=1).encode() + b"\n"


def _describe(file: Written) -> dict[str, Any]:
    tensors = {name: spec._asdict() for name, spec in file.specs.items()}
    return {"bytes": file.bytes, "sha256": file.sha256, "tensors": tensors}


def _digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of all that a manifest says, whatever its layout: a flipped bit in a counter must not pass."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# Which checkpoints there are, and which stay


def _checkpoints(folder: Path) -> list[Path]:
    """Everything that has the name of a checkpoint, newest first."""
    return sorted((entry for entry in folder.iterdir() if _NAME.fullmatch(entry.name)), key=_age_order, reverse=True)


def _age_order(path: Path) -> tuple[int, int]:
    """The step, and which save of that step it is: a second one follows the first instead of overwriting it."""
    named = _NAME.fullmatch(path.name)
    assert named is not None, path
    return int(named[1]), int(named[2] or 1)


def _step(path: Path) -> int:
    return _age_order(path)[0]


def _free_name(folder: Path, step: int) -> Path:
    earlier = [_age_order(path)[1] for path in _checkpoints(folder) if _step(path) == step]
    return folder / (f"step-{step:09d}-{max(earlier) + 1}" if earlier else f"step-{step:09d}")


def _remove_useless(folder: Path, saved: Path, keep: int, run: str) -> None:
    """Removes all but the newest good checkpoints up to the one just saved, and what interrupted saves left behind.

    A later step than that belongs to a course the run has left: its checkpoint was not good, so that the run went on
    from one before it.
    """
    kept: dict[int, Path] = {}
    for path in _checkpoints(folder):
        if len(kept) < keep and _step(path) <= _step(saved) and _step(path) not in kept and _looks_good(path, run):
            kept[_step(path)] = path
    for entry in folder.iterdir():
        if _NAME.fullmatch(entry.name) and entry not in kept.values():
            _remove(entry)
        elif entry.name.startswith((_SAVING, _REMOVING)):
            _erase(entry)


def _looks_good(path: Path, run: str) -> bool:
    """What can be said without reading gigabytes."""
    try:
        manifest = _read_manifest(path)
        _check_run(manifest, run)
        _check_sizes(path, manifest)
    except (_NotGood, OSError):
        return False
    return True


def _remove(path: Path) -> None:
    """Takes the checkpoint away. First its name goes, so that a kill in between does not leave a torn checkpoint."""
    with suppress(OSError):
        _erase(path.rename(path.with_name(f"{_REMOVING}{path.name}")))


def _erase(path: Path) -> None:
    """Deletes a file or a folder. What resists (a file still in use on a network disk) is tried again another time."""
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


# Loading


def load_newest(folder: Path, template: Any = None, run: str | None = None) -> Loaded | None:
    """The newest good checkpoint; None if there is none at all, good or bad.

    Good means: complete, every byte as it was written, and (where these are given) of a state like `template` and of
    this `run`. Those passed over are told in `skipped`.
    """
    skipped: list[str] = []
    for path in _checkpoints(folder) if folder.is_dir() else []:
        try:
            return _load(path, template, run, skipped)
        except _NotGood as reason:
            skipped.append(f"The checkpoint '{path.name}' was not used: {reason}.")
        except OSError as error:
            skipped.append(f"The checkpoint '{path.name}' was not used: it cannot be read ({error.strerror or error}).")
    if skipped:
        raise RunError(
            f"No checkpoint in '{folder}' is good. {' '.join(skipped)} "
            "Put a good copy of one there, or train anew into another folder."
        )
    return None


def _load(path: Path, template: Any, run: str | None, skipped: list[str]) -> Loaded:
    manifest = _read_manifest(path)
    if run is not None:
        _check_run(manifest, run)
    _check_sizes(path, manifest)
    _check_hashes(path, manifest)
    state = view_tensors(path / _STATE)
    if template is not None and (wrong := difference(template, state)):
        raise _NotGood(f"{wrong}, so it was made by other hyper-parameters or in another environment")
    return Loaded(manifest["step"], state, view_tensors(path / _EXTRA), manifest["values"], skipped)


def _read_manifest(path: Path) -> dict[str, Any]:
    """What the manifest says, if it is one of this program, as it was written."""
    if not (path / _MANIFEST).is_file():
        raise _NotGood(f"it has no {_MANIFEST}")
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())
    except (ValueError, RecursionError):
        raise _NotGood(f"its {_MANIFEST} is torn or damaged (it is not JSON)") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _NotGood(f"its {_MANIFEST} is not that of a checkpoint of mbpo")
    if manifest.get("version") != VERSION:
        raise _NotGood(f"it has the format version {manifest.get('version')}, and this mbpo reads version {VERSION}")
    if manifest.pop("sha256", None) != _digest(manifest):
        raise _NotGood(f"its {_MANIFEST} is damaged (its SHA-256 differs)")
    if manifest["step"] != _step(path):
        raise _NotGood(f"it was renamed (its {_MANIFEST} says step {manifest['step']})")
    return manifest


def _check_run(manifest: Mapping[str, Any], run: str) -> None:
    if manifest["run"] != run:
        raise _NotGood(f"it belongs to another run ('{manifest['run']}' instead of '{run}')")


def _check_sizes(path: Path, manifest: Mapping[str, Any]) -> None:
    for name, file in manifest["files"].items():
        if not (path / name).is_file():
            raise _NotGood(f"its {name} is missing")
        size = (path / name).stat().st_size
        if size != file["bytes"]:
            raise _NotGood(f"its {name} is torn or truncated ({size} bytes instead of {file['bytes']})")


def _check_hashes(path: Path, manifest: Mapping[str, Any]) -> None:
    for name, file in manifest["files"].items():
        with (path / name).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file["sha256"]:
                raise _NotGood(f"its {name} is damaged (its SHA-256 differs)")


# What it takes, and when


def checkpoint_bytes(template: Any) -> int:
    """The bytes of a checkpoint of such a state when its buffers are full (`save`'s arrays and values come on top)."""
    specs = state_specs(template, full=True)
    state = Written(len(header(specs)) + sum(spec.bytes for spec in specs.values()), "0" * 64, specs)
    arrays = Written(len(header({})), "0" * 64, {})
    return state.bytes + arrays.bytes + len(_manifest_bytes(0, "", {}, {_STATE: state, _EXTRA: arrays}))


def ensure_room(folder: Path, size: int, copies: int = 3) -> None:
    """Refuses where there is no room for `copies` checkpoints of `size` bytes: those kept, and the one being written.

    What `folder` holds already counts as room.
    """
    held = sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file()) if folder.is_dir() else 0
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(existing).free
    needed = copies * size - held
    if needed > free:
        raise UsageError(
            f"The checkpoints need {words.size(needed)} ({copies} of {words.size(size)}) and '{existing}' has "
            f"{words.size(free)} free; make room, choose another folder, or make the buffers smaller."
        )


@dataclass
class SaveSchedule:
    """When to save, in seconds of the run's own clock. It has no clock itself: it is told the time.

    The pause after a save is the longest of: what keeps saving below 2 % of the time; 2 % of the run so far, so that a
    young run loses seconds and an old one is not rewritten all the time; two seconds. It is ten minutes at most.
    """

    last: float = 0.0
    """When the last save ended, or this session of the run began."""
    cost: float = 0.0
    """The seconds that the last save took."""

    def due(self, now: float) -> bool:
        # 1.5 %: a save may cost more than the one before it, and the last of a run is made without asking here.
        return now >= self.last + min(max(self.cost / 0.015, 0.02 * self.last, 2.0), 600.0)

    def saved(self, now: float, cost: float) -> None:
        """Takes note of a save that took `cost` seconds and ended `now`."""
        self.last, self.cost = now, cost

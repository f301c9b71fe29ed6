"""Writing files so that a crash at any moment leaves the old content or the new, never a mixture."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` survive a power cut: a rename is durable only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def aside(path: Path) -> Path:
    """Where the new content of `path` is written before it takes that name. A leftover is overwritten next time."""
    return path.with_name(f".{path.name}.aside")


def write_synced(path: Path, content: bytes) -> None:
    """Writes a file, and returns when its content is safe on disk (its name may not be yet)."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_durably(path: Path, content: bytes) -> None:
    """Replaces the file at once, and returns when both content and name are safe on disk."""
    write_synced(aside(path), content)
    aside(path).replace(path)
    sync_folder(path.parent)

"""Importing the module that brings a user's own environment. Only the words of a command line lead here."""

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from mbpo.errors import UsageError


@dataclass(frozen=True)
class ModuleRecord:
    """The file that was imported, and the SHA-256 of what it held. `name` is what to ask for to import it again."""

    name: str
    path: str
    sha256: str


def import_module_or_file(target: str) -> ModuleRecord:
    """Imports a Python file, with its folder first on the path, or a module by its dotted name.

    A file becomes the module of its stem, so that "stem:Class" is an entry point. A dotted name is looked for in the
    working folder too. What has been imported before is not run again.
    """
    if target.endswith(".py") or len(Path(target).parts) > 1 or Path(target).is_file():
        return _import_file(target)
    return _import_dotted(target)


def _import_file(target: str) -> ModuleRecord:
    path = Path(target).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"environment module '{target}' is no Python file; give the path of an existing .py file.")
    record = _record(str(path), path)
    _refuse_taken_name(target, path)
    if path.stem not in sys.modules:
        _run(target, lambda: _load(path), first=path.parent)
    return record


def _refuse_taken_name(target: str, path: Path) -> None:
    """A file named like another module would be taken for it, by everybody who imports that one from then on."""
    if "." in path.stem:
        raise UsageError(f"environment module '{target}' has a dot in its name; rename the file.")
    other = _origin(path.stem)
    if other not in (None, str(path)):
        raise UsageError(
            f"environment module '{target}' would take the place of the module '{path.stem}' ({other}); "
            "rename the file."
        )


def _origin(name: str) -> str | None:
    """The file of the module of this name, imported yet or not; None if there is no such module."""
    if name in sys.modules:
        origin = getattr(sys.modules[name], "__file__", None)
    else:
        spec = find_spec(name)
        if spec is None:
            return None
        origin = spec.origin if spec.has_location else None
    return str(Path(origin).resolve()) if origin else "which is not a file"


def _load(path: Path) -> None:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None, "a .py file always has a spec"
    assert spec.loader is not None, "and a loader"
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise


def _import_dotted(target: str) -> ModuleRecord:
    _run(target, lambda: importlib.import_module(target), first=Path.cwd())
    file = getattr(sys.modules[target], "__file__", None)
    if file is None:
        raise UsageError(f"environment module '{target}' is not a file; give a module that is one.")
    return _record(target, Path(file).resolve())


def _run(target: str, load: Callable[[], object], first: Path) -> None:
    """Calls `load` with the folder `first` at the head of the path; it stays there unless the import fails."""
    before = sys.path.copy()
    sys.path[:] = [str(first), *(entry for entry in before if entry != str(first))]
    importlib.invalidate_caches()
    try:
        load()
    except (Exception, SystemExit) as error:
        sys.path[:] = before
        raise UsageError(_import_failure(target, error)) from error


def _import_failure(target: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{target}.".startswith(f"{error.name}."):
        return (
            f"environment module '{target}' was not found; give a file, or a module that Python can import from here."
        )
    text = " ".join(str(error).split())
    return (
        f"environment module '{target}' failed while it was imported ({type(error).__name__}: {text}{_place(error)}); "
        "correct it and try again."
    )


def _place(error: BaseException) -> str:
    """Where in the user's code it happened: the innermost frame that is neither ours nor the import system's."""
    ours = (__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename not in ours and not frame.filename.startswith("<frozen")]
    return f", in {theirs[-1].filename}, line {theirs[-1].lineno}" if theirs else ""


def _record(name: str, path: Path) -> ModuleRecord:
    return ModuleRecord(name, str(path), sha256(path.read_bytes()).hexdigest())

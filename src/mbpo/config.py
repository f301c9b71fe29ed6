"""What a run is: all that is needed to repeat it, as the JSON of its folder."""

import dataclasses
import os
import platform
import shlex
import subprocess
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from mbpo import __version__
from mbpo.errors import UsageError
from mbpo.limits import is_of

FORMAT = 1
RECORDED_VERSIONS = ("jax", "jaxlib", "numpy", "gymnasium", "mujoco")

CHECKED_ON_READING = {
    "id": str,
    "algorithm": str,
    "task": str,
    "seed": int,
    "steps": int,
    "evaluate_every": int,
    "episodes": int,
    "hyperparameters": dict,
    "custom_environment": bool,
}

T = TypeVar("T")


@dataclass(frozen=True)
class RunConfig:
    """`config.json`.

    `env_module` is {"name", "path", "sha256"} of the user's module: a record, which nothing is imported for.
    """

    id: str
    """Whose checkpoints are whose: a copy of a run keeps it, no other run has it."""
    algorithm: str
    task: str
    preset: str
    seed: int
    steps: int
    evaluate_every: int
    episodes: int
    hyperparameters: Mapping[str, Any]
    env_module: Mapping[str, str] | None
    custom_environment: bool
    command: str
    commit: str | None
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: Path) -> "RunConfig":
        if data.get("format") != FORMAT:
            raise UsageError(
                f"{origin} has the format {data.get('format')!r} and this program reads {FORMAT}; "
                "use the version of mbpo that made the run."
            )
        known = {f.name for f in dataclasses.fields(cls)}
        missing = known - data.keys()
        if missing:
            raise UsageError(f"{origin} lacks {', '.join(sorted(missing))}; it is not the config of a run.")
        if wrong := [name for name, kind in CHECKED_ON_READING.items() if not is_of(data[name], kind)]:
            raise UsageError(f"{origin} has {data[wrong[0]]!r} as {wrong[0]}; restore the file as the run wrote it.")
        return cls(**{name: data[name] for name in known})


def from_mapping(cls: type[T], data: Mapping[str, Any]) -> T:
    """An instance of a (nested) dataclass of hyper-parameters from its JSON."""
    hints = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(typing.cast(Any, cls))}
    unknown = sorted(data.keys() - known)
    if unknown:
        raise UsageError(
            f"{cls.__name__} has no hyper-parameter '{unknown[0]}'; the run was made by another version of mbpo."
        )

    def value(name: str) -> Any:
        raw, hint = data[name], hints[name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return from_mapping(hint, raw)
        return tuple(raw) if isinstance(raw, list) else raw

    return cls(**{name: value(name) for name in data})


def as_mapping(algorithm: Any) -> dict[str, Any]:
    """The hyper-parameters of a (nested) dataclass, as JSON has them."""
    return dataclasses.asdict(algorithm)


def recorded_versions() -> dict[str, str]:
    return {
        "mbpo": __version__,
        **{name: version(name) for name in RECORDED_VERSIONS},
        "python": platform.python_version(),
    }


def changed_versions(recorded: Mapping[str, str]) -> list[str]:
    """What is installed here in another version than the run was made with: "jax 0.10.2 → 0.11.0"."""
    here = recorded_versions()
    return [f"{name} {was} → {here[name]}" for name, was in recorded.items() if here.get(name, was) != was]


def recorded_machine() -> dict[str, Any]:
    return {"system": platform.platform(), "processor": processor_name(), "cores": os.cpu_count()}


def processor_name() -> str:
    """The processor's own name where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def source_commit() -> str | None:
    """The commit of the code that runs, '-dirty' behind it if it was changed; None outside a checkout.

    An installed copy may lie inside a checkout of something else, which is not asked: it does not track this file.
    """
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(*arguments: str) -> str | None:
    """What git answers in this folder, None if it does not."""
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def typed_command() -> str:
    """The command line that is running, as it can be typed again."""
    return shlex.join(["mbpo", *sys.argv[1:]])


def python_call(name: str, *arguments: Any, **keywords: Any) -> str:
    """The call that is running, as it can be written again; keywords that are None or empty are left out."""
    told = [_said(argument) for argument in arguments]
    told += [f"{key}={_said(value)}" for key, value in keywords.items() if value not in (None, ())]
    return f"mbpo.{name}({', '.join(told)})"


def _said(value: Any) -> str:
    if isinstance(value, Path):
        return repr(str(value))
    return function_name(value) if callable(value) and not dataclasses.is_dataclass(value) else repr(value)


def function_name(function: Any) -> str:
    """A name for what only a function of the user's makes."""
    return getattr(function, "__name__", type(function).__name__)

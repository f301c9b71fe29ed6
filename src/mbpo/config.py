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

from mbpo.errors import UsageError

FORMAT = 1
RECORDED_VERSIONS = ("mbpo", "jax", "jaxlib", "numpy", "gymnasium", "mujoco")

T = TypeVar("T")


@dataclass(frozen=True)
class RunConfig:
    """`config.json`. `env_module` is {"path", "sha256"} of the user's module: a record, never imported from here."""

    algorithm: str
    task: str
    preset: str
    seed: int
    steps: int
    evaluate_every: int
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


def recorded_versions() -> dict[str, str]:
    return {name: version(name) for name in RECORDED_VERSIONS} | {"python": platform.python_version()}


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
    """The commit of the code that runs, '-dirty' behind it if it was changed; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    here = Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def command_line() -> str:
    """The command that made this run, as it can be typed again."""
    program, *arguments = sys.argv
    return shlex.join([Path(program).name, *arguments])

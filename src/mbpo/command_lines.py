"""What each command can be told: dataclasses, whose field docstrings are the help."""

import dataclasses
import io
import re
import typing
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from mbpo.errors import UsageError, nearest
from mbpo.limits import in_words

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Train:
    """Trains an agent and keeps everything about it in a run folder."""

    task: str
    """One of the six tasks (mbpo list), or any Gymnasium id with Box observations and actions."""
    algorithm: str = "mbpo"
    """By name; `mbpo list` has them all."""
    preset: str = "paper"
    """Which hyper-parameters to start from: those of the `paper`, of the authors' `released` code, or `fast` ones."""
    seed: int = 0
    """Everything random in the run follows from it."""
    steps: int | None = None
    """Real environment steps, random ones at the start included; by default the preset's."""
    out: Path | None = None
    """The run folder; by default runs/<algorithm>-<task>-<seed>."""
    env_module: str | None = None
    """A Python file or module of your own to import first; it may register the environment's id."""
    evaluate_every: int | None = None
    """Real steps between two evaluations; by default the preset's."""
    episodes: int = 10
    """Episodes in an evaluation."""
    sinks: tuple[str, ...] = ()
    """Where metrics go besides metrics.jsonl: tensorboard, wandb."""
    json: bool = False
    """End with one line of JSON on standard output; everything else goes to standard error."""


@dataclass(frozen=True)
class Resume:
    """Goes on with a run, exactly as if it had never stopped."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    steps: int | None = None
    """The new total of real steps; by default what the run was to have."""
    env_module: str | None = None
    """The Python file or module that the run's environment needs."""
    sinks: tuple[str, ...] = ()
    """Where metrics go besides metrics.jsonl: tensorboard, wandb."""
    json: bool = False
    """End with one line of JSON on standard output; everything else goes to standard error."""


@dataclass(frozen=True)
class Evaluate:
    """Plays whole episodes with the agent of a run's newest checkpoint, acting deterministically."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    episodes: int = 10
    """How many."""
    seed: int = 0
    """Seeds the episodes."""
    env_module: str | None = None
    """The Python file or module that the run's environment needs."""
    at_least: float | None = None
    """Exit with code 1 if the mean return is below this."""
    json: bool = False
    """Print one line of JSON."""


@dataclass(frozen=True)
class Plot:
    """Draws learning curves: seeds of one algorithm become a mean with a band, algorithms colours, tasks panels."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders and exported result files."""
    out: Path
    """The picture: .png, .pdf or .svg."""
    x: Literal["step", "seconds"] = "step"
    """What runs along the bottom."""
    y: str = "eval/return"
    """The column to draw."""
    reference: tuple[Path, ...] = ()
    """CSV files with other curves (columns step or thousand_steps, return_mean, perhaps return_std)."""
    smooth: int = 1
    """Average over so many neighbouring evaluations."""


@dataclass(frozen=True)
class Export:
    """Writes a run's small result file, with its command, commit and versions beside it."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    out: Path
    """The result file: .csv."""


@dataclass(frozen=True)
class List:
    """The tasks, algorithms and presets there are."""

    json: bool = False
    """Print one line of JSON."""


def train_command(arguments: Sequence[str]) -> tuple[Train, Any]:
    """The command, and the algorithm with all its hyper-parameters: preset first, flags over it."""
    from mbpo.envs.tasks import find_task
    from mbpo.presets import find_preset

    name = flag_value(arguments, "algorithm", Train.algorithm)
    task = find_task(flag_value(arguments, "task", "a task"))
    preset = find_preset(name, task, flag_value(arguments, "preset", Train.preset))
    hyper = (name, type(preset.algorithm), dataclasses.field(default=preset.algorithm))
    with_hyper = dataclasses.make_dataclass("Train", [hyper], bases=(Train,), frozen=True)
    with_hyper.__doc__ = Train.__doc__
    command = parse(with_hyper, arguments, "mbpo train")
    return command, getattr(command, name)


def flag_value(arguments: Sequence[str], name: str, otherwise: str) -> str:
    """The value of a flag that decides which other flags there are; given twice, the last one counts, as for all."""
    value = otherwise
    for i, argument in enumerate(arguments):
        if argument == f"--{name}" and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif argument.startswith(f"--{name}="):
            value = argument.partition("=")[2]
    return value


def parse(kind: type[Parsed], arguments: Sequence[str], program: str) -> Parsed:
    """The command of these arguments; what is wrong with bad ones is said in one sentence."""
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            command, unknown = tyro.cli(
                kind,
                args=list(arguments),
                prog=program,
                return_unknown_args=True,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as exit:
        if exit.code in (0, None):
            raise
        problem = explain(first_sentence(complaint.getvalue()), flags(kind), arguments, program)
        raise UsageError(f"{problem}; see `{program} --help`.") from None
    if unknown:
        raise UsageError(explain_unknown(unknown[0], flags(kind), program))
    return command


def explain(complaint: str, known: dict[str, Any], arguments: Sequence[str], program: str) -> str:
    """What tyro complains about, in our words where we have any."""
    if missing := re.match(r"Missing from .*?: (\S+)", complaint):
        return f"{program} needs {'a path' if missing[1] == 'PATH' else missing[1]}"
    if refused := re.match(r"Error parsing ([\w.-]+): (\w+) of \w+ ((?:is|has) .*)", complaint):
        return f"--{refused[1]}.{refused[2].replace('_', '-')} {refused[3]}"
    named = re.search(r"(--[\w.-]+)", complaint)
    flag = named[1].replace("_", "-") if named else ""
    if flag not in known:
        return complaint
    given = " ".join(values_of(flag, arguments))
    said = f"is '{given}'" if given else "has no value"
    return f"{flag} {said}; it must be {in_words(known[flag])}"


def explain_unknown(argument: str, known: dict[str, Any], program: str) -> str:
    """What is wrong with an argument that the command does not have."""
    from mbpo.algorithms import ALGORITHMS  # loads JAX

    flag = argument.partition("=")[0]
    owner = flag.removeprefix("--").partition(".")[0]
    if not flag.startswith("-"):
        return f"'{argument}' is one argument too many; see `{program} --help`."
    if "." in flag and owner in ALGORITHMS and not any(name.startswith(f"--{owner}.") for name in known):
        if "--algorithm" not in known:
            return f"The option '{flag}' is one of `mbpo train`: a run keeps its hyper-parameters; leave it out."
        return f"The option '{flag}' is one of --algorithm {owner}; choose that, or leave it out."
    return f"There is no option '{flag}'; {nearest(flag, known)}"


def values_of(flag: str, arguments: Sequence[str]) -> list[str]:
    """What was given to a flag on the command line."""
    given: list[str] = []
    taking = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            taking = name.replace("_", "-") == flag
            given += [value] if taking and equals else []
        elif taking:
            given.append(argument)
    return given


def first_sentence(box: str) -> str:
    """What tyro says inside its box, up to the rule under it; where UTF-8 is not spoken, a rule is above it too."""
    lines = [re.sub(r"^[│|]\s?|\s*[│|]$", "", line).strip() for line in box.splitlines()[1:]]
    said: list[str] = []
    for line in lines:
        if not set(line) <= set("─╰╯-"):
            said.append(line)
        elif said:
            break
    return " ".join(said).rstrip(".")


def flags(kind: Any, prefix: str = "") -> dict[str, Any]:
    """Every flag of a command with its type, those of nested dataclasses too."""
    known: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if tyro.conf.Positional in getattr(hint, "__metadata__", ()):
            continue
        flag = f"{prefix}{name.replace('_', '-')}"
        known |= flags(hint, f"{flag}.") if dataclasses.is_dataclass(hint) else {f"--{flag}": hint}
    return known

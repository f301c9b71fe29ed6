"""The command line: parse, call one function, print."""

import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from mbpo import __version__
from mbpo.compiler import flags_for_all
from mbpo.errors import RunError, RunWarning, StoppedBySignal, UsageError, nearest

if TYPE_CHECKING:
    from mbpo.experiment import Run

HELP = """\
usage: mbpo COMMAND [OPTIONS]

Model-Based Policy Optimization: a good policy from few real steps.

commands:
  train      train an agent on a task, or on an environment of your own
  resume     go on with a run, exactly where it stopped
  evaluate   play whole episodes with a trained agent
  plot       draw learning curves of runs and result files
  export     write a run's small result file
  list       the tasks, algorithms and presets there are
  bench      how fast this machine trains, and how far that is from its limit
  theory     the paper's bounds, computed and checked

`mbpo COMMAND --help` explains a command. For example:

  mbpo train --algorithm sac --task Hopper --seed 0 --out runs/hopper
  mbpo evaluate runs/hopper --episodes 10
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `mbpo`. Exits with 0, 1 (a run failed), 2 (bad usage), 130 or 143 (stopped by a signal)."""
    warnings.showwarning = show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What its encoding has no letter for, such as `±` in ASCII, becomes `?`: that must not end a command.
        sys.stdout.reconfigure(errors="replace")
    try:
        code = run_command(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except UsageError as error:
        print(f"mbpo: {error}", file=sys.stderr)
        code = 2
    except RunError as error:
        print(f"mbpo: {error}", file=sys.stderr)
        code = 1
    except StoppedBySignal as stop:
        print(f"mbpo: {stop}", file=sys.stderr)
        code = 128 + stop.signal
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has left, as `head` does; nothing more can be said to them.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """The exit code of a command line."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] == "--version":
        print(f"mbpo {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise UsageError(f"There is no command '{name}'; {nearest(name, COMMANDS)}")
    return COMMANDS[name](rest)


def train(arguments: list[str]) -> int:
    prepare_jax()
    from mbpo.command_lines import train_command

    command, algorithm = train_command(arguments)
    from mbpo import config, experiment

    run = experiment.train(
        command.task,
        algorithm,
        steps=command.steps,
        seed=command.seed,
        out=command.out,
        preset=command.preset,
        evaluate_every=command.evaluate_every,
        episodes=command.episodes,
        env_module=command.env_module,
        sinks=command.sinks,
        display=stage(command.json),
        command=config.typed_command(),
    )
    return report_training(run, command.json)


def resume(arguments: list[str]) -> int:
    prepare_jax()
    from mbpo.command_lines import Resume, parse

    command = parse(Resume, arguments, "mbpo resume")
    from mbpo import experiment

    run = experiment.load(command.run, env_module=command.env_module)
    run.resume(command.steps, sinks=command.sinks, display=stage(command.json))
    return report_training(run, command.json)


def evaluate(arguments: list[str]) -> int:
    prepare_jax()
    from mbpo.command_lines import Evaluate, parse

    command = parse(Evaluate, arguments, "mbpo evaluate")
    from mbpo import experiment, words

    result = experiment.load(command.run, env_module=command.env_module).evaluate(command.episodes, command.seed)
    if command.json:
        summary = {
            "return_mean": result.mean,
            "return_std": result.std,
            "episodes": len(result.returns),
            "returns": list(result.returns),
            "lengths": list(result.lengths),
        }
        print(json.dumps(summary))
    else:
        print(f"return {words.score(result.mean, result.std)} over {len(result.returns)} episodes")
    if command.at_least is not None and not result.mean >= command.at_least:
        raise RunError(f"The mean return {result.mean:,.1f} is below the {command.at_least:,.1f} that was asked for.")
    return 0


def plot(arguments: list[str]) -> int:
    from mbpo.command_lines import Plot, parse

    command = parse(Plot, arguments, "mbpo plot")
    from mbpo.figures.curves import plot_curves

    plot_curves(
        command.runs, command.out, x=command.x, y=command.y, references=command.reference, smooth=command.smooth
    )
    print(command.out)
    return 0


def export(arguments: list[str]) -> int:
    from mbpo import results
    from mbpo.command_lines import Export, parse

    command = parse(Export, arguments, "mbpo export")
    results.export(command.run, command.out)
    print(command.out)
    return 0


def list_known(arguments: list[str]) -> int:
    prepare_jax()
    from mbpo.command_lines import List, parse

    command = parse(List, arguments, "mbpo list")
    from mbpo.catalogue import catalogue, catalogue_text

    print(json.dumps(catalogue()) if command.json else catalogue_text())
    return 0


def bench(arguments: list[str]) -> int:
    prepare_jax()
    from mbpo.bench.command import main as bench_main

    return bench_main(arguments)


def theory(arguments: list[str]) -> int:
    from mbpo.theory.command import main as theory_main

    return theory_main(arguments)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "plot": plot,
    "export": export,
    "list": list_known,
    "bench": bench,
    "theory": theory,
}


def report_training(run: "Run", as_json: bool) -> int:
    """Says how a training ended; its exit code."""
    if as_json:
        rows = run.metrics
        last = rows[-1] if rows else {}
        summary = {
            "return_mean": last.get("eval/return"),
            "return_std": last.get("eval/return_std"),
            "episodes": last.get("eval/episodes"),
            "step": last.get("step"),
            "run": str(run.path),
        }
        print(json.dumps(summary))
    return 0


def stage(as_json: bool) -> TextIO:
    """Where a person is shown what happens: standard output belongs to the answer alone, if that is JSON."""
    return sys.stderr if as_json else sys.stdout


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Ours as a sentence, those of others as Python shows them."""
    if issubclass(category, RunWarning):
        print(f"mbpo: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)


def prepare_jax() -> None:
    """Settings that must stand before JAX is imported; the user's own come first."""
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(caches / "mbpo" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
    os.environ["XLA_FLAGS"] = flags_for_all(os.environ.get("XLA_FLAGS", ""))

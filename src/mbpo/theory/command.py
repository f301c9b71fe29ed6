"""The command line of the theory: `mbpo theory bound | check | plot`."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from mbpo.errors import UsageError
from mbpo.theory import bounds
from mbpo.theory.arguments import Numbers


def main(argv: list[str]) -> int:
    """The exit code of one command; bad input is a UsageError, raised before anything is created."""
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stop:  # --help
        return int(stop.code or 0)
    return options.run(options)


def bound(options: argparse.Namespace) -> int:
    """Prints Theorems 4.1, 4.2 and 4.3 term by term, their sharper forms, and k*."""
    found = _bound(options)
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"any two returns differ by at most {found['largest_difference']:.6g}\n")
    for name, theorem in found["theorems"].items():
        print(f"{name}: {theorem['of']}")
        for term, value in theorem["terms"].items():
            print(f"  {term:<44} {value:>14.6g}")
        print(f"  {'total':<44} {theorem['total']:>14.6g}")
        print(f"  {'sharper form':<44} {theorem['sharper']:>14.6g}\n")
    print(f"k* = {found['best_rollout_length']} minimises Theorem 4.3 as printed")
    return 0


def check(options: argparse.Namespace) -> int:
    """Reruns the checks; 1 where a result was violated in a form that is said to hold."""
    if options.worlds < 1:
        raise UsageError(f"--worlds is {options.worlds}; give at least 1.")
    if options.seed < 0:
        raise UsageError(f"--seed is {options.seed}; give a whole number of at least 0.")
    if options.search < 0:
        raise UsageError(f"--search is {options.search}; give a number of rounds, 0 for no search.")
    from mbpo.theory import report

    found = report.compile_report(options.worlds, options.seed, options.search)
    if options.json:
        print(json.dumps(report.as_json(found)))
    else:
        report.show(found)
    return 0 if found.ok else 1


def plot(options: argparse.Namespace) -> int:
    """Draws the figures into a folder."""
    if options.worlds < 1:
        raise UsageError(f"--worlds is {options.worlds}; give at least 1.")
    if options.seed < 0:
        raise UsageError(f"--seed is {options.seed}; give a whole number of at least 0.")
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"--out is {options.out}, which is a file; give a folder.")
    from mbpo.figures import theory

    paths = theory.draw(options.out, options.worlds, options.seed)
    if options.json:
        print(json.dumps({"figures": [str(path) for path in paths]}))
    else:
        print("\n".join(str(path) for path in paths))
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence and an exception, not the usage text and an exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see '{self.prog} --help'.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mbpo theory",
        description="The bounds of Model-Based Policy Optimization: compute them, check them, draw them.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="bound | check | plot")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=text,
            description=text,
            allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        added.set_defaults(run=run)
        added.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        return added

    one = command("bound", bound, "Print Theorems 4.1, 4.2 and 4.3 term by term, and k*.")
    one.add_argument("--model-error", type=float, required=True, help="ε_m, a total variation in [0, 1]")
    one.add_argument(
        "--current-model-error",
        type=float,
        help="ε_m' under the new policy, for Theorem 4.3 and k*; ε_m + ε_π · slope when not given",
    )
    one.add_argument("--slope", type=float, default=0.0, help="dε_m'/dε_π, for the extrapolation of ε_m'")
    one.add_argument("--policy-shift", type=float, required=True, help="ε_π, a total variation in [0, 1]")
    one.add_argument("--discount", type=float, default=0.99, help="γ, between 0 and 1")
    one.add_argument("--max-reward", type=float, default=1.0, help="r_max, a bound on |r|")
    one.add_argument("--rollout-length", type=int, default=1, help="k, the steps of a branch")

    sweep = command("check", check, "Check every result against exact random worlds, and run Algorithm 1.")
    sweep.add_argument("--worlds", type=int, default=2000, help="random worlds for each claim")
    sweep.add_argument("--seed", type=int, default=0, help="of the random worlds")
    sweep.add_argument(
        "--search",
        type=int,
        default=0,
        help="rounds of a search for the hardest worlds at γ = 0.9; 0 for none",
    )

    figures = command("plot", plot, "Draw the figures of the theory.")
    figures.add_argument("--out", type=Path, required=True, help="the folder for them, created when missing")
    figures.add_argument("--worlds", type=int, default=2000, help="random worlds behind the figures")
    figures.add_argument("--seed", type=int, default=0, help="of the random worlds")
    return parser


def _bound(options: argparse.Namespace) -> dict[str, Any]:
    e_m, e_pi, g, k = options.model_error, options.policy_shift, options.discount, options.rollout_length
    last = (g, options.max_reward)
    try:
        current = options.current_model_error
        if current is None:
            current = bounds.extrapolated_model_error(e_m, e_pi, options.slope)
        elif options.slope:
            raise UsageError("--slope and --current-model-error exclude each other; give one of them.")
        return {
            "largest_difference": 2 * options.max_reward / (1 - g) if 0 < g < 1 else None,
            "current_model_error": current,
            "theorems": {
                "Theorem 4.1": _theorem(
                    "η̂[π] − η[π], full model rollouts",
                    bounds.monotonic_terms(e_m, e_pi, *last),
                    bounds.sharp_monotonic_gap(e_m, e_pi, *last),
                ),
                "Theorem 4.2": _theorem(
                    f"η^branch[π] − η[π], k = {k}, ε_m under the data policy",
                    bounds.branched_terms(k, e_m, e_pi, *last),
                    bounds.sharp_branched_gap(k, e_m, e_pi, *last),
                ),
                "Theorem 4.3": _theorem(
                    f"η^branch[π] − η[π], k = {k}, ε_m' = {current:g} under the new policy",
                    bounds.branched_current_error_terms(k, current, e_pi, *last),
                    bounds.sharp_branched_gap_current_error(k, current, e_pi, *last),
                ),
            },
            "best_rollout_length": _whole(bounds.best_rollout_length(current, e_pi, g)),
        }
    except UsageError:
        raise
    except ValueError as error:
        name, complaint = str(error).split(" ", 1)
        raise UsageError(f"--{name.replace('_', '-')} {complaint}") from None


def _theorem(of: str, terms: dict[str, Numbers], sharper: Numbers) -> dict[str, Any]:
    return {"of": of, "terms": terms, "total": sum(terms.values()), "sharper": sharper}


def _whole(value: Numbers) -> int | str:
    """A rollout length for print and JSON, which knows no infinity."""
    return "inf" if value == float("inf") else int(value)

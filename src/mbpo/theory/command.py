"""The command line of the theory: `mbpo theory bound | check | plot`."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mbpo.errors import UsageError
from mbpo.theory import bounds
from mbpo.theory.arguments import Numbers

if TYPE_CHECKING:
    from mbpo.theory.checks import Admissions, PrintedSteps, Survey, Tally

# Wide enough for the tables where the output is not a terminal.
WIDTH = 160


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
    from mbpo.theory import checks

    tallies = _with_progress(options.worlds, lambda tick: checks.check(options.worlds, options.seed, tick))
    hardest = _search(options.search, options.seed)
    survey = checks.survey(options.worlds, options.seed)
    steps = checks.printed_steps(options.worlds, options.seed)
    admissions = [
        row for variant in checks.VARIANTS for row in checks.admissions(options.worlds, options.seed, *variant)
    ]
    # A confidence radius may fail, with the probability it names; known errors may not.
    fell = any(row.falls for row in admissions if row.knowledge == "exact")
    wrong = any(tally.failed for tally in tallies) or steps.moved > 0 or fell
    if options.json:
        print(json.dumps(_check_json(tallies, hardest, survey, steps, admissions, ok=not wrong)))
    else:
        _print_tallies(tallies, hardest)
        _print_survey(survey)
        _print_counterexamples(tallies)
        _print_steps(steps)
        _print_admissions(admissions)
        print("VIOLATED: a result failed in a form that is said to hold" if wrong else "all as expected")
    return 1 if wrong else 0


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


def _with_progress(total: int, work: Callable[[Callable[[int], None]], "list[Tally]"]) -> "list[Tally]":
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("worlds", total=total)
        return work(lambda done: progress.update(task, completed=done))


def _search(rounds: int, seed: int) -> list[float | None]:
    """The least bound/gap that a search finds for every claim, None without one."""
    import numpy as np

    from mbpo.theory.adversary import hardest
    from mbpo.theory.claims import CLAIMS

    if not rounds:
        return [None] * len(CLAIMS)
    return [hardest(claim, np.random.default_rng(seed), 0.9, rounds)[0] for claim in CLAIMS]


def _print_tallies(tallies: "list[Tally]", hardest: list[float | None]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{tallies[0].worlds} random worlds a claim; bound/gap is 1 where a bound is exact")
    for column in ("result", "form", "claim"):
        table.add_column(column, no_wrap=column != "claim")
    for column in ("violated", "least bound/gap", "median", "by search"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for tally, searched in zip(tallies, hardest, strict=True):
        claim = tally.claim
        verdict = ("VIOLATED" if tally.failed else "holds") if claim.holds else f"fails: {claim.counterexample}"
        table.add_row(
            claim.label,
            claim.form,
            claim.statement,
            str(tally.violations),
            f"{tally.tightest:.4g}",
            f"{tally.quantiles[2]:.4g}",
            "" if searched is None else f"{searched:.4g}",
            verdict,
        )
    _console(Console).print(table)


def _print_survey(survey: "Survey") -> None:
    print(
        f"The largest model error over time is known to 1e-9 in {survey.bracketed:.1%} of the worlds, to 0.01 in "
        f"{survey.nearly_bracketed:.1%}.\nTheorem 4.1 exceeds the largest possible difference of returns in "
        f"{survey.silent:.0%} of them, its sharper form in {survey.silent_sharper:.0%}.\n"
    )


def _print_counterexamples(tallies: "list[Tally]") -> None:
    from mbpo.theory.checks import compare
    from mbpo.theory.examples import counterexamples
    from mbpo.theory.worlds import Exact

    print("Forms that fail as printed, with a world that shows it:\n")
    known = counterexamples()
    for claim in (tally.claim for tally in tallies if not tally.claim.holds):
        example = known[claim.counterexample]
        gap, allowed = (side.item() for side in compare(claim, Exact(example.worlds)))
        print(f"- {claim.label}, {claim.statement}: {gap:.4g} where at most {allowed:.4g} is allowed.")
        print(f"  {example.name}: {example.story}\n")


def _print_steps(steps: "PrintedSteps") -> None:
    print(
        f"Algorithm 1, argmax η̂ − C over all policies in {steps.worlds} worlds: the printed C leaves π_D in "
        f"{steps.moved}, and the gain is at most {steps.gain_over_charge:.3f} of the charge; "
        f"the sharper C leaves it in {steps.moved_sharper} and certifies an improvement in "
        f"{steps.certified_sharper}.\n"
    )


def _print_admissions(admissions: "list[Admissions]") -> None:
    from rich.console import Console
    from rich.table import Table

    from mbpo.theory.checks import DISCOUNTS, EPOCHS, TRANSITIONS, VARIANTS

    table = Table(title=f"worlds that admit a step in the first epoch, and in {EPOCHS}, by the data of an epoch")
    for column in ("model error", "over time", "γ", *(f"{transitions:,}" for transitions in TRANSITIONS)):
        table.add_column(column, justify="right")
    for variant in VARIANTS:
        for discount in DISCOUNTS:
            cells = [
                f"{row.first:.0%} → {row.ever:.0%}"
                for row in admissions
                if (row.knowledge, row.over_time) == variant and row.discount == discount
            ]
            table.add_row(*variant, f"{discount:g}", *cells)
    print("Algorithm 1 with the penalty of Lemma B.3, admitting only what is guaranteed to beat the old return:")
    _console(Console).print(table)
    worlds, steps, falls = (sum(getattr(row, name) for row in admissions) for name in ("worlds", "steps", "falls"))
    print(f"{steps} admitted steps in {worlds} worlds; the true return fell on {falls} of them.\n")


def _console(kind: Any) -> Any:
    """A console as wide as the terminal, or as the tables where there is none."""
    return kind() if sys.stdout.isatty() else kind(width=WIDTH)


def _check_json(
    tallies: "list[Tally]",
    hardest: list[float | None],
    survey: "Survey",
    steps: "PrintedSteps",
    admissions: "list[Admissions]",
    ok: bool,
) -> dict[str, Any]:
    from dataclasses import asdict

    def finite(value: float) -> float | None:
        return value if value < float("inf") else None

    claims = [
        {
            "result": tally.claim.label,
            "form": tally.claim.form,
            "claim": tally.claim.statement,
            "holds": tally.claim.holds,
            "counterexample": tally.claim.counterexample or None,
            "worlds": tally.worlds,
            "violations": tally.violations,
            "least_ratio": finite(tally.tightest),
            "median_ratio": finite(tally.quantiles[2]),
            "searched_ratio": None if searched is None else finite(searched),
        }
        for tally, searched in zip(tallies, hardest, strict=True)
    ]
    return {
        "ok": ok,
        "claims": claims,
        "survey": asdict(survey),
        "printed_steps": asdict(steps),
        "admissions": [asdict(row) for row in admissions],
    }

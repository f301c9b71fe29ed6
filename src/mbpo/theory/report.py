"""The report of `mbpo theory check`: everything the sweeps find, for print and as JSON."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mbpo.theory import checks
from mbpo.theory.adversary import hardest
from mbpo.theory.checks import DISCOUNTS, EPOCHS, TRANSITIONS, VARIANTS, Admissions, PrintedSteps, Survey, Tally
from mbpo.theory.examples import counterexamples
from mbpo.theory.worlds import Exact

# Wide enough for the tables where the output is not a terminal.
WIDTH = 160
# The discount at which the hardest worlds are searched for.
SEARCH_DISCOUNT = 0.9


@dataclass(frozen=True)
class Report:
    """Everything that `mbpo theory check` finds."""

    tallies: Sequence[Tally]
    searched: Sequence[float | None]
    """For every claim the least bound/gap that a search found, None without one."""
    survey: Survey
    steps: PrintedSteps
    admissions: Sequence[Admissions]

    @property
    def ok(self) -> bool:
        """Whether everything that is said to hold did."""
        # A confidence radius may fail, with the probability it names; known errors may not.
        fell = any(row.falls for row in self.admissions if row.knowledge == "exact")
        return not (any(tally.failed for tally in self.tallies) or self.steps.moved or fell)


def compile_report(worlds: int, seed: int, rounds: int) -> Report:
    """All sweeps over `worlds` random worlds, with a progress bar, and a search of so many rounds, 0 for none."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("worlds", total=worlds)
        tallies = checks.check(worlds, seed, lambda done: progress.update(task, completed=done))
        searched = [
            hardest(tally.claim, np.random.default_rng(seed), SEARCH_DISCOUNT, rounds)[0] if rounds else None
            for tally in progress.track(tallies, description="search")
        ]
        return Report(
            tallies,
            searched,
            checks.survey(worlds, seed),
            checks.printed_steps(worlds, seed),
            [row for variant in VARIANTS for row in checks.admissions(worlds, seed, *variant)],
        )


def show(report: Report) -> None:
    """Prints the report: tables, and every failing form with its counterexample."""
    _show_tallies(report)
    _show_survey(report.survey)
    _show_counterexamples(report.tallies)
    _show_steps(report.steps)
    _show_admissions(report.admissions)
    print("all as expected" if report.ok else "VIOLATED: a result failed in a form that is said to hold")


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain data, in which an infinite ratio (no gap) is None."""

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
        for tally, searched in zip(report.tallies, report.searched, strict=True)
    ]
    return {
        "ok": report.ok,
        "claims": claims,
        "survey": asdict(report.survey),
        "printed_steps": asdict(report.steps),
        "admissions": [asdict(row) for row in report.admissions],
    }


def _show_tallies(report: Report) -> None:
    table = Table(title=f"{report.tallies[0].worlds} random worlds a claim; bound/gap is 1 where a bound is exact")
    for column in ("result", "form", "claim"):
        table.add_column(column, no_wrap=column != "claim")
    for column in ("violated", "least bound/gap", "median", "by search"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for tally, searched in zip(report.tallies, report.searched, strict=True):
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
    _console().print(table)


def _show_survey(survey: Survey) -> None:
    print(
        f"The largest model error over time is known to 1e-9 in {survey.bracketed:.1%} of the worlds, to 0.01 in "
        f"{survey.nearly_bracketed:.1%}.\nTheorem 4.1 exceeds the largest possible difference of returns in "
        f"{survey.silent:.0%} of them, its sharper form in {survey.silent_sharper:.0%}.\n"
    )


def _show_counterexamples(tallies: Sequence[Tally]) -> None:
    print("Forms that fail as printed, with a world that shows it:\n")
    known = counterexamples()
    for claim in (tally.claim for tally in tallies if not tally.claim.holds):
        example = known[claim.counterexample]
        gap, allowed = (side.item() for side in checks.compare(claim, Exact(example.worlds)))
        print(f"- {claim.label}, {claim.statement}: {gap:.4g} where at most {allowed:.4g} is allowed.")
        print(f"  {example.name}: {example.story}\n")


def _show_steps(steps: PrintedSteps) -> None:
    print(
        f"Algorithm 1, argmax η̂ − C over all policies in {steps.worlds} worlds: the printed C leaves π_D in "
        f"{steps.moved}, and the gain is at most {steps.gain_over_charge:.3f} of the charge; "
        f"the sharper C leaves it in {steps.moved_sharper} and certifies an improvement in "
        f"{steps.certified_sharper}.\n"
    )


def _show_admissions(admissions: Sequence[Admissions]) -> None:
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
    _console().print(table)
    worlds, steps, falls = (sum(getattr(row, name) for row in admissions) for name in ("worlds", "steps", "falls"))
    print(f"{steps} admitted steps in {worlds} worlds; the true return fell on {falls} of them.\n")


def _console() -> Console:
    """A console as wide as the terminal, or as the tables where there is none; brackets are no markup here."""
    return Console(markup=False, width=None if sys.stdout.isatty() else WIDTH)

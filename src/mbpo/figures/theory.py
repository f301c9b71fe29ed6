"""The figures of the theory: how tight the bounds are, k*, the bounds over k, and when Algorithm 1 moves."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

from mbpo.theory import bounds, checks
from mbpo.theory.checks import Admissions, Tally

# Okabe and Ito's palette: told apart by people with any of the usual kinds of colour blindness.
INK, MUTED, BLUE, RED, GREEN = "#222222", "#8a8a8a", "#0072B2", "#D55E00", "#009E73"
DISCOUNT_COLOURS = dict(zip(checks.DISCOUNTS, (GREEN, BLUE, RED), strict=True))
RESOLUTION = 120


def draw(out: Path, worlds: int, seed: int) -> list[Path]:
    """The paths of all figures, drawn into a folder that is created when missing."""
    figures: dict[str, Callable[[], Figure]] = {
        "theory-tightness.png": lambda: tightness(checks.check(worlds, seed)),
        "theory-rollout-length.png": best_rollout_length,
        "theory-bounds-over-k.png": bounds_over_rollout_length,
        "theory-admissions.png": lambda: admissions(
            checks.admissions(worlds, seed), checks.admissions(worlds, seed, "confidence")
        ),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        canvas = FigureCanvasAgg(figure())
        canvas.figure.savefig(out / name, dpi=RESOLUTION)
    return [out / name for name in figures]


def tightness(tallies: Sequence[Tally]) -> Figure:
    """Where bound/gap lies over random worlds, for every claim that holds."""
    shown = [tally for tally in tallies if tally.claim.holds and np.isfinite(tally.tightest)]
    figure = Figure(figsize=(10, 0.33 * len(shown) + 1.4), layout="constrained")
    axes = figure.add_subplot()
    colours = {"printed": BLUE, "corrected": GREEN, "sharper": RED}
    for row, tally in enumerate(shown):
        low, lower, middle, upper, high = tally.quantiles
        colour = colours[tally.claim.form]
        axes.plot([low, high], [row, row], color=colour, linewidth=1)
        axes.plot([lower, upper], [row, row], color=colour, linewidth=7, alpha=0.35, solid_capstyle="butt")
        axes.plot(middle, row, "o", color=colour, markersize=5)
        axes.plot(tally.tightest, row, "|", color=INK, markersize=10, markeredgewidth=1.5)
    axes.axvline(1, color=MUTED, linewidth=1, linestyle="--", zorder=0)
    axes.set_yticks(range(len(shown)), [f"{t.claim.label}:  {t.claim.statement}" for t in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("bound / exact gap", fontsize=9)
    for form, colour in colours.items():
        axes.plot([], [], color=colour, linewidth=7, alpha=0.6, label=form)
    axes.plot([], [], color=MUTED, linewidth=1, label="5–95 %")
    axes.plot([], [], color=MUTED, linewidth=7, alpha=0.5, label="25–75 %")
    axes.plot([], [], "o", color=MUTED, markersize=5, label="median")
    axes.plot([], [], "|", color=INK, markersize=10, markeredgewidth=1.5, label="least")
    figure.legend(frameon=False, fontsize=8, loc="outside upper center", ncols=7)
    _plain(axes)
    return figure


def best_rollout_length() -> Figure:
    """k* over the model's error and the policy's shift, for two discounts."""
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    errors = np.geomspace(1e-4, 1, 400)
    levels = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    mesh = None
    panels: list[Axes] = []
    for column, discount in enumerate((0.9, 0.99)):
        axes = figure.add_subplot(1, 2, column + 1)
        k = np.asarray(bounds.best_rollout_length(errors, errors[:, None], discount))
        norm = BoundaryNorm(levels, 256, extend="max")
        mesh = axes.pcolormesh(
            errors,
            errors,
            np.where(k > 0, k, np.nan),
            norm=norm,
            cmap="YlGnBu",
            shading="nearest",
            rasterized=True,
        )
        axes.plot(errors, errors, color=RED, linewidth=1.5)
        axes.text(2e-2, 1e-3, "$k^* = 0$\nno use of the model", color=INK, fontsize=9, ha="center")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("model error $\\epsilon_{m'}$ under the new policy")
        axes.set_title(f"$\\gamma$ = {discount}", fontsize=11)
        panels.append(axes)
    panels[0].set_ylabel("policy shift $\\epsilon_\\pi$")
    if mesh is not None:
        figure.colorbar(mesh, ax=panels, label="$k^*$", ticks=levels)
    return figure


def bounds_over_rollout_length() -> Figure:
    """The two branched bounds over k, as printed and sharper, in units of the largest possible difference."""
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    discount, shift = 0.95, 0.02
    k = np.arange(81)
    axes = None
    for column, error in enumerate((0.002, 0.01)):
        axes = figure.add_subplot(1, 2, column + 1, sharey=axes)
        given = (k, error, shift, discount, 0.5 * (1 - discount))
        axes.plot(k, bounds.branched_gap(*given), color=BLUE, label="Theorem 4.2 as printed")
        axes.plot(k, bounds.sharp_branched_gap(*given), color=BLUE, linestyle="--", label="… sharper")
        axes.plot(k, bounds.branched_gap_current_error(*given), color=RED, label="Theorem 4.3 as printed")
        sharper = bounds.sharp_branched_gap_current_error(*given)
        axes.plot(k, sharper, color=RED, linestyle="--", label="… sharper")
        best = int(bounds.best_rollout_length(error, shift, discount))
        lowest = bounds.branched_gap_current_error(best, *given[1:])
        axes.plot(best, lowest, "o", color=RED)
        axes.annotate(
            f"k* = {best}",
            (best, float(lowest)),
            (0, 6),
            textcoords="offset points",
            ha="center",
            color=RED,
        )
        axes.axhline(1, color=MUTED, linewidth=1, linestyle=":")
        axes.set_xlabel("rollout length $k$")
        axes.set_title(
            f"$\\epsilon_m = \\epsilon_{{m'}}$ = {error},  $\\epsilon_\\pi$ = {shift},  $\\gamma$ = {discount}",
            fontsize=10,
        )
        axes.set_ylim(0, 1.5)
        _plain(axes)
    figure.axes[0].set_ylabel("bound / largest difference of returns")
    figure.axes[0].text(79, 1.02, "above this line a bound says nothing", ha="right", fontsize=8, color=MUTED)
    figure.axes[1].legend(frameon=False, fontsize=8, loc="upper right")
    return figure


def admissions(exact: Sequence[Admissions], confident: Sequence[Admissions]) -> Figure:
    """The share of worlds in which Algorithm 1 admits a step, over the data of an epoch."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = None
    for column, (rows, title) in enumerate(((exact, "model error known"), (confident, "model error from the data"))):
        axes = figure.add_subplot(1, 2, column + 1, sharey=axes)
        for discount, colour in DISCOUNT_COLOURS.items():
            line = [row for row in rows if row.discount == discount]
            data = [row.transitions for row in line]
            axes.plot(data, [row.ever for row in line], "o-", color=colour, label=f"γ = {discount}")
            axes.plot(data, [row.first for row in line], "o:", color=colour, markerfacecolor="white")
        axes.set_xscale("log")
        axes.set_xlabel("transitions collected an epoch")
        axes.set_title(title, fontsize=11)
        _plain(axes)
    figure.axes[0].set_ylabel("share of worlds that admit a step")
    figure.axes[1].plot([], [], "o-", color=MUTED, label=f"in {checks.EPOCHS} epochs")
    figure.axes[1].plot([], [], "o:", color=MUTED, markerfacecolor="white", label="in the first epoch")
    figure.axes[1].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)

"""Learning curves: what was reached after how many real steps, a panel a task and a colour an algorithm.

The figures are built without pyplot, so that they hold no global state and need no screen.
"""

import io
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from mbpo import words
from mbpo.errors import UsageError, nearest
from mbpo.figures.published import PUBLISHED, SOURCE
from mbpo.results import Curve, Floats, Reference, read_curve, read_reference, replace_file
from mbpo.statistics import align, bootstrap_interval, interquartile_mean, mean, running_mean, std

X = Literal["step", "seconds"]
Band = Literal["std", "interval"]

FORMATS = ("png", "pdf", "svg")
RETURN = "eval/return"
AXIS_TITLES = {"step": "Real environment steps", RETURN: "Evaluated return", "train/return": "Return while training"}
TIME_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))

# Okabe and Ito's palette: told apart by people with any of the usual kinds of colour blindness.
COLOURS = {
    "mbpo": "#0072B2",
    "sac": "#D55E00",
    "ppo": "#009E73",
    "pets": "#CC79A7",
    "slbo": "#E69F00",
    "steve": "#56B4E9",
    "mve": "#8C6D31",
}
GREY = "#555555"
INK = "#222222"


@dataclass(frozen=True)
class Group:
    """Seeds that differ in nothing else: one line of the figure."""

    algorithm: str
    label: str
    curves: Sequence[Curve]


@dataclass(frozen=True)
class View:
    """What is drawn of every curve."""

    x: X
    y: str
    smooth: int = 1
    band: Band = "std"
    unit: tuple[str, float] = ("seconds", 1.0)
    """Of the time axis: its name and its length in seconds."""

    def points(self, curve: Curve) -> tuple[Floats, Floats]:
        across, up = curve.series(self.x, self.y)
        return across / self.unit[1], running_mean(up, self.smooth)

    def spread(self, curve: Curve) -> Floats | None:
        """The standard deviation within each evaluation, where the run recorded one."""
        recorded = curve.columns.get(f"{self.y}_std")
        if recorded is None:
            return None
        known = np.isfinite(curve.columns[self.x]) & np.isfinite(curve.columns[self.y])
        return running_mean(np.nan_to_num(recorded[known]), self.smooth)

    def last(self, curves: Iterable[Curve]) -> float:
        return max(float(self.points(curve)[0][-1]) for curve in curves)


def plot_curves(
    sources: Sequence[Path],
    out: Path,
    *,
    x: X = "step",
    y: str = RETURN,
    references: Sequence[Path] = (),
    marks: bool = True,
    smooth: int = 1,
    band: Band = "std",
) -> None:
    """Draws run folders and result files into `out` (.png, .pdf or .svg).

    Seeds of one algorithm on one task become a mean with a band: their standard deviation, or with `band="interval"`
    their interquartile mean with its 95 % bootstrap interval. What a seed did beyond the last step that all reached is
    a thin line of its own. `smooth` evaluations are averaged around each point; `references` are curves from any CSV;
    `marks` shows the published figures in panels of MBPO.
    """
    _check_request(sources, out, x, smooth, band)
    curves = [read_curve(source) for source in sources]
    view = _view(curves, x, y, smooth, band)
    panels = _panels(curves)
    compared = _references_by_task([read_reference(path) for path in references], list(panels), view)
    colours = _colours(panels.values())
    figure, grid = _canvas(len(panels))
    for axes, (task, groups) in zip(grid, panels.items(), strict=True):
        last = view.last(curve for curve in curves if curve.task == task)
        for group in groups:
            _draw_group(axes, group, view, colours[group.label])
        for reference in compared[task]:
            _draw_reference(axes, reference, last)
        if marks and x == "step" and y == RETURN and any(group.algorithm == "mbpo" for group in groups):
            _draw_marks(axes, task, last)
        _finish(axes, task, view, last)
    _save(figure, out)


def plot_run(folder: Path, out: Path) -> None:
    """Draws one run's evaluated return over its steps, with the standard deviation over an evaluation's episodes."""
    _check_format(out)
    curve = read_curve(folder)
    view = View("step", RETURN)
    figure, (axes,) = _canvas(1)
    _draw_seed(axes, curve, view, "an evaluation's mean", COLOURS.get(curve.algorithm, GREY))
    _finish(axes, f"{curve.label} on {curve.task}, seed {curve.seed}", view, view.last([curve]), _outcome(curve))
    _save(figure, out)


def _check_request(sources: Sequence[Path], out: Path, x: str, smooth: int, band: str) -> None:
    _check_format(out)
    if not sources:
        raise UsageError("There is nothing to plot; give at least one run folder or result file.")
    if x not in ("step", "seconds"):
        raise UsageError(f"The x axis cannot be '{x}'; {nearest(x, ['step', 'seconds'])}")
    if band not in ("std", "interval"):
        raise UsageError(f"The band cannot be '{band}'; {nearest(band, ['std', 'interval'])}")
    if smooth < 1:
        raise UsageError(f"A mean over {smooth} evaluations has no meaning; smooth over 1 (not at all) or more.")


def _check_format(out: Path) -> None:
    if out.suffix.lower().lstrip(".") not in FORMATS:
        raise UsageError(f"A figure cannot be written as '{out.name}'; end its name in .png, .pdf or .svg.")


def _view(curves: Sequence[Curve], x: X, y: str, smooth: int, band: Band) -> View:
    view = View(x, y, smooth, band)
    if x == "step":
        return view
    longest = view.last(curves)
    return replace(view, unit=next((unit for unit in TIME_UNITS if longest >= 2 * unit[1]), TIME_UNITS[-1]))


# Which curves belong together


def _panels(curves: Sequence[Curve]) -> dict[str, list[Group]]:
    """The groups of each task, in the order in which the curves were given."""
    panels: dict[str, list[Group]] = {}
    for task in dict.fromkeys(curve.task for curve in curves):
        here = [curve for curve in curves if curve.task == task]
        panels[task] = [
            group
            for algorithm in dict.fromkeys(curve.algorithm for curve in here)
            for group in _groups([curve for curve in here if curve.algorithm == algorithm])
        ]
    return panels


def _groups(curves: Sequence[Curve]) -> list[Group]:
    """One algorithm's curves on one task, parted where their settings differ: a mean over those would mean nothing."""
    variants: dict[str, list[Curve]] = {}
    differing = _differing([{"preset": curve.preset, **curve.settings} for curve in curves])
    for curve, difference in zip(curves, differing, strict=True):
        label = f"{curve.label} ({difference})" if difference else curve.label
        variants.setdefault(label, []).append(curve)
    for label, variant in variants.items():
        _check_seeds(label, variant)
    return [Group(variant[0].algorithm, label, variant) for label, variant in variants.items()]


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What sets each apart from the others, in words: the preset if that explains all, else every differing setting.

    A setting that some do not know (it came with a later version) tells nothing apart.
    """
    shared = [name for name in settings[0] if all(name in other for other in settings)]
    names = [name for name in shared if any(other[name] != settings[0][name] for other in settings)]
    distinct = {tuple(repr(each[name]) for name in names) for each in settings}
    if len({each["preset"] for each in settings}) == len(distinct) > 1:
        return [f"{each['preset']}" if each["preset"] else "no preset" for each in settings]
    return [", ".join(f"{name.rpartition('.')[2]} {each[name]}" for name in names) for each in settings]


def _check_seeds(label: str, curves: Sequence[Curve]) -> None:
    seen: dict[int, Path] = {}
    for curve in curves:
        if curve.seed in seen:
            raise UsageError(
                f"'{seen[curve.seed]}' and '{curve.source}' are both seed {curve.seed} of {label} on {curve.task}, "
                "so that their mean would count it twice; leave one out."
            )
        seen[curve.seed] = curve.source


def _references_by_task(
    references: Sequence[Reference], tasks: Sequence[str], view: View
) -> dict[str, list[Reference]]:
    """Where each reference is drawn: in the only panel, or in that whose task its file is named after."""
    if references and (view.x != "step" or not view.y.endswith("return")):
        raise UsageError(
            f"A reference has returns over steps, so it cannot be drawn with '{view.y}' over '{view.x}'; "
            "leave out --reference."
        )
    by_task: dict[str, list[Reference]] = {task: [] for task in tasks}
    for reference in references:
        named = [task for task in tasks if reference.label.lower().startswith(task.lower())]
        if not named and len(tasks) > 1:
            raise UsageError(
                f"'{reference.source}' could belong to any of {', '.join(tasks)}; "
                "let its file name begin with its task's name, or plot one task."
            )
        by_task[max(named, key=len) if named else tasks[0]].append(reference)
    return by_task


def _colours(panels: Collection[Sequence[Group]]) -> dict[str, str]:
    """A colour a label: the algorithm's own for its first variant, then those that no algorithm here owns."""
    algorithms = {group.algorithm for groups in panels for group in groups}
    free = [colour for algorithm, colour in COLOURS.items() if algorithm not in algorithms]
    colours: dict[str, str] = {}
    for groups in panels:
        for group in groups:
            taken = [colours.get(other.label) for other in groups]
            own = [COLOURS[group.algorithm]] if group.algorithm in COLOURS else []
            colours.setdefault(group.label, next((colour for colour in [*own, *free] if colour not in taken), GREY))
    return colours


# Drawing


def _draw_group(axes: Axes, group: Group, view: View, colour: str) -> None:
    if len(group.curves) == 1:
        curve = group.curves[0]
        _draw_seed(axes, curve, view, f"{group.label}, seed {curve.seed}", colour)
        return
    curves = [view.points(curve) for curve in group.curves]
    aligned = align(curves)
    label = f"{group.label}, {len(curves)} seeds: "
    if view.band == "std":
        centre, spread = mean(aligned.values), std(aligned.values)
        label, low, high = f"{label}mean ± std", centre - spread, centre + spread
    else:
        centre = interquartile_mean(aligned.values)
        label, (low, high) = f"{label}interquartile mean, 95 % interval", bootstrap_interval(aligned.values)
    _draw_line(axes, aligned.grid, centre, (low, high), label, colour)
    _draw_stragglers(axes, curves, aligned.grid[-1] if aligned.grid.size else -np.inf, group.label, colour)


def _draw_stragglers(
    axes: Axes, curves: Sequence[tuple[Floats, Floats]], common: float, label: str, colour: str
) -> None:
    """What single seeds did after the last point that all have, each from that point on."""
    further = [(across, up) for across, up in curves if across[-1] > common]
    for place, (across, up) in enumerate(further):
        alone = slice(max(int(np.searchsorted(across, common, side="right")) - 1, 0), None)
        name = f"{label}, seeds that went further" if place == 0 else None
        axes.plot(across[alone], up[alone], color=colour, linewidth=0.9, alpha=0.75, label=name)


def _draw_seed(axes: Axes, curve: Curve, view: View, label: str, colour: str) -> None:
    across, up = view.points(curve)
    spread = view.spread(curve)
    if spread is None:
        _draw_line(axes, across, up, None, label, colour)
    else:
        _draw_line(axes, across, up, (up - spread, up + spread), f"{label} ± std of {_episodes(curve)}", colour)


def _episodes(curve: Curve) -> str:
    episodes = np.unique(curve.columns.get("eval/episodes", np.empty(0)))
    return f"{words.count(episodes[0])} episodes" if len(episodes) == 1 else "its episodes"


def _draw_line(
    axes: Axes, across: Floats, up: Floats, band: tuple[Floats, Floats] | None, label: str, colour: str
) -> None:
    marker = "o" if len(across) <= 20 else ""
    axes.plot(across, up, color=colour, linewidth=1.7, label=label, zorder=3, marker=marker, markersize=3.5)
    if band is None:
        return
    if len(across) == 1:
        axes.vlines(across, *band, color=colour, linewidth=6, alpha=0.2)
    else:
        axes.fill_between(across, *band, color=colour, alpha=0.18, linewidth=0)


def _draw_reference(axes: Axes, reference: Reference, last: float) -> None:
    inside = reference.steps <= last
    if not inside.any():
        raise UsageError(
            f"'{reference.source}' begins at step {words.count(reference.steps[0])}, where the curves have ended "
            f"(step {words.count(last)}); leave it out."
        )
    steps, returns = reference.steps[inside], reference.returns[inside]
    axes.plot(
        steps,
        returns,
        color=GREY,
        linewidth=1.4,
        linestyle=(0, (5, 2)),
        label=f"{reference.label} (reference)",
        zorder=2,
    )
    if reference.std is not None:
        spread = reference.std[inside]
        axes.fill_between(steps, returns - spread, returns + spread, color=GREY, alpha=0.12, linewidth=0, zorder=1)


def _draw_marks(axes: Axes, task: str, last: float) -> None:
    marks = [mark for mark in PUBLISHED.get(task, ()) if mark.step <= last]
    if marks:
        axes.errorbar(
            [mark.step for mark in marks],
            [mark.mean for mark in marks],
            yerr=[mark.std for mark in marks],
            fmt="D",
            color=INK,
            markersize=4.5,
            elinewidth=1.1,
            capsize=3,
            label=SOURCE,
            zorder=4,
        )


# The sheet of paper


def _canvas(panels: int) -> tuple[Figure, list[Axes]]:
    columns = min(panels, 3)
    rows = -(-panels // columns)
    size = (7.2, 4.8) if panels == 1 else (5.2 * columns, 4.4 * rows)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    return figure, [figure.add_subplot(rows, columns, place + 1) for place in range(panels)]


def _finish(axes: Axes, title: str, view: View, last: float, subtitle: str = "") -> None:
    axes.set_title(
        textwrap.fill(title, 48), loc="left", fontsize=12, fontweight="bold", color=INK, pad=24 if subtitle else 10
    )
    axes.annotate(subtitle, (0, 1), (0, 9), "axes fraction", "offset points", fontsize=9, color=GREY)
    up = AXIS_TITLES.get(view.y, view.y)
    axes.set_xlabel(AXIS_TITLES.get(view.x, f"Wall-clock time ({view.unit[0]})"), color=INK)
    axes.set_ylabel(f"{up}, mean of {view.smooth} evaluations" if view.smooth > 1 else up, color=INK)
    axes.set_xlim(0, last * 1.02 or 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.tick_params(labelcolor=INK, labelsize=9, color="#999999")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, where no curve can run into it."""
    handles, labels = axes.get_legend_handles_labels()
    below = axes.transAxes + ScaledTranslation(0, -0.55, figure.dpi_scale_trans)
    axes.legend(
        handles,
        [textwrap.fill(label, 64) for label in labels],
        loc="upper left",
        bbox_to_anchor=(-0.01, 0),
        bbox_transform=below,
        borderaxespad=0,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )


def _tick(value: float) -> str:
    return f"{value:,.10g}".replace("-", "−")


def _outcome(curve: Curve) -> str:
    steps, returns = curve.series("step", RETURN)
    best = int(np.argmax(returns))
    text = f"last {words.score(returns[-1])}, best {words.score(returns[best])} at {words.count(steps[best])}"
    seconds = curve.columns.get("seconds", np.empty(0))
    return f"{text}; {words.duration(np.nanmax(seconds))}" if np.isfinite(seconds).any() else text


def _save(figure: Figure, out: Path) -> None:
    for axes in figure.axes:
        _add_legend(figure, axes)
    content = io.BytesIO()
    figure.savefig(content, format=out.suffix.lower().lstrip("."), dpi=160)
    replace_file(out, content.getvalue())

"""Figures by what they are made of: which lines, bands, labels and marks stand in which panel."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from mbpo.errors import UsageError
from mbpo.figures import curves
from mbpo.figures.curves import COLOURS, plot_curves, plot_run
from mbpo.figures.published import PUBLISHED, SOURCE
from runs import config, row, write_rows, write_run


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, to look into."""
    figures: list[Figure] = []
    save = curves._save
    monkeypatch.setattr(curves, "_save", lambda figure, out: (figures.append(figure), save(figure, out)))
    return figures


def labels(axes: Axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml"), ("PNG", b"\x89PNG")]
)
def test_the_suffix_chooses_the_format(tmp_path: Path, suffix: str, magic: bytes):
    out = tmp_path / "new" / f"figure.{suffix}"
    plot_curves([write_run(tmp_path / "run")], out)
    assert out.read_bytes().startswith(magic)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_the_figure_of_a_run_shows_something(tmp_path: Path):
    plot_run(write_run(tmp_path / "run"), tmp_path / "curve.png")
    with Image.open(tmp_path / "curve.png") as image:
        assert image.size[0] > 1000
        assert len(np.unique(np.asarray(image.convert("L")))) > 20


def test_the_figure_of_a_run_of_one_evaluation(tmp_path: Path, drawn: list[Figure]):
    plot_run(write_run(tmp_path / "run", [1000], algorithm="mine"), tmp_path / "curve.png")
    (axes,) = drawn[0].axes
    assert axes.get_title(loc="left") == "MINE on Hopper, seed 0"
    assert labels(axes) == ["an evaluation's mean ± std of 10 episodes"]
    assert "last 333.3, best 333.3 at 1,000; 2 m 05 s" in [text.get_text() for text in axes.texts]


def test_seeds_become_a_mean_with_a_band(tmp_path: Path, drawn: list[Figure]):
    for seed, height in enumerate([1.0, 2.0, 6.0]):
        rows = [row(step, **{"eval/return": height * step}) for step in (10, 20)]
        write_rows(tmp_path / f"{seed}", rows, config(seed=seed))
    plot_curves([tmp_path / f"{seed}" for seed in range(3)], tmp_path / "out.png")
    (axes,) = drawn[0].axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_xydata(), [[10, 30], [20, 60]])
    # The standard deviation of 1, 2, 6 about 3 with divisor 2 is the root of 7.
    band = axes.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose([band[:, 1].min(), band[:, 1].max()], [30 - 10 * 7**0.5, 60 + 20 * 7**0.5])
    assert labels(axes) == ["SAC, 3 seeds: mean ± std"]
    assert axes.get_xlabel() == "Real environment steps"
    assert axes.get_ylabel() == "Evaluated return"


def test_the_interval_is_named_in_the_legend(tmp_path: Path, drawn: list[Figure]):
    runs = [write_run(tmp_path / f"{seed}", seed=seed) for seed in range(5)]
    plot_curves(runs, tmp_path / "out.png", band="interval", smooth=3)
    assert labels(drawn[0].axes[0]) == ["SAC, 5 seeds: interquartile mean, 95 % interval"]
    assert drawn[0].axes[0].get_ylabel() == "Evaluated return, mean of 3 evaluations"


def test_a_seed_that_went_further_goes_on_alone(tmp_path: Path, drawn: list[Figure]):
    short = write_run(tmp_path / "0", [1000, 2000], seed=0)
    long = write_run(tmp_path / "1", [1000, 2000, 3000, 4000], seed=1)
    plot_curves([short, long], tmp_path / "out.png")
    mean, alone = drawn[0].axes[0].lines
    np.testing.assert_array_equal(mean.get_xdata(), [1000, 2000])
    np.testing.assert_array_equal(alone.get_xdata(), [2000, 3000, 4000])
    assert labels(drawn[0].axes[0]) == ["SAC, 2 seeds: mean ± std", "SAC, seeds that went further"]


def test_seeds_without_a_common_step_are_still_drawn(tmp_path: Path, drawn: list[Figure]):
    runs = [write_run(tmp_path / "0", [100], seed=0), write_run(tmp_path / "1", [1000, 2000], seed=1)]
    plot_curves(runs, tmp_path / "out.png")
    assert [len(line.get_xdata()) for line in drawn[0].axes[0].lines] == [0, 1, 2]


def test_a_panel_a_task_and_a_colour_an_algorithm(tmp_path: Path, drawn: list[Figure]):
    runs = [
        write_run(tmp_path / f"{algorithm}-{task}", algorithm=algorithm, task=task)
        for task in ("Hopper", "Ant")
        for algorithm in ("sac", "mbpo", "mine")
    ]
    plot_curves(runs, tmp_path / "out.png")
    assert [axes.get_title(loc="left") for axes in drawn[0].axes] == ["Hopper", "Ant"]
    first, second = ([line.get_color() for line in axes.lines] for axes in drawn[0].axes)
    assert first == second
    assert first[:2] == [COLOURS["sac"], COLOURS["mbpo"]]
    assert len(set(first)) == 3


def test_seeds_of_different_settings_are_not_averaged(tmp_path: Path, drawn: list[Figure]):
    runs = [
        write_run(tmp_path / "a", seed=0),
        write_run(tmp_path / "b", seed=0, hyperparameters={"updates_per_step": 20, "network": {"width": 256}}),
        write_run(tmp_path / "c", seed=1, hyperparameters={"updates_per_step": 20}),  # an older version: no width
    ]
    plot_curves(runs, tmp_path / "out.png")
    assert labels(drawn[0].axes[0]) == [
        "SAC (updates_per_step 1), seed 0 ± std of 10 episodes",
        "SAC (updates_per_step 20), 2 seeds: mean ± std",
    ]


def test_presets_name_what_they_explain(tmp_path: Path, drawn: list[Figure]):
    released = {"updates_per_step": 20, "network": {"width": 200}}
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", preset="released", hyperparameters=released)]
    plot_curves(runs, tmp_path / "out.png")
    assert [label.partition(",")[0] for label in labels(drawn[0].axes[0])] == ["SAC (paper)", "SAC (released)"]


def test_published_figures_stand_beside_mbpo_within_its_range(tmp_path: Path, drawn: list[Figure]):
    mbpo = write_run(tmp_path / "mbpo", range(1000, 80_000, 1000), algorithm="mbpo")
    sac = write_run(tmp_path / "sac", range(1000, 80_000, 1000))
    plot_curves([mbpo, sac], tmp_path / "out.png")
    plot_curves([mbpo], tmp_path / "out.png", marks=False)
    plot_curves([mbpo], tmp_path / "out.png", x="seconds")
    plot_curves([sac], tmp_path / "out.png")
    assert [SOURCE in labels(figure.axes[0]) for figure in drawn] == [True, False, False, False]
    marks = drawn[0].axes[0].containers[0].lines[0]
    within = [[mark.step, mark.mean] for mark in PUBLISHED["Hopper"] if mark.step < 80_000]
    np.testing.assert_array_equal(marks.get_xydata(), within)
    assert len(within) == 5


def test_references_are_dashed_and_end_with_the_curves(tmp_path: Path, drawn: list[Figure]):
    (tmp_path / "theirs.csv").write_text("step,return,return_std\n1000,1,1\n5000,2,1\n9000,3,1\n")
    plot_curves([write_run(tmp_path / "run")], tmp_path / "out.png", references=[tmp_path / "theirs.csv"])
    dashed = drawn[0].axes[0].lines[-1]
    assert dashed.get_label() == "theirs (reference)"
    assert dashed.is_dashed()
    np.testing.assert_array_equal(dashed.get_xdata(), [1000, 5000])


def test_with_several_tasks_a_reference_goes_to_its_namesake(tmp_path: Path, drawn: list[Figure]):
    runs = [write_run(tmp_path / task, task=task) for task in ("Hopper", "Ant")]
    for name in ("ant-theirs", "unclear"):
        (tmp_path / f"{name}.csv").write_text("step,return\n1000,1\n5000,2\n")
    plot_curves(runs, tmp_path / "out.png", references=[tmp_path / "ant-theirs.csv"])
    assert [len(axes.lines) for axes in drawn[0].axes] == [1, 2]
    with pytest.raises(UsageError, match="could belong to any of Hopper, Ant"):
        plot_curves(runs, tmp_path / "out.png", references=[tmp_path / "unclear.csv"])


@pytest.mark.parametrize(("last", "unit"), [(800, "seconds"), (8000, "minutes"), (80_000, "hours")])
def test_the_time_axis_has_a_unit_that_suits_it(tmp_path: Path, drawn: list[Figure], last: int, unit: str):
    plot_curves([write_run(tmp_path / "run", [last // 2, last])], tmp_path / "out.png", x="seconds")
    (axes,) = drawn[0].axes
    assert axes.get_xlabel() == f"Wall-clock time ({unit})"
    size = {"seconds": 1, "minutes": 60, "hours": 3600}[unit]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), np.array([last // 2, last]) / 8 / size)


def test_ticks_have_thousands_separators(tmp_path: Path, drawn: list[Figure]):
    plot_curves([write_run(tmp_path / "run")], tmp_path / "out.png")
    assert "4,000" in [label.get_text() for label in drawn[0].axes[0].get_xticklabels()]


def test_what_cannot_be_drawn_creates_nothing(tmp_path: Path):
    run, out = write_run(tmp_path / "run"), tmp_path / "new" / "out.png"
    twin = write_run(tmp_path / "twin")
    (tmp_path / "late.csv").write_text("step,return\n9000,1\n")
    for sources, target, options, message in [
        ([run], tmp_path / "new" / "out.gif", {}, r"end its name in \.png"),
        ([run], tmp_path / "new" / "out", {}, r"end its name in \.png"),
        ([], out, {}, "nothing to plot"),
        ([run, twin], out, {}, "both seed 0 of SAC on Hopper"),
        ([run], out, {"smooth": 0}, "smooth over 1"),
        ([run], out, {"y": "train/return"}, "no column 'train/return'"),
        ([run], out, {"references": [tmp_path / "late.csv"]}, "where the curves have ended"),
        ([run], out, {"references": [tmp_path / "late.csv"], "x": "seconds"}, "leave out --reference"),
    ]:
        with pytest.raises(UsageError, match=message):
            plot_curves(sources, target, **options)
    with pytest.raises(UsageError, match=r"end its name in \.png"):
        plot_run(run, tmp_path / "new" / "curve.txt")
    assert not (tmp_path / "new").exists()


def test_threads_may_draw_at_once(tmp_path: Path):
    run = write_run(tmp_path / "run")
    threads = [threading.Thread(target=plot_run, args=(run, tmp_path / f"{place}.png")) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pictures = {(tmp_path / f"{place}.png").read_bytes() for place in range(3)}
    assert len(pictures) == 1


def test_drawing_needs_neither_pyplot_nor_jax():
    code = "import sys, mbpo.figures.curves; print({'jax', 'matplotlib.pyplot'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"

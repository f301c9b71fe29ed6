"""A run folder read, exported and read back; and what each thing that is no result is told."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mbpo.errors import UsageError
from mbpo.results import export, read_curve, read_reference, replace_file
from runs import config, row, write_rows, write_run


def test_a_run_folder_is_read(tmp_path: Path):
    run = write_run(tmp_path / "run", seed=3, preset="released")
    curve = read_curve(run)
    assert (curve.algorithm, curve.task, curve.seed, curve.preset) == ("sac", "Hopper", 3, "released")
    assert (curve.label, curve.source) == ("SAC", run)
    assert curve.settings == {"updates_per_step": 1, "network.width": 256}
    np.testing.assert_array_equal(curve.columns["step"], [1000, 2000, 3000, 4000, 5000])
    assert list(curve.columns)[:5] == ["step", "seconds", "eval/return", "eval/return_std", "eval/episodes"]
    assert "train/return" not in curve.columns  # it never had a number


def test_null_becomes_nan_and_series_leaves_it_out(tmp_path: Path):
    rows = [row(1000), row(2000, **{"train/return": 7}), row(3000, note="text", flag=True)]
    curve = read_curve(write_rows(tmp_path / "run", rows, config()))
    np.testing.assert_array_equal(curve.columns["train/return"], [math.nan, 7, math.nan])
    np.testing.assert_array_equal(curve.series("step", "train/return"), [[2000], [7]])
    assert not {"note", "flag"} & set(curve.columns)


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path):
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6000, "eval/ret')
    np.testing.assert_array_equal(read_curve(run).columns["step"], [1000, 2000, 3000, 4000, 5000])


def test_what_is_exported_reads_back(tmp_path: Path):
    run, out = write_run(tmp_path / "run"), tmp_path / "results" / "sac" / "Hopper-0.csv"
    export(run, out)
    before, after = read_curve(run), read_curve(out)
    assert (after.algorithm, after.task, after.seed, after.settings) == ("sac", "Hopper", 0, before.settings)
    assert list(after.columns) == list(before.columns)
    for name, column in before.columns.items():
        np.testing.assert_allclose(after.columns[name], column, rtol=1e-5)
    assert json.loads(out.with_suffix(".json").read_text()) == config()


def test_the_result_file_to_the_letter(tmp_path: Path):
    rows = [
        row(1000, **{"eval/return": -0.123456789, "seconds": 1234567.89, "policy_updates": 12345678901}),
        row(2000, **{"eval/return": None, "seconds": 1e-9, "train/return": 1e300}),
    ]
    out = tmp_path / "Hopper-0.csv"
    export(write_rows(tmp_path / "run", rows, config()), out)
    assert out.read_text() == (
        "step,seconds,eval/return,eval/return_std,eval/episodes,model_updates,policy_updates,seconds/env,train/return\n"
        "1000,1234570,-0.123457,12.5,10,0,12345678901,12.5,\n"
        "2000,1e-09,,12.5,10,0,40000,25,1e+300\n"
    )


def test_exporting_again_replaces_and_leaves_nothing_else(tmp_path: Path):
    out = tmp_path / "out" / "Hopper-0.csv"
    export(write_run(tmp_path / "short", range(1000, 3000, 1000)), out)
    export(write_run(tmp_path / "long"), out)
    assert len(read_curve(out).columns["step"]) == 5
    assert sorted(path.name for path in out.parent.iterdir()) == ["Hopper-0.csv", "Hopper-0.json"]


def test_what_cannot_be_exported_creates_nothing(tmp_path: Path):
    empty = write_run(tmp_path / "empty", [])
    for run, out, message in [
        (empty, tmp_path / "out" / "x.csv", "holds no evaluation yet"),
        (tmp_path / "nowhere", tmp_path / "out" / "x.csv", "is no run"),
        (write_run(tmp_path / "run"), tmp_path / "out" / "x.txt", r"ends in \.csv"),
    ]:
        with pytest.raises(UsageError, match=message):
            export(run, out)
    assert not (tmp_path / "out").exists()


def test_a_broken_write_leaves_the_old_file(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_file(tmp_path / "folder", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_each_thing_that_is_no_curve_is_told_so(tmp_path: Path):
    run = write_run(tmp_path / "run")
    (tmp_path / "folder").mkdir()
    (tmp_path / "alone.csv").write_text("step,return\n1,2\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    nameless = write_run(tmp_path / "nameless")
    (nameless / "config.json").write_text('{"task": "Hopper"}')
    for path, message in [
        (tmp_path / "folder", "is no run: give the folder"),
        (tmp_path / "missing", "There is no"),
        (run / "metrics.jsonl", "is no result file"),
        (tmp_path / "picture.png", "is no result file"),
        (tmp_path / "alone.csv", "drawn with --reference"),
        (nameless, "does not say the run's algorithm"),
        (write_run(tmp_path / "empty", []), "let the run reach its first one"),
        (write_run(tmp_path / "twice", [1000, 2000, 2000]), "2000 follows 2000"),
    ]:
        with pytest.raises(UsageError, match=message):
            read_curve(path)


def test_a_broken_line_is_named(tmp_path: Path):
    run = write_run(tmp_path / "run")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([lines[0], "{oops\n", *lines[1:]]))
    with pytest.raises(UsageError, match="Line 2 of"):
        read_curve(run)


def test_an_unknown_column_gets_the_nearest_name(tmp_path: Path):
    curve = read_curve(write_run(tmp_path / "run"))
    with pytest.raises(UsageError, match="did you mean 'eval/return'"):
        curve.series("step", "eval/retrun")


@pytest.mark.parametrize(
    ("text", "steps", "returns", "std"),
    [
        ("thousand_steps,return_mean,return_std,trials\n1.5,10,2,5\n2.5,20,3,5\n", [1500, 2500], [10, 20], [2, 3]),
        ("step,eval/return\n5,1\n7,2\n", [5, 7], [1, 2], None),
        ("\ufeffstep, return ,note\n5, 1 ,a\n6,,b\n7,3,c\n", [5, 7], [1, 3], None),
    ],
)
def test_references(
    tmp_path: Path, text: str, steps: list[float], returns: list[float], std: list[float] | None
) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text(text, encoding="utf-8")
    reference = read_reference(path)
    assert reference.label == "theirs"
    np.testing.assert_array_equal(reference.steps, steps)
    np.testing.assert_array_equal(reference.returns, returns)
    if std is None:
        assert reference.std is None
    else:
        np.testing.assert_array_equal(reference.std, std)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"epoch,score\n1,2\n", "has the columns epoch, score, but"),
        (b"", r"has the columns \(none\)"),
        (b"step,return\n", "no curve below it"),
        (b"step,return\n1,2\n3\n", "Line 3 of .* has 1 cells"),
        (b"step,return\n1,high\n", "must hold numbers: .*'high'"),
        (b"step,return\n2,1\n1,1\n", "1 follows 2"),
        (b"\xff\xfe\x00", "no text in CSV format"),
    ],
)
def test_what_is_no_reference_is_told_so(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "theirs.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_reference(path)


def test_a_missing_reference(tmp_path: Path):
    with pytest.raises(UsageError, match="There is no reference file"):
        read_reference(tmp_path / "theirs.csv")


def test_a_result_file_is_a_reference_too(tmp_path: Path):
    export(write_run(tmp_path / "run"), tmp_path / "Hopper-0.csv")
    np.testing.assert_array_equal(read_reference(tmp_path / "Hopper-0.csv").std, [12.5] * 5)


def test_results_need_neither_jax_nor_matplotlib():
    code = "import sys, mbpo.results, mbpo.statistics; print({'jax', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"

"""The command line: numbers, exit codes, one-sentence complaints, valid JSON, and what is imported."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from mbpo.errors import UsageError
from mbpo.theory import checks, command

BOUND = ["bound", "--model-error", "0.05", "--policy-shift", "0.1", "--discount", "0.99", "--max-reward", "1"]


def printed_json(capsys):
    def refuse(token):
        raise AssertionError(token)

    return json.loads(capsys.readouterr().out.splitlines()[-1], parse_constant=refuse)


@pytest.fixture
def _quick(monkeypatch):
    """Little of Algorithm 1: its numbers are tested elsewhere."""
    monkeypatch.setattr(checks, "EPOCHS", 1)
    monkeypatch.setattr(checks, "ALLOWANCES", 3)


def test_bound_prints_every_term(capsys):
    assert command.main([*BOUND, "--rollout-length", "5"]) == 0
    out = capsys.readouterr().out
    # Theorem 4.1: 2·0.99·0.05·10⁴ = 990; 4·0.99·0.1·10⁴ = 3960; 4·0.1·10² = 40.
    for number in ("990", "3960", "40", "4990", "k* = 69"):
        assert number in out


def test_bound_as_json(capsys):
    assert command.main([*BOUND, "--rollout-length", "5", "--json"]) == 0
    found = printed_json(capsys)
    first = found["theorems"]["Theorem 4.1"]
    assert first["total"] == pytest.approx(4990)
    assert sum(first["terms"].values()) == pytest.approx(first["total"])
    assert found["best_rollout_length"] == 69


def test_a_perfect_model_has_no_longest_rollout(capsys):
    assert command.main(["bound", "--model-error", "0", "--policy-shift", "0.1", "--json"]) == 0
    assert printed_json(capsys)["best_rollout_length"] == "inf"


def test_current_model_error_is_given_or_extrapolated(capsys):
    command.main([*BOUND, "--slope", "0.5", "--json"])
    assert printed_json(capsys)["current_model_error"] == pytest.approx(0.1)
    command.main([*BOUND, "--current-model-error", "0.01", "--json"])
    assert printed_json(capsys)["current_model_error"] == 0.01


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([*BOUND, "--model-error", "1.5"], "--model-error = 1.5 is outside [0, 1]"),
        ([*BOUND, "--discount", "1"], "--discount = 1 is outside (0, 1)"),
        ([*BOUND, "--discount", "nan"], "--discount = nan is not finite"),
        ([*BOUND, "--rollout-length", "-2"], "--rollout-length = -2 is not a count"),
        ([*BOUND, "--policy-shift", "x"], "--policy-shift"),
        ([*BOUND, "--slope", "1", "--current-model-error", "0.1"], "exclude each other"),
        ([*BOUND, "--slope", "-30"], "--model-error = -2.95 is outside"),
        (["bound"], "required"),
        (["bond"], "bond"),
        ([], "required"),
        (["check", "--worlds", "0"], "--worlds is 0"),
        (["check", "--seed", "-1"], "--seed is -1"),
        (["check", "--search", "-1"], "--search is -1"),
        (["plot"], "--out"),
    ],
)
def test_bad_input_is_one_sentence(argv, words, capsys):
    with pytest.raises(UsageError) as caught:
        command.main(argv)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert message.endswith(".")
    assert capsys.readouterr().out == ""


def test_nothing_is_drawn_over_a_file(tmp_path):
    target = tmp_path / "figures"
    target.write_text("here")
    with pytest.raises(UsageError, match="which is a file"):
        command.main(["plot", "--out", str(target)])
    assert target.read_text() == "here"


@pytest.mark.usefixtures("_quick")
def test_plot_draws_every_figure(tmp_path, capsys):
    assert command.main(["plot", "--out", str(tmp_path / "new"), "--worlds", "18", "--json"]) == 0
    figures = printed_json(capsys)["figures"]
    assert len(figures) == 4
    assert {path.name for path in (tmp_path / "new").iterdir()} == {name.rsplit("/", 1)[-1] for name in figures}


@pytest.mark.usefixtures("_quick")
def test_check_ends_well(capsys):
    assert command.main(["check", "--worlds", "18", "--search", "1"]) == 0
    out = capsys.readouterr().out
    assert "all as expected" in out
    assert "fails: unvisited state" in out
    assert "the true return fell on 0 of them" in out


@pytest.mark.usefixtures("_quick")
def test_check_as_json(capsys):
    assert command.main(["check", "--worlds", "18", "--json"]) == 0
    found = printed_json(capsys)
    assert found["ok"] is True
    assert {claim["counterexample"] for claim in found["claims"] if not claim["holds"]} >= {"noisy coin"}
    assert all(row["falls"] == 0 for row in found["admissions"])


@pytest.mark.usefixtures("_quick")
def test_check_fails_when_a_true_claim_does(capsys, monkeypatch):
    wrong = [
        replace(claim, sides=lambda x: (1 + 0 * x.discount, 0.0)) if claim.holds else claim for claim in checks.CLAIMS
    ]
    monkeypatch.setattr(checks, "CLAIMS", wrong)
    assert command.main(["check", "--worlds", "18"]) == 1
    assert "VIOLATED" in capsys.readouterr().out


def run(*argv):
    return subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=False)


def test_help_and_errors_from_the_shell():
    helped = run("-m", "mbpo.theory", "--help")
    assert helped.returncode == 0
    assert "bound" in helped.stdout
    refused = run("-m", "mbpo.theory", "bound", "--model-error", "2", "--policy-shift", "0")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1


def test_the_theory_is_light():
    heavy = {"jax", "jaxlib", "matplotlib", "rich", "tyro", "scipy", "gymnasium"}
    code = f"import sys, mbpo.theory, mbpo.theory.command; print(sorted({heavy!r} & set(sys.modules)))"
    assert run("-c", code).stdout.strip() == "[]"
    training = (
        "print([m for m in sys.modules if m.startswith('mbpo.') and m.split('.')[1] not in ('theory', 'errors')])"
    )
    assert run("-c", f"import sys, mbpo.theory.command, mbpo.theory.adversary; {training}").stdout.strip() == "[]"


def test_public_names_are_complete_and_sorted():
    import mbpo.theory

    assert list(mbpo.theory.__all__) == sorted(mbpo.theory.__all__)
    assert all(hasattr(mbpo.theory, name) for name in mbpo.theory.__all__)

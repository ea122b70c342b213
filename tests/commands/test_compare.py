"""`trainperf compare` as a user runs it."""

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.doctor import Planted


def run(path: Path, forward_ms: float, **config: str | int) -> Path:
    """A run of steady steps of so many milliseconds."""
    Planted(
        phases_ms={"data_wait": 0.5, "forward": forward_ms}, facts={"samples": 8}, config=config
    ).write(path / "trainperf")
    return path


def test_every_form_begins_with_the_answer(command: Command, tmp_path: Path) -> None:
    """With how much, how sure and what was changed; a list for programs, a table for a request."""
    before, after = run(tmp_path / "a", 30, num_workers=0), run(tmp_path / "b", 20, num_workers=2)
    code, out, err = command("compare", before, after)
    (document,) = json.loads(command("compare", before, after, "--format", "json").out)
    markdown = command("compare", before, after, "--format", "markdown").out
    repeats = ",".join(map(str, (before, run(tmp_path / "c", 30))))

    assert (code, err) == (0, "")
    assert out.startswith("  b against a: faster, the fit 1.49× as fast (")
    assert "one change: num_workers: 0 → 2" in out
    assert "one run each: run-to-run noise 2.0 %, assumed" in out
    assert "(4 runs, " in command("compare", repeats, repeats).out
    assert (document["verdict"], document["primary"]) == ("faster", "fit_step_s")
    assert markdown.startswith("**b against a: faster")
    assert "| step | 30.5 ms | 20.5 ms |" in markdown


@pytest.mark.parametrize(
    ("after_ms", "limit", "options", "code", "said"),
    [
        (30, "60%", (), 0, ""),
        (30, "0.2", (), 1, "regression: b against a: slower"),
        (20, "10%", (), 0, ""),
        (20, "5%", (), 3, "undecided: b against a: undecided"),
        (20, "5%", ("--undecided", "pass"), 0, "undecided: b against a: undecided"),
        (20, "5%", ("--noise", "0.5%"), 0, ""),
        (30, "50%", (), 3, "neither shown nor excluded"),
    ],
    ids=str,
)
def test_the_gate_has_three_exits(
    after_ms: float,
    limit: str,
    options: tuple[str, ...],
    code: int,
    said: str,
    command: Command,
    tmp_path: Path,
) -> None:
    """0 excludes a slowdown beyond the limit, 1 shows one, 3 is neither."""
    before, after = run(tmp_path / "a", 20), run(tmp_path / "b", after_ms)
    exit_code, out, _ = command("compare", before, after, "--fail-on-regression", limit, *options)

    assert exit_code == code
    assert said in out
    assert ("regression: " in out) == (code == 1)


def test_the_margin_decides_what_is_equal(command: Command, tmp_path: Path) -> None:
    """Identical runs at an assumed noise of 0.5 %: equal within 2 %, undecided within 1 %."""
    before, after = run(tmp_path / "a", 20), run(tmp_path / "b", 20)
    wide = command("compare", before, after, "--noise", "0.5%")[1]
    # Lines are as wide as COLUMNS says, which is another test's choice.
    narrow = " ".join(
        command("compare", before, after, "--noise", "0.5%", "--margin", "1%")[1].split()
    )

    assert "b against a: equal (within 2.0 %)" in wide
    assert "b against a: undecided" in narrow
    assert "to decide at a margin of 1.0 %: `trainperf prove`" in narrow


@pytest.mark.parametrize(
    ("after_ms", "options", "decision", "code"),
    [
        (20.0, (), "keep", 0),
        (45.0, (), "discard", 1),
        (30.0, ("--noise", "0.1%"), "discard", 1),
        (30.0, (), "cannot tell", 3),
        (30.0, ("--undecided", "pass"), "cannot tell", 0),
        (30.0, ("--fail-on-regression", "20%"), "keep", 0),
        (45.0, ("--fail-on-regression", "20%"), "discard", 1),
    ],
)
def test_the_exit_code_is_that_of_the_decision(
    command: Command,
    tmp_path: Path,
    after_ms: float,
    options: tuple[str, ...],
    decision: str,
    code: int,
) -> None:
    """Keep what is faster, or passes the gate; discard what is slower, or equal."""
    before, after = run(tmp_path / "a", 30), run(tmp_path / "b", after_ms)

    said = command("compare", before, after, "--decide", "--format", "json", *options)
    (document,) = json.loads(said[1])

    assert (document["decision"], said[0]) == (decision, code)
    shown = " ".join(command("compare", before, after, "--decide", *options)[1].split())
    assert f"{decision}: b against a" in shown
    # What is kept unseen is said to be: these runs have no loss.
    assert ("Its loss not compared" in shown.rpartition(f"{decision}: ")[2]) == (decision == "keep")


@pytest.mark.parametrize("gate", [("--fail-on-regression", "5%"), ("--decide",)])
@pytest.mark.parametrize("order", [("slow", "same"), ("same", "slow")])
def test_one_slow_run_of_several_fails_the_gate(
    gate: tuple[str, ...], order: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    """Wherever it stands among them; `--undecided` forgives no regression."""
    before = run(tmp_path / "before", 20)
    after = [run(tmp_path / name, 45 if name == "slow" else 20) for name in order]

    ended = command("compare", before, *after, *gate, "--undecided", "pass")

    assert ended.code == 1
    assert "slow against before: " in ended.out


def test_what_cannot_be_compared_is_unusable_under_a_gate_and_not_decided(
    command: Command, tmp_path: Path
) -> None:
    """Exit code 2: one line, or the document that says why; without either the code is 0."""
    sides = run(tmp_path / "a", 20, model="A"), run(tmp_path / "b", 20, model="B")
    gated = command("compare", *sides, "--fail-on-regression", "5%")
    decided = command("compare", *sides, "--decide", "--format", "json")
    (document,) = json.loads(decided.out)

    assert gated == (2, "", "trainperf: b against a: not comparable: the model differs: A and B.\n")
    assert (decided.code, document["decision"]) == (2, "cannot tell")
    assert document["reason"]
    assert command("compare", *sides).code == 0

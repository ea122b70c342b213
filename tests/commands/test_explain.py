"""`trainperf explain`: what a name means, from the text of the reference."""

import json
from pathlib import Path

from support.commands import Command
from support.runs import make_run

from trainperf.core.docstrings import documented
from trainperf.reports.explanations import explained, explanations


DOCS = Path(__file__).parents[2] / "docs"


def test_a_name_is_explained_for_everything_that_bears_it(
    command: Command,
) -> None:
    """`data_wait` is a finding, of a run as of a trace, and a phase."""
    entries = json.loads(command("explain", "data_wait", "--format", "json").out)

    assert [entry["kind"] for entry in entries] == ["finding", "phase"]
    assert all(entry["means"] and entry["wrong"] and entry["confirm"] for entry in entries)
    assert "free_loader" in entries[0]["trials"]
    schema = command("explain", "--schema", "finding").out
    assert json.loads(schema)["$id"].startswith("urn:trainperf:")


def test_every_finding_reading_check_phase_and_gap_says_what_it_owes() -> None:
    """What it means, how it is measured, when it is wrong, how to confirm it: all of them."""
    owed = {"finding", "reading", "check", "phase", "gap"}
    silent = [
        f"{entry.kind} {entry.id}"
        for entry in explanations()
        if entry.kind in owed and not (entry.means and entry.wrong and entry.confirm)
    ]
    silent += [f"{entry.kind} {entry.id}" for entry in explanations() if not entry.measured]

    assert silent == []


def test_the_words_are_those_of_the_reference() -> None:
    """One fact, one wording: each sentence stands on the page that the entry names."""
    for entry in explanations():
        if entry.kind == "trial":
            continue
        page = (DOCS / entry.page).read_text(encoding="utf-8")
        for text in (entry.wrong, entry.confirm):
            assert text.replace("|", "\\|") in page, (entry.kind, entry.id)


def test_a_name_of_a_family_is_explained(command: Command) -> None:
    """Reports name `workers_2`; the list has `workers_N`."""
    (entry,) = explained("workers_2")

    assert (entry.kind, entry.id, entry.rules) == ("trial", "workers_N", ("data_wait",))
    assert "other numbers of loader workers" in command("explain", "workers_2").out


def test_without_a_name_all_are_listed(command: Command) -> None:
    """By kind, and no line is wider than a report's."""
    shown = command("explain").out

    assert all(entry.id in shown for entry in explanations())
    assert max(map(len, shown.splitlines())) <= 100


def test_a_docstring_is_read_in_its_parts() -> None:
    """Meaning, method, limits; sections for callers are left out."""
    parts = documented(
        """The meaning.

        The method,
        on two lines.

        Args:
            x: Something.

        Wrong where: it is not so:
            indeed.
        To confirm: look.
        """
    )

    assert (parts.means, parts.measured) == ("The meaning.", "The method, on two lines.")
    assert (parts.wrong, parts.confirm) == ("it is not so: indeed.", "look.")
    assert documented(None).means == ""


def test_a_finding_of_a_run_answers_six_questions(tmp_path: Path, command: Command) -> None:
    """Those of all its findings without a name; what it does not have says so."""
    run = make_run(tmp_path / "gpt2", config={"num_workers": 0}, data_wait=20, forward=30)
    every = json.loads(command("explain", "--run", run, "--format", "json").out)
    (absent,) = json.loads(command("explain", "attention", "--run", run, "--format", "json").out)
    labels = [label for label, _ in every[0]["answers"]]

    assert every[0]["id"] == "data_wait"
    assert labels == ["gain", "effort", "return", "better", "ceiling", "how far"]
    assert absent["answers"] == [["in this run", "not found"]]
    assert every[0]["answers"][0][1].startswith("about ")
    assert "saves" in command("explain", "data_wait", "--run", run).out


def test_a_run_without_a_finding_is_explained_by_none(tmp_path: Path, command: Command) -> None:
    """Nothing to do is an answer, and no fault of the call: an empty list."""
    run = make_run(tmp_path / "well", data_wait=1, forward=60, backward=39)

    assert json.loads(command("explain", "--run", run, "--format", "json").out) == []
    assert ": no finding; " in command("explain", "--run", run).out
    assert ": no finding; " in command("explain", "--run", run, "--format", "markdown").out

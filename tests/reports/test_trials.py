"""What was tried, in words."""

import pytest
from support.golden import GOLDEN
from support.tried import AUTOCAST, FREE_LOADER, FUSED, NOT_FASTER, TRIED, trial, tried

from trainperf.core.artifacts.trials import TrialResult
from trainperf.reports.layout.trials_view import trials_view
from trainperf.reports.trials import lines, trials_markdown, trials_text


@pytest.mark.parametrize("name", TRIED)
def test_the_text_is_the_one_that_was_read_and_approved(name: str) -> None:
    """Every letter."""
    expected = (GOLDEN / "trials" / f"{name}.txt").read_text(encoding="utf-8")

    assert trials_text(TRIED[name]) == expected


def test_the_markdown_is_the_one_that_was_read_and_approved() -> None:
    """Every letter."""
    expected = (GOLDEN / "trials" / "best.md").read_text(encoding="utf-8")

    assert trials_markdown(TRIED["best"]) == expected


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """And no figure or verdict is cut."""
    shown = [line.plain for line in lines(TRIED["best"], width)]

    assert max(map(len, shown)) <= width
    assert not any(line.endswith("…") for line in shown)


@pytest.mark.parametrize(
    ("results", "beginning"),
    [
        ((AUTOCAST, FUSED), "Best: AMP in bf16: 1.38× as fast (95 % CI 1.33–1.43), at the same"),
        ((FREE_LOADER, NOT_FASTER[0]), "Nothing that was tried is faster here."),
        ((NOT_FASTER[0], NOT_FASTER[4]), "Nothing that was tried is faster here; 1 change undecid"),
        ((NOT_FASTER[4],), "Nothing was decided: 1 change may be faster or slower."),
        ((NOT_FASTER[2],), "Nothing was measured."),
        ((), "Nothing was tried."),
    ],
)
def test_the_first_line_is_the_answer(results: tuple[TrialResult, ...], beginning: str) -> None:
    """Honest about what was not decided."""
    assert trials_view(tried(*results)).answer.startswith(beginning)


def test_the_lines_to_write_are_those_of_each_part() -> None:
    """Each with its own place."""
    written = [(line.line, line.where) for line in trials_view(TRIED["best"]).lines]

    assert written == [('precision="bf16-mixed"', "Trainer(…)"), ("AdamW(…, fused=True)", "")]


def test_a_ceiling_above_the_best_is_named_and_the_most_promising_undecided_change() -> None:
    """A loader that no trial made cheaper is still the largest part of the step."""
    small, vague = trial("small", "faster", 1.05), trial("vague", "undecided", 1.1, low=0.9)
    wide = trial("wide", "undecided", 1.0, low=0.4, high=2.5, kind="ceiling")
    notes = trials_view(tried(small, FREE_LOADER, NOT_FASTER[4], vague, wide)).notes

    assert any(note.startswith("more is left than that: batches from memory, at") for note in notes)
    assert any(
        "3 undecided: more time decides them (--minutes 5 --only workers_2)" in n for n in notes
    )
    assert not any("more is left" in note for note in trials_view(TRIED["best"]).notes)


def test_a_change_that_can_gain_hardly_anything_is_bounded_and_needs_no_more_time() -> None:
    """It is not said to be undecided, where more time would change nothing that matters."""
    shown = trials_view(tried(trial("small", "undecided", 1.01, low=0.98, high=1.04)))

    assert shown.changes[0].verdict == "at most 1.04×"
    assert shown.answer == "Nothing that was tried is faster here."
    assert not any("more time" in note for note in shown.notes)


def test_where_nothing_is_faster_the_largest_ceiling_is_named() -> None:
    """It says where to look."""
    shown = trials_view(tried(FREE_LOADER, NOT_FASTER[0]))

    assert "the largest ceiling is batches from memory (at most 1.31×)" in shown.next

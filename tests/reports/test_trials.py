"""What was tried, in words and on the page."""

import re

import pytest
from support.golden import GOLDEN
from support.pages import Page
from support.tried import AUTOCAST, FREE_LOADER, FUSED, NOT_FASTER, TRIED, trial, tried

from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.reports.layout.html import as_html
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text, text_lines
from trainperf.reports.trials import trials_document
from trainperf.reports.trials import tried as tried_parts


BEST = TRIED["best"]


def text_of(*results: TrialResult) -> str:
    """What the terminal shows of these results, on one line."""
    return " ".join(as_text(trials_document(tried(*results))).split())


def drawn(trials: Trials) -> str:
    """The section of a page."""
    return as_html(tried_parts(trials))


def spots(page: str, kind: str) -> list[float]:
    """Where estimates of a class are, in per cent of the axis."""
    return [float(left) for left in re.findall(rf'class="spot {kind}" style="left:([\d.]+)%', page)]


@pytest.mark.parametrize("file", ["best.txt", "none_faster.txt", "best.md"])
def test_a_document_is_the_one_that_was_read_and_approved(file: str) -> None:
    """Every letter, as text and as Markdown."""
    form = as_text if file.endswith(".txt") else as_markdown
    document = form(trials_document(TRIED[file.partition(".")[0]]))

    assert document == (GOLDEN / "trials" / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """And no figure is cut."""
    shown = [line.plain for line in text_lines(trials_document(BEST), width)]

    assert max(map(len, shown)) <= width
    assert any("1.62×  [1.55–1.70]  ▲ faster" in line for line in shown)


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ((AUTOCAST, FUSED), "Best: AMP in bf16: 1.38× as fast (95 % CI 1.33–1.43), at the same"),
        ((FREE_LOADER, NOT_FASTER[0]), "Nothing that was tried is faster here."),
        ((NOT_FASTER[0], NOT_FASTER[4]), "Nothing that was tried is faster here; 1 change undecid"),
        ((NOT_FASTER[4],), "Nothing was decided: 1 change may be faster or slower."),
        ((NOT_FASTER[2],), "Nothing was measured."),
        ((), "Nothing was tried."),
        ((FREE_LOADER, NOT_FASTER[0]), "the largest ceiling is batches from memory (at most 1.31×"),
        ((trial("small", "undecided", 1.01, low=0.98, high=1.04),), "? at most 1.04×"),
    ],
)
def test_the_answer_is_honest_about_what_was_not_decided(
    results: tuple[TrialResult, ...], text: str
) -> None:
    """And says where to look where nothing is faster."""
    assert text in text_of(*results)


def test_the_lines_to_write_are_those_of_each_part() -> None:
    """Each with its own place."""
    shown = as_text(trials_document(BEST)).splitlines()

    written = [line.split("write", 1)[1].strip() for line in shown if line.startswith("  write")]
    assert written == ['precision="bf16-mixed"  (Trainer(…))', "AdamW(…, fused=True)"]


def test_a_ceiling_above_the_best_is_named_and_the_most_promising_undecided_change() -> None:
    """A loader that no trial made cheaper is still the largest part of the step."""
    small, vague = trial("small", "faster", 1.05), trial("vague", "undecided", 1.1, low=0.9)
    wide = trial("wide", "undecided", 1.0, low=0.4, high=2.5, kind="ceiling")
    shown = text_of(small, FREE_LOADER, NOT_FASTER[4], vague, wide)

    assert "AFTER; the largest ceiling is batches from memory (at most" in shown
    assert "3 undecided: more time decides them (--minutes 5 --only workers_2)" in shown
    assert "largest ceiling" not in as_text(trials_document(BEST))


def test_a_verdict_can_be_read_without_its_colour_and_is_where_its_number_is() -> None:
    """A sign before each word; what is beyond the axis is at its edge."""
    page = drawn(BEST)
    signs = ("▲ faster", "▼ slower", "= equal", "? undecided", "≠ loss", "✕ failed", "≤ at most")
    one = float(re.findall(r'class="unity" style="left:([\d.]+)%"', page)[0])
    far = drawn(tried(trial("a", "faster", 1.3), trial("b", "faster", 60.0)))

    assert [sign for sign in signs if sign not in Page(page).words] == []
    assert all(spot > one for spot in spots(page, "good"))
    assert all(spot < one for spot in spots(page, "bad"))
    assert max(spots(far, "good")) == 100.0


def test_names_are_text() -> None:
    """Of the user's own trials."""
    page = drawn(tried(trial("x", "faster", 1.3, title="<img src=x>", apply="<b>", where="<i>")))

    assert "<img" not in page
    assert "<i>" not in page


def test_a_trial_under_way_is_named_as_such() -> None:
    """While the training runs; afterwards it ended it."""
    trials = tried(trial("a", "faster", 1.3), trying="b")

    assert "now trying b" in as_html(tried_parts(trials, running=True))
    assert "ended during b" in drawn(trials)

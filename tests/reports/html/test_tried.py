"""What was tried, on the page: in order of gain, each bar where its numbers are."""

import re
from pathlib import Path

from support.cases import CASES
from support.pages import ELEMENTS, Page
from support.runs import make_run_dir
from support.tried import FUSED, TRIED, trial, tried

from trainperf.analysis.run.directory import Run
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.trials import Trials
from trainperf.reports.html import tried as section
from trainperf.reports.html.run import load_page_data, render


def drawn(trials: Trials, *, running: bool = False) -> str:
    """The section."""
    return section.tried(trials, running=running)


BEST = TRIED["best"]


def reaches(page: str, kind: str) -> list[tuple[float, float]]:
    """Where bars of a class begin and end, in per cent of the axis."""
    style = rf'class="reach {kind}" style="left:([\d.]+)%;width:([\d.]+)%"'
    return [(float(left), float(left) + float(wide)) for left, wide in re.findall(style, page)]


def test_the_page_of_a_run_shows_what_was_tried_in_it(tmp_path: Path) -> None:
    """Of elements that are known, and only there."""
    run = make_run_dir(tmp_path / "gpt2" / "trainperf", CASES["loader_bound"]().ranks)
    before = render(load_page_data(Run.open(run)))
    write_document(BEST, run)
    page = Page(render(load_page_data(Run.open(run))))

    assert "What was tried" not in before
    assert "What was tried" in page.words
    assert page.open == []
    assert page.names <= ELEMENTS


def test_changes_come_by_what_they_bring_and_ceilings_apart() -> None:
    """A set among them; what has no speed-up of the same training comes last."""
    words = Page(drawn(BEST)).words
    titles = (
        "AMP in bf16 + AdamW with fused", "AMP in bf16", "AdamW with fused",
        "AdamW with foreach", "channels_last", "2 workers", "weights in bf16", "torch.compile",
        "Ceilings", "batches from memory", "no optimizer update", "Not applicable: 1", "TF32",
    )  # fmt: skip
    place = words.index(".")  # behind the answer
    for title in titles:
        assert title in words[place:], title
        place = words.index(title, place) + len(title)


def test_a_bar_reaches_from_one_to_the_estimate_and_the_interval_lies_on_its_end() -> None:
    """Ceilings on the axis of the changes."""
    page = drawn(BEST)
    one = float(re.findall(r'class="unity" style="left:([\d.]+)%"', page)[0])
    gained, slowed = reaches(page, "gained good"), reaches(page, "gained bad")
    (ceiling, nothing), whiskers = reaches(page, "gained most"), reaches(page, "whisker")

    assert [left for left, _ in gained] == [one] * 3
    assert [right for _, right in slowed] == [one]
    assert ceiling[0] == one
    assert gained[2][1] < ceiling[1] < gained[1][1]
    assert nothing == (one, one)
    assert whiskers[0][0] < gained[0][1] < whiskers[0][1]
    # The axis is logarithmic: 1.25 times is as many times farther as the logarithms say.
    assert abs((ceiling[1] - one) / (gained[1][1] - one) - 0.2231 / 0.3221) < 0.05


def test_a_verdict_can_be_read_without_its_colour() -> None:
    """A sign before each word; stripes where the loss differs."""
    words = Page(drawn(BEST)).words

    signs = (
        "▲ faster",
        "▼ slower",
        "= equal",
        "? undecided",
        "≠ loss differs",
        "✕ failed",
        "≤ at most",
    )
    assert [sign for sign in signs if sign not in words] == []
    assert len(reaches(drawn(BEST), "gained doubt")) == 1


def test_the_lines_of_a_set_are_those_of_its_parts() -> None:
    """Each as code of its own."""
    page = drawn(BEST)
    best = page.split('class="trial"')[2]

    assert best.count("<code>") == 2
    assert FUSED.apply in best


def test_what_is_beyond_the_axis_is_drawn_at_its_edge() -> None:
    """A loader that takes nearly all of the step leaves room for the others."""
    page = drawn(tried(trial("a", "faster", 1.3), trial("b", "faster", 60.0, kind="ceiling")))

    assert reaches(page, "gained most")[0][1] == 100.0
    assert reaches(page, "gained good")[0][1] > 10


def test_names_are_text() -> None:
    """Of the user's own trials."""
    page = drawn(tried(trial("x", "faster", 1.3, title="<img src=x>", apply="<b>", where="<i>")))

    assert "<img" not in page
    assert "<i>" not in page


def test_a_trial_under_way_is_named_as_such() -> None:
    """While the training runs; afterwards it ended it."""
    trials = tried(trial("a", "faster", 1.3), trying="b")

    assert "now trying b" in drawn(trials, running=True)
    assert "ended during b" in drawn(trials)

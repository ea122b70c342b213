"""The page of a comparison: the verdict first, every ratio with its interval, nothing loaded."""

import html
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.doctor import Planted
from support.pages import ELEMENTS, Page, asks_for_something
from support.runs import make_step

from trainperf.commands._comparison import ComparisonOptions, compare_sides
from trainperf.core.phases import Tag
from trainperf.core.steps.records import Scalar


EVIL = "<img src=x onerror=alert(1)>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A run to compare: what its steps take, and what they lose."""

    forward_ms: float
    loss: float = 4.0
    """Of the first step; each next one has a hundredth less."""
    workers: Scalar = 0

    def write(self, path: Path) -> Path:
        """The directory above it."""
        steps = [
            make_step(
                index,
                tags=int(Tag.WARMUP) if index < 10 else 0,
                forward=self.forward_ms,
                backward=10,
                facts={"samples": 8, "loss": self.loss - index / 100},
            )
            for index in range(200)
        ]
        Planted(steps=steps, config={"num_workers": self.workers}).write(path / "trainperf")
        return path


def page_of(*sides: Path) -> str:
    """What `trainperf compare … --format html` prints."""
    return compare_sides([[side] for side in sides], ComparisonOptions(form="html")).text


def against_a(path: Path, after: Learned, name: str = "b") -> str:
    """The page of that run against one whose forward takes 20 ms."""
    return page_of(Learned(forward_ms=20).write(path / "a"), after.write(path / name))


def headings(page: str) -> list[str]:
    """What is read first, of each comparison."""
    return [html.unescape(one) for one in re.findall(r"<h1[^>]*>(.*?)</h1>", page)]


def test_the_verdict_is_the_heading_and_every_ratio_is_drawn_where_it_is(tmp_path: Path) -> None:
    """In the words of the other formats, with its interval; right in whatever alphabet.

    The axis is logarithmic: half as long is as far from no change as twice the rate.
    """
    page = against_a(tmp_path, Learned(forward_ms=10))

    (first,) = headings(page)
    assert first.startswith("b against a: faster, the fit 1.50× as fast (")
    assert Page(page).open == []
    assert Page(page).names <= ELEMENTS
    assert asks_for_something(page) == []
    assert page.isascii()

    spots = {
        label: float(left)
        for label, left in re.findall(
            r'<tr><td class="text">([^<]*)</td>.*?class="spot [^"]*" style="left:([\d.]+)%', page
        )
    }
    unity = float(re.findall(r'class="unity" style="left:([\d.]+)%', page)[0])
    assert spots["phase backward"] == unity
    assert spots["step"] < unity < spots["samples/s"]
    assert unity - spots["step"] == pytest.approx(spots["samples/s"] - unity, abs=0.5)


def test_a_loss_that_differs_stands_in_the_heading_and_in_the_figure(tmp_path: Path) -> None:
    """Whatever the speed; the curves are drawn over the samples both have seen."""
    page = against_a(tmp_path, Learned(forward_ms=10, loss=5.0))

    assert headings(page)[0].startswith("b against a: loss differs")
    assert ": different (tolerance" in Page(page).words
    assert 'class="curve s1"' in page
    assert 'class="curve s0"' in page
    assert 'class="range"' in page


def test_names_and_settings_cannot_become_markup(tmp_path: Path) -> None:
    """A run is called as its directory, a setting holds whatever its owner wrote."""
    page = against_a(tmp_path, Learned(forward_ms=10, workers=EVIL), "<b>&amp;")

    assert Page(page).names <= ELEMENTS
    assert EVIL in Page(page).words
    assert "<b>&amp; against a: faster" in Page(page).words


def test_several_runs_are_listed_above_their_comparisons(tmp_path: Path) -> None:
    """Each with its verdict, in the order in which they were given."""
    sides = [
        Learned(forward_ms=ms).write(tmp_path / name)
        for name, ms in zip("abc", (20, 10, 40), strict=True)
    ]

    first, *others = headings(page_of(*sides))
    assert first == "2 runs against a"
    assert [one.split(",")[0] for one in others] == [
        "b against a: faster",
        "c against a: slower",
    ]

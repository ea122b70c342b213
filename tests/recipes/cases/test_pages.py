"""Cases as text, JSON, page and Markdown: the same figures everywhere, none of them invented."""

import re
from pathlib import Path

import msgspec
import pytest

from recipes.cases import markdown
from recipes.cases.case import (
    Case,
    MeasuredRow,
    Plot,
    PlotLine,
    PublishedFigure,
    RecipeRun,
    Timeline,
    TimelineLane,
    load,
)
from recipes.cases.outputs import leave
from recipes.cases.page import page_of
from recipes.cases.text import shown, tally
from recipes.cases.verdicts import needs_cuda, verdict
from scripts import render_recipes
from trainperf.core.formatting.table import Table


BEFORE = MeasuredRow(what="operators", value=0.0021)
AFTER = MeasuredRow(
    what="compiled", value=0.0007, ratio=3.1, low=2.9, high=3.3, against="operators", rounds=31
)


def made() -> RecipeRun:
    """A run with one of everything."""
    case = Case(
        name="fused_chain",
        claim="A `chain` is <faster> compiled.",
        before=("operators 2.10 ms",),
        change=("- f(x)", "+ torch.compile(f)(x)"),
        measured=(BEFORE, AFTER),
        published=PublishedFigure(
            figure="2.4× on an A100", source="https://example.org/a", differs="a GPU"
        ),
        plot=Plot(
            title="speed by size",
            lines=(PlotLine(name="compiled", points=((64, 0.5), (4096, 2.0))),),
            across="values",
            up="times as fast",
            up_unit="×",
            log_across=True,
        ),
        files=("claims/trainperf",),
        **verdict(AFTER, "faster"),
    )
    streams = Case(
        name="streams",
        title="Several streams",
        command="python -m recipes.demo streams",
        claim="Streams overlap.",
        before_note="no finding is about `streams`.",
        **needs_cuda("a CPU has none"),
    )
    return RecipeRun(
        recipe="demo",
        title="Claims of a demo",
        about="What is `shown`.",
        command="python -m recipes.demo",
        machine={"processor": "Some CPU", "cores": "2"},
        took_s=12.3,
        cases=(case, streams),
        tables=(Table(title="Own", head=("a", "b"), rows=(("x", "17 ms"),), notes=("A note.",)),),
        timelines=(
            Timeline(
                title="Who did what", lanes=(TimelineLane(name="a", spans=((0, 1, "load"),)),)
            ),
        ),
    )


@pytest.fixture
def left(tmp_path: Path) -> RecipeRun:
    """The run after it was printed."""
    return leave(made(), tmp_path / "demo")


def test_a_run_leaves_what_it_printed(left: RecipeRun, tmp_path: Path) -> None:
    """As JSON that is read back the same, as text and as a page."""
    out = tmp_path / "demo"

    assert load(out / "demo.json") == left
    assert (out / "demo.txt").read_text().splitlines() == list(left.printed)
    assert (out / "demo.html").read_text().startswith("<!doctype html>")


def test_the_text_has_claim_before_change_measurement_and_verdict_in_this_order(
    left: RecipeRun,
) -> None:
    """And the verdicts of all at the end."""
    text = "\n".join(left.printed)
    parts = (
        "fused_chain: A `chain`",
        "trainperf, before",
        "- f(x)",
        "measured here",
        "2.4× on an A100",
        "holds: compiled: 3.10× as fast as operators (95 % CI 2.9–3.3)",
        "needs CUDA: a CPU has none",
        "2 claims, 1 decided: holds 1, needs CUDA 1.",
    )

    assert sorted(parts, key=text.index) == list(parts)
    assert tally(left.cases) == parts[-1]


def test_the_pages_show_only_figures_that_were_printed(left: RecipeRun) -> None:
    """A figure that is put into the page, or changed in a case, is told."""
    page = markdown.page_of(left, "docs/demo.json")
    case, *others = left.cases
    faster = msgspec.structs.replace(case, reason="7.77× as fast")
    altered = msgspec.structs.replace(left, cases=(faster, *others))

    assert markdown.unprinted(left, page) == set()
    assert markdown.unprinted(left, page + "It is 41.5 ms.") == {"41.5"}
    assert markdown.unprinted(altered, markdown.page_of(altered, "x")) == {"7.77"}


def test_words_of_a_case_are_no_markup(left: RecipeRun) -> None:
    """Except for code between backticks."""
    page, text = page_of(left), markdown.page_of(left, "docs/demo.json")

    assert "A <code>chain</code> is &lt;faster&gt; compiled." in page
    assert "**A `chain` is &lt;faster&gt; compiled.**" in text
    assert "://" not in re.sub(r"http://www.w3.org/2000/svg|https://example.org/a", "", page)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.0021, "s", "2.10 ms"),
        (3 << 20, "B", "3.00 MiB"),
        (12e9, "B/s", "12.0 GB/s"),
        (98.5e12, "FLOP/s", "98.5 TFLOP/s"),
        (250.0, "1/s", "250/s"),
        (0.25, "%", "25 %"),
        (1.5, "×", "1.50×"),
        (7.0, "1", "7"),
        (None, "s", "–"),
    ],
)
def test_a_value_has_its_unit(value: float | None, unit: str, words: str) -> None:
    """As everywhere in the reports."""
    assert shown(value, unit) == words  # type: ignore[arg-type]


def test_the_pages_in_the_documentation_are_those_of_the_runs_that_are_kept() -> None:
    """Rendered anew they are the same, and no figure in them was invented."""
    files, invented = render_recipes.rendered()

    assert render_recipes.stale(files) == []
    assert {name for name, figures in invented.items() if figures} == set()

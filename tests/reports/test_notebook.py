"""A run, a comparison and a sweep in a notebook: the report's look, and no rule for others."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.runs import make_run

from trainperf.benchmark import BenchmarkComparison, Sweep, SweepPoint
from trainperf.benchmark.calls import PeakMemory
from trainperf.benchmark.steps import StepBenchmark, Versus
from trainperf.core.errors import ConfigError, RunError
from trainperf.reports.notebook import ComparisonReport, RunReport, compare, report


if TYPE_CHECKING:
    from playwright.sync_api import Browser

NOTEBOOK = """
.out table { table-layout: fixed; margin-left: auto; margin-right: auto; font-size: 40px; }
:not(.other).out td, :not(.other).out th, :not(.other).out tr { text-align: left; }
.out tbody tr:nth-child(odd) { background: rgb(1, 2, 3); }
.out h1 { font-size: 50px; }
.out dt { float: left; width: 20%; font-weight: bold; }
.out :not(pre) > code { background-color: rgb(1, 2, 3); }
"""
"""Rules as Jupyter has them, for all that a cell shows."""


STYLES = {
    (".trainperf td:not(.text)", "textAlign"): "right",
    (".trainperf tbody tr", "backgroundColor"): "rgba(0, 0, 0, 0)",
    (".trainperf table", "tableLayout"): "auto",
    (".trainperf h1", "fontSize"): "24px",
    (".trainperf dt", "float"): "none",
    (".trainperf code", "backgroundColor"): "rgba(0, 0, 0, 0)",
    (".trainperf", "backgroundColor"): "rgb(245, 246, 248)",
    (".out:last-child h1", "fontSize"): "50px",
    (".out:last-child table", "fontSize"): "40px",
    (".out:last-child tr", "backgroundColor"): "rgb(1, 2, 3)",
    ("body", "maxWidth"): "none",
}
"""What a browser makes of a cell of ours, and of one that is not."""


def a_run(place: Path, name: str, wait: float) -> str:
    """Its directory; 120 steps of 9 ms and a wait."""
    make_run(place / name / "trainperf", 120, forward=4.0, backward=5.0, data_wait=wait)
    return str(place / name)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunReport, ComparisonReport]:
    """A run with a finding, and a comparison with a run that lacks it."""
    place = tmp_path_factory.mktemp("runs")
    before, after = a_run(place, "before", 9.0), a_run(place, "<img src=x>", 1.0)
    return report(before), compare(before, [after])


def a_step(name: str, seconds: float) -> StepBenchmark:
    """Ten calls of the same duration."""
    return StepBenchmark(
        name=name,
        warmup_s=(1.0,),
        steady_s=(seconds,) * 10,
        median_s=seconds,
        iqr_s=0.0,
        calls=1,
        memory=PeakMemory(peak_bytes=1 << 20, source="resident set"),
    )


SWEEP = Sweep(
    unit="samples",
    points=tuple(
        SweepPoint(batch_size=size, length=1, step=a_step("step", seconds))
        for size, seconds in ((8, 0.010), (16, 0.012), (32, 0.024))
    ),
)


BENCHMARK = BenchmarkComparison(
    steps=(a_step("eager", 0.02), a_step("<b>fused</b>", 0.01)),
    versus=(
        Versus(
            name="<b>fused</b>",
            baseline="eager",
            speedup=2.0,
            low=1.9,
            high=2.1,
            difference=0.0,
            verdict="faster",
        ),
    ),
    tolerance=0.01,
)


def words(markup: str) -> str:
    """What a reader sees of it."""
    return re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", markup, flags=re.DOTALL))


def test_a_run_is_shown_with_the_sections_of_its_page_and_printed_as_text(
    shown: tuple[RunReport, ComparisonReport],
) -> None:
    """The answer of both is the same."""
    run, _ = shown
    seen_words = words(run._repr_html_())

    assert repr(run).startswith("trainperf · before · ")
    assert "Step time 18.0 ms" in repr(run)
    assert "Step time 18.0 ms" in seen_words
    for heading in ("Where a step goes", "What to change", "The whole fit"):
        assert heading in seen_words
    assert run.summary.run.steps == 120


def test_a_comparison_is_shown_with_its_verdict_and_escapes_names(
    shown: tuple[RunReport, ComparisonReport],
) -> None:
    """A name of a directory is no markup."""
    _, comparison = shown
    markup = comparison._repr_html_()

    assert comparison.comparison.verdict == "faster"
    assert comparison.comparison.decision == "keep"
    assert "faster" in repr(comparison)
    assert "&lt;img src=x&gt; against before: faster" in markup
    assert "<img" not in markup


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (SWEEP, "Batch 16, 1,333 samples/s"),
        (BENCHMARK, "against eager: faster, 2.00× the speed"),
        (BENCHMARK.steps[0], "eager: 20.0 ms"),
    ],
    ids=["sweep", "comparison of steps", "step"],
)
def test_a_benchmark_is_shown_with_its_answer_first(
    result: Sweep | BenchmarkComparison | StepBenchmark, answer: str
) -> None:
    """As a heading; the table is the one of its text."""
    markup = result._repr_html_()

    assert answer in words(markup.partition("</h1>")[0])
    assert "<b>fused" not in markup
    assert markup.startswith('<div class="trainperf"><style>')
    assert not re.search(r"<(script|link|iframe|meta|html|body)\b", markup)


def test_no_run_and_a_place_without_one_are_refused_with_the_remedy(tmp_path: Path) -> None:
    """By the errors that the commands have."""
    with pytest.raises(ConfigError, match=r'report\("runs/a"\)'):
        report()
    with pytest.raises(RunError):
        report(tmp_path)


def test_a_cell_has_its_own_style_and_the_notebook_keeps_its(
    shown: tuple[RunReport, ComparisonReport], browser: "Browser"
) -> None:
    """Also against a notebook's rules for all tables, and in a dark one."""
    cells = "".join(
        f'<div class="out">{each._repr_html_()}</div>' for each in (*shown, SWEEP, BENCHMARK)
    )
    other = '<div class="out"><h1>t</h1><table><tbody><tr><td>1</td></tr></tbody></table></div>'
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.set_content(f"<style>{NOTEBOOK}</style><body>{cells}{other}</body>")

    styles = {
        (element, name): page.eval_on_selector(element, f"(e) => getComputedStyle(e)['{name}']")
        for element, name in STYLES
    }

    assert styles == STYLES
    wide = page.evaluate(
        "[...document.querySelectorAll('.trainperf')].map((e) => e.scrollWidth - e.clientWidth)"
    )
    assert wide == [0, 0, 0, 0]
    page.close()

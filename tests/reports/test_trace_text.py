"""The trace report for a terminal."""

import pytest

from trainperf.reports.trace_text import WIDTH, render
from trainperf.traces.results import RankTrace, Totals, TraceReport, TraceStep


def report_of(**given: object) -> TraceReport:
    """A trace of two steps without a device."""
    steps = (TraceStep(step=7, step_s=0.1), TraceStep(step=8, step_s=0.1))
    totals = Totals(steps=2, step_s=0.1, cpu_op_s=0.05)
    usual = {"ranks": (RankTrace(file="a.json", steps=steps, totals=totals),), **given}
    return TraceReport(**usual)


@pytest.mark.parametrize("words", range(1, 40, 3))
def test_no_line_is_too_long_and_none_ends_between_a_number_and_its_unit(words: int) -> None:
    """Whatever the length of what is said before."""
    said = f"{'word ' * words}takes 12.5 ms or 17 % of it, at most 1.51 × faster, 3.0 GiB"

    lines = render(report_of(answer=said, warnings=(said,))).splitlines()

    assert max(map(len, lines)) <= WIDTH
    assert not any(line.rstrip().endswith(("12.5", "17", "1.51", "3.0")) for line in lines)
    assert "\N{NO-BREAK SPACE}" not in "".join(lines)


def test_it_begins_with_the_answer_and_ends_with_what_is_next() -> None:
    """Warnings are said in between, one by one."""
    lines = render(report_of(answer="This is it.", warnings=("one", "two"))).splitlines()

    assert lines[:3] == ["trainperf trace · a.json · no device · 2 steps", "", "  This is it."]
    assert [line for line in lines if line.startswith("  note  ")] == [
        "  note  one",
        "  note  two",
    ]
    assert lines[-1] == "  next  nothing stands out that could be removed"

"""A capture in words, the same in the terminal, in markdown, on the page and in the tab."""

import html
import json
import re
from pathlib import Path

import msgspec
import pytest
from support.tab import a_report, a_run, write_capture

from trainperf.analysis.diagnosis.of_capture import diagnosed
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.wrap import WIDTH
from trainperf.reports.capture.document import capture_document
from trainperf.reports.capture.memory import memory_chart
from trainperf.reports.capture.tables import ROWS
from trainperf.reports.layout.document import Sentence
from trainperf.reports.layout.finding_view import FindingView
from trainperf.reports.layout.html import as_html
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.tensorboard.data import Store
from trainperf.traces.results import (
    Collective,
    Kernel,
    MemoryCurve,
    RankTrace,
    SyncSite,
    TraceReport,
    TraceStep,
    TraceTotals,
)


def trace_text(report: TraceReport) -> str:
    """What the terminal shows."""
    return as_text(capture_document(report))


def report_of(**given: object) -> TraceReport:
    """A trace of two steps without a device."""
    steps = (TraceStep(step=7, step_s=0.1), TraceStep(step=8, step_s=0.1))
    totals = TraceTotals(steps=2, step_s=0.1, cpu_op_s=0.05)
    usual = {"ranks": (RankTrace(file="a.json", steps=steps, totals=totals),), **given}
    return TraceReport(**usual)


@pytest.mark.parametrize("words", range(1, 40, 3))
def test_no_line_is_too_long_and_none_ends_between_a_number_and_its_unit(words: int) -> None:
    """Whatever the length of what is said before."""
    said = f"{'word ' * words}takes 12.5 ms or 17 % of it, at most 1.51× faster, 3.0 GiB"

    lines = trace_text(report_of(answer=said, warnings=(said,))).splitlines()

    assert max(map(len, lines)) <= WIDTH
    assert not any(line.rstrip().endswith(("12.5", "17", "1.51", "3.0")) for line in lines)
    assert "\N{NO-BREAK SPACE}" not in "".join(lines)


def test_a_step_says_which_of_its_times_the_shares_are_of() -> None:
    """The median; the mean, and the device's time, where they are others."""
    rank = report_of().ranks[0]
    slow = (TraceStep(step=7, step_s=0.1, device_span_s=0.2), TraceStep(step=8, step_s=0.3))
    uneven = msgspec.structs.replace(rank, steps=(*slow, slow[0]))
    lagging = msgspec.structs.replace(rank, steps=(slow[0],))
    told = [
        next(
            line for line in trace_text(TraceReport(ranks=(one,))).splitlines() if "median" in line
        )
        for one in (rank, uneven, lagging)
    ]

    assert [line.split("median ")[1] for line in told] == [
        "on the host",
        "on the host; mean 167 ms; 200 ms on the device",
        "on the host; 200 ms on the device",
    ]


def test_tables_of_several_steps_and_ranks_say_whose_they_are() -> None:
    """A count without these could be a step's, or the job's."""
    kind = Collective(kind="all_reduce", count=6, total_s=0.5, exposed_s=0.25)
    rank = msgspec.structs.replace(report_of().ranks[0], rank=3, collectives=(kind,))
    other = msgspec.structs.replace(rank, rank=4)
    alone, several = (trace_text(TraceReport(ranks=ranks)) for ranks in ((rank,), (rank, other)))

    assert "\n  collectives, sum of 2 steps\n" in alone
    assert "in detail" not in alone
    assert several.index("\n  ranks\n") < several.index("  in detail: a.json · rank 3 · ")
    assert several.index("in detail") < several.index("  collectives, sum of 2 steps\n")
    row = next(
        line for line in trace_text(TraceReport(ranks=(rank,))).splitlines() if "all_re" in line
    )
    assert row.split()[:6] == ["all_reduce", "6", "500", "ms", "250", "ms"]


def test_it_begins_with_the_answer_and_ends_with_what_is_next() -> None:
    """Warnings are said in between, one by one."""
    lines = trace_text(report_of(answer="This is it.", warnings=("one", "two"))).splitlines()

    assert lines[:3] == ["trainperf trace · a.json · no device · 2 steps", "", "  This is it."]
    assert [line for line in lines if line.startswith("  note  ")] == [
        "  note  one",
        "  note  two",
    ]
    assert lines[-1] == "  No waste was seen."


def test_copies_say_what_they_reach_of_the_link() -> None:
    """20 MB in 10 ms, where the link carries 64 GB/s: of an unknown device the rate alone."""
    step = TraceStep(step=7, step_s=0.1, h2d_s=0.01, h2d_bytes=20_000_000)
    totals = TraceTotals(steps=1, step_s=0.1, h2d_s=0.01, h2d_overlap_fraction=0.5)
    rank = RankTrace(file="a.json", steps=(step,), totals=totals, device="NVIDIA H100 80GB HBM3")
    unknown = msgspec.structs.replace(rank, device=None)
    shown, rate_alone = (
        " ".join(trace_text(TraceReport(ranks=(each,))).split()) for each in (rank, unknown)
    )

    assert "at 2.00 GB/s, 3.1 % of the link's 64.0 GB/s, 50 % hidden by computing" in shown
    assert "at 2.00 GB/s, 50 % hidden by computing" in rate_alone


MEMORY = MemoryCurve(
    device=0,
    at_s=(0.0, 0.1, 0.2, 0.3),
    allocated_bytes=(2**20, 2**30, 2**20, 2**20),
    reserved_bytes=(),
    peak_bytes=2**30,
    peak_s=0.1,
    operators=("aten::empty", "aten::linear"),
    stack=("train.py(7): step",),
)
"""A short peak, a thousand times what is usual."""


def test_the_picture_of_memory_has_its_peak_and_what_ran_there() -> None:
    """However short it is; without one the report says how to record it."""
    shown = html.unescape(memory_chart(MEMORY).picture)
    nothing = msgspec.structs.replace(
        report_of().ranks[0], reasons={"memory_peak_bytes": "recorded without it"}
    )

    assert "1.00 GiB allocated at 100 ms, in aten::empty ← aten::linear, called from" in shown
    assert "Beyond the picture" not in shown
    assert "memory peak: not measured: recorded without it" in trace_text(
        TraceReport(ranks=(nothing,))
    )


def test_kernels_have_a_table() -> None:
    """Calls, time, share, mean, blocks for each multiprocessor, occupancy, tensor cores."""
    (table,) = (
        part
        for part in capture_document(a_full_report())
        if isinstance(part, Table) and part.title.startswith("kernels")
    )

    assert table.rows == (("gemm", "4", "20.0 ms", "50.0 %", "5.00 ms", "0.296", "75 %", "yes"),)


def a_full_report() -> TraceReport:
    """A trace of one rank with something in every table and nearly every row."""
    report = a_report()
    totals = TraceTotals(
        steps=2, step_s=0.101, gpu_busy_fraction=0.61, compute_fraction=0.5, gpu_busy_s=0.061,
        idle_host_bound_fraction=0.3, data_wait_s=0.02, data_wait_exposed_s=0.01, h2d_s=0.003,
        comm_s=0.012, comm_exposed_s=0.011, comm_overlap_fraction=0.08, cpu_op_s=0.05,
    )  # fmt: skip
    many = [
        msgspec.structs.replace(report.ranks[0].top_operators[0], name=f"op_{n}") for n in range(20)
    ]
    rank = msgspec.structs.replace(
        report.ranks[0],
        totals=totals,
        collectives=(Collective(kind="all_reduce", count=4, total_s=0.02, exposed_s=0.015),),
        sync_sites=(SyncSite(call="aten::item", count=2, total_s=0.001, stack=("a.py(1): f",)),),
        top_operators=tuple(many),
        top_kernels=(
            Kernel(
                name="gemm",
                calls=4,
                total_s=0.02,
                fraction=0.5,
                tensor_cores=True,
                blocks_per_sm=0.296296,
                occupancy_fraction=0.75,
            ),
        ),
        memory_peak_bytes=2**30,
        memory=(MEMORY,),
    )
    return diagnosed(msgspec.structs.replace(report, ranks=(rank,)))


def forms(report: TraceReport, folder: Path) -> dict[str, str]:
    """The words of every form."""
    write_capture(a_run(folder), report)
    store, key = Store([folder], lambda: 0.0), "rank0-step000120-3steps.analysis.json"
    tab = json.loads(store.capture("first/trainperf", key))["html"]
    parts = capture_document(report)
    shown = {
        "text": trace_text(report),
        "markdown": re.sub(r"\\(?=[^a-zA-Z0-9\s])|[|*·]", "", as_markdown(parts)),
        "page": re.sub(r"<[^>]*>", " ", as_html(parts)),
        "tab": re.sub(r"<[^>]*>", " ", tab),
    }
    return {form: " ".join(html.unescape(text).split()) for form, text in shown.items()}


def test_every_form_has_the_same_facts_under_the_same_names(tmp_path: Path) -> None:
    """Figures and notes of the step, as many rows of every table, findings and their labels."""
    report = a_full_report()
    parts = capture_document(report)
    grids = [part for part in parts if isinstance(part, Table)]
    findings = [part for part in parts if isinstance(part, FindingView)]

    assert len(grids) >= 6
    assert findings
    for form, words in forms(report, tmp_path).items():
        for part in parts:
            if isinstance(part, Sentence):
                assert part.text in words, form
        for table in grids:
            assert table.title in words
            for row in (table.head, *table.rows):
                cells = [cell.strip() for cell in row if cell.strip()]
                assert " ".join(cells) in words or form == "text"
        for finding in findings:
            for text in (finding.title, *finding.evidence, *(row.text for row in finding.rows)):
                assert text in words
        assert len(set(re.findall(r"op_?\d+", words))) == ROWS
        assert f"{20 - ROWS} more with: trainperf trace" in words

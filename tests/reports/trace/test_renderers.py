"""A trace reads the same in the terminal, in markdown, on the page and in the tab."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.tab import a_report, a_run, write_capture

from trainperf.analysis.diagnosis.of_capture import diagnosed
from trainperf.reports.html.captures import capture_section
from trainperf.reports.trace.tables import ROWS
from trainperf.reports.trace.view import trace_markdown, trace_text, trace_view
from trainperf.tensorboard.data import Store
from trainperf.traces.capture_files import CaptureFacts, CaptureReport
from trainperf.traces.results import Collective, SyncSite, TraceReport, TraceTotals


def a_full_report() -> TraceReport:
    """A trace of one rank with something in every table and nearly every row."""
    report = a_report()
    totals = TraceTotals(
        steps=2, step_s=0.101, gpu_busy_fraction=0.61, compute_fraction=0.5, gpu_busy_s=0.061,
        idle_host_bound_fraction=0.3, data_wait_s=0.02, data_wait_exposed_s=0.01, h2d_s=0.003,
        comm_s=0.012, comm_exposed_s=0.011, comm_overlap_fraction=0.08, cpu_op_s=0.05,
    )  # fmt: skip
    rank = msgspec.structs.replace(
        report.ranks[0],
        totals=totals,
        collectives=(Collective(kind="all_reduce", count=4, total_s=0.02, exposed_s=0.015),),
        sync_sites=(SyncSite(call="aten::item", count=2, total_s=0.001, stack=("a.py(1): f",)),),
        top_cpu_operators=report.ranks[0].top_operators,
    )
    return diagnosed(msgspec.structs.replace(report, ranks=(rank,)))


def in_text(report: TraceReport, _: Path) -> str:
    """The words of the terminal report."""
    return trace_text(report)


def in_markdown(report: TraceReport, _: Path) -> str:
    """The words of the markdown report."""
    return re.sub(r"\\(?=[^a-zA-Z0-9\s])|[|*·]", "", html.unescape(trace_markdown(report)))


def on_the_page(report: TraceReport, _: Path) -> str:
    """The words of the section of a run's page."""
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    facts = CaptureFacts(first_step=120, first_index=120, complete_steps=2)
    page = capture_section(CaptureReport(**fields, capture=facts))
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def in_the_tab(report: TraceReport, folder: Path) -> str:
    """The words that the server sends."""
    write_capture(a_run(folder), report)
    body = Store([folder], lambda: 0.0).capture(
        "first/trainperf", "rank0-step000120-3steps.analysis.json"
    ).body  # fmt: skip
    return " ".join(_texts(json.loads(body)))


RENDERERS = (in_text, in_markdown, on_the_page, in_the_tab)


@pytest.mark.parametrize("rendered", RENDERERS)
def test_every_renderer_has_the_same_facts_under_the_same_names(
    rendered: Callable[[TraceReport, Path], str], tmp_path: Path
) -> None:
    """Figures and notes of the step, tables and all of their cells, findings and their labels."""
    report = a_full_report()
    view = trace_view(report)
    words = " ".join(rendered(report, tmp_path).split())

    (rank,) = view.ranks
    assert len(rank.rows) >= 12
    assert len(rank.tables) == 5
    assert view.findings
    assert view.answer in words
    for row in rank.rows:
        assert row.name in words
        assert row.value in words
        assert row.note in words
    for group in rank.missing:
        assert group.reason in words
    for table in (*view.tables, *rank.tables):
        assert table.title in words
        for row in (table.head, *table.rows):
            assert " ".join(cell for cell in row if cell) in words
    for finding in view.findings:
        for part in (finding.title, finding.gain, *finding.evidence):
            assert part in words
        for line in finding.rows:
            assert f"{line.label} {line.text}" in words.replace(f"{line.label}:", line.label)
    assert all(warning in words for warning in view.warnings)


def test_no_renderer_leaves_rows_out(tmp_path: Path) -> None:
    """All show as many operators, and say how many more there are."""
    report = a_full_report()
    many = [
        msgspec.structs.replace(report.ranks[0].top_operators[0], name=f"op_{n}") for n in range(20)
    ]
    rank = msgspec.structs.replace(report.ranks[0], top_operators=tuple(many))
    report = msgspec.structs.replace(report, ranks=(rank,))
    shown = [
        len(
            set(
                re.findall(
                    r"op_?\d+", rendered(report, tmp_path / rendered.__name__).replace("\\", "")
                )
            )
        )
        for rendered in RENDERERS
    ]

    assert shown == [ROWS] * len(RENDERERS)
    assert all(
        f"{20 - ROWS} more with: trainperf trace"
        in rendered(report, tmp_path / f"b{rendered.__name__}")
        for rendered in RENDERERS
    )


def _texts(data: object) -> list[str]:
    if isinstance(data, str):
        return [data]
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [text for part in parts for text in _texts(part)]

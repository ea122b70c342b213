"""End of a fit: a first answer after the warm-up, and the report after the last step.

Rank 0 writes summary and page and prints the report.  The offline tower is loaded only for that,
when nothing trains any more.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from trainperf.core.formatting.units import confidence_interval, duration, share
from trainperf.core.interleaving import this_participant
from trainperf.core.readings import DATA_WAIT_FRACTION, STEP_S
from trainperf.core.run_directory import REPORT, attempt, has_ended, record_file
from trainperf.meters.fold import Reading
from trainperf.recording.profiling.background_reader import TraceWorker
from trainperf.recording.schedule import comes_true
from trainperf.recording.sinks.loggers import PREFIX, CurveSink, Outputs


WAIT_NS = 5_000_000_000
"""Longest wait for the other ranks on this file system to close their files."""

JOIN_NS = 30_000_000_000
"""Longest wait for traces of several ranks to be read together."""


def first_answer(
    readings: Mapping[str, Reading],
    *,
    written: bool,
    coarse: bool = False,
    whole: str = "fit",
) -> str | None:
    """Step time and data wait in a sentence, so that nobody waits for the end of the fit.

    `None` while there is no steady state.  A reading that nobody asked for is not mentioned, and no
    report is promised where nothing is *written* that it could be made of.  Of a *coarse* recording
    the data wait is a bound.
    """
    step, waited = readings.get(STEP_S), readings.get(DATA_WAIT_FRACTION)
    if step is None or step.value is None:
        return None
    interval = confidence_interval(step.value, step.low, step.high)
    answer = f"trainperf: warm-up over, step time {duration(step.value)}{interval} so far"
    if waited is not None and waited.value is not None:
        answer += f", {'up to ' if coarse else ''}{share(waited.value)} of it data wait"
    if written:
        now = "now with `trainperf report` on the run directory"
        answer += f"; full report when the {whole} ends, or {now}"
    return answer


def close_run(run: Path, *, ranks: int, aloud: bool, outputs: Outputs) -> None:
    """Write `summary.json` and `report.html` once every rank has ended.

    The report is printed if *aloud*.
    Loggers get it as markdown text, and of several ranks the readings of all: live, rank 0 knows
    only its own.

    Raises:
        RunError: The directory holds no run.
        OSError: One of them cannot be written; the report has been printed nevertheless.
    """
    from trainperf.analysis.run.directory import Run  # noqa: PLC0415
    from trainperf.analysis.summarize import save_summary  # noqa: PLC0415
    from trainperf.reports.layout.markdown import as_markdown  # noqa: PLC0415
    from trainperf.reports.run.document import run_document  # noqa: PLC0415
    from trainperf.reports.run.headline import headline  # noqa: PLC0415
    from trainperf.reports.run.page import load_page_data, save  # noqa: PLC0415
    from trainperf.reports.run.text import rendered  # noqa: PLC0415

    if ranks > 1:
        # The others end within moments; those on other machines may never appear here.
        files = [record_file(run, rank, attempt()) for rank in range(1, ranks)]
        comes_true(lambda: all(map(has_ended, files)), WAIT_NS)
        join_captures(run)
    opened = Run.open(run)
    page = load_page_data(opened)
    summary = page.summary
    try:
        save_summary(summary, run)
    finally:  # a disk that is full is no reason to keep the answer back
        if aloud:
            # Not by `print`: Ray Train has one of its own, which shows a line twice.
            sys.stdout.write(f"\n{rendered(summary, sys.stdout)}\n  {opened.address}\n")
            sys.stdout.flush()
    save(page, run)
    step = summary.run.steps if outputs.step is None else outputs.step()
    if summary.run.world_size > 1:
        CurveSink(outputs).readings(step, summary.readings)
    boards = (getattr(logger, "experiment", None) for logger in outputs.loggers)
    for board in (outputs.writer, *boards):
        add_text = getattr(board, "add_text", None)
        if callable(add_text):
            add_text(f"{PREFIX}summary", as_markdown(run_document(summary)), step)
    if outputs.trackers is not None:
        outputs.trackers.publish(headline(summary), run / REPORT)


def note_chip(run: Path, *, finished: bool) -> None:
    """Note what this chip can do; measured if there is time: after an end, or one by `prove`."""
    from trainperf.audit import chip_cache  # noqa: PLC0415

    chip_cache.note_chip(run, measure=finished or this_participant() is not None)


def join_captures(run: Path) -> None:
    """Have the traces read that no rank has, together those of the same steps."""
    from trainperf.traces.capture_files import analysis_file, groups  # noqa: PLC0415

    analyst = TraceWorker(patience_ns=JOIN_NS)
    for traces in groups(run):
        if not analysis_file(traces).exists():
            analyst.send(*traces)
    analyst.finish()

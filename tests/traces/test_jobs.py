"""Which traces of a folder are of one job: those are averaged, others have reports of their own."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.planted import planted_steps
from support.traces import TRACES, needs_traces, write_trace

from trainperf.traces.job_report import reports
from trainperf.traces.jobs import APART_NS, jobs
from trainperf.traces.results import (
    AnalysisOptions,
    RankAnalysis,
    RankCollectives,
    RankTrace,
    TraceStep,
    TraceTotals,
)


FEWER = AnalysisOptions(lanes=False)
ALONE = RankCollectives(spent_ns={}, backward={}, first=None)
NOW_NS = 1_700_000_000 * 10**9


def traced(rank: int | None, began_ns: int = NOW_NS, **about: Any) -> RankAnalysis:
    """A trace of steps 7 to 9 of a job of two ranks."""
    usual = RankTrace(
        file=f"{rank}.json",
        rank=rank,
        world_size=2,
        device="GPU",
        step_source="ProfilerStep",
        steps=tuple(TraceStep(step=step, step_s=0.1) for step in (7, 8, 9)),
        totals=TraceTotals(steps=3, step_s=0.1),
    )
    trace = msgspec.structs.replace(usual, **about)
    return RankAnalysis(trace=trace, collectives=ALONE, began_ns=began_ns)


@pytest.mark.parametrize(
    ("other", "number"),
    [
        (traced(1), 1),
        (traced(1, NOW_NS + APART_NS), 1),
        (traced(1, NOW_NS + APART_NS + 1), 2),
        # The clock of its host counts from another zero.
        (traced(1, 5 * 10**15), 1),
        (traced(1, world_size=4), 2),
        (traced(1, device="another GPU"), 1),
        (traced(1, world_size=None, device="another GPU"), 2),
        (traced(1, 5 * 10**15, device="another GPU"), 2),
        (traced(1, world_size=None, device=None), 1),
        (traced(1, world_size=1), 2),
        (traced(None), 2),
        (traced(0), 2),
        (traced(1, steps=(TraceStep(step=9, step_s=0.1),)), 1),
        (traced(1, steps=(TraceStep(step=10, step_s=0.1),)), 2),
        (traced(1, steps=(TraceStep(step=10, step_s=0.1),), step_source="none"), 1),
    ],
    ids=[
        "another rank", "minutes later", "later still", "a clock of its own", "another size",
        "another device", "of unknown size", "at an unknown time", "cut before it says",
        "a job of one", "no rank", "the same rank", "cut short", "other steps",
        "steps without numbers",
    ],
)  # fmt: skip
def test_what_two_traces_of_one_job_have_in_common(other: RankAnalysis, number: int) -> None:
    """A rank each, one size, steps, and about one time; else one device."""
    assert len(jobs([traced(0), other])) == number


def test_every_unrelated_trace_of_a_folder_has_a_report_of_its_own(tmp_path: Path) -> None:
    """Two ranks of one job and two jobs of one rank; nothing is averaged over them."""
    for rank in (0, 1):
        write_trace(tmp_path / f"a{rank}.json", planted_steps(4), rank=rank, world_size=2)
    for name in ("b.json", "c.json"):
        write_trace(tmp_path / name, planted_steps(2))

    by_job = reports([tmp_path], FEWER)

    assert sorted([trace.file for trace in job.ranks] for job in by_job) == [
        ["a0.json", "a1.json"],
        ["b.json"],
        ["c.json"],
    ]
    assert by_job[0].warnings[0].startswith("4 traces of 3 unrelated jobs")
    assert [job.answer.startswith("On average over 2 ranks") for job in by_job].count(True) == 1


@needs_traces
@pytest.mark.slow
def test_the_real_traces_of_unlike_jobs_are_told_apart() -> None:
    """Ten files of ten jobs; and eight ranks of one."""
    assert len(reports([TRACES], FEWER)) == len(list(TRACES.glob("*.gz")))
    (dlrm,) = reports([TRACES / "dlrm_v100_8ranks"], FEWER)
    assert len(dlrm.ranks) == 8

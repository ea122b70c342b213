"""Several traces together: whose they are, what is missing, and who was waited for."""

from pathlib import Path
from typing import Any

import pytest
from support.planted import planted_steps
from support.traces import MS, Launches, event, step_mark, write_trace

from trainperf.core.errors import TraceError
from trainperf.traces import job_report
from trainperf.traces.job_report import report, trace_files
from trainperf.traces.results import AnalysisOptions


ENGINE = ("1", "2")
FEWER = AnalysisOptions(lanes=False)


def ddp_step(late_ms: int, steps: int = 2) -> list[dict[str, Any]]:
    """Steps of 50 ms with two all-reduces in backward; the second one ends at 40 on all ranks."""
    launches, events = Launches(), []
    for number in range(steps):
        t = number * 50 * MS
        ends = t + 40 * MS
        begins = t + (30 + late_ms) * MS
        engine = "autograd::engine::evaluate_function: X"
        events += [step_mark(number + 1, t, 50 * MS), event(engine, t + MS, 40 * MS, thread=ENGINE)]
        events += launches("nccl_AllReduce_first", t + 2 * MS, t + 2 * MS, MS, on=ENGINE, stream=20)
        events += launches(
            "nccl_AllReduce_last", t + 3 * MS, begins, ends - begins, on=ENGINE, stream=20
        )
    return events


def ranks(path: Path, lateness_ms: list[int], **about: Any) -> Path:
    """A directory with one trace per rank."""
    path.mkdir()
    for rank, late_ms in enumerate(lateness_ms):
        given = {"rank": rank, "world_size": len(lateness_ms), **about}
        write_trace(path / f"rank{rank}.json", ddp_step(late_ms), **given)
    return path


def test_the_rank_that_comes_last_is_named_in_every_step(tmp_path: Path) -> None:
    """It waits least; the others wait for as much as it is late."""
    found = report([ranks(tmp_path / "job", [0, 6, 1])], FEWER)

    assert [(one.step, one.rank, one.point) for one in found.stragglers] == [
        (1, 1, "backward"),
        (2, 1, "backward"),
    ]
    for one in found.stragglers:
        assert one.wait_s == pytest.approx(0.006)
        assert one.transfer_s == pytest.approx(0.001 + 0.004)


@pytest.mark.parametrize(
    ("lateness_ms", "stragglers"),
    [
        # From 80 % of the worst on, the worst first; one of a sixth is not.
        ([0, 5, 6, 1, 0], [(1, 2), (1, 1), (2, 2), (2, 1)]),
        # Ranks that come together wait for nobody: no straggler, no finding.
        ([0, 0], []),
    ],
)
def test_ranks_that_are_about_as_late_are_named(
    tmp_path: Path, lateness_ms: list[int], stragglers: list[tuple[int, int]]
) -> None:
    """Step by step."""
    found = report([ranks(tmp_path / "job", lateness_ms)], FEWER)

    assert [(one.step, one.rank) for one in found.stragglers] == stragglers
    assert stragglers or all(finding.id != "straggler" for finding in found.findings)


def test_what_ranks_wait_for_at_the_first_collective_is_not_counted(tmp_path: Path) -> None:
    """There they wait for what happened before the recording."""
    job = ranks(tmp_path / "job", [0, 2])
    events = ddp_step(0)
    first = next(one for one in events if one["name"] == "nccl_AllReduce_first")
    events[events.index(first)] = {**first, "start_ns": 2 * MS, "duration_ns": 25 * MS}
    write_trace(job / "rank0.json", events, rank=0, world_size=2)

    found = report([job], FEWER)

    assert {one.rank for one in found.stragglers} == {1}
    assert max(one.wait_s for one in found.stragglers) == pytest.approx(0.002)


def test_missing_ranks_are_said(tmp_path: Path) -> None:
    """The one that was waited for may be among them."""
    job = ranks(tmp_path / "job", [0, 3], world_size=4)

    (said,) = report([job], FEWER).warnings

    assert said.startswith("2 of 4 ranks read, without 2, 3")


def test_duplicate_ranks_are_said_and_compared_once(tmp_path: Path) -> None:
    """The first by name counts; both are in the report."""
    job = ranks(tmp_path / "job", [0, 3])
    write_trace(job / "rank1-copy.json", ddp_step(9), rank=1, world_size=2)

    found = report([job], FEWER)

    assert [trace.rank for trace in found.ranks] == [0, 1, 1]
    assert any(said.startswith("2 traces claim rank 1") for said in found.warnings)
    assert max(one.wait_s for one in found.stragglers) == pytest.approx(0.009)


def test_collectives_that_not_all_ranks_record_are_not_compared(tmp_path: Path) -> None:
    """And that is said; the other steps are."""
    job = ranks(tmp_path / "job", [0, 3])
    events = [
        one
        for one in ddp_step(3)
        if not (one["name"] == "nccl_AllReduce_last" and one["start_ns"] > 50 * MS)
    ]
    write_trace(job / "rank1.json", events, rank=1, world_size=2)

    found = report([job], FEWER)

    assert {one.step for one in found.stragglers} == {1}
    assert any("do not record the same collectives" in said for said in found.warnings)


@pytest.mark.parametrize(
    "names",
    [
        [
            "rank{rank}-step000007-3steps.trace.json.gz",
            "rank{rank}-step000017-3steps.trace.json.gz",
        ],
        ["host_1{rank}.1699999999.pt.trace.json", "host_1{rank}.1700000009.pt.trace.json"],
    ],
)
def test_captures_of_one_directory_are_told_apart(names: list[str], tmp_path: Path) -> None:
    """The last one is reported, the others are named: their steps are not the same ones."""
    for late_ms, name in zip([9, 3], names, strict=True):
        for rank in (0, 1):
            path = tmp_path / name.format(rank=rank)
            write_trace(path, ddp_step(late_ms * rank), rank=rank, world_size=2)

    found = report([tmp_path], FEWER)

    assert [trace.file for trace in found.ranks] == [names[1].format(rank=rank) for rank in (0, 1)]
    assert max(one.wait_s for one in found.stragglers) == pytest.approx(0.003)
    assert "2 captures, of which this is the last" in found.warnings[0]


def test_the_traces_of_a_run_directory_are_found(tmp_path: Path) -> None:
    """In its `traces`; analyses beside them are no traces."""
    traces = tmp_path / "traces"
    traces.mkdir()
    write_trace(traces / "rank0-step000007-3steps.trace.json.gz", planted_steps(), rank=0)
    (traces / "rank0-step000007-3steps.analysis.json").write_text("{}")
    (tmp_path / "summary.json").write_text("{}")

    found = report([tmp_path], FEWER)

    assert [trace.totals.steps for trace in found.ranks] == [2]
    assert found.warnings == ()


def test_a_directory_without_traces_is_refused(tmp_path: Path) -> None:
    """With what was looked for."""
    with pytest.raises(TraceError, match=r"no trace in this directory \(\*\.json, \*\.json\.gz\)"):
        report([tmp_path])


def test_a_rank_that_the_file_does_not_say_is_taken_from_its_name(tmp_path: Path) -> None:
    """For reports only: nothing is opened by it."""
    write_trace(tmp_path / "job-rank_3.json", planted_steps())

    assert report([tmp_path / "job-rank_3.json"], FEWER).ranks[0].rank == 3


def test_two_processes_give_the_same_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several large files are read side by side."""
    job = ranks(tmp_path / "job", [0, 6, 1])
    alone = report([job])
    monkeypatch.setattr(job_report, "LARGE_BYTES", 1)

    assert report([job]) == alone


def test_what_is_no_trace_is_left_out_wherever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process or in another one; named, it is refused."""
    job = ranks(tmp_path / "job", [0, 6, 1])
    for name in ("a.json", "z.json"):
        (job / name).write_text('{"a": 1}' + " " * 10_000 * (name == "a.json"))
    monkeypatch.setattr(job_report, "LARGE_BYTES", 1)

    found = report([job], FEWER)

    assert [trace.rank for trace in found.ranks] == [0, 1, 2]
    left_out = [said for said in found.warnings if said.startswith("skipped: ")]
    assert [said.split(": ")[1] for said in left_out] == [str(job / "a.json"), str(job / "z.json")]
    with pytest.raises(TraceError, match=r"/(a|z)\.json: it holds no events"):
        report([job / "a.json", job / "z.json", job / "rank0.json"], FEWER)


def test_of_a_run_of_days_the_capture_of_a_window_is_read(tmp_path: Path) -> None:
    """The last that begins in it; where none does, those that there are."""
    traces = tmp_path / "traces"
    traces.mkdir()
    for step in (5, 41_000, 43_000, 90_000):
        (traces / f"rank0-step{step:06d}-3steps.trace.json.gz").write_bytes(b"")

    files, notes = trace_files([tmp_path], (40_000, 50_000))

    assert [file.path.name for file in files] == ["rank0-step043000-3steps.trace.json.gz"]
    assert "step041000-3steps" in notes[0]
    with pytest.raises(TraceError, match="there are step000005-3steps"):
        trace_files([tmp_path], (6, 40_999))

"""Captures: analysed or not, damaged or not, they are listed; only what was found is handed out."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.tab import TRACE, a_report, a_run, write_capture

from trainperf.core.errors import RunError
from trainperf.tensorboard.captures import MOST_SLICES, picture
from trainperf.tensorboard.data import NotFoundError, Store, View
from trainperf.traces.results import Collective, Operator, RankTrace, Slice, TraceLane, TraceTotals


RUN = "first/trainperf"


def listed(root: Path) -> list[dict[str, Any]]:
    """The captures of the run."""
    captures: list[dict[str, Any]] = json.loads(store(root).run(RUN, View()).body)["captures"]
    return captures


def store(root: Path) -> Store:
    """A store of that log directory."""
    return Store([root], lambda: 0.0)


def test_a_capture_is_its_answer_and_its_trace(tmp_path: Path) -> None:
    """The steps in words, and the size of the file."""
    write_capture(a_run(tmp_path), a_report())

    (capture,) = listed(tmp_path)

    assert capture["title"] == "steps 120–122 · rank 0"
    assert capture["answer"].startswith("the GPU is idle 39 %")
    assert capture["traces"] == [{"file": TRACE, "bytes": 19}]


def test_the_analysis_of_all_ranks_takes_the_place_of_those_of_single_ranks(tmp_path: Path) -> None:
    """Made when the fit has ended, from the same traces."""
    run = a_run(tmp_path)
    other = TRACE.replace("rank0", "rank1")
    write_capture(run, a_report(TRACE))
    write_capture(run, a_report(other), "rank1-step000120-3steps")
    write_capture(run, a_report(TRACE, other), "step000120-3steps")

    captures = listed(tmp_path)

    assert [(c["title"], c["ranks"]) for c in captures] == [("steps 120–122", [0, 1])]


def test_a_trace_without_an_analysis_can_still_be_had(tmp_path: Path) -> None:
    """And how to analyse it is said."""
    run = a_run(tmp_path)
    (run / "traces").mkdir()
    (run / "traces" / TRACE).write_bytes(b"123")

    (capture,) = listed(tmp_path)

    assert capture["problem"] == f"not analysed yet: trainperf trace traces/{TRACE}"
    assert store(tmp_path).trace(RUN, TRACE).read_bytes() == b"123"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"ranks": 3}', b"\xff\xfe", b"null"])
def test_a_damaged_analysis_is_said_and_harms_nothing_else(tmp_path: Path, damage: bytes) -> None:
    """The run and the other captures are shown."""
    run = a_run(tmp_path)
    write_capture(run, a_report())
    (run / "traces" / "step000500-3steps.analysis.json").write_bytes(damage)

    good, bad = listed(tmp_path)

    assert good["problem"] == ""
    assert bad["problem"].startswith("the analysis cannot be read: ")
    with pytest.raises(RunError, match="the analysis cannot be read"):
        store(tmp_path).capture(RUN, bad["key"])


def test_an_analysis_by_an_earlier_version_is_shown(tmp_path: Path) -> None:
    """Its findings had other fields: those of today are shown, from what was measured."""
    run = a_run(tmp_path)
    report = a_report()
    waits = TraceTotals(steps=2, step_s=0.1, data_wait_s=0.02, data_wait_exposed_s=0.01)
    write_capture(run, replace(report, ranks=(replace(report.ranks[0], totals=waits),)))
    key = "rank0-step000120-3steps.analysis.json"
    target = run / "traces" / key
    earlier = {"rule": "x", "what": "waits", "evidence": "2 ms", "gain_at_most": 1.25}
    document = json.loads(target.read_bytes())
    document["findings"] = [{**earlier, "action": "more workers"}]
    target.write_text(json.dumps(document))

    (capture,) = listed(tmp_path)

    assert (capture["key"], capture["problem"]) == (key, "")
    (shown,) = json.loads(store(tmp_path).capture(RUN, key).body)["findings"]
    assert shown["id"] == "data_wait"
    assert shown["gain"].endswith("at most 1.11×")


def test_an_analysis_that_changes_is_read_again(tmp_path: Path) -> None:
    """The numbers on the page are those on the disk."""
    run = a_run(tmp_path)
    write_capture(run, a_report(name="aten::old"))
    tab = store(tmp_path)
    key = "rank0-step000120-3steps.analysis.json"
    before, first = tab.run(RUN, View()), tab.capture(RUN, key)

    write_capture(run, a_report(name="aten::newer"))

    assert b"aten::old" in first.body
    assert b"aten::newer" in tab.capture(RUN, key).body
    assert tab.run(RUN, View()).etag != before.etag


@pytest.mark.parametrize(
    "name",
    ["../steps-rank0.jsonl", "/etc/passwd", "..", "", ".", "traces", "x\0y", "nothing.trace.json"],
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    """Only names that a listing of the folder gave are answered."""
    write_capture(a_run(tmp_path), a_report())
    tab = store(tmp_path)

    with pytest.raises(NotFoundError):
        tab.trace(RUN, name)
    with pytest.raises(NotFoundError):
        tab.capture(RUN, name)


def test_a_file_that_an_analysis_names_is_no_path(tmp_path: Path) -> None:
    """An analysis from somebody else may name anything."""
    run = a_run(tmp_path)
    report = a_report("../../../../etc/passwd")
    (run / "traces").mkdir()
    target = run / "traces" / "step000001-3steps.analysis.json"
    import msgspec

    target.write_bytes(msgspec.json.encode(report))

    (capture,) = listed(tmp_path)

    assert capture["traces"] == []


def test_a_capture_says_what_was_not_measured_and_why(tmp_path: Path) -> None:
    """Absent figures are listed apart, never as 0."""
    write_capture(a_run(tmp_path), a_report())

    answer = store(tmp_path).capture(RUN, "rank0-step000120-3steps.analysis.json")

    (rank,) = json.loads(answer.body)["ranks"]
    values = {row["name"]: row["value"] for row in rank["rows"]}
    assert values["GPU busy"] == "61.0 %"
    missing = {name: group["reason"] for group in rank["missing"] for name in group["names"]}
    assert missing["communication"] == "not applicable: one rank reduces nothing"
    assert missing["H2D copies"] == "not measured"
    assert not set(missing) & set(values)


def test_the_steps_of_a_capture_stand_in_a_table(tmp_path: Path) -> None:
    """With the columns that any step has."""
    write_capture(a_run(tmp_path), a_report())

    answer = store(tmp_path).capture(RUN, "rank0-step000120-3steps.analysis.json")

    table = json.loads(answer.body)["ranks"][0]["tables"][0]
    assert table["head"] == ["number", "step", "GPU busy", "GPU idle"]
    assert table["rows"][1] == ["121", "102 ms", "61.0 ms", "41.0 ms"]


def test_operators_and_collectives_stand_in_tables(tmp_path: Path) -> None:
    """By device time and by CPU time, without the columns that the trace does not fill.

    Beside means of a step these are sums, and say so.
    """
    report = a_report()
    slow = Operator(name="aten::copy_", calls=3, self_cpu_s=0.2, self_device_s=0.001)
    kind = Collective(kind="all_reduce", count=4, total_s=0.02, exposed_s=0.015)
    rank = replace(report.ranks[0], top_cpu_operators=(slow,), collectives=(kind,))
    write_capture(a_run(tmp_path), replace(report, ranks=(rank,)))

    answer = store(tmp_path).capture(RUN, "rank0-step000120-3steps.analysis.json")

    said = json.loads(answer.body)["ranks"][0]
    tables = {table["title"]: table["rows"] for table in said["tables"]}
    assert [row[0] for row in tables["operators by self device time, sum of 2 steps"]] == [
        "aten::addmm"
    ]
    assert [row[0] for row in tables["operators by self CPU time, sum of 2 steps"]] == [
        "aten::copy_"
    ]
    assert tables["collectives, sum of 2 steps"] == [["all_reduce", "4", "20.0 ms", "15.0 ms"]]


def lanes(*slices: Slice) -> RankTrace:
    """A rank with one lane."""
    return RankTrace(
        file="x",
        totals=TraceTotals(steps=1, step_s=1.0),
        lanes=(TraceLane(name="stream 7", slices=slices),),
    )


def test_few_slices_are_drawn_as_they_are() -> None:
    """Names, kinds and ends."""
    rank = lanes(
        Slice(start_s=1.0, end_s=1.5, name="gemm", kind="compute"),
        Slice(start_s=1.5, end_s=3.0, name="idle", kind="idle"),
    )

    drawn = picture(rank, None, None)

    assert (drawn.first_s, drawn.last_s) == (1.0, 3.0)
    (lane,) = drawn.lanes
    assert (lane.start_s, lane.end_s, lane.names) == ([1.0, 1.5], [1.5, 3.0], ["gemm", "idle"])
    assert lane.share == [1.0, 1.0]


def test_short_slices_are_joined_and_look_as_full_as_they_are() -> None:
    """100,000 slices that are busy a quarter of the time are no solid bar, and all are counted."""
    rank = lanes(
        *(
            Slice(start_s=n * 1e-4, end_s=n * 1e-4 + 0.25e-4, name=f"k{n}", kind="compute")
            for n in range(100_000)
        )
    )

    (lane,) = picture(rank, None, None).lanes

    assert len(lane.names) <= MOST_SLICES
    assert sum(int(name.split(" × ")[0]) for name in lane.names) == 100_000
    assert max(lane.share) < 0.26
    busy = sum(
        (end - start) * share
        for start, end, share in zip(lane.start_s, lane.end_s, lane.share, strict=True)
    )
    assert busy == pytest.approx(2.5, rel=1e-3)


def test_a_long_slice_among_short_ones_stays_alone() -> None:
    """With its own name."""
    short = [
        Slice(start_s=n * 1e-3, end_s=n * 1e-3 + 1e-4, name="k", kind="compute")
        for n in range(1000)
    ]
    long = Slice(start_s=1.0, end_s=1.4, name="all_reduce", kind="communication")

    (lane,) = picture(lanes(*short, long), None, None).lanes

    assert lane.names[-1] == "all_reduce"
    assert (lane.start_s[-1], lane.end_s[-1]) == (1.0, 1.4)


def test_slices_of_different_kinds_are_not_joined() -> None:
    """A copy among kernels stays a copy."""
    pieces = [
        Slice(
            start_s=n * 1e-4,
            end_s=n * 1e-4 + 1e-4,
            name="x",
            kind="copy" if n % 500 == 250 else "compute",
        )
        for n in range(10_000)
    ]

    (lane,) = picture(lanes(*pieces), None, None).lanes

    copies = [name for name, kind in zip(lane.names, lane.kinds, strict=True) if kind == "copy"]
    assert copies == ["x"] * 20


def test_a_window_shows_what_reaches_into_it() -> None:
    """In full detail."""
    rank = lanes(
        *(
            Slice(start_s=n * 1e-3, end_s=n * 1e-3 + 1e-4, name=f"k{n}", kind="compute")
            for n in range(1000)
        )
    )

    (lane,) = picture(rank, 0.5, 0.5035).lanes

    assert lane.names == ["k500", "k501", "k502", "k503"]

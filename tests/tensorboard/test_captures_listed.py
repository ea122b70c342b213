"""Captures: analysed or not, damaged or not, they are listed; only what was found is handed out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.tab import TRACE, a_report, a_run, write_capture

from trainperf.core.errors import RunError
from trainperf.tensorboard.captures import MOST_SLICES, picture
from trainperf.tensorboard.data import NotFoundError, Store, View
from trainperf.traces.results import RankTrace, Slice, TraceLane, TraceTotals


RUN = "first/trainperf"


def listed(root: Path) -> list[dict[str, Any]]:
    """The captures of the run."""
    return json.loads(store(root).run(RUN, View()))["captures"]


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
    shown = json.loads(store(tmp_path).capture(RUN, key))["html"]
    assert "at most 1.11×" in shown
    assert "more workers" not in shown


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
    analysis = write_capture(a_run(tmp_path), a_report())
    text = analysis.read_text(encoding="utf-8")
    analysis.write_text(text.replace(TRACE, "../../../../etc/passwd"), encoding="utf-8")

    capture, _ = listed(tmp_path)

    assert capture["traces"] == []


def lanes(*slices: Slice) -> RankTrace:
    """A rank with one lane."""
    return RankTrace(
        file="x",
        totals=TraceTotals(steps=1, step_s=1.0),
        lanes=(TraceLane(name="stream 7", slices=slices),),
    )


def marks(picture: str) -> list[tuple[str, float, float, str]]:
    """Kind, beginning, width (of 1,000) and words of each slice that is drawn."""
    found = re.findall(
        r'<rect class="kind-(\w+)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*><title>([^<]*)',
        picture,
    )
    return [(kind, float(x), float(wide), title) for kind, x, wide, title in found]


def test_few_slices_are_drawn_as_they_are() -> None:
    """Names, kinds and ends."""
    rank = lanes(
        Slice(start_s=1.0, end_s=1.5, name="<gemm>", kind="compute"),
        Slice(start_s=1.5, end_s=3.0, name="idle", kind="idle"),
    )

    assert marks(picture(rank, None, None)) == [
        ("compute", 0.0, 250.0, "&lt;gemm&gt;: 500 ms from 1.00 s"),
        ("idle", 250.0, 750.0, "idle: 1.50 s from 1.50 s"),
    ]
    assert picture(lanes(), None, None) == ""


def test_short_slices_are_joined_and_all_are_counted() -> None:
    """100,000 slices that are busy a quarter of the time; those of another kind stay alone."""
    rank = lanes(
        *(
            Slice(
                start_s=n * 1e-4,
                end_s=n * 1e-4 + 0.25e-4,
                name="x",
                kind="copy" if n == 50_000 else "compute",
            )
            for n in range(100_000)
        ),
        Slice(start_s=10.1, end_s=11.0, name="all_reduce", kind="communication"),
    )
    drawn = marks(picture(rank, None, None))
    joined = [title.split(" × ") for _, _, _, title in drawn if " × " in title]

    assert len(drawn) <= MOST_SLICES
    assert sum(int(number) for number, _ in joined) == 99_999
    assert [title for kind, *_, title in drawn if kind == "copy"] == ["x: 25.0 µs from 5.00 s"]
    assert drawn[-1][3] == "all_reduce: 900 ms from 10.1 s"
    spent = [re.search(r"together ([\d.]+) ms", rest) for _, rest in joined]
    assert sum(float(each[1]) for each in spent if each) == pytest.approx(2500, rel=0.01)


def test_a_window_shows_what_reaches_into_it() -> None:
    """In full detail."""
    rank = lanes(
        *(
            Slice(start_s=n * 1e-3, end_s=n * 1e-3 + 1e-4, name=f"k{n}", kind="compute")
            for n in range(1000)
        )
    )
    drawn = picture(rank, 0.5, 0.5035)

    assert [title.split(":")[0] for *_, title in marks(drawn)] == ["k500", "k501", "k502", "k503"]
    assert 'data-first="0.500000000" data-last="0.503500000"' in drawn

"""The overlap recipe: its helpers keep the data as it is, and every case has its verdict."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from recipes.cases.case import load
from recipes.overlap import cuda_copies, cuda_graphs, cuda_streams
from recipes.overlap.__main__ import main
from recipes.overlap.cpu_threads import in_turn
from recipes.overlap.effort import SMALL
from recipes.overlap.prefetching import Records, Training, ahead
from recipes.overlap.watched import figures, span_lane, timeline
from trainperf.traces.results import Slice, TraceLane


def test_batches_made_on_a_thread_are_the_same_in_the_same_order() -> None:
    """Training on them ends at the same loss."""
    records = Records(8)

    assert len(list(ahead(records))) == len(records) == 6
    assert all(map(torch.equal, records, ahead(records)))
    assert torch.equal(Training().epoch(records), Training().epoch(ahead(records)))


def test_the_thread_is_one_batch_ahead_and_ends_with_a_loop_that_is_left() -> None:
    """More would take the memory of more batches."""
    begun: list[int] = []

    def loader() -> Iterator[int]:
        for number in range(10):
            begun.append(number)
            yield number

    before = set(threading.enumerate())
    batches = ahead(loader())
    assert [next(batches), next(batches)] == [0, 1]
    batches.close()  # type: ignore[attr-defined]  # it is a generator

    assert begun in ([0, 1], [0, 1, 2])
    assert set(threading.enumerate()) <= before


def test_an_error_of_the_loader_is_raised_where_its_batch_was_due() -> None:
    """Batches before it come through."""

    def loader() -> Iterator[int]:
        yield 1
        raise OSError("unreadable")

    batches = ahead(loader())

    assert next(batches) == 1
    with pytest.raises(OSError, match="unreadable"):
        next(batches)


def test_a_lane_shows_what_of_it_is_in_the_step_and_joins_neighbours_of_a_kind() -> None:
    """Times are from the start of the step."""
    step = Slice(start_s=10.0, end_s=20.0, name="step 3", kind="step")
    slices = (
        Slice(start_s=1.0, end_s=2.0, name="before", kind="operator"),
        Slice(start_s=9.0, end_s=11.0, name="across", kind="operator"),
        Slice(start_s=11.001, end_s=12.0, name="next", kind="operator"),
        Slice(start_s=12.0, end_s=13.0, name="copy", kind="copy"),
        Slice(start_s=15.0, end_s=25.0, name="late", kind="operator"),
    )

    lane = span_lane(TraceLane(name="host thread 1", slices=slices), step)

    assert lane.name == "host thread 1"
    assert [label for _, _, label in lane.spans] == ["operator", "copy", "operator"]
    assert [time for span in lane.spans for time in span[:2]] == pytest.approx(
        [0.0, 2.0, 2.0, 1.0, 5.0, 5.0]
    )


def turned(work: Any) -> Any:
    """Parts in turn where there are no streams."""
    return partial(in_turn, work)


def as_it_is(function: Any, example: torch.Tensor) -> Any:
    """A function where nothing can be captured."""
    assert function(example).shape == example.shape
    return function


def test_what_needs_cuda_is_watched_reported_and_decided_elsewhere_with_stand_ins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its path but streams, pinned memory and graphs; each loop has figures and a timeline.

    On a device the same is run with the real ones: `tests/gpu/test_overlap.py`.
    """
    small = tuple((claim, work, (8, 8)) for claim, work, _ in cuda_streams.CLAIMS)
    monkeypatch.setattr(cuda_streams, "CLAIMS", small)
    monkeypatch.setattr(cuda_streams, "OnStreams", turned)
    monkeypatch.setattr(cuda_copies, "WIDTH", 16)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(cuda_graphs, "captured", as_it_is)
    monkeypatch.setattr(cuda_graphs, "_by_mode", as_it_is)
    monkeypatch.setattr(cuda_graphs, "BIG", 16)

    for module, loops, before in (
        (cuda_streams, 6, "streams, small grids: one stream"),
        (cuda_copies, 4, "copies in turn"),
        (cuda_graphs, 5, "small kernels launched"),
    ):
        watched = module.watch(tmp_path, SMALL, "cpu")
        cases = list(module.cases(watched, SMALL, "cpu"))

        names = [loop.name for loop in watched]
        assert len(set(names)) == loops
        assert names[0] == before
        assert [row[0] for row in figures(watched).rows] == names
        assert all(each is not None for each in map(timeline, watched))
        assert all(case.before and case.deciding is not None for case in cases)
        assert not any("decides it" in case.before_note for case in cases)
        assert [row.differs for case in cases for row in case.measured if row.differs] == []


def test_the_recipe_leaves_a_verdict_on_every_claim_its_runs_and_its_page(tmp_path: Path) -> None:
    """In small; what it decides there is worth nothing and not looked at."""
    threads = torch.get_num_threads()

    main(["--size", "small", "--out", str(tmp_path)])

    run = load(tmp_path / "overlap.json")
    undecided = {"needs CUDA"} if not torch.cuda.is_available() else set()
    on_cuda = [case for case in run.cases if "cuda" in " ".join(case.change).lower()]
    assert len(run.cases) == 17
    assert len({case.name for case in run.cases}) == 17
    assert len(on_cuda) >= 6
    assert not undecided or {case.verdict for case in on_cuda} == undecided
    assert all(case.before or case.before_note for case in run.cases)
    assert sum(case.published is not None for case in run.cases) >= 8
    for name in ("two threads", "prefetch on a thread", "DevicePrefetcher on a CPU"):
        (case,) = (case for case in run.cases if case.name == name)
        assert case.deciding is not None
    (table,) = run.tables
    assert {row[0] for row in table.rows} >= {
        "8 parts in turn",
        "8 parts on 2 threads",
        "loading in the loop",
        "loading on a thread",
        "small operators",
    }
    assert not undecided or "need CUDA" in table.notes[-1]
    assert len(run.timelines) == len(table.rows)
    assert {lane.name for each in run.timelines for lane in each.lanes} >= {"steps", "loader"}
    assert list((tmp_path / "runs").rglob("*.json.gz"))
    assert "needs CUDA" in (tmp_path / "overlap.html").read_text(encoding="utf-8") or not undecided
    assert torch.get_num_threads() == threads

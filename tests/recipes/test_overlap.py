"""The overlap recipe: its helpers keep the data as it is, and every case has its verdict."""

import threading
from collections.abc import Iterator
from pathlib import Path

import torch

from recipes.cases.case import load
from recipes.overlap.__main__ import main
from recipes.overlap.prefetching import Records, Training, ahead


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

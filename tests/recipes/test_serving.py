"""The serving recipe: latencies count from the intended arrival, and answers are right."""

import asyncio
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
import torch
from support.own_thread import in_own_thread
from support.virtual_time import run_virtually

from recipes.cases.case import load
from recipes.serving.__main__ import main
from recipes.serving.claims import tail_row
from recipes.serving.load import (
    LoadResult,
    Send,
    open_loop,
    percentile,
    poisson,
    saturated,
    waiting_client,
)
from recipes.serving.model import Served, classifier, requests
from trainperf.remedies import BatcherFullError


ARRIVALS_S = (0.0, 0.25, 0.5)


def server(took_s: float = 1.0, places: int = 10) -> Send:
    """Serves one after the other, a second each; turns away what finds no place."""
    lock, inside = asyncio.Lock(), 0

    async def send(number: int) -> int:
        nonlocal inside
        if inside == places:
            raise BatcherFullError
        inside += 1
        async with lock:
            await asyncio.sleep(took_s)
        inside -= 1
        return number

    return send


async def nothing() -> None:
    """Nothing to finish."""


def test_an_open_loop_sends_on_schedule_whatever_the_server_does() -> None:
    """The second request waits for the first, and that counts."""
    result = run_virtually(open_loop(server(), ARRIVALS_S, nothing))

    assert result.latencies_s == pytest.approx([1.0, 1.75, 2.5])
    assert result.late_s == pytest.approx([0.0, 0.0, 0.0])
    assert result.took_s == pytest.approx(3.0)
    assert result.per_s == pytest.approx(1.0)


def test_a_client_that_waits_sees_none_of_the_queue_that_its_own_waiting_hides() -> None:
    """The same schedule and server: coordinated omission."""
    result = run_virtually(waiting_client(server(), ARRIVALS_S))

    assert result.as_client_s == pytest.approx([1.0, 1.0, 1.0])
    assert result.latencies_s == pytest.approx([1.0, 1.75, 2.5])
    assert result.late_s == pytest.approx([0.0, 0.75, 1.5])


def test_a_request_that_is_turned_away_is_counted_and_has_no_latency() -> None:
    """A queue that refuses would look fast otherwise."""
    result = run_virtually(open_loop(server(places=2), ARRIVALS_S, nothing))

    assert (result.sent, result.refused) == (3, 1)
    assert result.latencies_s == pytest.approx([1.0, 1.75])


def test_a_saturated_server_answers_as_fast_as_it_can() -> None:
    """However many callers there are."""
    per_s = run_virtually(saturated(server(took_s=0.25), callers=4, seconds=10.0))

    assert per_s == pytest.approx(4.0)


def test_poisson_arrivals_have_their_rate_and_the_gaps_of_a_memoryless_process() -> None:
    """The same seed gives the same schedule."""
    arrivals = poisson(100.0, 100.0, seed=1)
    gaps = [late - early for early, late in pairwise(arrivals)]

    assert arrivals == poisson(100.0, 100.0, seed=1)
    assert arrivals != poisson(100.0, 100.0, seed=2)
    assert len(arrivals) == pytest.approx(10_000, rel=0.05)
    # The share of gaps longer than the mean is 1/e.
    assert fmean(gap > 0.01 for gap in gaps) == pytest.approx(0.368, abs=0.03)
    assert len(poisson(0.001, 0.1, seed=1)) == 1


def test_a_percentile_of_fewer_than_two_latencies_is_not_measured() -> None:
    """Neither is it zero."""
    assert percentile([1.0], 99) is None
    assert percentile([float(value) for value in range(101)], 95) == 95.0


def test_a_stall_counts_in_the_p99_of_a_load_and_makes_its_interval_wide() -> None:
    """A block without it may be drawn as well as two with it."""
    steady = LoadResult(sent=3200, latencies_s=[0.5] * 3200)
    stalled = LoadResult(sent=3205, refused=5, latencies_s=[0.5] * 1600 + [4.0] * 64 + [0.5] * 1536)

    usual, slow = (tail_row("p99", load, limit_s=1.0) for load in (steady, stalled))

    assert (usual.value, usual.ratio, usual.low, usual.high) == (0.5, 2.0, 2.0, 2.0)
    assert (slow.value, slow.ratio, slow.low, slow.high) == (4.0, 0.25, 0.25, 2.0)
    assert (slow.rounds, slow.note) == (32, "3,205 requests, 5 refused; rounds are blocks")


def test_a_request_gets_from_a_batch_what_it_would_get_alone() -> None:
    """Padding changes nothing but the order of sums."""
    served, sequences = Served(classifier()), requests(6)

    together = served(sequences)

    assert len({len(sequence) for sequence in sequences}) > 1
    for sequence, scores in zip(sequences, together, strict=True):
        torch.testing.assert_close(served([sequence])[0], scores, rtol=1e-4, atol=1e-5)
    assert served.sizes == [6, *[1] * 6]


def test_the_recipe_leaves_its_cases_its_tables_and_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In small; what it decides there is worth nothing and not looked at."""
    threads = torch.get_num_threads()

    in_own_thread(lambda: main(["--size", "small", "--out", str(tmp_path)]))

    run = load(tmp_path / "serving.json")
    names = [case.name for case in run.cases]
    assert names == ["throughput", "tail", "rare requests", "fixed batches", "coordinated omission"]
    assert all(case.deciding is not None for case in run.cases)
    assert all(case.before_note for case in run.cases)
    assert all(row.rounds is None or row.rounds >= 6 for case in run.cases for row in case.measured)
    (curves,) = run.tables
    ways = {"one by one", "fixed batches", "DynamicBatcher"}
    assert {row[0] for row in curves.rows} == ways
    assert all({line.name for line in plot.lines} == ways for plot in run.plots)
    assert "coordinated omission" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "serving.html").read_text(encoding="utf-8")
    assert torch.get_num_threads() == threads

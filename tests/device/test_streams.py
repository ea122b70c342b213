"""Streams, events, copies and memory behave as those of an asynchronous accelerator."""

import pytest
import torch
from support.device import frontend as threaded
from support.device.plants import (
    Graph,
    counted_synchronisations,
    memory_limit,
    no_synchronisation,
    slow_copies,
    unplant,
    work,
)


LONG_MS = 600_000.0
"""Lasts until the test lets go of the device, however slow this machine is."""


def event(device: torch.device, *, timed: bool = True) -> torch.Event:
    """Return an event behind everything on the current stream."""
    mark = torch.Event(device=device, enable_timing=timed)
    mark.record(torch.accelerator.current_stream(device))
    return mark


def test_queued_work_returns_at_once(device: torch.device) -> None:
    """The host is ahead of the device until it waits."""
    work(LONG_MS)
    assert not torch.accelerator.current_stream(device).query()
    end = event(device)
    assert not end.query()
    unplant()
    end.synchronize()
    assert end.query()
    assert torch.accelerator.current_stream(device).query()


def test_an_event_that_has_not_come_has_no_time(device: torch.device) -> None:
    """Neither has one that was made without timing."""
    begin = event(device)
    work(LONG_MS)
    end = event(device)
    with pytest.raises(RuntimeError, match=r"not ready|must be completed"):
        begin.elapsed_time(end)
    untimed = event(device, timed=False)
    unplant()
    with pytest.raises((RuntimeError, ValueError)):
        begin.elapsed_time(untimed)


def test_a_stream_waits_for_an_event_of_another(device: torch.device) -> None:
    """With `wait_event` it reads what was written, without it what was there before."""
    side = torch.Stream(device=device)
    target = torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    with threaded.stream(side):
        work(LONG_MS)
        target.fill_(1.0)
        written = event(device)
    assert target.tolist() == [0.0] * 4
    torch.accelerator.current_stream(device).wait_event(written)
    after = target.clone()
    unplant()
    assert after.tolist() == [1.0] * 4


def test_memory_that_another_stream_still_reads_is_poisoned_without_record_stream(
    device: torch.device,
) -> None:
    """With `record_stream` it is kept."""
    for recorded in (False, True):
        side = torch.Stream(device=device)
        source = torch.ones(1000, device=device)
        torch.accelerator.synchronize()
        with threaded.stream(side):
            work(LONG_MS)
            copy = source.clone()
        if recorded:
            source.record_stream(side)
        del source
        torch.accelerator.current_stream(device).synchronize()
        unplant()
        assert bool(copy.isnan().all()) is not recorded
        assert bool((copy == 1.0).all()) is recorded


def test_a_copy_from_pinned_memory_returns_at_once(device: torch.device) -> None:
    """One from memory that is not pinned waits, as one without `non_blocking` does."""
    pinned = torch.ones(100_000).pin_memory()
    assert pinned.is_pinned()
    slow_copies(latency_ms=LONG_MS)
    with no_synchronisation():
        arrived = pinned.to(device, non_blocking=True)
        assert not torch.accelerator.current_stream(device).query()
    unplant()
    assert float(arrived.sum()) == 100_000.0
    with counted_synchronisations() as counts:
        pinned.to(device)
        torch.ones(100_000).to(device, non_blocking=True)
    assert counts == {"copy": 1, "pageable copy": 1}


def test_a_copy_to_pinned_memory_is_there_only_behind_its_event(device: torch.device) -> None:
    """Read at once the host's memory has what it had before."""
    target = torch.zeros(4).pin_memory()
    source = torch.ones(4, device=device)
    torch.accelerator.synchronize()
    work(LONG_MS)
    target.copy_(source, non_blocking=True)
    mark = event(device)
    assert target.tolist() == [0.0] * 4
    unplant()
    mark.synchronize()
    assert target.tolist() == [1.0] * 4


def test_each_synchronisation_is_counted_by_its_kind(device: torch.device) -> None:
    """Also those that an operator makes because the host needs its values."""
    values = torch.arange(4.0, device=device)
    with counted_synchronisations() as counts:
        values.sum().item()
        values.nonzero()
        values[values > 1]
        values.cpu()
        event(device).synchronize()
        torch.accelerator.synchronize()
        torch.accelerator.current_stream(device).synchronize()
    assert counts == {
        "item": 1,
        "aten::nonzero": 1,
        "aten::index": 1,
        "copy": 1,
        "event": 1,
        "device": 1,
        "stream": 1,
    }


def test_a_synchronisation_raises_where_none_is_allowed(device: torch.device) -> None:
    """And the work before it is not lost."""
    values = torch.arange(4.0, device=device)
    with no_synchronisation():
        total = values.sum()
        for wait in (total.item, values.nonzero, values.cpu, torch.accelerator.synchronize):
            with pytest.raises(RuntimeError, match="a synchronisation"):
                wait()
    assert total.item() == 6.0


def test_the_allocator_counts_and_runs_full(device: torch.device) -> None:
    """Behind a try with its cache given back."""
    threaded.empty_cache()
    memory_limit(64 << 20)
    before = threaded.memory_stats()
    kept = [torch.empty(4 << 20, device=device) for _ in range(3)]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(16 << 20, device=device)
    stats = threaded.memory_stats()
    used = "allocated_bytes.all.current"
    assert stats[used] - before[used] == sum(each.nbytes for each in kept)
    assert stats["num_ooms"] - before["num_ooms"] == 1
    assert stats["num_alloc_retries"] - before["num_alloc_retries"] == 1
    del kept
    torch.empty(14 << 20, device=device)


def test_a_query_ends_a_capture(device: torch.device) -> None:
    """As on CUDA, and the capture cannot be ended well any more."""
    mark = event(device)
    with (
        pytest.raises(RuntimeError, match="previous error during capture"),
        Graph().capture(),
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
    ):
        mark.query()


def test_a_graph_runs_at_each_replay_and_not_before(device: torch.device) -> None:
    """Nothing is computed while it is captured."""
    total = torch.zeros(2, device=device)
    torch.accelerator.synchronize()
    graph = Graph()
    with graph.capture():
        total.add_(1.0)
    assert total.cpu().tolist() == [0.0] * 2
    for _ in range(3):
        graph.replay()
    assert total.cpu().tolist() == [3.0] * 2

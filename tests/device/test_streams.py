"""Streams, events, copies and memory behave as those of an asynchronous accelerator."""

import threading
import time
from collections.abc import Callable

import pytest
import torch
from support.device import frontend as threaded
from support.device.build import extension
from support.device.plants import (
    Graph,
    counted_synchronisations,
    failing_operator,
    memory_limit,
    no_synchronisation,
    paging,
    recorded_spans,
    slow_copies,
    slow_launches,
    slow_operator,
    slow_stream,
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


def test_a_tensor_comes_back_as_it_went(device: torch.device) -> None:
    """To the device and back."""
    numbers = torch.arange(12.0).view(3, 4)
    assert torch.equal(numbers.to(device).cpu(), numbers)
    assert torch.equal(numbers.to(device).t().cpu(), numbers.t())


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


def test_events_tell_the_time_of_the_device(device: torch.device) -> None:
    """What was planted between two events: all of it, and nothing from outside of them."""
    begun = time.perf_counter()
    begin = event(device)
    work(50.0)
    end = event(device)
    end.synchronize()
    assert 50.0 <= begin.elapsed_time(end) <= (time.perf_counter() - begun) * 1e3


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


def test_freed_memory_is_used_again_in_the_order_of_its_stream(device: torch.device) -> None:
    """Work that is queued keeps its values though the host has freed them."""
    first = torch.ones(1000, device=device)
    address = first.data_ptr()
    work(LONG_MS)
    total = first.sum()
    del first
    second = torch.full((1000,), 2.0, device=device)
    unplant()
    assert second.data_ptr() == address
    assert (float(total), float(second.sum())) == (1000.0, 2000.0)


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


def test_a_little_of_the_hosts_memory_is_staged(device: torch.device) -> None:
    """The host may change it at once, and does not wait."""
    source = torch.ones(4)
    slow_copies(latency_ms=LONG_MS)
    with no_synchronisation():
        arrived = source.to(device, non_blocking=True)
    source.zero_()
    unplant()
    assert arrived.tolist() == [1.0] * 4


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


def test_a_copy_engine_has_a_rate(device: torch.device) -> None:
    """Copies of two streams share it."""
    slow_copies(bytes_per_s=1e6)
    pinned = torch.ones(5000).pin_memory()
    with recorded_spans() as spans:
        for _ in range(2):
            with threaded.stream(torch.Stream(device=device)):
                pinned.to(device, non_blocking=True)
    first, second = sorted(spans, key=lambda span: span.begin_ns)
    assert min(first.ms, second.ms) >= 20.0
    assert second.begin_ns >= first.end_ns


def test_operators_and_streams_last_what_is_planted(device: torch.device) -> None:
    """By the device's own clock."""
    left = torch.ones(4, 4, device=device)
    side = torch.Stream(device=device)
    slow_operator("aten::mm", 20.0)
    slow_stream(side, 5.0)
    with recorded_spans() as spans:
        left @ left
        with threaded.stream(side):
            left + left
            left @ left
    lasted_ms = {(span.name, span.stream != 0): span.ms for span in spans}
    assert lasted_ms["aten::mm", False] >= 20.0
    assert lasted_ms["aten::mm", True] >= 20.0
    assert lasted_ms["aten::add", True] >= 5.0


def test_each_launch_keeps_the_host_busy_as_long_as_is_planted(device: torch.device) -> None:
    """The host computes meanwhile; the time of its thread is not that of others on the machine."""
    values = torch.ones(4, device=device)
    (values + values).cpu()  # what torch imports for the first of them belongs to no launch
    slow_launches(5.0)
    with recorded_spans() as spans:
        begun, computed = time.perf_counter(), time.thread_time()
        for _ in range(20):
            values + values
        lasted_ms = (time.perf_counter() - begun) * 1e3
        computed_ms = (time.thread_time() - computed) * 1e3
    planted_ms = 5.0 * len(spans)
    assert len(spans) == 20
    assert lasted_ms >= planted_ms
    assert 0.02 * planted_ms <= computed_ms <= 1.2 * planted_ms


def test_the_host_waits_where_as_many_launches_are_queued_as_may_be(device: torch.device) -> None:
    """Behind the one that runs, and until one of them begins."""
    runs, may_end = threading.Event(), threading.Event()

    def kernel() -> None:
        runs.set()
        may_end.wait()

    extension().queue_host_function(device.index, "held", kernel)
    runs.wait()
    slow_launches(queue_depth=4)
    threading.Timer(1.0, may_end.set).start()
    for _ in range(4):
        work(0.0)
    assert not may_end.is_set()
    work(0.0)
    assert may_end.is_set()


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


def test_a_failing_kernel_is_heard_where_the_host_looks(device: torch.device) -> None:
    """Not where it was queued, and from then on everywhere."""
    values = torch.ones(4, device=device)
    failing_operator("aten::mul", "an illegal address")
    values * 2
    with pytest.raises(RuntimeError, match="an illegal address"):
        torch.accelerator.synchronize()
    with pytest.raises(RuntimeError, match="an illegal address"):
        values + 1


def test_an_index_out_of_range_is_an_error_of_the_device(device: torch.device) -> None:
    """The kernel sees it, not the call."""
    table = torch.ones(4, 2, device=device)
    torch.nn.functional.embedding(torch.tensor([9], device=device), table)
    with pytest.raises(RuntimeError, match="index out of range"):
        torch.accelerator.synchronize()


def test_two_devices_have_streams_and_memory_of_their_own(device: torch.device) -> None:
    """A tensor goes from one to the other, and no operator takes both."""
    other = torch.device(device.type, 1)
    work(LONG_MS, other)
    assert torch.accelerator.current_stream(device).query()
    assert not torch.accelerator.current_stream(other).query()
    unplant()
    here, there = torch.ones(3, device=device), torch.ones(3, device=other)
    with pytest.raises(RuntimeError, match="same device"):
        here + there
    assert (here.to(other) + there).cpu().tolist() == [2.0] * 3


def test_a_tensor_of_the_host_is_no_argument(device: torch.device) -> None:
    """But for a single number."""
    here = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="same device"):
        here + torch.ones(3)
    assert (here + torch.tensor(2.0)).cpu().tolist() == [3.0] * 3


def test_an_operator_without_a_kernel_raises(device: torch.device) -> None:
    """It never runs on the host in secret."""
    library = torch.library.Library("planted", "DEF")  # type: ignore[no-untyped-call]
    library.define("unknown(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    with pytest.raises(NotImplementedError, match="threaded"):
        torch.ops.planted.unknown(torch.ones(3, device=device))


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


def test_operators_are_slow_while_memory_pages(device: torch.device) -> None:
    """Those that are launched above the limit, and no other."""
    left = torch.ones(4, 4, device=device)
    paging(threaded.memory_allocated() + (8 << 20), 200.0)
    with recorded_spans() as spans:
        left @ left
        kept = torch.empty(3 << 20, device=device)
        left @ left
        del kept
        left @ left
    before, above, behind = (span.ms for span in spans if span.name == "aten::mm")
    assert max(before, behind) < 200.0 <= above


def test_the_statistics_are_those_that_every_accelerator_has(device: torch.device) -> None:
    """By `torch.accelerator` where it has them, and by the device's module."""
    kept = [torch.empty(300 << 10, device=device) for _ in range(3)]
    del kept[1]
    stats = torch.get_device_module(device).memory_stats()
    assert stats["allocated_bytes.all.current"] >= sum(each.nbytes for each in kept)
    assert stats["inactive_split_bytes.all.current"] > 0
    if hasattr(torch.accelerator, "memory_stats"):  # later than torch 2.8
        general = torch.accelerator.memory_stats()
        now = [name for name in general if name.endswith(".current") and name in stats]
        assert now
        assert [general[name] for name in now] == [stats[name] for name in now]


def test_a_query_ends_a_capture(device: torch.device) -> None:
    """As on CUDA, and the capture cannot be ended well any more."""
    mark = event(device)
    with (
        pytest.raises(RuntimeError, match="previous error during capture"),
        Graph().capture(),
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
    ):
        mark.query()


WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda values: values.sum().item(),
    "nonzero": torch.nonzero,
    "copy": torch.Tensor.cpu,
    "pageable copy": lambda values: torch.ones(100_000).to(values.device, non_blocking=True),
    "event": lambda values: event(values.device).synchronize(),
    "stream": lambda values: torch.accelerator.current_stream(values.device).synchronize(),
    "device": lambda values: torch.accelerator.synchronize(values.device),
}
"""Each synchronises, in a way of its own."""


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_synchronisation_ends_a_capture(
    device: torch.device, wait: Callable[[torch.Tensor], object]
) -> None:
    """It raises before it waits, as on CUDA, and the capture cannot be ended well any more.

    The device works as before.
    """
    values = torch.ones(4, device=device)
    with (
        counted_synchronisations() as counts,
        pytest.raises(RuntimeError, match="previous error during capture"),
        Graph().capture(),
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
    ):
        wait(values)
    assert counts == {}
    assert values.tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_a_synchronisation_of_another_thread_ends_a_capture_unless_it_is_its_threads_alone(
    device: torch.device, mode: str
) -> None:
    """That thread is refused in the one mode, and waits in the other."""
    refused: list[RuntimeError] = []

    def wait() -> None:
        try:
            torch.accelerator.synchronize(device)
        except RuntimeError as error:
            refused.append(error)

    graph = Graph()
    try:
        with graph.capture(capture_error_mode=mode):
            thread = threading.Thread(target=wait)
            thread.start()
            thread.join()
        whole = True
    except RuntimeError:
        whole = False
    assert whole is (mode == "thread_local")
    assert bool(refused) is not whole


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

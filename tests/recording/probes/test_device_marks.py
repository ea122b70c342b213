"""Device time from events in the queue: stall, copy, tail, and who runs ahead of whom."""

from typing import ClassVar

import pytest
from support.live import MS, DeviceFit

from trainperf.core.phases import Phase, Tag
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS
from trainperf.meters.fold import Fold, readings
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.device_marks import Mark


class TailColumn(Probe):
    """Makes room for the tail, which only DDP has."""

    name = "tail"
    facts: ClassVar[tuple[str, ...]] = ("tail_ns",)


def host_bound_fraction(fit: DeviceFit) -> float | None:
    """The reading over all steps but the warm-up."""
    info = fit.sink.info
    schema = StepSchema(info.columns, "cuda")
    fold = Fold(METERS)
    fold.observe(StepBlock.from_rows(schema, fit.sink.step_rows))
    return readings([fold], RunInfo(columns=info.columns))["host_bound_fraction"].value


def test_a_loader_hidden_behind_queued_work_stalls_nothing() -> None:
    """The host waited 5 ms a step; the device still had work."""
    fit = DeviceFit()
    fit.device.work(1000)
    for _ in range(20):
        fit.step(fetch_ms=5, device_ms=10)
    records = fit.finish()

    assert {record.facts["data_stall_ns"] for record in records} == {0}
    assert {record.host_ns[Phase.DATA_WAIT] for record in records} == {5 * MS}


def test_the_stall_is_what_the_device_lost() -> None:
    """The loader took 8 ms, the device had 3 ms of work left: it stood still for 5."""
    fit = DeviceFit()
    for _ in range(10):
        fit.fetch(8)
        fit.compute(0, 1.5)
        fit.end_step()
    fit.finish()

    assert fit.facts("data_stall_ns")[1:] == [5 * MS] * 9


@pytest.mark.parametrize(("group", "stalls"), [(1, [3, 1, 4]), (3, [8])])
def test_a_drained_device_stalls_as_long_as_the_host_waits(group: int, stalls: list[int]) -> None:
    """Nothing is queued: all of the wait is stall; those of a group's micro-batches add up."""
    fit = DeviceFit()
    for number, wait in enumerate((3, 1, 4), start=1):
        fit.fetch(wait)
        fit.compute(1, 0.5)
        fit.clock.advance(ms=10)
        fit.end_step(complete=number % group == 0)
    records = fit.finish()

    assert [record.micro_batches for record in records] == [group] * len(stalls)
    assert fit.facts("data_stall_ns") == [stall * MS for stall in stalls]


def test_a_copy_takes_the_devices_time_not_the_hosts() -> None:
    """A non-blocking copy returns at once."""
    fit = DeviceFit()
    for copies in (1, 2):
        fit.fetch()
        for _ in range(copies):
            fit.marks.mark(Mark.COPY_BEGINS)
            fit.device.work(3)
            fit.marks.mark(Mark.COPY_ENDS)
        fit.compute(1, 1)
        fit.end_step()
    fit.finish()

    assert fit.facts("h2d_device_ns") == [3 * MS, 6 * MS]


def test_the_tail_begins_with_the_last_gradient() -> None:
    """Earlier gradients do not count, and the tail ends where backward returns."""
    fit = DeviceFit(probes=[TailColumn()])
    fit.fetch()
    fit.device.work(4)
    fit.marks.mark(Mark.LAST_GRADIENT)
    fit.device.work(6)
    fit.marks.mark(Mark.LAST_GRADIENT)
    fit.device.work(2)
    fit.marks.mark(Mark.BACKWARD_ENDS)
    fit.end_step()
    fit.fetch()
    fit.compute(1, 1)
    fit.end_step()
    fit.finish()

    assert fit.facts("tail_ns") == [2 * MS, None]


@pytest.mark.parametrize(
    ("host_ms", "device_ms", "host_bound"),
    [
        pytest.param(5, 1, 1.0, id="every launch finds the device idle"),
        pytest.param(1, 5, 0.0, id="marks pile up in the queue"),
    ],
)
def test_a_host_that_runs_ahead_is_not_what_bounds(
    host_ms: float, device_ms: float, host_bound: float
) -> None:
    """One that is waited for leads by nothing."""
    fit = DeviceFit()
    for _ in range(40):
        fit.step(host_ms=host_ms, device_ms=device_ms)
    fit.finish()

    leads = [lead or 0 for lead in fit.facts("lead_forward") + fit.facts("lead_backward")]
    assert (max(leads) > 10) if host_bound == 0.0 else set(leads) == {0}
    assert host_bound_fraction(fit) == host_bound


def test_one_mark_ahead_is_still_host_bound() -> None:
    """The device is in the middle of what was queued last, with nothing behind it."""
    fit = DeviceFit()
    for _ in range(40):
        fit.fetch()
        fit.compute(1, 1)  # backward is queued while forward runs
        fit.clock.advance(ms=5)
        fit.end_step()
    fit.finish()

    assert set(fit.facts("lead_backward")) <= {0, 1}
    assert host_bound_fraction(fit) == 1.0


def test_the_lead_of_a_group_is_its_largest() -> None:
    """One micro-batch that ran ahead is enough not to be waited for."""
    fit = DeviceFit()
    for micro, work in enumerate((20, 20, 0)):
        fit.fetch()
        fit.compute(1, work)
        if micro == 1:
            fit.clock.advance(ms=200)
        fit.end_step(complete=micro == 2)
    fit.finish()

    leads = fit.facts("lead_backward")
    assert leads[0] > 1


def test_marks_outside_steps_are_nobodys() -> None:
    """Before the first fetch there is no step to mark."""
    fit = DeviceFit()
    fit.marks.mark(Mark.FETCH_BEGINS)
    fit.step()
    fit.finish()

    assert fit.facts("data_stall_ns") == [0]
    assert fit.device.queries > 0


@pytest.mark.parametrize("most_events", [6, 15])
def test_a_step_whose_marks_were_given_up_has_no_device_time(most_events: int) -> None:
    """Neither zero nor part of the sum: not measured, and counted."""
    fit = DeviceFit(most_events=most_events)
    for _ in range(30):
        for micro in range(3):
            fit.fetch(2)
            fit.marks.mark(Mark.COPY_BEGINS)
            fit.device.work(1)
            fit.marks.mark(Mark.COPY_ENDS)
            fit.compute(1, 0.5)
            fit.clock.advance(ms=10)
            fit.end_step(complete=micro == 2)

    assert len(fit.finish()) == 30
    stalls, copies = set(fit.facts("data_stall_ns")), set(fit.facts("h2d_device_ns"))
    assert stalls - {6 * MS} == {None}
    assert copies - {3 * MS} == {None}
    assert (6 * MS in stalls and 3 * MS in copies) or most_events < 18
    totals = [entry for entry in fit.sink.all_entries if type(entry).__name__ == "Totals"]
    assert totals[-1].dropped == {"device marks": fit.events.dropped}
    assert fit.events.dropped > 0
    assert fit.monitor.guard.faults == {}


def test_a_group_waits_for_the_device_even_when_all_events_are_in_flight() -> None:
    """A pool that is exhausted gives up marks, never the fence: nothing is read too early."""
    fit = DeviceFit(most_events=12, log_every=5)
    fit.device.work(1000)
    for _ in range(30):
        fit.step()
    assert fit.sink.step_rows == []

    fit.finish()

    assert fit.monitor.guard.faults == {}
    assert fit.facts("data_stall_ns") == [0, 0, 0, *[None] * 27]


def test_epochs_without_end_use_no_more_events() -> None:
    """The fetch that brings no batch was marked too; its events go back to the pool."""
    fit = DeviceFit(most_events=40, log_every=1)
    for _ in range(200):
        fit.step(host_ms=1, device_ms=0.1)
        fit.monitor.recorder.boundary()
        fit.marks.mark(Mark.FETCH_BEGINS)
        fit.marks.mark(Mark.FETCH_ENDS)
        fit.monitor.recorder.epoch_ended()
        fit.clock.advance(ms=5)
    records = fit.finish()

    assert fit.events.dropped == 0
    assert {record.facts["data_stall_ns"] for record in records} == {0}
    assert all(record.tags & Tag.FIRST_IN_EPOCH for record in records)

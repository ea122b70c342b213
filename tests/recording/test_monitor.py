"""The object that wires a run: groups, probes, sinks, and what the device still holds."""

from collections.abc import Sequence
from typing import ClassVar
from unittest.mock import Mock

import pytest
from support.live import MS, DeviceFit, HostFit

from trainperf.core.phases import Phase, Tag
from trainperf.core.stats.warmup import WarmupDetector
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import EndMark, GapRecord, RunInfo, Totals
from trainperf.meters import Meter, Scope
from trainperf.recording.monitor import TOTALS_EVERY_NS, Monitor, RunParts
from trainperf.recording.probes.base import Batch, Probe, add
from trainperf.recording.recorder import Draft, Recorder
from trainperf.testing import FakeClock


HOOKS = ("attach", "micro_batch", "close", "seal", "resolve", "detach")
QUESTIONS = ("reasons", "notes", "dropped")


class Counting(Probe):
    """Counts batches; knows at the step's end and when the device has passed."""

    name = "counting"
    facts: ClassVar[tuple[str, ...]] = ("samples", "tokens_effective", "attempts")

    def __init__(self) -> None:
        self.called: list[str] = []

    def attach(self, recorder: Recorder) -> None:
        """Begin."""
        super().attach(recorder)
        self.called.append("attach")

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """One more."""
        if self.recorder.draft is not None:
            add(self.recorder.draft, "samples", 1)

    def close(self, draft: Draft) -> None:
        """The step's host time is known."""
        draft.facts["tokens_effective"] = sum(draft.host_ns)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """The device has passed."""
        for draft in drafts:
            draft.facts["attempts"] = draft.index

    def detach(self) -> None:
        """End."""
        self.called.append("detach")


class Failing(Probe):
    """Raises in one of its hooks."""

    name = "failing"
    facts: ClassVar[tuple[str, ...]] = ("overflows",)
    detached = 0

    def detach(self) -> None:
        """Count."""
        self.detached += 1


def failing_in(hook: str) -> Failing:
    """One that raises there, and has no hook but that and its own."""

    def fails(probe: Failing, *_: object) -> None:
        if hook == "detach":
            Failing.detach(probe)
        raise ValueError(f"in {hook}")

    return type("FailingIn", (Failing,), {hook: fails})()  # type: ignore[no-any-return]


# -- what is written ---------------------------------------------------------------------------


def test_every_step_is_written_once_and_in_order() -> None:
    """With the facts of every hook in the right step."""
    fit = HostFit(probe := Counting(), log_every=7).steps(100).finish().finish()

    assert [record.index for record in fit.sink.records] == list(range(100))
    assert fit.facts("samples") == [1] * 100
    assert fit.facts("tokens_effective") == [record.wall_ns for record in fit.sink.records]
    assert fit.facts("attempts") == list(range(100))
    assert probe.called == ["attach", "detach"], "once: `teardown` follows `on_exception`"


def test_what_is_written_adds_up_to_the_fit() -> None:
    """Steps, gaps, and the end mark that names the total."""
    fit = HostFit()
    fit.clock.advance(ms=30)
    fit.steps(60)
    fit.clock.advance(ms=5)
    fit.finish("KeyError").finish("finished")

    (end,) = fit.entries(EndMark)
    gaps = fit.entries(GapRecord)
    spent = sum(record.wall_ns for record in fit.sink.records)
    assert end == EndMark(reason="KeyError", fit_ns=95 * MS, steps=60)
    assert spent + sum(gap.duration_ns for gap in gaps) == 95 * MS
    assert fit.sink.all_entries[-1] == end


def test_the_header_names_the_columns_of_the_rows() -> None:
    """In the order of the facts, and our own cost is always one."""
    fit = HostFit(Counting(), Failing()).steps(1).finish()

    assert fit.sink.info.columns == (
        "samples",
        "tokens_effective",
        "attempts",
        "overflows",
        "overhead_ns",
    )
    assert len(fit.sink.step_rows[0]) == 12 + 5


def test_steps_are_written_every_so_many_steps() -> None:
    """A flush holds the steps that are closed: the open one comes with the next."""
    fit = HostFit(log_every=10)
    written = []
    for _ in range(25):
        fit.steps(1)
        written.append(len(fit.sink.step_rows))

    assert written == [0] * 10 + [10] * 10 + [20] * 5


def test_totals_are_written_at_most_every_ten_seconds() -> None:
    """And at the end, whenever that is."""
    fit = HostFit(log_every=1)
    fit.steps(10)
    assert len(fit.entries(Totals)) == 1

    fit.clock.advance(ns=TOTALS_EVERY_NS)
    fit.steps(10).finish()

    totals = fit.entries(Totals)
    assert [each.at_step for each in totals] == [1, 10, 19]


def test_a_fit_that_never_started_can_be_finished() -> None:
    """An exception before the first batch."""
    monitor = Monitor(FakeClock())
    monitor.finish("KeyError")

    assert monitor.finished
    assert monitor.guard.faults == {}


# -- tags and facts of our own -----------------------------------------------------------------


def test_warmup_is_tagged_as_it_is_seen() -> None:
    """Causally: what the offline tower reads is what a detector fed step by step said then."""
    fit = HostFit(log_every=3)
    walls = [80.0, 40.0, 20.0, *[10.0] * 40, *[30.0] * 20]
    for wall in walls:
        fit.steps(1, ms=wall)
    fit.finish()

    detector = WarmupDetector()
    expected = [detector.is_warmup(r.wall_ns, r.tags & ~Tag.WARMUP) for r in fit.sink.records]
    found = [bool(record.tags & Tag.WARMUP) for record in fit.sink.records]
    assert found == expected
    assert found.index(False) >= 12
    assert not any(found[found.index(False) :])


def test_our_own_cost_is_what_the_hooks_took() -> None:
    """On a clock that stands still, a probe that takes 2 ms a batch is all there is."""

    class Slow(Counting):
        def micro_batch(self, batch: Batch, loss: object) -> None:
            fit.clock.advance(ms=2)

    fit = HostFit(Slow())
    fit.steps(20).finish()

    assert fit.facts("overhead_ns") == [2 * MS] * 20


def test_switches_cost_what_was_calibrated() -> None:
    """A clock that takes 10 ns to read: two readings a bracket, and those of the hooks."""
    fit = HostFit(tick_ns=10)
    fit.steps(3)
    with_more = 4
    for _ in range(with_more):
        fit.monitor.recorder.enter(Phase.CALLBACKS)
        fit.monitor.recorder.leave()
    fit.steps(2).finish()

    costs = fit.facts("overhead_ns")
    assert costs[1] == costs[3]
    assert costs[2] == costs[1] + 2 * 10 * with_more


# -- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", [*HOOKS, *QUESTIONS])
def test_a_probe_that_fails_is_alone(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """In whichever hook: training goes on, the others' facts stay right, and the totals say why."""
    fit = HostFit(failing := failing_in(hook), counting := Counting(), log_every=5)
    fit.steps(40).finish()

    assert fit.facts("samples") == [1] * 40
    assert fit.facts("attempts") == list(range(40))
    assert fit.facts("overflows") == [None] * 40
    assert counting.called[-1] == "detach"
    assert failing.detached == 1
    assert list(fit.monitor.guard.faults.values()) == [f"ValueError: in {hook}"]
    assert sum("ValueError" in record.getMessage() for record in caplog.records) == 1
    assert fit.entries(EndMark)
    assert "failing" in fit.totals.faults
    assert f"switched off after an error (ValueError: in {hook})" in fit.totals.reasons["overflows"]
    assert "samples" not in fit.totals.reasons


def test_a_meter_that_fails_stops_the_showing_only() -> None:
    """A meter of the user's own: records are written all the same."""

    class Wrong(Meter):
        name, unit, scope = "wrong", "1", Scope.ALL

        def observe(self, block: StepBlock) -> None:
            raise ZeroDivisionError

    parts = RunParts(info=RunInfo(), meters=[Wrong()])
    fit = HostFit(Counting(), parts=parts, log_every=5).steps(40).finish()

    assert len(fit.sink.records) == 40
    assert fit.sink.shown == []
    assert list(fit.monitor.guard.faults) == ["readings"]


def test_a_first_answer_that_cannot_be_printed_stops_nothing() -> None:
    """A closed terminal is no reason to stop measuring."""
    asked = []

    def answer(readings: object) -> None:
        asked.append(readings)
        raise BrokenPipeError

    fit = (
        HostFit(parts=RunParts(info=RunInfo(), first_answer=answer), log_every=5)
        .steps(100)
        .finish()
    )

    assert len(asked) == 1
    assert len(fit.sink.records) == 100
    assert len(fit.sink.shown) > 5


def test_after_a_fault_in_writing_nothing_piles_up() -> None:
    """The loop goes on for days: what nobody will write is not kept."""
    fit = HostFit(Counting(), log_every=5).steps(20)
    written = len(fit.sink.step_rows)
    fit.monitor.guard.fault(Monitor.part, ValueError("in the middle of a flush"))
    fit.steps(1000)

    assert len(fit.monitor.recorder.closed) <= 50
    fit.finish()
    assert len(fit.sink.step_rows) < written + 60
    assert fit.entries(EndMark)


def test_totals_that_fail_are_written_without_what_failed() -> None:
    """The adapter's part of them is missing; faults and drops are there."""
    fit = (
        HostFit(
            failing_in("close"),
            parts=RunParts(info=RunInfo(), totals=Mock(side_effect=ValueError("no totals"))),
        )
        .steps(9)
        .finish()
    )

    assert "ValueError: no totals" in fit.totals.faults.values()
    assert "failing" in fit.totals.faults


# -- an asynchronous device --------------------------------------------------------------------


def test_a_device_that_lags_delays_the_rows_and_nothing_else() -> None:
    """Nobody waits for it: at the end it is asked until it has come there."""
    fit = DeviceFit(log_every=10)
    fit.device.work(10_000)
    for _ in range(95):
        fit.step(device_ms=10)
    assert fit.sink.step_rows == []
    assert fit.device.synchronizations == 0

    fit.clock.advance(ms=11_000)
    for _ in range(11):
        fit.step(device_ms=10)
    shown = len(fit.sink.step_rows)
    assert 0 < shown < 106
    assert fit.device.synchronizations == 0

    records = fit.finish()

    assert [record.index for record in records] == list(range(106))
    assert fit.device.synchronizations == 0
    assert set(fit.facts("data_stall_ns")) == {0}


def test_gaps_keep_their_place_between_the_rows() -> None:
    """They travel with their group."""
    fit = DeviceFit(log_every=5)
    fit.device.work(1000)
    for _ in range(4):
        for _ in range(5):
            fit.step()
        fit.monitor.recorder.epoch_ended()
        fit.clock.advance(ms=1)
    fit.finish()

    gaps = [entry for entry in fit.sink.all_entries if isinstance(entry, GapRecord)]
    assert [gap.after_step for gap in gaps] == [-1, 4, 9, 14, 19, 19]
    assert sum(gap.duration_ns for gap in gaps if gap.gap == "epoch_boundary") == 4 * MS


def test_after_an_error_of_the_device_the_hosts_times_are_written() -> None:
    """The user's own error is what they see, not ours."""
    fit = DeviceFit(log_every=10)
    for _ in range(27):
        fit.step()
    fit.device.broken = True
    records = fit.finish()

    assert [record.index for record in records] == list(range(27))
    assert fit.facts("data_stall_ns")[25:] == [None, None]
    assert {record.host_ns[Phase.FORWARD] for record in records} == {MS // 10}
    assert fit.sink.all_entries[-1].__class__ is EndMark


class Dear(Probe):
    """Takes 7 ms to sample, as reading a grown heap does."""

    name = "dear"
    facts: ClassVar[tuple[str, ...]] = ("owned_bytes",)

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.times = 0

    def sample(self, draft: Draft) -> None:
        """Once more."""
        self.times += 1
        self._clock.advance(ms=7)


def test_samples_take_a_thousandth_of_the_time_by_what_they_cost() -> None:
    """A minute of steps of 10 ms: one in 7 s, and one of the last step."""
    fit = HostFit()
    dear = Dear(fit.clock)
    fit.monitor.start(RunParts(info=RunInfo(), probes=[dear]))
    fit.steps(6_000, ms=10).finish()

    assert dear.times == 10


class Misnaming(Probe):
    """Feeds a fact under a name that it has not declared."""

    name = "misnaming"
    facts: ClassVar[tuple[str, ...]] = ("queue_wait_ns",)

    def close(self, draft: Draft) -> None:
        """Write it."""
        draft.facts["queue_wait"] = 5


def test_a_fact_that_no_probe_declares_is_not_written_and_said() -> None:
    """The rows keep their columns."""
    fit = HostFit(Misnaming()).steps(3).finish()

    assert fit.facts("queue_wait_ns") == [None] * 3
    assert "no probe has it" in fit.monitor.guard.faults["fact queue_wait"]

"""The object that wires a run: recorder, probes, guard, window and sinks.

Adapters tell it what happens in a loop; it never touches a framework.  Steps are finished in
groups: when one is due, every probe starts copying what the device holds, a fence is put into the
device's queue, and the group is written once the fence has been reached, which nobody waits for.
"""

import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from weakref import WeakSet

import msgspec

from trainperf.core.loop_kind import INFERENCE
from trainperf.core.machine.clocks import HostClock, TimingEvent, monotonic_ns
from trainperf.core.phases import DISQUALIFYING, Tag
from trainperf.core.stats.warmup import WarmupDetector
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema
from trainperf.core.steps.records import FACTS, FINISHED, EndMark, GapRecord, Row, RunInfo, Totals
from trainperf.meters import METERS, Meter
from trainperf.meters.fold import Reading
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.guard import Guard, R
from trainperf.recording.live_readings import READINGS, LiveMeters, OwnFacts, switched_off
from trainperf.recording.probes.base import Batch, Probe, count, overriding, scalars, texts
from trainperf.recording.process_objects import at_fork
from trainperf.recording.recorder import Draft, Recorder
from trainperf.recording.schedule import CostLimit, FlushSchedule, comes_true
from trainperf.recording.sinks.base import Sink
from trainperf.recording.timeline import calibrate


TOTALS_EVERY_NS = 10_000_000_000
SHOW_SHARE = 5e-4
"""Of the time, for showing readings while training goes on."""

PATIENCE_NS = 10_000_000_000
"""Longest wait for the device to finish what is queued, at the end of a fit or for a checkpoint."""

LITTLE_PATIENCE_NS = 2_000_000_000
"""The same after an error: the user wants to see it."""

_POLL_S = 0.001
_DEVICE = "device clock"


@dataclass(slots=True, kw_only=True)
class RunParts:
    """What a run is made of, decided by the adapter once model and optimizers exist."""

    info: RunInfo
    """Everything about the run except its columns."""
    probes: Sequence[Probe] = ()
    sinks: Sequence[Sink] = ()
    device: DeviceClock | None = None
    log_every: int = 50
    totals: Callable[[], Totals] | None = None
    """Completes the cumulative facts, e.g. with the time of each user hook."""
    first_answer: Callable[[dict[str, Reading]], bool] | None = None
    """Called with readings until it has had those after the warm-up."""
    meters: Sequence[Meter] = field(default=METERS)
    own_meters: Sequence[Meter] = ()
    """The user's."""


@dataclass(slots=True)
class _Group:
    """Steps and gaps on their way to the sinks."""

    drafts: list[Draft]
    gaps: list[GapRecord]
    fences: list[TimingEvent]
    """Of the device clock, behind all marks."""
    copies: list[TimingEvent]
    """Of the probes, behind the values that they have read back."""
    going_on: Sequence[Draft]
    """Steps that get the facts known by then, and are not written."""


class Monitor:
    """One fit on one rank.  The fit begins when this is made."""

    part = "monitor"
    under_way: ClassVar["WeakSet[Monitor]"] = WeakSet()
    """Those of this process whose fit is being measured."""
    starts: ClassVar[int] = 0
    """How many trainings were begun to be measured in this process."""

    def __init__(self, clock: HostClock = monotonic_ns) -> None:
        self.guard = Guard()
        self.recorder = Recorder(clock)
        self._clock = clock
        self._warmup = WarmupDetector()
        self._groups: deque[_Group] = deque()
        self._unfolded: list[Row] = []
        """Steps written that no meter has observed."""
        self._flush: Callable[[], object] = self.guard.wrap(self.part, self.flush)
        self.guard.when_faulty(self.part, self._give_up)
        self.guard.when_faulty(_DEVICE, self._lose_device)
        self._sample_ns = 0
        """Host time from which on a sample is due."""
        self._totals_due = CostLimit(least_ns=TOTALS_EVERY_NS)
        self._show_limit = CostLimit(SHOW_SHARE)
        self.switch_ns = 0.0
        """What a switch between phases costs, as the recorder counts them."""
        self._sums: Counter[str] = Counter()
        """Over steady steps, of what has no column."""
        self.progress: dict[str, int] = {}
        """Steps, samples and effective tokens written so far, this rank."""
        self.started = self.finished = False
        self._wire(RunParts(info=RunInfo()), ())

    def start(self, parts: RunParts) -> None:
        """Attach the probes and write the header."""
        probes = [probe for probe in parts.probes if probe.name not in self.guard.faults]
        fed = dict.fromkeys(["overhead_ns", *(fact for probe in probes for fact in probe.facts)])
        columns = (*(n for n in FACTS if n in fed), *(n for n in fed if n not in FACTS))
        counts = {fact for probe in probes for fact in probe.counts} | {"overhead_ns"}
        self.recorder.set_columns(columns, counts)
        parts.info = msgspec.structs.replace(parts.info, columns=columns)
        self.switch_ns = calibrate(self._clock)
        for probe in probes:
            probe.shield = partial(self.guard.wrap, probe.name)
            self.guard.wrap(probe.name, probe.attach)(self.recorder)
        self._wire(parts, probes)
        self._flush_schedule.done(self._clock(), 0)
        self.started = True
        self.under_way.add(self)
        Monitor.starts += parts.info.config.get("loop") != INFERENCE.name
        self._tell("begin", self._parts.info)

    def _wire(self, parts: RunParts, probes: Sequence[Probe]) -> None:
        """Have the parts called where they belong."""
        guard, self._parts = self.guard, parts
        self._device = parts.device
        self._schema = StepSchema(parts.info.columns, parts.info.device)
        self._meters = LiveMeters(parts.meters, parts.own_meters, guard)
        self._own_facts = OwnFacts(probes, parts.info.columns, guard)
        self._has_readers = bool(parts.own_meters) or any(
            type(sink).readings is not Sink.readings for sink in parts.sinks
        )
        self._flush_schedule = FlushSchedule(parts.log_every)
        self._samples = [
            (
                CostLimit(probe.share, probe.least_ns, probe.interrupted),
                guard.wrap(probe.name, probe.sample),
            )
            for probe in probes
            if overriding([probe], "sample")
        ]
        self._hear: Callable[[Batch, object], None] = guard.each(overriding(probes, "micro_batch"))
        self._resolve: Callable[[Sequence[Draft]], None] = guard.each(overriding(probes, "resolve"))
        closers = overriding(probes, "close")
        self.recorder.on_close = guard.each(closers) if closers else None
        self.recorder.on_gap = guard.each(overriding(probes, "gap"))

    def micro_batch(
        self, batch: Batch, loss: object, *, complete: bool, begun: int | None = None
    ) -> None:
        """A forward-backward pass is over.  Runs every micro-batch.

        *begun* is the host time from which on the loop waits for us, by default now.
        """
        begun = self._clock() if begun is None else begun
        self._hear(batch, loss)
        recorder = self.recorder
        draft = recorder.draft
        if draft is None or not self.started:
            return
        draft.micro_batches += 1
        if complete:
            draft.complete = True
            if begun >= self._sample_ns:
                self._sample(draft, begun)
            crowded = self._device is not None and self._device.crowded
            if crowded or self._flush_schedule.due(len(recorder.closed), begun):
                self._flush()
        facts = draft.facts
        facts["overhead_ns"] = (facts["overhead_ns"] or 0) + self._clock() - begun

    def _sample(self, draft: Draft, now: int) -> None:
        """Take the samples that are due after this step, each as often as its own cost allows."""
        for limit, sample in self._samples:
            if now >= limit.next_ns:
                begun = self._clock()
                sample(draft)
                limit.done(now, self._clock() - begun)  # from now: they come due together
        self._sample_ns = min([limit.next_ns for limit, _ in self._samples], default=sys.maxsize)

    def flush(self) -> None:
        """Seal the steps that are closed, and write the groups the device has passed."""
        if self._device is not None and self._device.device.is_capturing():
            return  # after one of the next steps
        begun = self._clock()
        self._seal_group()
        self._write_passed()
        self.guard.run(READINGS, self._show)
        if self._totals_due.due(begun):
            self._tell("entries", [self.totals()])
        self._tell("flush")
        now = self._clock()
        self._flush_schedule.done(now, now - begun)

    def finish(self, reason: str) -> None:
        """End the fit: waits for the device, for a while.  Safe to call twice."""
        if self.finished:
            return
        self.finished = True
        self.under_way.discard(self)
        last = [draft for draft in (*self.recorder.closed, self.recorder.draft) if draft][-1:]
        for draft in last:  # the last step is always sampled
            for _, sample in self._samples:
                sample(draft)
        self._seal_group()
        fit_ns = self.recorder.end()
        patience_ns = PATIENCE_NS if reason == FINISHED else LITTLE_PATIENCE_NS
        self.guard.run("last steps", partial(self._last, patience_ns))
        for probe in self._parts.probes:
            if not (probe.reads_device and _DEVICE in self.guard.faults):  # a wait has no end
                self.guard.last(probe.name, partial(probe.ended, reason))
            self.guard.last(probe.name, probe.detach)
        end = EndMark(reason=reason, fit_ns=fit_ns, steps=self.recorder.index + 1)
        self._tell("entries", [self.totals(), end])
        for sink in self._parts.sinks:
            self.guard.last(sink.name, sink.close)

    @classmethod
    def forked(cls) -> None:
        """This is a child of the process that measures: it writes nothing, not even an end."""
        for monitor in cls.under_way:
            monitor.finished, monitor._parts.sinks = True, ()  # noqa: SLF001 our own
        cls.under_way.clear()

    def settled_progress(self) -> dict[str, int]:
        """`progress` with every complete step in it, for a checkpoint.

        Waits for the device, as the checkpoint is about to.
        """
        draft = self.recorder.draft
        complete = [draft] if draft is not None and self.recorder.awaits_batch else []
        self.guard.run(self.part, lambda: self.drain(complete))
        waiting = [draft for group in self._groups for draft in group.drafts]
        return counted(self.progress, [*waiting, *complete])

    def totals(self) -> Totals:
        """The cumulative facts now."""
        self._fold()
        ask, probes = self.guard.run, self._parts.probes
        base = (self._parts.totals and ask("totals", self._parts.totals)) or Totals(at_step=0)
        dropped = {probe.name: ask(probe.name, partial(count, probe.dropped)) for probe in probes}
        return msgspec.structs.replace(
            base,
            at_step=self.recorder.index,
            own=dict(self._sums),
            dropped={name: number for name, number in dropped.items() if number},
            notes={**base.notes, **self._of_probes("notes", texts)},
            config={**base.config, **self._of_probes("config", scalars)},
            reasons={**base.reasons, **self._reasons()},
            readings=self._meters.fit(self._info_now()),
            faults=dict(self.guard.faults),
        )

    def _seal_group(self, going_on: Sequence[Draft] = ()) -> None:
        run, device = self.guard.run, self._device
        copies = [
            event
            for probe in self._parts.probes
            for event in run(probe.name, partial(sealed, probe)) or ()
        ]
        gone = self.part in self.guard.faults  # what comes after it is a part of a run only
        drafts, gaps = ([], []) if gone else self.recorder.take()
        fences = (device and run(_DEVICE, device.fences)) or []
        self._groups.append(_Group(drafts, gaps, fences, copies, going_on))

    def _last(self, patience_ns: int) -> None:
        if not self.drain(patience_ns=patience_ns):
            stuck = RuntimeError(
                f"the device was still at work {patience_ns / 1e9:.0f} s after the last step, and "
                "was not waited for any longer: what the last steps took there is not known"
            )
            self.guard.fault(_DEVICE, stuck)
            self._write_passed()  # the rest, without what it has not told
        self.guard.run(READINGS, self._show)

    def drain(self, going_on: Sequence[Draft] = (), patience_ns: int = PATIENCE_NS) -> bool:
        """Seal what there is, wait for the device, and write; whether it came to the end in time.

        Steps that are *going_on* get the facts known by now, and are not written.  Where the device
        is stuck, what it has not passed is not written yet.
        """
        self._seal_group(going_on)
        groups = self._groups
        # Asked: what hangs there, such as a collective whose other rank is gone, would hang here.
        reached = comes_true(
            lambda: all(map(self._passed, groups)), patience_ns, _POLL_S, self._clock
        )
        if not reached:  # they may be over by the time that this is written
            groups[-1].going_on = ()
        self._write_passed()
        return reached

    def _write_passed(self) -> None:
        while self._groups and self._passed(self._groups[0]):
            self._write(self._groups.popleft())

    def _passed(self, group: _Group) -> bool:
        """Whether the device has; after an error of it nothing there is waited for."""
        ask = self.guard.run
        return all(
            ask(_DEVICE, event.query) is not False for event in (*group.fences, *group.copies)
        )

    def _give_up(self) -> None:
        """After a fault in the middle of writing nothing more is written, or kept."""
        self._flush = self.recorder.take
        self.recorder.abandon()

    def _lose_device(self) -> None:
        """After an error of the device what is still on it is not read; host times are."""
        self._device = None
        for probe in self._parts.probes:
            if probe.reads_device:
                self.guard.faults.setdefault(probe.name, self.guard.faults[_DEVICE])

    def _write(self, group: _Group) -> None:
        self._resolve([*group.drafts, *group.going_on])
        self._own_facts.settle(group.drafts)
        if group.fences and self._device is not None:
            self.guard.run(_DEVICE, partial(self._device.release, group.fences))
        rows = tuple(map(self._row, group.drafts))  # a sink may not change it
        if rows:
            self._tell("rows", rows)
            self.progress = counted(self.progress, group.drafts)
            if self._has_readers or self._parts.first_answer is not None:
                self._unfolded += rows
                if len(self._unfolded) >= BLOCK_STEPS:
                    self._fold()
        if group.gaps:
            self._tell("entries", list(group.gaps))

    def _row(self, draft: Draft) -> Row:
        """The step as it is written: core columns and facts."""
        facts, warmup = draft.facts, self._warmup
        own_ns = (facts["overhead_ns"] or 0) + draft.switches * self.switch_ns
        facts["overhead_ns"] = max(0, round(own_ns))
        if not warmup.ended and warmup.is_warmup(sum(draft.host_ns), draft.tags):
            draft.tags |= Tag.WARMUP
        if not draft.tags & DISQUALIFYING:
            self._sums["steps"] += 1
            if draft.own:
                self._sums.update(draft.own)
        core = (draft.index, draft.start_ns, int(draft.tags), draft.micro_batches)
        return (*core, *draft.host_ns, *facts.values())

    def _show(self) -> None:
        steps, begun = self._meters.steps + len(self._unfolded), self._clock()
        waiting = steps < self._parts.log_every or begun < self._show_limit.next_ns
        if not steps or (waiting and not self.finished):
            return
        self._fold()
        readings = self._meters.take(self._info_now())
        if READINGS in self.guard.faults:
            return
        self._tell("readings", self.recorder.index, readings)
        answer = self._parts.first_answer
        if (
            answer
            and not self.finished
            and self.guard.run("first answer", partial(answer, readings))
        ):
            self._parts.first_answer = None
        now = self._clock()
        self._show_limit.done(now, now - begun)

    def _fold(self) -> None:
        """Show the meters what was written: columns cost by the call, not by the step."""
        rows, self._unfolded = self._unfolded, []
        if not rows:
            return
        self._meters.observe(StepBlock.from_rows(self._schema, rows))

    def _info_now(self) -> RunInfo:
        info = self._parts.info
        return msgspec.structs.replace(info, reasons={**info.reasons, **self._reasons()})

    def _reasons(self) -> dict[str, str]:
        """Why facts are missing, as far as the probes know by now."""
        reasons = self._of_probes("reasons", texts)
        for probe in self._parts.probes:
            if probe.name in self.guard.faults:
                why = switched_off(probe.name, self.guard.faults[probe.name])
                reasons |= dict.fromkeys(probe.facts, why)
        return reasons

    def _of_probes(self, hook: str, plain: Callable[[Any], dict[str, R]]) -> dict[str, R]:
        """What the probes say under one of their hooks, made plain."""
        answers: dict[str, R] = {}
        for probe in self._parts.probes:
            answers |= self.guard.run(probe.name, partial(plain, getattr(probe, hook))) or {}
        return answers

    def _tell(self, what: str, *args: object) -> None:
        for sink in self._parts.sinks:
            self.guard.wrap(sink.name, getattr(sink, what))(*args)


at_fork(after_in_child=Monitor.forked)


def sealed(probe: Probe) -> tuple[TimingEvent, ...]:
    """End the group for a probe; a user's own may return nothing, or anything."""
    return tuple(probe.seal() or ())


def counted(progress: dict[str, int], steps: Sequence[Draft]) -> dict[str, int]:
    """*progress* and these steps, for a checkpoint; a fact that none of them has adds no total."""
    total = {**progress, "steps": progress.get("steps", 0) + len(steps)}
    for fact in ("samples", "tokens_effective"):
        amounts = [amount for step in steps if (amount := step.facts.get(fact)) is not None]
        if amounts:
            total[fact] = total.get(fact, 0) + int(sum(amounts))
    return total

"""Captures of one rank: the probe that drives a tracer from step boundaries.

Training steps only.  Between captures nothing listens to the phases, and a boundary costs two
comparisons.  The profiler's own time, from starting it to its file, is a gap and in no step.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from trainperf.core.phases import LABELS, Gap, Phase, Tag
from trainperf.core.run_directory import TRACES, trace_stem
from trainperf.recording.guard import Guard, log
from trainperf.recording.probes.base import Probe
from trainperf.recording.profiling.background_reader import PATIENCE_NS, TraceWorker
from trainperf.recording.profiling.capture_requests import CaptureRequest
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile
from trainperf.recording.profiling.tracer import STEP_MARK, Marks, Tracer, write_trace
from trainperf.recording.recorder import Draft
from trainperf.recording.schedule import CostLimit
from trainperf.recording.timeline import DirectBracket


ATTEMPTS = 3
"""How often a capture is begun anew because validation came before its first step was complete."""

LOOK_EVERY_NS = 1_000_000_000
"""Between two looks at the request, which may be slow on a shared disk, and at the reader."""

_NAMES = tuple(f"trainperf::{label}" for label in LABELS)


def capture_probe(
    profile: ScheduledProfile, place: CaptureRank, guard: Guard
) -> "ProfilerProbe | None":
    """The probe that captures; `None` on a rank that shall not, or without a run directory."""
    if min(profile.ranks) >= place.world_size:
        log.warning("trainperf: no captures: %s", profile.beyond(place.world_size))
    elif place.rank in profile.ranks and place.run is None:
        log.warning("trainperf: no captures: there is no run directory to write them to")
    elif place.rank in profile.ranks and place.run is not None:
        return ProfilerProbe(profile, place, place.run, guard)
    return None


class ProfilerProbe(Probe):
    """Captures steps with `torch.profiler` and tags those it disturbs.

    Args:
        profile: Which steps, and what a trace of them holds.
        place: This rank.
        run: The run directory.
        guard: Switches this part off when it fails.
    """

    name: ClassVar[str] = "profiler"

    def __init__(
        self, profile: ScheduledProfile, place: CaptureRank, run: Path, guard: Guard
    ) -> None:
        self._profile, self._place, self._run = profile, place, run
        self.traces: list[Path] = []
        """Those that were written, oldest first."""
        self._request = CaptureRequest(run) if profile.on_demand else None
        # Rank 0 reports on all ranks, and must not wait for what the others still read.
        patience_ns = PATIENCE_NS if place.rank == 0 else 0
        self.reader = TraceWorker(patience_ns) if profile.analyse else None
        """Has the traces read; `None` leaves them to the user."""
        self._looks = CostLimit(least_ns=LOOK_EVERY_NS)
        self._due = False
        self._attempts = 0
        self._tracer: Tracer | None = None
        """Of the capture that is on its way."""
        self._first = 0
        """The first step that it traces."""
        self._marks = Marks()
        self._disturbed = -1
        # As a `PhaseListener` it is called from inside brackets, so behind the guard.
        self.entered = self.left = guard.wrap(self.name, self._follow)
        self.cleared = guard.wrap(self.name, self._cleared)
        guard.when_faulty(self.name, self._stop)

    # -- as a probe ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin at once if the first step is to be captured."""
        if self._profile.begins(0):
            self._begin(0)

    def close(self, draft: Draft) -> None:
        """A step is over, and the next has not begun.  Runs every step."""
        reader = self.reader
        # Even at the lowest priority, reading takes from caches and memory what a step needs.
        if draft.index <= self._disturbed or (reader is not None and reader.child is not None):
            draft.tags |= Tag.PROFILED
        step = draft.index + 1
        if self._tracer is not None:
            self._disturbed = step
            if step == self._first + self._profile.active:
                self._finish(self._tracer, self._profile.active)
            elif step == self._first and self._succeeds(self._tracer.start, step):
                self.recorder.listener = self
        self._due = self._due or self._profile.begins(step)
        if self._looks.due(self.recorder.now_ns()):
            self._due |= self._request is not None and self._request.is_new()
            if reader is not None and reader.has_ended():
                with self._dumping():
                    reader.go_on()
        if self._due and self._tracer is None and self.recorder.ground != Gap.SHUTDOWN:
            self._begin(step)

    def detach(self) -> None:
        """Leave nothing running; traces that are still being read get a moment."""
        self._stop()
        if self._first and not self.traces and not self.noted:
            self._say(
                "captures_unfinished",
                "nothing captured: the fit ended before one traced step was complete",
            )
        if self.reader is not None:
            self.noted.update(self.reader.finish())

    # -- the course of a capture --------------------------------------------------------------

    def _begin(self, step: int) -> None:
        """Its warm-up begins with *step*."""
        self._due = False
        if len(self.traces) >= self._profile.max_traces:
            self._say(
                "captures_full",
                f"no more captures: max_traces={self._profile.max_traces} traces are written; "
                "raise max_traces to have more",
            )
            return
        self._tracer = Tracer(self._profile, self._place.device)
        self._first = step + self._profile.warmup
        self._disturbed = step
        self._succeeds(self._tracer.warm_up, step)

    def _succeeds(self, begin: Callable[[], bool], step: int) -> bool:
        with self._dumping():
            ready = begin()
        if not ready:
            self._stop()
            self._say(
                "captures_declined",
                f"the capture at step {self._place.offset + step} is declined: another torch "
                "profiler is active, and torch has room for one; stop it, or let trainperf "
                "capture alone",
            )
        return ready

    def _finish(self, tracer: Tracer, steps: int, ended_by: str | None = None) -> None:
        """Write the trace of the steps that are complete."""
        self.recorder.listener = None
        self._marks.show([])
        profile, first = self._profile, self._place.offset + self._first
        with self._dumping():
            tracer.stop(
                {
                    "first_step": first,
                    "first_index": self._first,
                    "complete_steps": steps,
                    "ended_by": ended_by,
                }
            )
            trace = write_trace(
                self._run / TRACES,
                trace_stem(self._place.rank, first, steps),
                tracer.export,
                profile.max_trace_bytes,
            )
            if trace is not None:
                log.info("trainperf: %s steps traced: %s", steps, trace)
                self.traces.append(trace)
                self.noted["captures"] = ", ".join(each.name for each in self.traces)
                if self.reader is not None:
                    self.reader.send(trace)
        self._stop()
        self._attempts = 0
        if trace is None:
            self._say(
                "captures_too_large",
                f"the trace of {steps} steps from {first} was thrown away: packed it is larger "
                f"than max_trace_bytes={profile.max_trace_bytes}; capture fewer steps (active), "
                "leave with_stack and record_shapes off, or raise max_trace_bytes",
            )
        elif ended_by is not None:
            self._say(
                "captures_short",
                f"{trace.name}: {steps} of {profile.active} steps, since {ended_by} began",
            )

    def _cut(self, tracer: Tracer, gap: str) -> None:
        """Something that is no training step begins: keep the steps that are complete."""
        recorder = self.recorder
        steps = recorder.index + int(recorder.awaits_batch) - self._first
        if steps > 0:
            self._finish(tracer, steps, gap if steps < self._profile.active else None)
            return
        with self._dumping():
            self._stop()
        self._attempts += 1
        self._due = self._attempts < ATTEMPTS and gap != Gap.SHUTDOWN.label
        if self._attempts == ATTEMPTS:
            self._say(
                "captures_cut",
                f"nothing captured: {gap} began {ATTEMPTS} times before one step was complete",
            )

    def _stop(self) -> None:
        """Nothing is traced any more; the step after the one that runs, or ran last, feels it."""
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            return
        self._disturbed = self.recorder.index + 1
        if self.recorder.listener is self:
            self.recorder.listener = None
        try:
            self._marks.show([])
        finally:
            tracer.drop()

    def _dumping(self) -> DirectBracket:
        return DirectBracket(
            partial(self.recorder.enter_gap, Gap.PROFILER_DUMP), self.recorder.leave
        )

    def _say(self, key: str, sentence: str) -> None:
        if key not in self.noted:
            self.noted[key] = sentence
            log.warning("trainperf: %s", sentence)

    # -- while tracing: as a listener to phases and gaps ---------------------------------------

    def _cleared(self) -> None:
        slot = self.recorder.slot
        if slot in (Gap.VALIDATION, Gap.SHUTDOWN) and self._tracer is not None:
            self._cut(self._tracer, LABELS[slot])
        else:
            self._follow()

    def _follow(self, *_: object) -> None:
        """What is open in the timeline is marked in the trace, in a mark of the step."""
        recorder = self.recorder
        ground, *nested = recorder.open
        between = recorder.draft is None
        # At a boundary the step's draft is about to be made.
        in_step = ground == Phase.OTHER or not (between or ground == Gap.EPOCH_BOUNDARY)
        number = self._place.offset + recorder.index + between
        step = [f"{STEP_MARK}{number}"] if in_step else []
        slots = nested if ground == Phase.OTHER else [ground, *nested]
        self._marks.show([*step, *(_NAMES[slot] for slot in slots)])

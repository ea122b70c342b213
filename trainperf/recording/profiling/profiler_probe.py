"""Probe that captures traces: drives a tracer from step boundaries.

Training steps only.  Between captures nothing listens to the phases, and a boundary costs two
comparisons.  The profiler's own time, from starting it to its file, is a gap and in no step.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from trainperf.core.phases import GAPS, PHASES, Gap, Phase, Tag
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe
from trainperf.recording.profiling.background_reader import ReadRequest, TraceWorker
from trainperf.recording.profiling.capture_schedule import CapturePlan
from trainperf.recording.profiling.tracer import Marks, TraceFolder, Tracer
from trainperf.recording.recorder import Draft, Recorder


log = logging.getLogger("trainperf")

ATTEMPTS = 3
"""How often a capture is begun anew because validation came before its first step was complete."""

_LABELS = (*[phase.label for phase in PHASES], *[gap.label for gap in GAPS])
_NAMES = tuple(f"trainperf::{label}" for label in _LABELS)
_ENDS_CAPTURE = (Gap.VALIDATION, Gap.SHUTDOWN)


@dataclass(slots=True)
class _Capture:
    """One capture on its way."""

    tracer: Tracer
    first: int
    """The first step that is traced."""
    end: int
    """The first step that is traced no more."""


@dataclass(frozen=True, slots=True)
class _Listener:
    """The probe as a `PhaseListener`, behind the guard: it is called from inside brackets."""

    entered: Callable[[int], None]
    left: Callable[[], None]
    cleared: Callable[[], None]


class ProfilerProbe(Probe):
    """Captures steps with `torch.profiler` and tags those it disturbs.

    Args:
        plan: Which steps, and what a trace of them holds.
        folder: Where it goes.
        guard: Switches this part off when it fails.
        analyst: Has the traces read; `None` leaves them to the user.
    """

    name: ClassVar[str] = "profiler"

    def __init__(
        self,
        plan: CapturePlan,
        folder: TraceFolder,
        guard: Guard,
        analyst: TraceWorker | None = None,
    ) -> None:
        self._plan = plan
        self._schedule = plan.schedule
        self._offset = plan.offset
        self._folder = folder
        self._analyst = analyst
        self._requested_at: int | None = None
        self._due = False
        self._attempts = 0
        self._capture: _Capture | None = None
        self._marks = Marks()
        self._disturbed = -1
        self._notes: dict[str, str] = {}
        self._listener = _Listener(
            guard.wrap(self.name, self._entered),
            guard.wrap(self.name, self._left),
            guard.wrap(self.name, self._cleared),
        )
        guard.when_faulty(self.name, self._stop)

    # -- as a probe ---------------------------------------------------------------------------

    def attach(self, recorder: Recorder) -> None:
        """Begin at once if the first step is to be captured."""
        super().attach(recorder)
        if self._schedule.begins(0):
            self._begin(0)

    def close(self, draft: Draft) -> None:
        """A step is over, and the next has not begun.  Runs every step."""
        # Even at the lowest priority, reading takes from caches and memory what a step needs.
        if draft.index <= self._disturbed or (self._analyst is not None and self._analyst.busy):
            draft.tags |= Tag.PROFILED
        step = draft.index + 1
        if self._capture is not None:
            self._go_on(self._capture, step)
        self._look_around(draft, step)
        self._due = self._due or self._schedule.begins(step) or self._is_requested(step)
        if self._due and self._capture is None and self.recorder.ground != Gap.SHUTDOWN:
            self._begin(step)

    def detach(self) -> None:
        """Leave nothing running; traces that are still being read get a moment."""
        if self._capture is not None:
            self._say_unfinished()
        self._stop()
        if self._analyst is not None:
            self._notes |= self._analyst.finish()

    def notes(self) -> dict[str, str]:
        """Which traces there are, and what was not captured and why."""
        written, slow = self._folder.written, self._plan.slow
        return {
            **({"captures": ", ".join(written)} if written else {}),
            **({"captures_slow": slow.note()} if slow is not None and slow.steps else {}),
            **self._notes,
        }

    @property
    def busy(self) -> bool:
        """Whether a capture is on its way, or is to begin."""
        return self._due or self._capture is not None

    @property
    def traces(self) -> list[Path]:
        """Those that were written."""
        return [self._folder.path / name for name in self._folder.written]

    # -- the course of a capture --------------------------------------------------------------

    def _look_around(self, draft: Draft, step: int) -> None:
        """Whether there is another reason to capture, and whether a trace has been read."""
        wall_ns, now_ns = sum(draft.host_ns), self.recorder.now_ns()
        plan = self._plan
        if plan.request is not None:
            requested = plan.request.look(now_ns, step, wall_ns)
            self._requested_at = self._requested_at if requested is None else requested
        if plan.slow is not None and plan.slow.look(draft.index, wall_ns, draft.tags):
            self._due = True
        if self._analyst is not None and self._analyst.look(now_ns):
            with self._dumping():
                self._analyst.go_on()

    def _is_requested(self, step: int) -> bool:
        return self._requested_at is not None and step >= self._requested_at

    def _begin(self, step: int) -> None:
        """Its warm-up begins with *step*."""
        if self._is_requested(step):
            self._requested_at = None
        self._due = False
        if self._folder.full:
            self._say(
                "captures_full",
                f"no more captures: max_traces={self._folder.max_traces} traces are written; "
                "raise max_traces to have more",
            )
            return
        tracer = Tracer(self._plan.options)
        first = step + self._schedule.warmup
        self._capture = _Capture(tracer, first, first + self._schedule.active)
        self._disturbed = step
        with self._dumping():
            ready = tracer.warm_up()
        if not ready:
            self._decline(step)

    def _go_on(self, capture: _Capture, step: int) -> None:
        """A step of the capture is over."""
        self._disturbed = step
        if step == capture.end:
            self._finish(capture, self._schedule.active)
        elif step == capture.first:
            with self._dumping():
                started = capture.tracer.start()
            if started:
                self.recorder.listener = self._listener
            else:
                self._decline(step)

    def _finish(self, capture: _Capture, steps: int, ended_by: str | None = None) -> None:
        """Write the trace of the steps that are complete."""
        self.recorder.listener = None
        self._marks.end_step()
        first, active = self._offset + capture.first, self._schedule.active
        facts = {
            "first_step": first,
            "first_index": capture.first,
            "complete_steps": steps,
            "ended_by": ended_by,
        }
        with self._dumping():
            capture.tracer.stop(facts)
            name = self._folder.write(first, steps, capture.tracer.export)
            if name is not None and self._analyst is not None:
                self._analyst.send(ReadRequest((self._folder.path / name,), first + steps - 1))
        self._over()
        self._attempts = 0
        if name is None:
            self._say(
                "captures_too_large",
                f"the trace of {steps} steps from {first} was thrown away: packed it is larger "
                f"than max_trace_bytes={self._folder.max_bytes}; capture fewer steps (active), "
                "leave with_stack and record_shapes off, or raise max_trace_bytes",
            )
            return
        log.info("trainperf: %s steps traced: %s", steps, self._folder.path / name)
        if ended_by is not None:
            short = f"{name}: {steps} of {active} steps, since {ended_by} began"
            self._say("captures_short", short)

    def _cut(self, capture: _Capture, gap: str) -> None:
        """Something that is no training step begins: keep the steps that are complete."""
        recorder = self.recorder
        steps = recorder.index + int(recorder.awaits_batch) - capture.first
        if steps > 0:
            self._finish(capture, steps, gap if steps < self._schedule.active else None)
            return
        recorder.listener = None
        with self._dumping():
            self._stop()
        self._over()
        if gap == Gap.SHUTDOWN.label:
            self._say_unfinished()
            return
        self._attempts += 1
        self._due = self._attempts < ATTEMPTS
        if not self._due:
            self._say(
                "captures_cut",
                f"nothing captured: {gap} began {ATTEMPTS} times before one step was complete",
            )

    def _decline(self, step: int) -> None:
        self._over()
        self._say(
            "captures_declined",
            f"the capture at step {self._offset + step} is declined: another torch profiler is "
            "active, and torch has room for one; stop it, or let trainperf capture alone",
        )

    def _over(self) -> None:
        """The capture has ended; the step after the one that runs, or ran last, still feels it."""
        self._capture = None
        self._disturbed = self.recorder.index + 1

    def _stop(self) -> None:
        """Whatever runs is stopped and thrown away."""
        capture, self._capture = self._capture, None
        if capture is None:
            return
        self.recorder.listener = None
        try:
            self._marks.end_step()
        finally:
            capture.tracer.drop()

    @contextmanager
    def _dumping(self) -> Iterator[None]:
        self.recorder.enter_gap(Gap.PROFILER_DUMP)
        try:
            yield
        finally:
            self.recorder.leave_gap()

    def _say_unfinished(self) -> None:
        if not self._folder.written:  # else it is the natural end of cycles without an end
            sentence = "nothing captured: the fit ended before one traced step was complete"
            self._say("captures_unfinished", sentence)

    def _say(self, key: str, sentence: str) -> None:
        if key not in self._notes:
            self._notes[key] = sentence
            log.warning("trainperf: %s", sentence)

    # -- while tracing: as a listener to phases and gaps ---------------------------------------

    def _entered(self, slot: int) -> None:
        self._marks.enter(_NAMES[slot])

    def _left(self) -> None:
        self._marks.leave()

    def _cleared(self) -> None:
        recorder = self.recorder
        slot = recorder.slot
        if slot in _ENDS_CAPTURE and self._capture is not None:
            self._cut(self._capture, _LABELS[slot])
        elif slot != Phase.OTHER:
            if slot == Gap.EPOCH_BOUNDARY:
                self._marks.end_step()
            self._marks.rest(_NAMES[slot])
        elif recorder.draft is None:
            self._marks.begin_step(self._offset + recorder.index + 1)
        else:
            self._marks.rest(None)

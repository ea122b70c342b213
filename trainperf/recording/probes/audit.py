"""Audit of one step of a fit, switched on only while the step's batches are trained.

Every rank audits, so that none waits for a slow one; the first one writes what it saw.  Where
nobody has named the step, one of a loop that an audit might hurt is captured instead.
"""

import torch
from torch import nn

from trainperf.audit import Audit
from trainperf.core.artifacts import write_document
from trainperf.core.formatting.units import duration
from trainperf.core.launch_environment import AuditPlan
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Tag
from trainperf.recording.guard import Guard, log
from trainperf.recording.probes.audit_safety import why_no_look, why_not_eager
from trainperf.recording.probes.base import Batch, Probe
from trainperf.recording.probes.memory_ledger import LedgerProbe
from trainperf.recording.profiling.background_reader import TraceWorker
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile
from trainperf.recording.profiling.profiler_probe import ProfilerProbe, capture_probe
from trainperf.recording.recorder import Draft


LATEST = 20
"""From this step on any is taken, e.g. where every step is the first of its epoch."""

MOST_S = 1.0
"""Processor time for looking at operators where nobody has named the step: with what torch takes to
ask about each, and what is done after the step, about a second."""

_UNUSUAL = Tag.FIRST_IN_EPOCH | Tag.AFTER_VALIDATION | Tag.AFTER_CHECKPOINT | Tag.PARTIAL_GROUP
"""Also tags of a step amid which the loop validates or saves."""

_MOST_BYTES = 32 * 2**20
"""Of a capture, packed: one step."""

_PATIENCE_NS = 5_000_000_000
"""How long the end of the fit waits for it to be read."""


class AuditProbe(Probe):
    """The audit of a step, under the guard of the fit.

    Args:
        module: What the modules' names begin with.
        plan: Which step.
        place: The rank, and the run directory it is written into; on all ranks but the first, and
            without a directory, nothing is written.
        guard: A fault of ours ends the audit and nothing else.
        ledger: Is told what the step allocated.
    """

    name = "audit"

    def __init__(
        self,
        module: nn.Module | None,
        plan: AuditPlan,
        place: CaptureRank,
        guard: Guard,
        ledger: LedgerProbe | None,
    ) -> None:
        self._module = module
        self._plan = plan
        self._place = place
        self._guard = guard
        self._step: int | None = None
        """Number of the audited step."""
        self._running = self._in_gap = False
        """Whether operators are looked at, or were until a gap began."""
        self._unreleased: list[Audit] = []
        """They may have left hooks, because the step ended with its update."""
        self._heard = plan.at - 1
        """The last step of which a batch was announced, from the first that may be audited on."""
        self.over = False
        """Whether no further step will be audited."""
        self._ledger = ledger
        self._profiler: ProfilerProbe | None = None
        """Captures a step instead."""
        self._captures_until = -1
        """The last step that it is told of."""
        guard.when_faulty(self.name, self._give_up)

    def begin_batch(self) -> bool:
        """A batch is about to be trained.  Runs every micro-batch until the audit is over.

        Returns:
            Whether this step or a later one will be audited.
        """
        if self._unreleased:
            self._release()
        draft = self.recorder.draft
        if draft is not None and draft.index >= self._plan.at and not (self.over or self._running):
            self._heard = draft.index
            # Another step may have been begun, and its epoch ended amid it.
            if self._step == draft.index or self._guard.run(self.name, lambda: self._choose(draft)):
                draft.tags |= Tag.AUDITED
                self._resume()
        return not self.over

    def pause(self) -> None:
        """A batch was trained: what follows is not audited."""
        if self._running:
            self._running = False
            self._guard.last(self.name, self._audit.__exit__)
            self._unreleased.append(self._audit)

    def settle(self, batch: Batch) -> None:
        """A batch was trained.  Write the result if the step is complete.

        Args:
            batch: As the loop has it.
        """
        draft = self.recorder.draft
        if self.over or draft is None:
            return
        if draft.index == self._step:
            if self._unreleased:
                self._guard.run(self.name, lambda: self._audit.batch_trained(batch))
            if draft.complete:
                self._guard.run(self.name, lambda: self._settle(draft))
        elif draft.complete and self._plan.chosen and draft.index > self._heard:
            # A step began that nobody announced: what is compiled in place calls no hook.
            unheard = "the model is not heard in its forward"
            self._guard.run(self.name, lambda: self._avoid(draft.index, unheard))

    def gap(self, begins: bool) -> None:  # noqa: FBT001 two moments of one thing
        """A validation in the middle of a batch is no part of the step."""
        if begins and self._running:
            self.pause()
            self._in_gap = True
        elif not begins and self._in_gap:
            self._in_gap = False
            self._resume()

    def close(self, draft: Draft) -> None:
        """Tell the profiler, until the step after its trace is over.  Runs every step."""
        profiler = self._profiler
        if profiler is not None and draft.index <= self._captures_until:
            self._guard.wrap(profiler.name, profiler.close)(draft)

    def detach(self) -> None:
        """The fit is over, perhaps in the middle of the audit."""
        self.pause()
        self._release()
        if not self.over and not self.noted:
            at = self._plan.at if self._step is None else self._step
            self.noted[self.name] = (
                f"no step was audited, the fit ended before step {at} was complete"
            )
            if not self._plan.chosen:
                log.warning("trainperf: %s", self.noted[self.name])
        self.over = True
        if self._profiler is not None:
            self._guard.last(self._profiler.name, self._profiler.detach)
            # Had it been read while the fit went on, that would have slowed its steps.
            analyst = TraceWorker(patience_ns=_PATIENCE_NS)
            for trace in self._profiler.traces:
                analyst.send(trace)
                self.noted[self.name] = self.noted[self.name].replace(
                    "was to be captured", "was captured"
                )
            self.noted.update(analyst.finish())

    def notes(self) -> dict[str, str]:
        """Which step was audited or captured and what that took, or why none was."""
        return self.noted if self._profiler is None else self._profiler.notes() | self.noted

    # -- inside -------------------------------------------------------------------------------

    def _choose(self, draft: Draft) -> bool:
        """Whether this step is audited."""
        self._step = None
        if self._plan.chosen:
            if draft.micro_batches or self._is_unusual(draft):
                return False
            if torch._C._autograd._profiler_enabled():  # noqa: SLF001 as the tracer asks
                self.noted[self.name] = "no step was audited: another torch profiler was at work"
                return False
            if self._avoid(draft.index):
                return False
        self._audit = Audit(
            self._module,
            lambda function: self._guard.wrap(self.name, function),
            most_ns=int(MOST_S * 1e9) if self._plan.chosen else None,
        )
        self._step = draft.index
        return True

    def _is_unusual(self, draft: Draft) -> bool:
        return bool(draft.tags & _UNUSUAL) and draft.index < LATEST

    def _settle(self, draft: Draft) -> None:
        if self._plan.chosen and self._is_unusual(draft):
            self._step = None  # a later one is audited
            return
        if self._audit.stopped:
            self._avoid(draft.index, "an audit of so many operators would take too long")
            return
        self.over = True
        begun = monotonic_ns()
        audit = self._audit.result(step=draft.index, micro_batches=draft.micro_batches)
        if self._place.run is not None and self._place.rank == 0:
            write_document(audit, self._place.run)
        if self._ledger is not None:
            audited = self._guard.wrap(self._ledger.name, self._ledger.audited)
            audited(self._audit.storages, draft.index, draft.micro_batches)
        took_s = audit.audited_s + (monotonic_ns() - begun) / 1e9
        looked_at, batches = len(self._audit.batches), draft.micro_batches
        by = f" by {looked_at} of its {batches} batches" if 0 < looked_at < batches else ""
        self.noted[self.name] = (
            f"step {draft.index} was audited{by}, which made it take {duration(took_s)}"
        )

    def _avoid(self, step: int, otherwise: str = "") -> bool:
        """Have the second step from now captured if an audit would hurt; whether none is made.

        Args:
            step: That is over, or begins.
            otherwise: Why there is none, where it would not hurt.
        """
        why = why_not_eager(self._module) or otherwise
        nothing = why_no_look(torch.device(self._place.device))
        self.over = bool(why or nothing)
        if nothing:
            self.noted[self.name] = f"no step was audited: {f'{why}, and ' if why else ''}{nothing}"
        elif why:
            # The first one wakes the profiler up.
            self.noted[self.name] = (
                f"no step was audited: {why}; step {step + 2} was to be captured instead"
            )
            self._captures_until = step + 3
            profile = ScheduledProfile(
                skip_first=step + 1,
                wait=0,
                warmup=1,
                active=1,
                record_shapes=True,
                max_trace_bytes=_MOST_BYTES,
                on_demand=False,
                analyse=False,
            )
            self._profiler = capture_probe(profile, self._place, self._guard)
            if self._profiler is not None:
                self._profiler.attach(self.recorder)
        return self.over

    def _release(self) -> None:
        while self._unreleased:
            self._guard.last(self.name, self._unreleased.pop().release)

    def _resume(self) -> None:
        self._running = True
        self._guard.run(self.name, self._audit.__enter__)

    def _give_up(self) -> None:
        """After a fault of ours nothing more is looked at."""
        self.over = True

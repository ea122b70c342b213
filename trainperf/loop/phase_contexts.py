"""Context managers for the phases of a plain loop, made once per name and entered often."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from threading import get_ident

from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import process_ns
from trainperf.core.phases import FIRST_GAP, LABELS, Gap, Phase
from trainperf.core.steps.own_sums import PROCESSOR
from trainperf.loop.moves import Move
from trainperf.recording.guard import Guard
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import ProbeSet
from trainperf.recording.recorder import Recorder
from trainperf.recording.step_cost import StepCost
from trainperf.recording.timeline import NO_BRACKET, DirectBracket


_PHASES = {
    phase.label: phase
    for phase in (Phase.H2D, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.CALLBACKS)
}
_TRAINING = (Phase.BACKWARD.label, Phase.OPTIMIZER.label)
"""Which an inference loop has not."""

_DATA_WAIT, _BACKWARD = int(Phase.DATA_WAIT), int(Phase.BACKWARD)

_BEGINNINGS = {_DATA_WAIT: Mark.FETCH_BEGINS, int(Phase.H2D): Mark.COPY_BEGINS}
_ENDS = {
    _DATA_WAIT: Mark.FETCH_ENDS,
    int(Phase.H2D): Mark.COPY_ENDS,
    int(Phase.FORWARD): Mark.FORWARD_ENDS,
    _BACKWARD: Mark.BACKWARD_ENDS,
}
"""Marks of a device as a phase begins, and as it ends."""

_GAPS = {gap.label: gap for gap in (Gap.VALIDATION, Gap.CHECKPOINT)}

NEXT, END_STEP = "next batch of batches(loader)", "end_step()"

MOVES: Mapping[str, Move] = {
    NEXT: Move(Phase.DATA_WAIT, Phase.OTHER),
    **{f'phase("{name}")': Move(phase) for name, phase in _PHASES.items()},
    END_STEP: Move(Phase.CALLBACKS, Phase.LOOP, when="in `callbacks` the probes read the step"),
    **{f'phase("{name}")': Move(gap) for name, gap in _GAPS.items()},
    "end of batches(loader)": Move(after=Gap.EPOCH_BOUNDARY, when="`break` or an error, too"),
    "close()": Move(after=Gap.SHUTDOWN),
}
"""What moves a plain loop through its phases, in the order of a step; all else is `other`."""


class PhaseContexts(dict[str, AbstractContextManager[None]]):
    """Contexts of one run by phase, with the device's marks and the tail where there are any.

    With a *cost* each is timed.  A name that is none of ours makes a phase of the loop's own; one
    of a phase that begins by itself raises `ConfigError`.
    """

    part = "loop phases"

    def __init__(
        self,
        recorder: Recorder,
        guard: Guard,
        chosen: ProbeSet,
        *,
        trains: bool = True,
        cost: StepCost | None = None,
    ) -> None:
        super().__init__()
        self._recorder = recorder
        self._trains = trains
        self._guard = guard
        self._cost = cost
        self._thread = get_ident()
        self._open: list[str] = []
        """Of own phases that are open what their processor time is counted as."""
        self._cpu_ns = 0
        self.fetch_begins: Callable[[], object] = recorder.fetch
        """The loop asks for a batch.  Runs every micro-batch, as the next."""
        self.fetch_ends: Callable[[], object] = recorder.leave
        self.enter: Callable[[int], object] = recorder.enter
        """A phase begins, and pauses the one around it."""
        self.leave: Callable[..., object] = recorder.leave
        """The innermost phase ends."""
        self.rest: Callable[[int], object] = recorder.rest
        """A phase takes the place of all that are open."""
        self.mark: Callable[[Mark], object] = NO_BRACKET.__exit__
        """Puts a mark into the queue of the device, where there is one."""
        self._tail_ends: Callable[[], object] = NO_BRACKET.__enter__
        if chosen.marks is not None:
            self.mark = guard.wrap(chosen.marks.name, chosen.marks.mark)
            self.fetch_begins = self._fetch_begins
        if chosen.tail is not None:
            self._tail_ends = chosen.tail.ending(guard)
        if chosen.marks is not None or chosen.tail is not None:
            self.enter, self.leave, self.rest = self._enter, self._leave, self._rest
            self.fetch_ends = self._leave
        if cost is not None:
            self.fetch_begins = cost.timed(self.fetch_begins)
            self.fetch_ends = cost.timed(self.fetch_ends)

    def __missing__(self, name: str) -> AbstractContextManager[None]:
        bracket, cost = self._make(name), self._cost
        self[name] = bracket = bracket if cost is None else cost.bracket(bracket)
        return bracket

    def _make(self, name: str) -> AbstractContextManager[None]:
        recorder = self._recorder
        if name not in LABELS:
            return self._own(name)
        if name in _GAPS:
            begins = partial(recorder.enter_gap, _GAPS[name])
            return self._guard.bracket(self.part, begins, recorder.leave)
        phases = [name for name in _PHASES if self._trains or name not in _TRAINING]
        if name not in phases:
            names = ", ".join((*phases, *_GAPS))
            raise ConfigError(f"phase {name!r}: no such phase; use one of {names}, or a new name")
        return self.bracket(_PHASES[name])

    def _own(self, name: str) -> DirectBracket:
        """Around a phase that the loop names itself; it tells what the process computes in it.

        On another thread than the loop's, such as one that prefetches, it does nothing.
        """
        slot, loops = self._recorder.own_slot(name), self._thread
        counted = f"{PROCESSOR}{name}"

        def begins() -> None:
            if get_ident() == loops:
                self._computed()
                self._open.append(counted)
                self.enter(slot)

        def ends(*_: object) -> None:
            if get_ident() == loops:
                self.leave()
                self._computed()
                self._open.pop()

        return DirectBracket(begins, ends)

    def _computed(self) -> None:
        """What the process has computed since the last call is the innermost own phase's."""
        now = process_ns()
        if self._open:
            self._recorder.count(self._open[-1], now - self._cpu_ns)
        self._cpu_ns = now

    def bracket(self, phase: Phase) -> AbstractContextManager[None]:
        """Around a phase.  Needs no guard: it adds integers and moves one slot."""
        return DirectBracket(partial(self.enter, int(phase)), self.leave)

    # -- where there is a device, or a tail ------------------------------------------------------

    def _fetch_begins(self) -> None:
        self._recorder.boundary()
        self._enter(_DATA_WAIT)

    def _enter(self, phase: int) -> None:
        if phase in _BEGINNINGS and self._recorder.slot < FIRST_GAP:
            self.mark(_BEGINNINGS[phase])
        self._recorder.enter(phase)

    def _leave(self, *_: object) -> None:
        self._ends(self._recorder.slot)
        self._recorder.leave()

    def _rest(self, slot: int) -> None:
        self._ends(self._recorder.slot)
        self._recorder.rest(slot)

    def _ends(self, phase: int) -> None:
        """What the device and a parallel wrapper are asked as a phase is over."""
        if phase in _ENDS:
            self.mark(_ENDS[phase])
        if phase == _BACKWARD:
            self._tail_ends()

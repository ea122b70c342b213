"""Context managers for the phases of a plain loop, made once per name and entered often."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial

from trainperf.core.errors import ConfigError
from trainperf.core.phases import Gap, Phase
from trainperf.loop.moves import Move
from trainperf.recording.bracket_cost import BracketCost
from trainperf.recording.guard import Guard
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import ProbeSet
from trainperf.recording.recorder import Recorder
from trainperf.recording.timeline import PhaseBracket


_PHASES = {
    phase.label: phase
    for phase in (Phase.H2D, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.CALLBACKS)
}
_TRAINING = (Phase.BACKWARD.label, Phase.OPTIMIZER.label)
"""Which an inference loop has not."""

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

    With a *cost* each is timed.  Asking for one that is neither a phase nor a gap raises
    `ConfigError`.
    """

    part = "loop phases"

    def __init__(
        self,
        recorder: Recorder,
        guard: Guard,
        chosen: ProbeSet,
        *,
        trains: bool = True,
        cost: BracketCost | None = None,
    ) -> None:
        super().__init__()
        self._recorder = recorder
        self._trains = trains
        self._guard = guard
        self._cost = cost
        self._on_device = chosen.marks is not None
        self.fetch_begins: Callable[[], object] = recorder.fetch
        """The loop asks for a batch.  Runs every micro-batch, as the next."""
        self.fetch_ends: Callable[[], object] = recorder.leave
        self.mark: Callable[[Mark], object] = _nothing
        """Puts a mark into the queue of the device, where there is one."""
        self.tail_ends: Callable[[], object] = _nothing
        """Backward is over, and what a parallel wrapper waits for in it."""
        self.watches_backward = self._on_device or chosen.tail is not None
        """Whether there is anything to be told around backward but its time."""
        if chosen.marks is not None:
            self.mark = guard.wrap(chosen.marks.name, chosen.marks.mark)
            self.fetch_begins, self.fetch_ends = self._fetch_begins, self._fetch_ends
        if chosen.tail is not None:
            self.tail_ends = chosen.tail.ending(guard)
        if cost is not None:
            self.fetch_begins = cost.timed(self.fetch_begins)
            self.fetch_ends = cost.timed(self.fetch_ends)

    def __missing__(self, name: str) -> AbstractContextManager[None]:
        bracket, cost = self._make(name), self._cost
        self[name] = bracket = bracket if cost is None else cost.bracket(bracket)
        return bracket

    def _make(self, name: str) -> AbstractContextManager[None]:
        recorder = self._recorder
        if name in _GAPS:
            gap = _GAPS[name]
            return self._guard.bracket(
                self.part, lambda: recorder.enter_gap(gap), recorder.leave_gap
            )
        phases = [name for name in _PHASES if self._trains or name not in _TRAINING]
        if name not in phases:
            names = ", ".join((*phases, *_GAPS))
            raise ConfigError(f"phase {name!r}: no such phase; use one of {names}")
        phase = _PHASES[name]
        if phase is Phase.BACKWARD and self.watches_backward:
            begins = partial(recorder.enter, Phase.BACKWARD)
            return self._guard.bracket(self.part, begins, self._backward_ends)
        if phase in (Phase.H2D, Phase.FORWARD) and self._on_device:
            return self._guard.bracket(
                self.part, lambda: self._begins(phase), lambda: self._ends(phase)
            )
        return PhaseBracket(recorder, phase)

    def _fetch_begins(self) -> None:
        self._recorder.boundary()
        self.mark(Mark.FETCH_BEGINS)
        self._recorder.enter(Phase.DATA_WAIT)

    def _fetch_ends(self) -> None:
        self._recorder.leave()
        self.mark(Mark.FETCH_ENDS)

    def _begins(self, phase: Phase) -> None:
        if phase is Phase.H2D:
            self.mark(Mark.COPY_BEGINS)
        self._recorder.enter(phase)

    def _ends(self, phase: Phase) -> None:
        self._recorder.leave()
        self.mark(Mark.COPY_ENDS if phase is Phase.H2D else Mark.FORWARD_ENDS)

    def _backward_ends(self) -> None:
        self.mark(Mark.BACKWARD_ENDS)
        self.tail_ends()
        self._recorder.leave()


def _nothing(*_: object) -> None:
    pass

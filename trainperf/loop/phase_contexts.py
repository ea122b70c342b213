"""Context managers for the phases of a plain loop, made once per name and entered often."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from trainperf.core.errors import ConfigError
from trainperf.core.phases import Gap, Phase
from trainperf.recording.guard import Guard
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import Chosen
from trainperf.recording.recorder import Recorder
from trainperf.recording.timeline import PhaseBracket


_PHASES = {
    phase.label: phase
    for phase in (Phase.H2D, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.CALLBACKS)
}
_GAPS = {gap.label: gap for gap in (Gap.VALIDATION, Gap.CHECKPOINT)}


class PhaseContexts(dict[str, AbstractContextManager[None]]):
    """Contexts of one run by phase, with the device's marks and the tail where there are any.

    Asking for one that is neither a phase nor a gap raises `ConfigError`.
    """

    part = "loop phases"

    def __init__(self, recorder: Recorder, guard: Guard, chosen: Chosen) -> None:
        super().__init__()
        self._recorder = recorder
        self._guard = guard
        self._on_device = chosen.marks is not None
        self.fetch_begins: Callable[[], object] = recorder.fetch
        """The loop asks for a batch.  Runs every micro-batch, as the next."""
        self.fetch_ends: Callable[[], object] = recorder.leave
        self._mark: Callable[[Mark], object] = _nothing
        self._tail_begins: Callable[[], object] = _nothing
        self._tail_ends: Callable[[], object] = _nothing
        self._around_backward = self._on_device or chosen.tail is not None
        if chosen.marks is not None:
            self._mark = guard.wrap(chosen.marks.name, chosen.marks.mark)
            self.fetch_begins, self.fetch_ends = self._fetch_begins, self._fetch_ends
        if chosen.tail is not None:
            self._tail_begins = guard.wrap(chosen.tail.name, chosen.tail.backward_begins)
            self._tail_ends = guard.wrap(chosen.tail.name, chosen.tail.backward_ends)

    def __missing__(self, name: str) -> AbstractContextManager[None]:
        bracket = self[name] = self._make(name)
        return bracket

    def _make(self, name: str) -> AbstractContextManager[None]:
        recorder = self._recorder
        if name in _GAPS:
            gap = _GAPS[name]
            return self._guard.bracket(
                self.part, lambda: recorder.enter_gap(gap), recorder.leave_gap
            )
        if name not in _PHASES:
            names = ", ".join((*_PHASES, *_GAPS))
            raise ConfigError(f"phase {name!r}: no such phase; use one of {names}")
        phase = _PHASES[name]
        if phase is Phase.BACKWARD and self._around_backward:
            return self._guard.bracket(self.part, self._backward_begins, self._backward_ends)
        if phase in (Phase.H2D, Phase.FORWARD) and self._on_device:
            return self._guard.bracket(
                self.part, lambda: self._begins(phase), lambda: self._ends(phase)
            )
        return PhaseBracket(recorder, phase)

    def _fetch_begins(self) -> None:
        self._recorder.boundary()
        self._mark(Mark.FETCH_BEGINS)
        self._recorder.enter(Phase.DATA_WAIT)

    def _fetch_ends(self) -> None:
        self._recorder.leave()
        self._mark(Mark.FETCH_ENDS)

    def _begins(self, phase: Phase) -> None:
        if phase is Phase.H2D:
            self._mark(Mark.COPY_BEGINS)
        self._recorder.enter(phase)

    def _ends(self, phase: Phase) -> None:
        self._recorder.leave()
        self._mark(Mark.COPY_ENDS if phase is Phase.H2D else Mark.FORWARD_ENDS)

    def _backward_begins(self) -> None:
        self._tail_begins()
        self._recorder.enter(Phase.BACKWARD)

    def _backward_ends(self) -> None:
        self._mark(Mark.BACKWARD_ENDS)
        self._tail_ends()
        self._recorder.leave()


def _nothing(*_: object) -> None:
    pass

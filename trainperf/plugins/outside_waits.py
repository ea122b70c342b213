"""Waits of a loop that is recorded from outside: between an update and the next forward.

Where loaders are heard, data wait is what they take, and the rest of a wait is other.  Else nothing
tells the two apart, and the whole of it is data wait.
"""

from trainperf.core.phases import FIRST_GAP
from trainperf.loop.fit import Fit
from trainperf.plugins.outside_loader import CALLS
from trainperf.plugins.outside_moves import EVALUATION, FETCH, MOVES
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.process_objects import calls_under_way
from trainperf.recording.timeline import Moment


_DATA_WAIT, _OTHER = MOVES[FETCH].slot, MOVES[FETCH].next_slot

_SURE = 0.99
"""Share of the waits in which a loader has to be heard, for data wait to be loaders' alone."""


class BatchWaits:
    """Where a loop waits for its batches, as far as it was heard.

    Args:
        fit: Whose steps they are part of.
    """

    def __init__(self, fit: Fit) -> None:
        self._fit, self._recorder = fit, fit.recorder
        self.calls = 0
        """Whether a loader is at work: 2 for one that has asked another one meanwhile."""
        self._heard = self._usual = False
        """Whether one was asked in this step, and in the one before it: perhaps for this one."""
        self.before: Moment | None = None
        """When the wait began in which a loader was heard; reset where another may begin."""
        self._waits = [0, 0]
        """Those in which no loader was heard, and those in which one was."""

    def coarse(self) -> bool:
        """Whether data wait is more than the time in loaders, in some of the waits."""
        return self.divided_fraction < _SURE

    @property
    def divided_fraction(self) -> float:
        """Share of the waits in which a loader was heard."""
        return self._waits[True] / max(1, sum(self._waits))

    # -- loaders: called by Python itself -----------------------------------------------------

    def begins(self, *_: object) -> None:
        """A loader is asked.  Runs every step, as the next."""
        if self.calls:
            if calls_under_way(*CALLS) > 1:
                self.calls = 2
                return
            self.settle()
        if self._recorder.slot >= FIRST_GAP:
            return
        if self.before is None:
            self.before = self._recorder.moment()
        if self._recorder.slot == _DATA_WAIT:
            self._recorder.rest(_OTHER, since_last=True)
        self._fit.phases.enter(_DATA_WAIT)
        self.calls, self._heard = 1, True

    def ends(self, *_: object) -> None:
        """It has answered: the wait is over, unless it was asked by another one."""
        if self.calls == 1 or (self.calls and calls_under_way(*CALLS) <= 1):
            self._fit.phases.leave()
            self.calls = 0

    def settle(self) -> None:
        """A loader that was asked, and has not answered, had no batch any more."""
        if self.calls:
            self.calls = 0
            if self._recorder.slot == _DATA_WAIT:
                self._recorder.rest(self._recorder.ground, since_last=True)

    # -- the loop: a few times a step ---------------------------------------------------------

    def begin_step(self) -> None:
        """A step is over; the next one begins with whatever comes before its forward."""
        self._usual, self._heard = self._heard, False
        self.before = None
        if self._usual:
            self._recorder.boundary()
            self._fit.phases.mark(Mark.FETCH_BEGINS)
        else:
            self._fit.phases.fetch_begins()

    def end(self, unheard: int = _DATA_WAIT) -> None:
        """What follows is there.

        Args:
            unheard: What the wait was, if no loader was heard.
        """
        if self.calls:
            self.settle()
        divided, recorder = self._usual or self._heard, self._recorder
        # What the first step waits for may have been fetched before the recording began.
        if divided or recorder.index:
            self._waits[divided] += 1
        slot = _OTHER if divided else unheard
        if recorder.slot != slot:
            recorder.rest(slot, since_last=True)
            self._fit.phases.mark(Mark.FETCH_ENDS)

    def validate(self) -> None:
        """All since the wait began is part of a validation, its batches too."""
        self.settle()
        self._heard = False
        if self.before is not None:
            self._recorder.back_to(self.before)
        self._recorder.rest(MOVES[EVALUATION].slot, since_last=True)

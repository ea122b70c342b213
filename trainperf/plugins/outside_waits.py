"""Waits of a loop that is recorded from outside: between an update and the next forward.

Where loaders are heard, data wait is what they take, and the rest of a wait is other.  Else nothing
tells the two apart, and the whole of it is data wait.
"""

from collections.abc import Callable
from threading import get_ident

from trainperf.core.phases import FIRST_GAP
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.plugins.outside_loader import LoaderCalls, calls_under_way
from trainperf.plugins.outside_moves import EVALUATION, FETCH, MOVES
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.recorder import Recorder
from trainperf.recording.timeline import Moment


_DATA_WAIT, _OTHER = MOVES[FETCH].slot, int(MOVES[FETCH].next_phase)

_SURE = 0.99
"""Share of the waits in which a loader has to be heard, for data wait to be loaders' alone."""


class BatchWaits:
    """Where a loop waits for its batches, as far as it was heard.

    Only the thread that makes this is listened to.

    Args:
        recorder: Of the fit.
        brackets: Of the fit, as long as it has not begun.
    """

    def __init__(self, recorder: Recorder, brackets: PhaseContexts) -> None:
        self._recorder = recorder
        self.brackets = brackets
        """Of the fit, once it has begun."""
        self._thread = get_ident()
        self._calls: LoaderCalls | None = None
        self.step = False
        """Whether a step waits for its first forward."""
        self.micro_batch = False
        """Whether what goes on since backward may be the wait for another micro-batch."""
        self._usual = False
        """Whether a loader was heard in the last wait, so that it will be in the next."""
        self._called = self._nested = False
        """Whether a loader is at work; whether it has asked another one meanwhile."""
        self._heard = False
        """Whether one was asked since a forward began."""
        self._heard_in_step = False
        self._before: Moment | None = None
        """When the wait began in which a loader was heard."""
        self._divided = self._whole = 0
        self._first = True

    def listen(self, guarded: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
        """Hear of loaders from now on, where Python tells.

        Args:
            guarded: Makes of a function one that cannot hurt the training.
        """
        begins, ends = guarded(self.begins), guarded(self.ends)
        if self._calls is not None:
            self._calls.renew(begins, ends)
            return
        self._calls = LoaderCalls(begins, ends)
        self._usual = self._calls.heard

    def leave(self) -> None:
        """Hear of them no more.  Safe to call twice."""
        self.settle()
        if self._calls is not None:
            self._calls.stop()

    def coarse(self) -> bool:
        """Whether data wait is more than the time in loaders, in some of the waits."""
        return not self._divided or self.divided_fraction < _SURE

    @property
    def divided_fraction(self) -> float:
        """Share of the waits in which a loader was heard."""
        return self._divided / max(1, self._divided + self._whole)

    # -- loaders: called by Python itself -----------------------------------------------------

    def begins(self, *_: object) -> None:
        """A loader is asked.  Runs every step, as the next."""
        if get_ident() != self._thread:
            return
        if self._called:
            if calls_under_way() > 1:
                self._nested = True
                return
            self.settle()
        recorder = self._recorder
        if recorder.slot >= FIRST_GAP:
            self._heard_in_step = True
            return
        if (self.step or self.micro_batch) and self._before is None:
            self._before = recorder.moment()
            if recorder.slot == _DATA_WAIT:
                recorder.rest(_OTHER, since_last=True)
        self.brackets.mark(Mark.FETCH_BEGINS)
        recorder.enter(_DATA_WAIT)
        self._called = self._heard = True

    def ends(self, *_: object) -> None:
        """It has answered."""
        if not self._called or get_ident() != self._thread:
            return
        if self._nested and calls_under_way() > 1:
            return
        self._recorder.leave()
        self.brackets.mark(Mark.FETCH_ENDS)
        self._called = self._nested = False

    def settle(self) -> None:
        """A loader that was asked, and has not answered, had no batch any more."""
        if self._called:
            self._called = self._nested = False
            if self._recorder.slot == _DATA_WAIT:
                self._recorder.retract()

    # -- the loop: a few times a step ---------------------------------------------------------

    def begin_step(self, *, waited: bool = False) -> None:
        """A step is over; the next one begins with whatever comes before its forward.

        Args:
            waited: That is over already: its update was skipped, and nobody knew.
        """
        self.step = not waited
        self._heard_in_step = waited and self._heard_in_step
        self._before = None
        if self._usual or self._heard:
            self._recorder.boundary()
            self.brackets.mark(Mark.FETCH_BEGINS)
        else:
            self.brackets.fetch_begins()

    def end(self, otherwise: int = _DATA_WAIT) -> None:
        """What follows is there.

        Args:
            otherwise: What the wait was, if no loader was heard.
        """
        self.settle()
        self.step = self.micro_batch = False
        self._before = None
        if self._heard:
            self._heard, self._heard_in_step = False, True
        self._usual = self._heard_in_step
        slot = _OTHER if self._usual else otherwise
        recorder = self._recorder
        if recorder.slot != slot:
            recorder.rest(slot, since_last=True)
            self.brackets.mark(Mark.FETCH_ENDS)
        # What the first one waits for may have been fetched before the recording began.
        if self._usual or not self._first:
            self._divided += self._usual
            self._whole += not self._usual
        self._first = False

    def validate(self) -> None:
        """All since the wait began is part of a validation, its batches too."""
        self.settle()
        self.step = self.micro_batch = False
        self._heard = False
        if self._before is not None:
            self._recorder.back_to(self._before)
            self._before = None
        self._recorder.rest(MOVES[EVALUATION].slot, since_last=True)

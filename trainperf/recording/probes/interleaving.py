"""Gives way to another training every few steps, where two were launched to take turns.

Waiting is the gap `others_turn`.  The steps after it are tagged `out_of_turn`: the first, before
which the device ran dry, and as many as the loader's workers have made batches for meanwhile.  So
are all that follow the end of the other training.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from trainperf.core.interleaving import Baton, this_participant
from trainperf.core.interleaving.wire import Turn
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import FINISHED, RunInfo
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft, Recorder


def turns_probe(clock: DeviceClock | None, info: RunInfo, micro_batches: int = 1) -> list[Probe]:
    """The probe, if this process is to take turns; none on several ranks.

    It belongs behind all others: what they do as a step closes is part of the turn.

    Args:
        clock: The device's; `None` where nothing is waited for.
        info: Of the run: its ranks, and the settings of its loader.
        micro_batches: Batches of a step.
    """
    place = this_participant()
    if place is None:
        return []
    if info.world_size > 1:
        if info.rank == 0:
            Baton(place).refuse(f"{info.world_size} ranks; only trainings of one rank take turns")
        return []
    settings = (info.config.get(name) for name in ("num_workers", "prefetch_factor"))
    workers, each = (int(value or 0) for value in settings)
    return [TurnsProbe(Baton(place), math.ceil(workers * each / micro_batches), clock)]


class TurnsProbe(Probe):
    """Waits for this training's turn, and gives way when it is over.

    Args:
        baton: Says whose turn it is.
        ahead: Steps whose batches the loader may have ready after a while.
        clock: The device's; `None` where nothing is waited for.
    """

    name: ClassVar[str] = "turns"

    def __init__(self, baton: Baton, ahead: int, clock: DeviceClock | None) -> None:
        self._baton = baton
        self._ahead = ahead
        self._clock = clock
        self._turn: Turn | None = None
        self._steps = 0

    def attach(self, recorder: Recorder) -> None:
        """Wait for the other training to begin, and for the first turn."""
        super().attach(recorder)
        with self._waiting():
            self._turn = self._baton.join(self._ahead)

    def close(self, draft: Draft) -> None:
        """Give way if this was the last step of the turn.  Runs every step."""
        turn = self._turn
        if turn is None:
            return
        self._steps += 1
        if self._steps <= turn.unlike:
            draft.tags |= Tag.OUT_OF_TURN
        # A trace has no room for the other's turn: it would look like waiting.
        if self._steps < turn.steps or self.recorder.listener is not None:
            return
        with self._waiting():
            self._finish_on_device()
            self._turn = self._baton.pass_on()
        self._steps = 0

    def ended(self, reason: str) -> None:
        """Wait for the other fit to be over: reports of this one would disturb it.

        Unless this one failed, which should be known at once.
        """
        self._turn = None
        if reason == FINISHED:
            self._baton.leave()

    def detach(self) -> None:
        """Give way for good."""
        self._baton.close()

    def notes(self) -> dict[str, str]:
        """That turns were taken."""
        if not self._baton.turns:
            return {}
        return {"turns": "took turns with another run; waiting for it is the gap others_turn"}

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.recorder.enter_gap(Gap.OTHERS_TURN)
        try:
            yield
        finally:
            self.recorder.leave_gap()

    def _finish_on_device(self) -> None:
        """What is still queued there is part of this turn, not of the other's."""
        if self._clock is None:
            return
        fence = self._clock.fence()
        fence.synchronize()
        self._clock.release([fence])

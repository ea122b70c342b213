"""Gives way to another training every few steps, where two were launched to take turns.

Waiting is the gap `others_turn`.  The step after it is tagged `turn_boundary`, since the device ran
dry before it, and so is the one before it where the device had to be waited for: they are no steady
steps, but their time is the training's.  Tagged `out_of_turn` are all that follow the end of the
other training: these are compared by no clock.
"""

import math
import os
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import ClassVar

from trainperf.core.interleaving import Baton, this_participant
from trainperf.core.interleaving.wire import Turn, TurnTime
from trainperf.core.phases import DISQUALIFYING, Gap, Tag
from trainperf.core.steps.records import FINISHED, RunInfo
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


TAKEN = "took turns with another run; waiting for it is the gap others_turn"

_RECURS = (Tag.FIRST_IN_EPOCH, Tag.AFTER_VALIDATION, Tag.AFTER_CHECKPOINT)
"""Tags of steps that come after something that may come back."""


def turns_probe(
    clock: DeviceClock | None, info: RunInfo, micro_batches: int = 1, period: int = 0
) -> list[Probe]:
    """The probe, if this process is to take turns; none where ranks are on several machines.

    It belongs behind all others: what they do as a step closes is part of the turn.

    Args:
        clock: The device's; `None` where nothing is waited for.
        info: Of the run: its ranks.
        micro_batches: Batches of a step.
        period: Batches after which what the loop does now and then comes back; 0 if not known.
    """
    place = this_participant()
    if place is None:
        return []
    here = int(os.environ.get("LOCAL_WORLD_SIZE", info.world_size))
    if here < info.world_size:
        if info.rank == 0:
            Baton(place).refuse(
                f"{here} of {info.world_size} ranks on this machine; only the ranks of one machine "
                "can take turns"
            )
        return []
    return [
        TurnsProbe(
            Baton(place),
            clock,
            ranks=(info.rank, info.world_size),
            period=math.ceil(period / micro_batches),
        )
    ]


class TurnsProbe(Probe):
    """Waits for this training's turn, and gives way when it is over.

    Args:
        baton: Says whose turn it is.
        clock: The device's; `None` where nothing is waited for.
        ranks: That of this process, and how many take the turn together: each ends it after as
            many steps.
        period: Steps after which an epoch, a validation or a checkpoint comes back, as far as it
            is known.
    """

    name: ClassVar[str] = "turns"

    def __init__(
        self,
        baton: Baton,
        clock: DeviceClock | None,
        *,
        ranks: tuple[int, int] = (0, 1),
        period: int = 0,
    ) -> None:
        self._baton = baton
        self._clock = clock
        self._ranks, self.period = ranks, period
        self._last: dict[Tag, int] = {}
        """Index of the last step with each of these tags."""

    def begin(self) -> None:
        """Wait for the other training to begin, and for the first turn; at the end give way."""
        self.undo.callback(self._baton.close)
        self._wait(partial(self._baton.join, *self._ranks))

    def close(self, draft: Draft) -> None:
        """Give way if this was the last step of the turn.  Runs every step."""
        turn = self._turn
        if turn is None:
            return
        self._steps += 1
        if draft.tags:
            self._look_for_period(draft)
        if self._steps == 1:
            draft.tags |= Tag.TURN_BOUNDARY
            self.noted["turns"] = TAKEN
        if turn.alone:
            draft.tags |= Tag.OUT_OF_TURN
        if not draft.tags & DISQUALIFYING:
            self._steady_ns.append(sum(draft.host_ns))
        # A trace has no room for the other's turn: it would look like waiting.
        if self._steps < turn.steps or self.recorder.listener is not None:
            return
        if self._clock is not None:
            self._finish_on_device(self._clock, draft)
        self._wait(lambda: self._baton.pass_on(self._times()))

    def _wait(self, turn: Callable[[], Turn | None]) -> None:
        self.recorder.enter_gap(Gap.OTHERS_TURN)
        try:
            self._turn = turn()
        finally:
            self.recorder.leave()
        self._began_ns = self.recorder.switched_ns
        self._steps = 0
        self._steady_ns: list[int] = []

    def _look_for_period(self, draft: Draft) -> None:
        for tag in _RECURS:
            if draft.tags & tag:
                self.period = max(self.period, draft.index - self._last.get(tag, draft.index))
                self._last[tag] = draft.index

    def _times(self) -> TurnTime | None:
        if not self._steady_ns:
            return None
        return TurnTime(
            steps=self._steps,
            steady=len(self._steady_ns),
            steady_ns=median(self._steady_ns),
            # The gap that waiting is began when the last step was over.
            whole_ns=(self.recorder.switched_ns - self._began_ns) / self._steps,
            period=self.period,
        )

    def ended(self, reason: str) -> None:
        """Wait for the other fit to be over: reports of this one would disturb it.

        Unless this one failed, which should be known at once.
        """
        self._turn = None
        if reason == FINISHED:
            self._baton.leave()

    def _finish_on_device(self, clock: DeviceClock, draft: Draft) -> None:
        """What is still queued there is part of this turn, and of its last step."""
        fences = clock.fences()
        for fence in fences:
            fence.synchronize()
        clock.release(fences)
        self.recorder.prolong(draft)
        draft.tags |= Tag.TURN_BOUNDARY

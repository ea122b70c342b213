"""Feeds device time: events at the marks of a step, on the stream that computes.

Marks are recorded, never waited for.  They are read when the group's fence has been reached, which
on one stream means that every mark before it has been reached too.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from trainperf.core.machine.clocks import TimingEvent
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.probes.base import Probe, add
from trainperf.recording.recorder import Draft


class Mark(IntEnum):
    """A moment in a step at which an event is put into the device's queue."""

    FETCH_BEGINS = 0
    FETCH_ENDS = 1
    COPY_BEGINS = 2
    COPY_ENDS = 3
    LAST_GRADIENT = 4
    FORWARD_ENDS = 5
    BACKWARD_ENDS = 6


_SPANS: Mapping[int, tuple[int, str]] = {
    Mark.FETCH_ENDS: (Mark.FETCH_BEGINS, "data_stall_ns"),
    Mark.COPY_ENDS: (Mark.COPY_BEGINS, "h2d_device_ns"),
    Mark.BACKWARD_ENDS: (Mark.LAST_GRADIENT, "tail_ns"),
}
"""Device time from a mark to the next one of these, summed over the step, is the fact."""

_LEADS = {Mark.FORWARD_ENDS: "lead_forward", Mark.BACKWARD_ENDS: "lead_backward"}


class MarksProbe(Probe):
    """Data stall, transfer time and host lead on an asynchronous device."""

    name = "device marks"
    reads_device = True
    facts: ClassVar[tuple[str, ...]] = (
        "data_stall_ns",
        "h2d_device_ns",
        "lead_forward",
        "lead_backward",
    )

    def __init__(self, clock: DeviceClock) -> None:
        self._clock = clock

    def mark(self, mark: Mark) -> None:
        """Record an event in the open step.  Runs several times every step."""
        draft = self.recorder.draft
        if draft is None or self._clock.device.is_capturing():
            return
        lead = _LEADS.get(mark)
        if lead is not None:
            # The largest over the micro-batches: one that ran ahead is enough not to be waited for.
            draft.facts[lead] = max(draft.facts[lead] or 0, self._clock.lead())
        draft.marks.append((mark, self._clock.mark()))

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Turn the marks of the group's steps into device times."""
        for draft in drafts:
            begun: dict[int, TimingEvent | None] = {}
            unknown = set()
            for mark, event in draft.marks:
                begun[mark] = event
                first, fact = _SPANS.get(mark, (mark, ""))
                if fact not in draft.facts or first not in begun:
                    continue
                start = begun.pop(first)
                if start is None or event is None:
                    unknown.add(fact)
                else:
                    add(draft, fact, round(start.elapsed_time(event) * 1e6))
            draft.facts.update(dict.fromkeys(unknown))  # a sum with a part missing is no sum
            self._clock.release([event for _, event in draft.marks if event is not None])
            draft.marks = []

    def dropped(self) -> int:
        """Marks given up because every event was in flight."""
        return self._clock.dropped

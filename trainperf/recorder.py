"""Where does the host's time go?  One current slot at every moment, switched by the adapters.

The recorder owns the timeline of one fit.  Every nanosecond between `begin` and `end` is added to
exactly one slot, so steps and gaps tile the fit and phases tile a step by construction; what an
adapter has to get right is which slot is current when.  Nothing else reads the host clock.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from msgspec.structs import replace

from trainperf.clocks.base import HostClock, TimingEvent
from trainperf.phases import FIRST_GAP, GAPS, PHASES, SLOTS, Gap, Phase, Tag
from trainperf.records import GapRecord


_NO_TIME = [0] * len(PHASES)
_NO_MARK = -1


class PhaseListener(Protocol):
    """Is told when phases and gaps begin and end, e.g. to mark them in a trace."""

    def entered(self, slot: int) -> None:
        """A phase or gap began inside the current one."""
        ...

    def left(self) -> None:
        """The innermost one ended."""
        ...

    def cleared(self) -> None:
        """Whatever was open is over; the recorder's `slot` says what goes on now."""
        ...


class Draft:
    """A step that is not finished: its device times and facts are still to come."""

    __slots__ = (
        "facts",
        "host_ns",
        "index",
        "marks",
        "micro_batches",
        "start_ns",
        "switches",
        "tags",
    )

    def __init__(self, index: int, start_ns: int, tags: int, facts: list[float | None]) -> None:
        self.index = index
        self.start_ns = start_ns
        self.tags = tags
        self.micro_batches = 0
        self.switches = 0
        self.host_ns: list[int] = _NO_TIME
        self.facts = facts
        self.marks: list[tuple[int, TimingEvent | None]] = []


class Recorder:
    """The host timeline of one fit and the steps cut out of it.

    `columns` are the facts that probes will fill in, in the order of the rows.
    """

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        self._blank: list[float | None] = []
        self.columns: tuple[str, ...] = ()
        self._spent = [0] * SLOTS
        self._stack: list[int] = []
        self._slot = int(Gap.STARTUP)
        self._since = self._zero = clock()
        self._gap_started = [self._since] * SLOTS
        self._next_tags = 0
        self._next_marks: list[tuple[int, TimingEvent | None]] = []
        self._complete = False
        self._switches = 0
        self.index = -1
        """Number of the current or last step."""
        self.draft: Draft | None = None
        """The open step."""
        self.closed: list[Draft] = []
        self.gaps: list[GapRecord] = []
        self.on_close: Callable[[Draft], object] | None = None
        """Called with every step as it closes; guarded by whoever sets it."""
        self.listener: PhaseListener | None = None

    # -- setting up ---------------------------------------------------------------------------

    def set_columns(self, columns: tuple[str, ...]) -> None:
        """Fix the facts of every later step."""
        self.columns = columns
        self._blank = [None] * len(columns)

    def column(self, name: str) -> int:
        """Place of a fact in `Draft.facts`."""
        return self.columns.index(name)

    # -- phases: run many times every step ----------------------------------------------------

    def enter(self, phase: int) -> None:
        """Begin a phase; the surrounding one is paused.  Inside a gap everything stays gap."""
        now = self._clock()
        slot = self._slot
        self._spent[slot] += now - self._since
        self._since = now
        self._stack.append(slot)
        self._switches += 1
        if slot < FIRST_GAP:
            self._slot = phase
        if self.listener is not None:
            self.listener.entered(self._slot)

    def leave(self) -> None:
        """End the innermost phase or gap and go on with the one around it."""
        now = self._clock()
        self._spent[self._slot] += now - self._since
        self._since = now
        if self._stack:
            self._slot = self._stack.pop()
        if self.listener is not None:
            self.listener.left()

    def spent_ns(self, slot: int) -> int:
        """Time accounted to a slot since the step (or the gap) began, up to the last switch."""
        return self._spent[slot]

    @property
    def slot(self) -> int:
        """The current phase or gap."""
        return self._slot

    @property
    def ground(self) -> int:
        """The phase or gap under everything that is open now."""
        return self._stack[0] if self._stack else self._slot

    @property
    def depth(self) -> int:
        """How many phases and gaps are open around the current one."""
        return len(self._stack)

    def unwind(self, depth: int) -> None:
        """End what is open beyond *depth*: an error that was caught leaves phases unended."""
        while len(self._stack) > depth:
            self.leave()

    def now_ns(self) -> int:
        """The host clock, for the few facts that are host times themselves."""
        return self._clock()

    # -- gaps ---------------------------------------------------------------------------------

    def enter_gap(self, gap: Gap) -> None:
        """Begin a gap inside whatever is current, to be ended with `leave_gap`."""
        inside = gap == self._slot or gap in self._stack
        self._switch(int(gap), push=True)
        if not inside:
            self._gap_started[gap] = self._since
        if self.listener is not None:
            self.listener.entered(gap)

    def leave_gap(self) -> None:
        """End the gap begun with `enter_gap`."""
        gap = self._slot
        self.leave()
        over = gap != self._slot and gap not in self._stack
        if over and gap >= FIRST_GAP:  # a step may have ended inside it, and the gap with it
            self._settle(gap)

    def rest(self, slot: int, *, since_last: bool = False) -> None:
        """Make *slot* the ground state, whatever was open above it.

        With *since_last* the time since the last switch belongs to the new slot already: nothing
        announces that validation is about to build its loader, only that training has stopped.
        """
        started = self._since
        if since_last:
            self._since = self._clock()
            self._spent[slot] += self._since - started
        else:
            self._switch(self._slot)
            started = self._since
        self._ground(slot, started)

    def _ground(self, slot: int, started: int) -> None:
        left = dict.fromkeys((*self._stack, self._slot))
        self._stack.clear()
        self._slot = slot
        for before in left:
            if before != slot and before >= FIRST_GAP:
                self._settle(before)
        if slot not in left:
            self._gap_started[slot] = started
        if self.listener is not None:
            self.listener.cleared()

    # -- steps --------------------------------------------------------------------------------

    @property
    def awaits_batch(self) -> bool:
        """Whether the next batch begins a step: none is open, or the open one is complete."""
        return self.draft is None or self._complete

    def boundary(self) -> None:
        """The loop asks for the first batch of a step, or for the next of the open one."""
        draft = self.draft
        if draft is not None and not self._complete:
            self.rest(Phase.OTHER)
            return
        self._switch(self._slot)
        if draft is not None:
            self._close(draft)
        if self._stack or self._slot >= FIRST_GAP or self.listener is not None:
            self._ground(Phase.OTHER, self._since)
        self._slot = int(Phase.OTHER)
        self._open()

    def micro_batch_done(self, *, complete: bool) -> None:
        """A forward-backward pass is over; *complete* when the optimizer was stepped in it."""
        if self.draft is not None:
            self.draft.micro_batches += 1
            self._complete = self._complete or complete

    def last_hook_done(self) -> None:
        """The step's last hook has returned: from here it is the framework's own time."""
        if self.ground >= FIRST_GAP:
            return
        self._switch(int(Phase.LOOP) if not self._stack else self._slot)
        if self._stack or self.listener is not None:
            self._ground(Phase.LOOP, self._since)

    def epoch_ended(self) -> None:
        """No further batch follows in this epoch."""
        self.rest(Gap.EPOCH_BOUNDARY)
        self._finish_step(Gap.EPOCH_BOUNDARY)
        self._next_tags |= Tag.FIRST_IN_EPOCH

    def end(self) -> int:
        """End the fit; returns its length in nanoseconds."""
        self.rest(Gap.SHUTDOWN)
        self._finish_step(Gap.SHUTDOWN)
        for gap in GAPS:  # `leave` may have ended one that nobody settled
            if self._spent[gap] or gap is Gap.SHUTDOWN:
                self._emit(gap)
        return self._since - self._zero

    def tag(self, tag: Tag) -> None:
        """Tag the open step."""
        if self.draft is not None:
            self.draft.tags |= tag

    def take(self) -> tuple[list[Draft], list[GapRecord]]:
        """The steps and gaps finished since the last call."""
        taken = self.closed, self.gaps
        self.closed, self.gaps = [], []
        return taken

    # -- inside -------------------------------------------------------------------------------

    def _switch(self, slot: int, *, push: bool = False) -> None:
        now = self._clock()
        self._spent[self._slot] += now - self._since
        self._since = now
        self._switches += 1
        if push:
            self._stack.append(self._slot)
        self._slot = slot

    def _settle(self, slot: int) -> None:
        """A gap is over."""
        self._emit(slot)
        if slot == Gap.VALIDATION:
            self._tag_soon(Tag.AFTER_VALIDATION)
        elif slot == Gap.CHECKPOINT:
            self._tag_soon(Tag.AFTER_CHECKPOINT)

    def _emit(self, gap: int) -> None:
        duration, self._spent[gap] = self._spent[gap], 0
        started, self._gap_started[gap] = self._gap_started[gap], self._since
        self.gaps.append(
            GapRecord(
                gap=GAPS[gap - FIRST_GAP].label,
                start_ns=started - self._zero,
                duration_ns=duration,
                after_step=self.index,
            )
        )

    def _tag_soon(self, tag: Tag) -> None:
        """Tag the step that runs next: the open one, unless it is complete."""
        if self.awaits_batch or self.draft is None:
            self._next_tags |= tag
        else:
            self.draft.tags |= tag

    def _open(self) -> None:
        self.index += 1
        tags = self._next_tags | (Tag.FIRST_IN_EPOCH if self.index == 0 else 0)
        self.draft = Draft(self.index, self._since - self._zero, int(tags), self._blank.copy())
        self._next_tags = 0
        if self._next_marks:
            self.draft.marks, self._next_marks = self._next_marks, []
        self._complete = False

    def _close(self, draft: Draft) -> None:
        draft.host_ns = self._spent[:FIRST_GAP]
        draft.switches, self._switches = self._switches, 0
        self._spent[:FIRST_GAP] = _NO_TIME
        self.draft = None
        self._complete = False
        if self.on_close is not None:
            self.on_close(draft)
        self.closed.append(draft)

    def _finish_step(self, gap: Gap) -> None:
        """Close the open step; one in which no batch ran was none, and its time is the gap's."""
        draft, complete = self.draft, self._complete
        if draft is None:
            return
        if draft.micro_batches:
            if not complete:
                draft.tags |= Tag.PARTIAL_GROUP
            self._close(draft)
            return
        self._spent[gap] += sum(self._spent[:FIRST_GAP])
        self._spent[:FIRST_GAP] = _NO_TIME
        self._gap_started[gap] = draft.start_ns + self._zero
        self._next_tags |= draft.tags
        # The device may not have come there yet: the next step gives the events back to the pool.
        self._next_marks += [(_NO_MARK, event) for _, event in draft.marks]
        self.index -= 1
        for place, earlier in enumerate(self.gaps):
            if earlier.after_step > self.index:
                self.gaps[place] = replace(earlier, after_step=self.index)
        self.draft = None
        self._complete = False


class PhaseBracket:
    """A context manager around one phase: what `enter` and `leave` do, in one call each.

    Runs a dozen times every step.  Needs no guard: it adds integers and moves one slot.
    """

    __slots__ = ("_before", "_phase", "_recorder", "total_ns")

    def __init__(self, recorder: Recorder, phase: Phase) -> None:
        self._recorder = recorder
        self._phase = int(phase)
        self._before = 0
        self.total_ns = 0
        """Host time inside this bracket so far, without what nested phases took."""

    def __enter__(self) -> None:
        recorder, phase = self._recorder, self._phase
        now, slot = recorder._clock(), recorder._slot
        spent = recorder._spent
        spent[slot] += now - recorder._since
        recorder._since = now
        recorder._stack.append(slot)
        recorder._switches += 1
        if slot < FIRST_GAP:
            recorder._slot = phase
        self._before = spent[phase]
        if recorder.listener is not None:
            recorder.listener.entered(recorder._slot)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        now, spent = recorder._clock(), recorder._spent
        spent[recorder._slot] += now - recorder._since
        recorder._since = now
        if recorder._stack:
            recorder._slot = recorder._stack.pop()
        self.total_ns += spent[self._phase] - self._before
        if recorder.listener is not None:
            recorder.listener.left()

"""Timeline of the host: one current slot at every moment, switched by the adapters.

Every nanosecond since the timeline began is added to exactly one slot, a phase or a gap, so they
tile the fit by construction; what an adapter has to get right is which slot is current when.
Nothing else reads the host clock.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias, cast

from trainperf.core.machine.clocks import HostClock
from trainperf.core.phases import FIRST_GAP, GAPS, LABELS, SLOTS, Gap, Phase
from trainperf.core.steps.records import GapRecord


MOST_OWN = 64
"""Phases that a loop may name itself."""

Moment: TypeAlias = tuple[int, list[int]]
"""Where an account of phases stood, to go back to."""


class PhaseListener(Protocol):
    """Is told when phases and gaps begin and end, e.g. to mark them in a trace."""

    def entered(self, slot: int) -> None:
        """A phase or gap began inside the current one."""

    def left(self) -> None:
        """The innermost one ended."""

    def cleared(self) -> None:
        """Whatever was open is over; the recorder's `slot` says what goes on now."""


class Timeline:
    """The host's time in phases and gaps, on one stack that holds both.  It begins with a gap."""

    def __init__(self, clock: HostClock) -> None:
        self._spent = [0] * SLOTS
        self.own: list[str] = []
        """Phases that the loop names itself: their slots are -1, -2, … and end the list above."""
        self._stack: list[int] = []
        self.now_ns = clock
        """The host clock, for the few facts that are host times themselves."""
        self.slot = int(Gap.STARTUP)
        """The current phase or gap; to be read only."""
        self.zero_ns = clock()
        """When the fit began, by the host clock: what times in files are counted from."""
        self.switched_ns = self.zero_ns
        """Moment of the last switch, by the host clock."""
        self._gap_started = [self.switched_ns] * SLOTS
        self._switches = 0
        self.index = -1
        """Number of the current or last step."""
        self.gaps: list[GapRecord] = []
        """Gaps that are over."""
        self.listener: PhaseListener | None = None
        self.on_gap: Callable[[bool], object] | None = None
        """Called with true when training stops for a gap, with false when a gap is over."""

    def own_slot(self, name: str) -> int:
        """Slot of a phase with a name of the loop's own; in records it is a part of `other`.

        A loop that numbers its phases has names for the first ones only.
        """
        if name not in self.own:
            if len(self.own) == MOST_OWN:
                return int(Phase.OTHER)
            self.own.append(name)
            self._spent.insert(SLOTS, 0)
        return -1 - self.own.index(name)

    @property
    def label(self) -> str:
        """Name of the current phase or gap."""
        return LABELS[self.slot] if self.slot >= 0 else self.own[-1 - self.slot]

    @property
    def recorded_slot(self) -> int:
        """The current phase or gap, as records have it."""
        return self.slot if self.slot >= 0 else int(Phase.OTHER)

    # -- phases: run many times every step ----------------------------------------------------

    def enter(self, phase: int) -> None:
        """Begin a phase, or a gap; what is around it pauses.  Inside a gap all phases are gap."""
        now = self.now_ns()
        slot = self.slot
        self._spent[slot] += now - self.switched_ns
        self.switched_ns = now
        self._stack.append(slot)
        self._switches += 1
        if slot < FIRST_GAP or phase >= FIRST_GAP:
            self.slot = phase
        if self.listener is not None:
            self.listener.entered(self.recorded_slot)

    def leave(self, *_: object) -> None:
        """End the innermost phase or gap and go on with the one around it."""
        now = self.now_ns()
        slot = self.slot
        self._spent[slot] += now - self.switched_ns
        self.switched_ns = now
        if self._stack:
            self.slot = self._stack.pop()
        if self.listener is not None:
            self.listener.left()
        # A step may have ended inside a gap, and the gap with it.
        if slot >= FIRST_GAP and slot != self.slot and slot not in self._stack:
            self._emit(slot)
            if self.on_gap is not None:
                self.on_gap(False)

    def moment(self) -> Moment:
        """As it stood at the last switch."""
        return self.switched_ns, self._spent[:FIRST_GAP]

    def back_to(self, moment: Moment) -> None:
        """Take back what the phases were given since; what goes on since is the current one."""
        self.switched_ns, self._spent[:FIRST_GAP] = moment

    @property
    def ground(self) -> int:
        """The phase or gap under everything that is open now."""
        return self._stack[0] if self._stack else self.slot

    @property
    def open(self) -> list[int]:
        """The ground and what is open on it, each inside the one before, as records have them."""
        slots = (*self._stack, self.slot)
        return [slot if slot >= 0 else int(Phase.OTHER) for slot in slots]

    @property
    def depth(self) -> int:
        """How many phases and gaps are open around the current one."""
        return len(self._stack)

    @property
    def inside_gap(self) -> bool:
        """Whether a gap was entered and not left: what runs in it is no part of a step.

        A phase that is entered while the fit rests in a gap is none.
        """
        return self.slot >= FIRST_GAP and self.slot != self.ground

    def unwind(self, depth: int) -> None:
        """End what is open beyond *depth*: an error that was caught leaves phases unended."""
        while len(self._stack) > depth:
            self.leave()

    # -- gaps ---------------------------------------------------------------------------------

    def enter_gap(self, gap: Gap) -> None:
        """Begin a gap inside whatever is current, to be ended with `leave`."""
        inside = gap == self.slot or gap in self._stack
        if self.on_gap is not None and self.slot < FIRST_GAP:
            self.on_gap(True)
        self.enter(int(gap))
        if not inside:
            self._gap_started[gap] = self.switched_ns

    def rest(self, slot: int, *, since_last: bool = False) -> None:
        """Make *slot* the ground state, whatever was open above it.

        With *since_last* the time since the last switch belongs to the new slot already: nothing
        announces that validation is about to build its loader, only that training has stopped.
        """
        started, now = self.switched_ns, self.now_ns()
        self._spent[slot if since_last else self.slot] += now - started
        self.switched_ns = now
        if not since_last:
            started = now
            self._switches += 1
        if self._stack or self.listener is not None or max(slot, self.slot) >= FIRST_GAP:
            self._ground(slot, started)
        self.slot = slot

    def _ground(self, slot: int, started: int) -> None:
        left = dict.fromkeys((*self._stack, self.slot))
        self._stack.clear()
        self.slot = slot
        paused = any(before >= FIRST_GAP for before in left)
        if self.on_gap is not None and (paused or slot >= FIRST_GAP):
            self.on_gap(not paused)
        for before in left:
            if before != slot and before >= FIRST_GAP:
                self._emit(before)
        if slot not in left:
            self._gap_started[slot] = started
        if self.listener is not None:
            self.listener.cleared()

    # -- inside -------------------------------------------------------------------------------

    def _emit(self, gap: int) -> None:
        """A gap has ended; its time is told."""
        duration, self._spent[gap] = self._spent[gap], 0
        started, self._gap_started[gap] = self._gap_started[gap], self.switched_ns
        self.gaps.append(
            GapRecord(
                gap=GAPS[gap - FIRST_GAP].label,
                start_ns=started - self.zero_ns,
                duration_ns=duration,
                after_step=self.index,
            )
        )


class DirectBracket:
    """A context manager that consists of two functions, with no code of its own around them.

    `with` looks its methods up on the type, where these slots give it what the object holds.  Runs
    several times every step, unguarded: for functions that do no more than move a slot.
    """

    __slots__ = ("__enter__", "__exit__")

    def __init__(self, enter: Callable[..., object], leave: Callable[..., object]) -> None:
        self.__enter__ = cast("Callable[[], None]", enter)
        self.__exit__ = cast("Callable[..., None]", leave)


NO_BRACKET = DirectBracket(bool, "".format)
"""Does nothing, and runs no Python code for it: a step of a `Trainer` enters some thirty of these.

Both are built-ins that take whatever they are given and return something false.
"""


class HookBracket:
    """Around a phase that is a user's hook, of which one wants to know how long it takes."""

    __slots__ = ("_before", "_phase", "_timeline", "total_ns")

    def __init__(self, timeline: Timeline, phase: Phase) -> None:
        self._timeline, self._phase = timeline, int(phase)
        self._before = self.total_ns = 0
        """Host time inside this bracket so far, without what nested phases took."""

    def __enter__(self) -> None:
        self._timeline.enter(self._phase)
        self._before = self._timeline._spent[self._phase]

    def __exit__(self, *_: object) -> None:
        self._timeline.leave()
        self.total_ns += self._timeline._spent[self._phase] - self._before


def calibrate(clock: HostClock, pairs: int = 500) -> float:
    """Nanoseconds to enter and to leave a phase on this machine, clock readings included.

    In a row, with warm caches: in a loop it is more.
    """
    timeline = Timeline(clock)
    bracket = DirectBracket(partial(timeline.enter, int(Phase.FORWARD)), timeline.leave)
    begun = clock()
    for _ in range(pairs):
        with bracket:
            pass
    return (clock() - begun) / pairs

"""Steps of a fit, cut out of its host timeline at the loop's boundaries."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from trainperf.core.machine.clocks import HostClock, TimingEvent
from trainperf.core.phases import FIRST_GAP, PHASES, SLOTS, Gap, Phase, Tag
from trainperf.core.steps.own_sums import PHASE
from trainperf.core.steps.records import GapRecord
from trainperf.recording.timeline import Timeline


# Plain integers: an enumeration's member is looked up and compared several times as slowly.
_DATA_WAIT, _OTHER, _LOOP = int(Phase.DATA_WAIT), int(Phase.OTHER), int(Phase.LOOP)

_NO_TIME = [0] * len(PHASES)
_TAGS_AFTER: Mapping[int, int] = {
    Gap.VALIDATION: Tag.AFTER_VALIDATION,
    Gap.CHECKPOINT: Tag.AFTER_CHECKPOINT,
}


class Draft(msgspec.Struct):
    """A step that is not finished: its device times and facts are still to come.

    A `Struct` because one is made every step, and no Python code runs when it is.
    """

    index: int
    start_ns: int
    tags: int
    facts: dict[str, float | None]
    """The columns of the run, and nothing else."""
    micro_batches: int = 0
    complete: bool = False
    """Whether the optimizer was stepped: the next batch begins another step."""
    switches: int = 0
    host_ns: list[int] = []
    """Once the step is closed; empty before."""
    own: dict[str, int] = {}
    """What has no column, as `Totals.own` names it."""
    marks: list[tuple[int, TimingEvent | None]] = []


class Recorder(Timeline):
    """The host timeline of one fit and the steps cut out of it."""

    def __init__(self, clock: HostClock) -> None:
        super().__init__(clock)
        self._blank: dict[str, float | None] = {}
        self.fetch: Callable[[], None] = partial(self.boundary, _DATA_WAIT)
        """The loop asks for a batch and waits for it: a boundary and data wait, at one moment."""
        self._next_tags = int(Tag.FIRST_IN_EPOCH)
        self._next_marks: list[tuple[int, TimingEvent | None]] = []
        self.draft: Draft | None = None
        """The open step."""
        self._own: Counter[str] = Counter()
        self.ended = False
        """Whether the fit is over: what the thread does now is in no gap."""
        self.closed: list[Draft] = []
        self.on_close: Callable[[Draft], object] | None = None
        """Called with every step as it closes; guarded by whoever sets it."""

    # -- setting up ---------------------------------------------------------------------------

    def set_columns(self, columns: tuple[str, ...], counts: Collection[str] = ()) -> None:
        """Fix the facts of every later step; *counts* begin at 0, not as unknown."""
        self._blank = {name: 0 if name in counts else None for name in columns}

    # -- steps --------------------------------------------------------------------------------

    @property
    def awaits_batch(self) -> bool:
        """Whether the next batch begins a step: none is open, or the open one is complete."""
        return self.draft is None or self.draft.complete

    def boundary(self, slot: int = _OTHER) -> None:
        """The loop asks for the first batch of a step, or for the next of the open one.

        Runs every micro-batch, so nothing in it is a call that need not be.  Another *slot* than
        `other` is a phase that begins in it at the same moment.
        """
        draft = self.draft
        if draft is not None and not draft.complete:
            self.rest(_OTHER)
        else:
            now, spent = self.now_ns(), self._spent
            spent[self.slot] += now - self.switched_ns
            self.switched_ns = now
            self._switches += 1
            if draft is not None:
                self._close(draft)  # which may take time, in a gap of its own
            if self._stack or self.slot >= FIRST_GAP or self.listener is not None:
                self._ground(_OTHER, self.switched_ns)
            self.slot = _OTHER
            self.index += 1
            tags, self._next_tags = self._next_tags, 0
            self.draft = Draft(
                self.index, self.switched_ns - self.zero_ns, tags, self._blank.copy()
            )
            if self._next_marks:
                self.draft.marks, self._next_marks = self._next_marks, []
        if slot != _OTHER:
            self._stack.append(_OTHER)
            self.slot = slot
            if self.listener is not None:
                self.listener.entered(slot)

    def last_hook_done(self, *_: object) -> None:
        """The step's last hook has returned: from here it is the framework's own time."""
        stack = self._stack
        if (stack[0] if stack else self.slot) < FIRST_GAP:
            self.rest(_LOOP)

    def epoch_ended(self) -> None:
        """No further batch follows in this epoch."""
        self.rest(Gap.EPOCH_BOUNDARY)
        self._finish_step(Gap.EPOCH_BOUNDARY)
        self._next_tags |= Tag.FIRST_IN_EPOCH

    def no_epoch_follows(self) -> None:
        """An error has ended the epoch: what has passed since is no boundary, but the end."""
        if self.ground == Gap.EPOCH_BOUNDARY:
            self.rest(Gap.EPOCH_BOUNDARY)
            boundary, end = Gap.EPOCH_BOUNDARY, Gap.SHUTDOWN
            self._spent[end], self._spent[boundary] = self._spent[boundary], 0
            self._gap_started[end] = self._gap_started[boundary]
            self.slot = int(end)

    def abandon(self) -> None:
        """Measure nothing more: what follows is no step's, and the open step is none."""
        self.rest(Gap.SHUTDOWN)
        if self.draft is not None:
            self.draft.micro_batches = 0
        self._finish_step(Gap.SHUTDOWN)

    def end(self) -> int:
        """End the fit; returns its length in nanoseconds."""
        if self._stack or self.slot != Gap.SHUTDOWN:
            self.rest(Gap.SHUTDOWN)
        self.leave()  # nothing is open: what has passed since is the gap's
        self._finish_step(Gap.SHUTDOWN)
        self._emit(Gap.SHUTDOWN)
        self.ended = True
        return self.switched_ns - self.zero_ns

    def prolong(self, draft: Draft) -> None:
        """What has passed since *draft* was closed is part of it; for `on_close` alone."""
        now = self.now_ns()
        draft.host_ns[_OTHER] += now - self.switched_ns
        self.switched_ns = now

    def take(self) -> tuple[list[Draft], list[GapRecord]]:
        """The steps and gaps finished since the last call."""
        taken = self.closed, self.gaps
        self.closed, self.gaps = [], []
        return taken

    def count(self, name: str, number: int) -> None:
        """Add to what the open step has of something without a column."""
        if self.slot < FIRST_GAP:
            self._own[name] += number

    # -- inside -------------------------------------------------------------------------------

    def _take_own(self) -> dict[str, int]:
        """What the step has of its own; phases that the loop has named become part of `other`."""
        spent = self._spent
        for place, name in enumerate(reversed(self.own), SLOTS):
            self._own[f"{PHASE}{name}"] += spent[place]
            spent[_OTHER] += spent[place]
            spent[place] = 0
        own, self._own = dict(self._own), Counter()
        return own

    def _emit(self, gap: int) -> None:
        """A gap is over; the step that runs next comes after it: an open one, unless complete."""
        super()._emit(gap)
        tag = _TAGS_AFTER.get(gap, 0)
        if self.draft is None or self.draft.complete:
            self._next_tags |= tag
        else:
            self.draft.tags |= tag

    def _close(self, draft: Draft) -> None:
        if self.own or self._own:
            draft.own = self._take_own()
        draft.host_ns = self._spent[:FIRST_GAP]
        draft.switches, self._switches = self._switches, 0
        self._spent[:FIRST_GAP] = _NO_TIME
        self.draft = None
        if self.on_close is not None:
            self.on_close(draft)
        self.closed.append(draft)

    def _finish_step(self, gap: Gap) -> None:
        """Close the open step; one in which no batch ran was none, and its time is the gap's."""
        draft = self.draft
        if draft is None:
            return
        if draft.micro_batches:
            if not draft.complete:
                draft.tags |= Tag.PARTIAL_GROUP
            self._close(draft)
            return
        self._take_own()
        self._spent[gap] += sum(self._spent[:FIRST_GAP])
        self._spent[:FIRST_GAP] = _NO_TIME
        self._gap_started[gap] = draft.start_ns + self.zero_ns
        self._next_tags |= draft.tags
        # The device may not have come there yet: the next step gives the events back to the pool.
        self._next_marks += [(-1, event) for _, event in draft.marks]
        self.index -= 1
        self.gaps = [
            replace(earlier, after_step=min(earlier.after_step, self.index))
            for earlier in self.gaps
        ]
        self.draft = None

"""Records that a story must leave, and those that a run has left, field by field."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from support.conformance.story import (
    COMPLETE,
    EPOCH,
    FETCH,
    MARKS,
    MICRO_BATCH,
    ROWS,
    SHORT,
    TOKENS,
    UNTOLD,
    VALIDATED,
    Event,
    Story,
    amount_ns,
    loss_of,
    tokens_of,
)
from support.loops import Written

from trainperf.core.phases import GAPS, PHASES, TAGS, Tag
from trainperf.core.steps.records import FINISHED, ended_by


FACTS = ("loss", "samples", "tokens_effective", "tokens_padded", "attempts", "overflows")
OF_THE_MACHINE = Tag.WARMUP | Tag.GC | Tag.RECOMPILED
"""Tags that depend on this process and on how the machine behaves, not on the story."""
_GAPS = {gap.label for gap in GAPS}


@dataclass(eq=True)
class Step:
    """A step as it is compared."""

    phases_ns: dict[str, int] = field(default_factory=dict)
    """Those that took time."""
    tags: set[str] = field(default_factory=set)
    micro_batches: int = 0
    facts: dict[str, float] = field(default_factory=dict)
    """Those that are known."""

    def spend(self, slot: str, ns: int) -> None:
        """So long in a phase."""
        self.phases_ns[slot] = self.phases_ns.get(slot, 0) + ns

    def add(self, fact: str, number: float) -> None:
        """To a fact that is summed over micro-batches."""
        self.facts[fact] = self.facts.get(fact, 0) + number


@dataclass(eq=True)
class Records:
    """What a fit leaves, as it is compared."""

    steps: list[Step] = field(default_factory=list)
    gaps: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, nanoseconds, and the step after which it came, of those that took time."""
    reason: str = FINISHED
    notes: set[str] = field(default_factory=set)
    """Phases and other things about which a note says how they were measured."""
    faults: dict[str, str] = field(default_factory=dict)


def of_run(run: Written) -> Records:
    """Those of a run that was closed; its steps and gaps must tile the fit."""
    spent_ns = sum(step.wall_ns for step in run.steps) + sum(gap.duration_ns for gap in run.gaps)
    assert spent_ns == run.end.fit_ns
    assert [step.index for step in run.steps] == list(range(run.end.steps))
    steps = []
    for step in run.steps:
        times = zip(PHASES, step.host_ns, strict=True)
        steps.append(
            Step(
                {phase.label: ns for phase, ns in times if ns},
                {tag.label for tag in TAGS if tag & step.tags & ~OF_THE_MACHINE},
                step.micro_batches,
                {name: step.facts[name] for name in FACTS if step.facts.get(name) is not None},
            )
        )
    gaps = [(gap.gap, gap.duration_ns, gap.after_step) for gap in run.gaps if gap.duration_ns]
    notes = {*run.totals.notes} & {"step", "data_wait", "forward", "backward"}
    return Records(steps, gaps, run.end.reason, notes, run.totals.faults)


class Account:
    """Cuts events into steps and gaps.

    Args:
        story: Whose events they are.
    """

    def __init__(self, story: Story) -> None:
        self.records = Records()
        self._story = story
        self._step: Step | None = None
        self._complete = False
        self._gap, self._gap_ns, self._saved_ns = "startup", 0, 0
        self._tags: set[str] = set()
        self._last: int | None = None
        """The batch that was forwarded in this micro-batch."""

    def of(self, events: Sequence[Event]) -> Records:
        """The records of these events, up to the one that raises."""
        for event in events:
            if event in MARKS:
                self._mark(event)
            else:
                self._spend(event)
            if (event.place, event.number) == self._story.raises:
                self.records.reason = ended_by(self._story.error)
                break
        self._end()
        return self.records

    def _spend(self, event: Event) -> None:
        ns = amount_ns(event.place, event.number)
        if event.slot == "checkpoint":
            self._saved_ns += ns
            if event.place == "save":
                self.records.gaps.append(("checkpoint", self._saved_ns, self._index))
                self._next_tags.add("after_checkpoint")
                self._saved_ns = 0
        elif event.slot in _GAPS:
            self._gap, self._gap_ns = event.slot, self._gap_ns + ns
        elif self._step is not None:
            self._step.spend(event.slot, ns)
            if event.slot == "forward":
                self._last = event.batch

    @property
    def _next_tags(self) -> set[str]:
        """Those of the step that runs next."""
        goes_on = self._step is not None and not self._complete
        return self._step.tags if goes_on else self._tags

    @property
    def _index(self) -> int:
        return len(self.records.steps) - 1

    def _mark(self, mark: Event) -> None:
        step = self._step
        if mark is FETCH:
            self._leave_gap()
            if step is None or self._complete:
                self._open()
        elif mark in (MICRO_BATCH, UNTOLD) and step is not None:
            self._micro_batch(step, told=mark is MICRO_BATCH)
        elif mark is SHORT and step is not None:
            step.tags.add("partial_group")
        elif mark is COMPLETE and step is not None:
            self._close(step)
        elif mark is VALIDATED:
            self._leave_gap()
            self._next_tags.add("after_validation")
        elif mark is EPOCH:
            self._tags.add("first_in_epoch")
            self._step = None

    def _micro_batch(self, step: Step, *, told: bool) -> None:
        step.micro_batches += 1
        last, self._last = self._last, None
        if last is None:
            return
        if told:
            step.facts["loss"] = loss_of(last)
        step.add("samples", ROWS)
        step.add("tokens_effective", ROWS * tokens_of(last))
        step.add("tokens_padded", ROWS * TOKENS)

    def _open(self) -> None:
        self._step, self._complete = Step(tags=self._tags), False
        if not self.records.steps:
            self._step.tags.add("first_in_epoch")
        self._tags = set()
        self.records.steps.append(self._step)

    def _close(self, step: Step) -> None:
        self._complete = True
        if self._story.overflows is None:
            return
        overflows = "optimizer" not in step.phases_ns
        step.facts |= {"attempts": 1, "overflows": int(overflows)}
        if overflows:
            step.tags.add("overflow")

    def _leave_gap(self) -> None:
        if self._gap_ns:
            self.records.gaps.append((self._gap, self._gap_ns, self._index))
        self._gap_ns = 0

    def _end(self) -> None:
        self._leave_gap()
        step = self._step
        if step is None or self._complete:
            return
        if step.micro_batches:
            step.tags.add("partial_group")
            return
        self.records.steps.pop()
        gaps, last = self.records.gaps, self._index
        self.records.gaps = [(name, ns, min(after, last)) for name, ns, after in gaps]
        self._gap, self._gap_ns = "shutdown", sum(step.phases_ns.values())
        self._leave_gap()


def differences(records: Records, truth: Records) -> list[str]:
    """Every field of every record that is not as it must be."""
    fields = ("reason", "gaps", "notes", "faults")
    pairs = [(name, getattr(records, name), getattr(truth, name)) for name in fields]
    pairs.append(("steps", len(records.steps), len(truth.steps)))
    for number, (step, must) in enumerate(zip(records.steps, truth.steps, strict=False)):
        pairs += [
            (f"step {number} {name}", getattr(step, name), getattr(must, name))
            for name in ("tags", "micro_batches")
        ]
        for name in ("phases_ns", "facts"):
            of_step, of_truth = getattr(step, name), getattr(must, name)
            pairs += [
                (f"step {number} {key}", of_step.get(key), of_truth.get(key))
                for key in sorted(of_step.keys() | of_truth.keys())
            ]
    return [f"{name}: {is_}, must be {must}" for name, is_, must in pairs if is_ != must]

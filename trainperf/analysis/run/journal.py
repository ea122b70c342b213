"""Ledger of one rank: where every second of the fit's wall time went."""

from datetime import datetime
from typing import TypeVar

from trainperf.analysis.run.record_file import EVERY_STEP, Damaged, ReadSteps, Unread
from trainperf.analysis.run.window import start_time
from trainperf.core.phases import GAPS, PHASES, Gap
from trainperf.core.steps.block import Column, StepBlock
from trainperf.core.steps.codec import Entry
from trainperf.core.steps.records import EndMark, GapRecord, RunInfo, Totals
from trainperf.core.steps.stretches import Stretches


UNATTRIBUTED = "unattributed"
"""Ledger entry for wall time that no record accounts for (negative: accounted for twice)."""

NOT_RECURRING = frozenset(
    gap.label
    for gap in (
        Gap.STARTUP,
        Gap.SANITY_CHECK,
        Gap.PROFILER_DUMP,
        Gap.SHUTDOWN,
        Gap.RESTART,
        Gap.OTHERS_TURN,
    )
)
"""Gaps that happen once in a fit or are not its own work; all others belong to a step's cycle."""

MOST_HOOK_LOOKS = 128

_NO_TOTALS = Totals(at_step=-1)

K = TypeVar("K", str, int)


class Journal:
    """Sums over one rank's files, added up while they are read.

    It has every step of the rank, steady or not.  Times are nanoseconds on the host's clock;
    where there is no end mark, the fit lasted up to the last line.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.steps = 0
        self.phase_ns = [0] * len(PHASES)
        self.gap_ns: dict[str, int] = {}
        self.gap_counts: dict[str, int] = {}
        self.gaps_after: dict[int, int] = {}
        """Step to the nanoseconds of recurring gaps that follow it, numbered as the replay does;
        whoever uses one takes it out."""
        self.fit_ns = 0
        self.damaged_lines = 0
        self.end: EndMark | None = None
        """How the latest attempt ended; `None` while it is being written, or when it was cut."""
        self.totals = _NO_TOTALS
        """Of all attempts together."""
        self.learned = _NO_TOTALS
        """Of the latest attempt alone."""
        self.unread: list[Stretches] = []
        """Steps that are counted here and were not read, numbered as the replay does."""
        self.pauses: dict[str, list[tuple[int, int]]] = {}
        """Gap to the step before it and its nanoseconds, in order."""
        self.hooks: list[tuple[int, dict[str, int]]] = []
        """Step to what the user's hooks had taken by then, now and then."""
        self._earlier = _NO_TOTALS
        self._begun = 0
        self._started: datetime | None = None
        self._window = False
        self._until_ns = 0
        self._origin_ns: int | None = None
        self._reached_ns = 0
        self._attributed_ns = 0

    def begin(self, info: RunInfo, begun: int = 0, chosen: ReadSteps = EVERY_STEP) -> None:
        """An attempt starts, after so many steps of earlier ones.

        The time since the one before was cut off is a `restart` gap.
        """
        self._begun = begun
        started = start_time(info.started_at)
        if self._started and started and not chosen.first:
            since_ns = round((started - self._started).total_seconds() * 1e9) - self._until_ns
            if since_ns >= 0 and (self._until_ns or not self._window):
                self._add_gap(Gap.RESTART.label, since_ns, -1)
                self.fit_ns += since_ns
        self._started = started
        self._window, self._origin_ns = chosen.is_window, None
        self._earlier, self.learned, self.end = self.totals, _NO_TOTALS, None
        self._reached_ns = self._attributed_ns = self._until_ns = 0

    def close(self) -> None:
        """The attempt's file has been read to its end."""
        # A gap cut out of the last step ends before the step does, hence the larger of the two.
        if self._window:
            self.fit_ns += max(self._reached_ns - (self._origin_ns or 0), self._attributed_ns)
            self._until_ns = self._reached_ns
            return
        known_ns = max(self._reached_ns, self._attributed_ns)
        self._until_ns = self.end.fit_ns if self.end else known_ns
        self.fit_ns += self._until_ns

    def add_steps(self, block: StepBlock) -> None:
        """Count a block of steps."""
        self.steps += len(block)
        for phase in PHASES:
            self.phase_ns[phase] += int(block.host_ns(phase).sum())
        self._attribute(block.start_ns, block.start_ns + block.wall_ns, block.total_wall_ns)

    def _attribute(self, starts_ns: Column, ends_ns: Column, spent_ns: float) -> None:
        first_ns = int(starts_ns.min())
        self._origin_ns = first_ns if self._origin_ns is None else min(self._origin_ns, first_ns)
        self._attributed_ns += int(spent_ns)
        self._reached_ns = max(self._reached_ns, int(ends_ns.max()))

    def _add_unread(self, stretches: Stretches) -> None:
        """Count steps that are not read."""
        self.steps += int(stretches["steps"].sum())
        spent_ns = [int(stretches[f"sum:{phase.label}"].sum()) for phase in PHASES]
        for phase in PHASES:
            self.phase_ns[phase] += spent_ns[phase]
        self._attribute(stretches["start_ns"], stretches["end_ns"], sum(spent_ns))
        self.unread.append(stretches.renumbered(self._begun))

    def add(self, entry: Entry | Damaged | Unread) -> None:
        """Count anything that is not a step."""
        if isinstance(entry, GapRecord):
            self._add_gap(entry.gap, entry.duration_ns, entry.after_step + self._begun)
            if entry.gap not in NOT_RECURRING and entry.after_step >= 0:
                step = entry.after_step + self._begun
                self.gaps_after[step] = self.gaps_after.get(step, 0) + entry.duration_ns
            self._attributed_ns += entry.duration_ns
            self._reached_ns = max(self._reached_ns, entry.start_ns + entry.duration_ns)
        elif isinstance(entry, Totals):
            self.learned, self.totals = entry, _continued(self._earlier, entry)
            if entry.at_step >= 0:
                self.hooks.append((entry.at_step + self._begun, self.totals.actions_ns))
            if len(self.hooks) > MOST_HOOK_LOOKS:
                del self.hooks[1::2]
        elif isinstance(entry, EndMark):
            self.end = entry
        elif isinstance(entry, Unread):
            self._add_unread(entry.stretches)
        else:
            self.damaged_lines += entry.lines

    def renumber_gaps(self, numbers: range, begun: int) -> None:
        """Steps that were given these *numbers* are numbered from *begun*."""

        def numbered(step: int) -> int:
            return step - numbers.start + begun if step in numbers else step

        self.gaps_after = {numbered(step): ns for step, ns in self.gaps_after.items()}
        self.hooks = [(numbered(step), taken_ns) for step, taken_ns in self.hooks]
        self.unread = [
            each.renumbered(begun - numbers.start) if each["first"][0] in numbers else each
            for each in self.unread
        ]
        self.pauses = {
            gap: [(numbered(step), spent_ns) for step, spent_ns in pauses]
            for gap, pauses in self.pauses.items()
        }

    def ledger_s(self) -> dict[str, float]:
        """Seconds per phase and gap, with what is left over: they sum to the fit exactly."""
        spent = {phase.label: self.phase_ns[phase] for phase in PHASES}
        order = [gap.label for gap in GAPS if gap.label in self.gap_ns]
        # A gap of a later release is still time of this fit.
        spent |= {gap: self.gap_ns[gap] for gap in dict.fromkeys([*order, *self.gap_ns])}
        spent[UNATTRIBUTED] = self.fit_ns - sum(spent.values())
        return {slot: ns / 1e9 for slot, ns in spent.items()}

    def _add_gap(self, gap: str, duration_ns: int, after: int) -> None:
        self.pauses.setdefault(gap, []).append((after, duration_ns))
        self.gap_ns[gap] = self.gap_ns.get(gap, 0) + duration_ns
        self.gap_counts[gap] = self.gap_counts.get(gap, 0) + 1


def _continued(earlier: Totals, now: Totals) -> Totals:
    """Totals of an attempt on top of those of the attempts before it."""
    return Totals(
        at_step=now.at_step,
        actions_ns=_added(earlier.actions_ns, now.actions_ns),
        threads_ns=_added(earlier.threads_ns, now.threads_ns),
        sequence_lengths=_added(earlier.sequence_lengths, now.sequence_lengths),
        longest_tokens=earlier.longest_tokens + now.longest_tokens,
        faults={**earlier.faults, **now.faults},
        dropped=_added(earlier.dropped, now.dropped),
        notes={**earlier.notes, **now.notes},
        reasons={**earlier.reasons, **now.reasons},
        config={**earlier.config, **now.config},
        readings={**earlier.readings, **now.readings},
        contention=_added(earlier.contention, now.contention),
    )


def _added(first: dict[K, int], second: dict[K, int]) -> dict[K, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}

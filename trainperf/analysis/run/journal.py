"""Ledger of one rank: where every second of the fit's wall time went."""

from datetime import datetime
from typing import TypeVar

from trainperf.analysis.run.directory import Damaged
from trainperf.core.phases import GAPS, PHASES, Gap
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.codec import Entry
from trainperf.core.steps.records import EndMark, GapRecord, RunInfo, Totals


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
        self._earlier = _NO_TOTALS
        self._begun = 0
        self._started: datetime | None = None
        self._reached_ns = 0
        self._attributed_ns = 0

    def begin(self, info: RunInfo, begun: int = 0) -> None:
        """An attempt starts, after so many steps of earlier ones.

        The time since the one before was cut off is a `restart` gap.
        """
        self._begun = begun
        started = start_time(info.started_at)
        if self._started and started:
            since_ns = round((started - self._started).total_seconds() * 1e9) - self.fit_ns
            if since_ns >= 0:
                self._add_gap(Gap.RESTART.label, since_ns)
                self.fit_ns += since_ns
        self._started = self._started or started
        self._earlier, self.learned, self.end = self.totals, _NO_TOTALS, None
        self._reached_ns = self._attributed_ns = 0

    def close(self) -> None:
        """The attempt's file has been read to its end."""
        # A gap cut out of the last step ends before the step does, hence the larger of the two.
        known_ns = max(self._reached_ns, self._attributed_ns)
        self.fit_ns += self.end.fit_ns if self.end else known_ns

    def add_steps(self, block: StepBlock) -> None:
        """Count a block of steps."""
        self.steps += len(block)
        for phase in PHASES:
            self.phase_ns[phase] += int(block.host_ns(phase).sum())
        self._attributed_ns += int(block.wall_ns.sum())
        self._reached_ns = max(self._reached_ns, int((block.start_ns + block.wall_ns).max()))

    def add(self, entry: Entry | Damaged) -> None:
        """Count anything that is not a step."""
        if isinstance(entry, GapRecord):
            self._add_gap(entry.gap, entry.duration_ns)
            if entry.gap not in NOT_RECURRING and entry.after_step >= 0:
                step = entry.after_step + self._begun
                self.gaps_after[step] = self.gaps_after.get(step, 0) + entry.duration_ns
            self._attributed_ns += entry.duration_ns
            self._reached_ns = max(self._reached_ns, entry.start_ns + entry.duration_ns)
        elif isinstance(entry, Totals):
            self.learned, self.totals = entry, _continued(self._earlier, entry)
        elif isinstance(entry, EndMark):
            self.end = entry
        else:
            self.damaged_lines += entry.lines

    def ledger_s(self) -> dict[str, float]:
        """Seconds per phase and gap, with what is left over: they sum to the fit exactly."""
        spent = {phase.label: self.phase_ns[phase] for phase in PHASES}
        order = [gap.label for gap in GAPS if gap.label in self.gap_ns]
        # A gap of a later release is still time of this fit.
        spent |= {gap: self.gap_ns[gap] for gap in dict.fromkeys([*order, *self.gap_ns])}
        spent[UNATTRIBUTED] = self.fit_ns - sum(spent.values())
        return {slot: ns / 1e9 for slot, ns in spent.items()}

    def _add_gap(self, gap: str, duration_ns: int) -> None:
        self.gap_ns[gap] = self.gap_ns.get(gap, 0) + duration_ns
        self.gap_counts[gap] = self.gap_counts.get(gap, 0) + 1


def start_time(started_at: str) -> datetime | None:
    """An ISO 8601 time in UTC; `None` when it is none (Python 3.10 does not know the `Z`)."""
    try:
        start = datetime.fromisoformat(started_at.replace("Z", "+00:00"))
    except ValueError:
        return None
    return start if start.tzinfo else None


def _continued(earlier: Totals, now: Totals) -> Totals:
    """Totals of an attempt on top of those of the attempts before it."""
    return Totals(
        at_step=now.at_step,
        actions_ns=_added(earlier.actions_ns, now.actions_ns),
        sequence_lengths=_added(earlier.sequence_lengths, now.sequence_lengths),
        faults={**earlier.faults, **now.faults},
        dropped=_added(earlier.dropped, now.dropped),
        notes={**earlier.notes, **now.notes},
        reasons={**earlier.reasons, **now.reasons},
        config={**earlier.config, **now.config},
        readings={**earlier.readings, **now.readings},
    )


def _added(first: dict[K, int], second: dict[K, int]) -> dict[K, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}

"""Ledger of one rank: where every second of the fit's wall time went."""

import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from trainperf.analysis.run.record_file import Content, RecordFile
from trainperf.analysis.run.window import start_time
from trainperf.core.groups import summed
from trainperf.core.phases import GAPS, PHASES, Gap
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import EndMark, GapRecord, Totals


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

_COUNTS = ("actions_ns", "threads_ns", "sequence_lengths", "dropped", "own", "contention")
_LEARNED = ("faults", "notes", "reasons", "config", "readings")


class Journal:
    """Sums over one rank's files, added up while they are read.

    It has every step of the rank, steady or not.  Times are nanoseconds on the host's clock;
    where there is no end mark, the fit lasted up to the last line.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.steps = 0
        self.phase_ns = [0] * len(PHASES)
        self.gaps_after: Counter[int] = Counter()
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
        self.pauses: dict[str, list[tuple[int, int]]] = {}
        """Gap to the step before it and its nanoseconds, in order."""
        self._file: RecordFile
        """That of the attempt that is read."""
        self._started: datetime | None = None
        self._until_ns = 0

    def begin(self, file: RecordFile) -> None:
        """An attempt starts.  The time since the one before was cut off is a `restart` gap."""
        started = start_time(file.info.started_at)
        if self._started and started and file.first <= 0 <= file.last:
            since_ns = round((started - self._started).total_seconds() * 1e9) - self._until_ns
            if since_ns >= 0 and (self._until_ns or not self._file.is_window):
                self.pauses.setdefault(Gap.RESTART.label, []).append((-1, since_ns))
                self.fit_ns += since_ns
        self._started, self._file = started, file
        self._earlier, self._before = self.totals, _NO_TOTALS
        self.learned, self.end, self._origin_ns = _NO_TOTALS, None, math.inf
        self._reached_ns = self._attributed_ns = self._until_ns = 0

    def close(self) -> None:
        """The attempt's file has been read to its end."""
        window = self._file.is_window
        begins_ns = round(self._origin_ns) if window and self._origin_ns < math.inf else 0
        # A gap cut out of the last step ends before the step does, hence the larger of the two.
        lasted_ns = max(self._reached_ns - begins_ns, self._attributed_ns)
        if self.end and not window:
            lasted_ns = self.end.fit_ns
        self.fit_ns += lasted_ns
        self._until_ns = self._reached_ns if window else lasted_ns

    def add(self, content: Content) -> None:
        """Count what a file holds."""
        if isinstance(content, StepBlock):
            spent_ns = [int(content.total_ns(phase)) for phase in PHASES]
            self.steps += len(content)
            self.phase_ns = [ns + more for ns, more in zip(self.phase_ns, spent_ns, strict=True)]
            self._attributed_ns += sum(spent_ns)
            self._origin_ns = min(self._origin_ns, int(content.start_ns.min()))
            reached_ns = int((content.start_ns + content.wall_ns).max())
            self._reached_ns = max(self._reached_ns, reached_ns)
        elif isinstance(content, GapRecord):
            step = content.after_step + self._file.begun
            self.pauses.setdefault(content.gap, []).append((step, content.duration_ns))
            if content.gap not in NOT_RECURRING and content.after_step >= 0:
                self.gaps_after[step] += content.duration_ns
            self._attributed_ns += content.duration_ns
            self._reached_ns = max(self._reached_ns, content.start_ns + content.duration_ns)
        elif isinstance(content, Totals):
            self._add_totals(content)
        elif isinstance(content, EndMark):
            self.end = content
        else:
            self.damaged_lines += content

    def _add_totals(self, totals: Totals) -> None:
        """Of a window, what they grew by in it; what was learned of the loop holds in all of it."""
        file = self._file
        after = totals.at_step > file.last
        if after and self.learned is not _NO_TOTALS:
            return
        # Where those before the window were not read, the first ones count for them.
        unread = file.first > 0 and self._before is _NO_TOTALS
        if after or totals.at_step < file.first or unread:
            self._before = totals
        self.learned = _since(self._before, totals) if file.is_window else totals
        self.totals = _continued(self._earlier, self.learned)

    def ledger_s(self) -> dict[str, float]:
        """Seconds per phase and gap, with what is left over: they sum to the fit exactly."""
        spent = {phase.label: self.phase_ns[phase] for phase in PHASES}
        # A gap of a later release is still time of this fit.
        every = dict.fromkeys([*(gap.label for gap in GAPS), *self.pauses])
        spent |= {gap: sum(ns for _, ns in self.pauses[gap]) for gap in every if gap in self.pauses}
        spent[UNATTRIBUTED] = self.fit_ns - sum(spent.values())
        return {slot: ns / 1e9 for slot, ns in spent.items()}


def _continued(earlier: Totals, now: Totals) -> Totals:
    """Totals of an attempt on top of those of the attempts before it."""
    counts = {
        name: summed([*getattr(earlier, name).items(), *getattr(now, name).items()])
        for name in _COUNTS
    }
    learned = {name: getattr(earlier, name) | getattr(now, name) for name in _LEARNED}
    tokens = earlier.longest_tokens + now.longest_tokens
    return msgspec.structs.replace(now, longest_tokens=tokens, **counts, **learned)


def _since(before: Totals, now: Totals) -> Totals:
    """What has come on top; the user's own readings are of all steps, and none of these."""
    counts = {name: _less(getattr(now, name), getattr(before, name)) for name in _COUNTS}
    tokens = now.longest_tokens - before.longest_tokens
    return msgspec.structs.replace(now, longest_tokens=tokens, readings={}, **counts)


def _less(now: Mapping[Any, int], before: Mapping[Any, int]) -> dict[Any, int]:
    return {key: more for key, count in now.items() if (more := count - before.get(key, 0))}

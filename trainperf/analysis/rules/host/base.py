"""Host time by line of the user's code: shared by the rules of `host`.

On a CPU the audit has timed each operator and what passed before it.  The proportions of that one
step are laid over the phases of the steady ones, which ran without the audit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import wraps

from trainperf.analysis.rules.base import Evidence, Rule, steady_step_s, warm_bound
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import OperatorUse, Part
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import duration
from trainperf.core.readings import PHASE_OTHER_S, STEP_MEAN_S, phase_reading


_GROUPS: tuple[tuple[str, tuple[Part, ...]], ...] = (
    ("forward", ("forward",)),
    ("backward", ("backward", "recompute")),
    ("optimizer", ("optimizer",)),
)

LOOP = 8
"""So many calls from one line in one step are a loop."""

READS = (
    "aten._local_scalar_dense.",
    "aten.is_nonzero.",
    "aten.nonzero.",
    "aten.masked_select.",
    "aten.equal.",
    "aten._unique2.",
    "aten.unique_dim.",
    "aten.unique_consecutive.",
)
"""Operators whose result the host must know before it goes on."""


SERVE_THE_LOADER = frozenset({"_pin_memory_loop", "QueueFeederThread"})
"""Threads that no logger and no callback keeps busy."""
BUSY = 0.02
"""Share of the step from which a thread counts."""


HELD_UP = 1.5
"""What a second of such a thread costs the rest of the step at most: it may have the interpreter
and wait for a processor.  Three walkthroughs without histograms lost 0.9 to 1.4."""


def threads_of(summary: Summary) -> dict[str, float]:
    """Other threads of Python that may write what the loop hands to them, seconds per step."""
    step_s = summary.value(STEP_MEAN_S) or 0.0
    return {
        name: spent_s
        for name, spent_s in summary.threads_s.items()
        if name not in SERVE_THE_LOADER and spent_s >= BUSY * step_s
    }


def hands_to_threads(rule: Rule) -> Rule:
    """A rule whose cause leaves cold caches and hands values to loggers, which have threads.

    Its bounds are `warm_bound`s without these, which go with it.
    """

    @wraps(rule)
    def freeing(evidence: Evidence) -> Finding | None:
        finding, summary = rule(evidence), evidence.summary
        if finding is None:
            return None
        return warm_bound(finding, summary, freed_s=HELD_UP * sum(threads_of(summary).values()))

    return freeing


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLines:
    """The audited step of a CPU run, as shares of a mean steady step."""

    rows: tuple[OperatorUse, ...]
    """In the order of their first call."""
    shares: tuple[float, ...]
    """Of each row, Python before its calls included."""
    befores: tuple[float, ...]
    """The part of each of them that passes before the calls."""
    step_s: float

    def share(self, rows: Iterable[OperatorUse]) -> float:
        """Of some of the rows together."""
        return self._sum(self.shares, rows)

    def before(self, rows: Iterable[OperatorUse]) -> float:
        """What passes before their calls."""
        return self._sum(self.befores, rows)

    def in_words(self, rows: Iterable[OperatorUse]) -> tuple[str, ...]:
        """The two heaviest lines of some rows, with their time."""
        return tuple(
            f"{line}: {duration(part * self.step_s)} per step"
            for line, part in heaviest(self, rows)[:2]
        )

    def _sum(self, shares: Sequence[float], rows: Iterable[OperatorUse]) -> float:
        wanted = {id(row) for row in rows}
        pairs = zip(self.rows, shares, strict=True)
        return min(1.0, sum(share for row, share in pairs if id(row) in wanted))


def host_lines(evidence: Evidence) -> HostLines | None:
    """`None` without an audit on a CPU of a step like the others, or with too few steady steps."""
    summary, audit = evidence.summary, evidence.documents.audit
    step_s = steady_step_s(summary)
    if audit is None or audit.device != "cpu" or not step_s:
        return None
    rows = audit.operators
    shares: dict[int, float] = {}
    befores: dict[int, float] = {}
    for phase_s, parts in _phases(summary, rows):
        mine = [row for row in rows if row.part in parts]
        before = _before_s(mine)
        whole_s = sum(before) + sum(row.host_s for row in mine)
        scale = phase_s / step_s / whole_s if whole_s else 0.0
        for row, before_s in zip(mine, before, strict=True):
            befores[id(row)] = scale * before_s
            shares[id(row)] = scale * (before_s + row.host_s)
    return HostLines(
        rows=rows,
        shares=tuple(shares[id(row)] for row in rows),
        befores=tuple(befores[id(row)] for row in rows),
        step_s=step_s,
    )


def reads(rows: Iterable[OperatorUse]) -> list[OperatorUse]:
    """Those that hand a value of the device to Python, in forward and from a known line."""
    return [
        row
        for row in rows
        if row.part == "forward" and row.line and not row.logs and row.name.startswith(READS)
    ]


def read_in_loops(rows: Sequence[OperatorUse]) -> list[OperatorUse]:
    """All that runs about as often as a read that is repeated, in lines near it."""
    chosen: set[str] = set()
    often = _calls(rows)
    for line, calls in _calls(reads(rows)).items():
        if calls >= LOOP:
            chosen |= {
                place for place in often if is_near(place, line) and 2 * often[place] >= calls
            }
    return [row for row in rows if row.line in chosen and row.part != "optimizer"]


def is_near(first: str, second: str) -> bool:
    """Whether two lines may belong to one piece of code: at most twelve apart in one file."""
    (file, number), (other_file, other_number) = _split(first), _split(second)
    return file == other_file and abs(number - other_number) <= 12


def _split(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdecimal() else 0


def heaviest(host: HostLines, rows: Iterable[OperatorUse]) -> list[tuple[str, float]]:
    """Lines and their shares, the largest first."""
    own = {id(row) for row in rows}
    lines: dict[str, float] = {}
    for row, share in zip(host.rows, host.shares, strict=True):
        if id(row) in own and row.line:
            lines[row.line] = lines.get(row.line, 0.0) + share
    return sorted(lines.items(), key=lambda item: -item[1])


def _calls(rows: Iterable[OperatorUse]) -> dict[str, int]:
    """Line to how often it ran: its operators were called at least so many times each."""
    often: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.line and row.part == "forward":
            mine = often.setdefault(row.line, {})
            mine[row.name] = mine.get(row.name, 0) + row.calls
    return {line: max(calls.values()) for line, calls in often.items()}


def _phases(summary: Summary, rows: Sequence[OperatorUse]) -> list[tuple[float, tuple[Part, ...]]]:
    """The phases with the parts that ran in them; all together where they were not told apart."""
    spent = {name: summary.value(phase_reading(name)) or 0.0 for name, _ in _GROUPS}
    present = {row.part for row in rows}
    missing = [name for name, parts in _GROUPS if not spent[name] and present & {*parts}]
    if not missing:
        return [(spent[name], parts) for name, parts in _GROUPS]
    everything = sum(spent.values()) + (summary.value(PHASE_OTHER_S) or 0.0)
    return [(everything, tuple(part for _, parts in _GROUPS for part in parts))]


def _before_s(rows: Sequence[OperatorUse]) -> list[float]:
    """What passed before each row's calls, less what the audit itself adds there."""
    before = [row.before_s / row.calls for row in rows if row.before_s > 0]
    own_s = min([*before, 100e-6])  # the audit is quicker than that from its end to its next begin
    return [max(0.0, row.before_s - own_s * row.calls) for row in rows]

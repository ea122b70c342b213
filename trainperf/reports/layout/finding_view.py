"""A finding in words: the same sentences, labels and rows for every renderer.

Every name that came from a run is put on one line without control characters; escaping for
markdown and HTML is left to the renderer.
"""

from collections.abc import Sequence

import msgspec

from trainperf.core.findings import Finding, Level
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import at_most, plural, times
from trainperf.core.formatting.wrap import wrapped


NEXT = "next"
WHERE = "where"
EFFORT = "effort"
CONFIDENCE = "confidence"
CONFIRM = "how to confirm"

NO_FINDING = "No clear bottleneck."
"""In place of findings."""
NO_FINDING_IN_LOG = "No clear bottleneck in what the log holds."
"""The same of an imported log."""


class FindingRow(msgspec.Struct, frozen=True, array_like=True):
    """A labelled line of a finding."""

    label: str
    text: str


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """What every renderer shows of a finding, in this order."""

    id: str
    severity: Level
    title: str
    gain: str
    """The measured one, e.g. `measured 1.38× [1.33–1.43]`; else the largest possible, and the usual
    one where the corpus shows one, e.g. `at most 1.67× faster, usually 1.31–1.58× (3 scripts)`;
    empty where no bound is known."""
    bound: str
    """The same without the usual one, for where there is room for one line."""
    evidence: tuple[str, ...]
    rows: tuple[FindingRow, ...]
    """The labelled lines that have something to say."""

    @property
    def headline(self) -> str:
        """Title and gain in one clause."""
        return f"{self.title}: {self.gain}" if self.gain else self.title

    def text(self, label: str) -> str:
        """The line under *label*; empty where there is none."""
        return next((row.text for row in self.rows if row.label == label), "")


def finding_view(finding: Finding, answers: Sequence[FindingRow] = ()) -> FindingView:
    """Put a finding into words.

    Args:
        finding: Of a run or of a trace.
        answers: Of a run: what it returns on the effort, in rows; its effort is one of them.
    """
    rows = (
        FindingRow(NEXT, finding.action),
        FindingRow(WHERE, finding.where),
        *(answers or (FindingRow(EFFORT, finding.effort),)),
        FindingRow(CONFIDENCE, f"{finding.confidence} ({finding.severity} severity)"),
        FindingRow(CONFIRM, finding.confirm),
    )
    return FindingView(
        id=finding.id,
        severity=finding.severity,
        title=plain(finding.title),
        gain=gain(finding),
        bound=_bound(finding),
        evidence=tuple(map(plain, finding.evidence)),
        rows=tuple(FindingRow(row.label, plain(row.text)) for row in rows if row.text),
    )


def first_rows(findings: Sequence[Finding]) -> list[FindingRow]:
    """What to do first, and where: the rows that stand under the headline sentence."""
    return [
        row
        for finding in to_act_on(findings)[:1]
        for row in finding_view(finding).rows
        if row.label in (NEXT, WHERE)
    ]


def gain(finding: Finding) -> str:
    """The measured gain; else the largest possible, then the usual one; empty where none is."""
    tried = finding.measured_gain
    if tried is not None:
        interval = f"{times(tried.speedup)} [{tried.low:.2f}–{tried.high:.2f}]"
        if tried.verdict == "faster":
            return f"measured {interval}"
        doubt = "" if tried.verdict in ("slower", "equal") else f", {tried.verdict}"
        return f"tried: {interval} here{doubt}"
    bound = _bound(finding)
    return f"{bound}{_usually(finding)}" if bound else ""


def _bound(finding: Finding) -> str:
    if finding.measured_gain is not None:
        return gain(finding)
    if finding.gain_upper_bound is None or not finding.fraction:
        return ""
    whole = "the fit " if finding.scope == "fit" else ""
    return f"{whole}{at_most(finding.gain_upper_bound)}"


def _usually(finding: Finding) -> str:
    """What the same change gained in so many scripts of the corpus."""
    if finding.expected_gain is None:
        return ""
    low, high = map(times, finding.expected_gain)
    usual = f"about {high}" if low == high else f"{low.removesuffix('×')}–{high}"
    return f", usually {usual} ({plural(finding.expected_from, 'script')})"


def to_act_on(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that ask for a change; one that gains nothing says what to leave alone."""
    return [finding for finding in findings if finding.urgent or not _gains_nothing(finding)]


def _gains_nothing(finding: Finding) -> bool:
    tried = finding.measured_gain
    return finding.fraction == 0.0 if tried is None else tried.gains_nothing


_LABEL = len(CONFIRM) + 2


def finding_text(place: int, finding: FindingView, width: int) -> tuple[list[str], list[str]]:
    """The title after its number; then the evidence, and a line for every label."""
    number = f"{place}. "
    hang = " " * len(number)
    lines = wrapped("; ".join(finding.evidence), width, hang) if finding.evidence else []
    for row in finding.rows:
        lines += wrapped(row.text, width, f"{hang}{row.label:<{_LABEL}}")
    return wrapped(finding.headline, width, number), lines


def finding_markdown(place: int, finding: FindingView) -> str:
    """An item of a numbered list."""
    gain = f": {safe(finding.gain)}" if finding.gain else ""
    lines = [f"**{safe(finding.title)}**{gain}"]
    if finding.evidence:
        lines.append(safe("; ".join(finding.evidence)))
    lines += [f"{row.label}: {safe(row.text)}" for row in finding.rows]
    return f"{place}. " + "  \n   ".join(lines)

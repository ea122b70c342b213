"""A finding in words, five lines at most: what, evidence, do, gain, confirm.

Every name that came from a run is put on one line without control characters; escaping for
markdown and HTML is left to the renderer.
"""

from collections.abc import Mapping, Sequence

import msgspec

from trainperf.core.findings import ChangeGain, Finding, Level, MeasuredGain
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import at_most, times


NEXT = "next"
WHERE = "where"
WRITE = "write"
"""Label of the lines that make a change."""
DO, GAIN, CONFIRM = "do", "gain", "confirm"

NO_FINDING = "No waste was seen."
"""In place of findings, where nothing more is known."""
NO_FINDING_IN_LOG = "No waste was seen in what the log holds."
"""The same of an imported log."""

MOST_CHANGES = 3
"""Changes of one finding that are named."""


class FindingRow(msgspec.Struct, frozen=True, array_like=True):
    """A labelled line of a finding."""

    label: str
    text: str


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """What every renderer shows of a finding, in this order."""

    severity: Level
    title: str
    """What, and where in the code."""
    gain: str
    """Of its first change: the measured one, e.g. `1.38× [1.33–1.43], tried`, else by the law of
    the step, e.g. `about 1.4×, at most 1.7×`; empty where neither is known."""
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


def finding_view(finding: Finding) -> FindingView:
    """Put a finding of a run or of a capture into words."""
    others = map(_other, finding.changes[1:MOST_CHANGES])
    rows = {
        DO: "; or ".join([finding.action, *others]),
        GAIN: _gain_row(finding),
        CONFIRM: finding.confirm,
    }
    where = place(finding)
    return FindingView(
        severity=finding.severity,
        title=plain(finding.title + (f" ({where})" if where else "")),
        gain=gain(finding),
        evidence=tuple(map(plain, finding.evidence)),
        rows=_filled(rows),
    )


def _filled(rows: Mapping[str, str]) -> tuple[FindingRow, ...]:
    """Those that have something to say."""
    return tuple(FindingRow(label, plain(text)) for label, text in rows.items() if text)


def place(finding: Finding) -> str:
    """Where in the code, and from where if that is a library's; empty where no line is known."""
    called = f", called at {finding.called_at}" if finding.called_at else ""
    return f"{finding.where}{called}" if finding.where else ""


def first_rows(findings: Sequence[Finding]) -> tuple[FindingRow, ...]:
    """What to do first, and where: the rows that stand under the headline sentence."""
    first = to_act_on(findings)[:1]
    return _filled({NEXT: first[0].action, WHERE: place(first[0])} if first else {})


def gain(finding: Finding) -> str:
    """What its first change gains, for the step, the fit or the script."""
    whole = "" if finding.scope == "step" else f"the {finding.scope} "
    words = _in_words(finding.gain, finding.gain_upper_bound, finding.measured_gain)
    return f"{whole}{words}" if words else ""


def _in_words(about: float | None, most: float | None, tried: MeasuredGain | None) -> str:
    if tried is not None:
        doubt = f", {tried.verdict}" if tried.verdict not in ("faster", "slower", "equal") else ""
        return f"{times(tried.speedup)} [{tried.low:.2f}–{tried.high:.2f}], tried{doubt}"
    bound = "" if most is None or most <= 1 else at_most(most).removesuffix(" faster")
    if about is None or about <= 1:
        return bound if about is None else ""
    likely = f"about {times(about)}"
    return f"{likely}, {bound}" if bound and bound != f"at most {times(about)}" else likely


def _gain_row(finding: Finding) -> str:
    """With what the change takes, costs, and how sure the cause is."""
    first = finding.changes[0] if finding.changes else None
    cost = f"costs {first.costs}" if first is not None and first.costs else ""
    unsure = f"{finding.confidence} confidence" if finding.confidence != "high" else ""
    gained = gain(finding)
    unknown = "" if gained or finding.fraction == 0.0 else "not known before it is tried"
    if finding.gain is not None and finding.gain <= 1 and unknown:
        unknown = "nothing while the step waits for something else"
    effort = f"takes {finding.effort}" if gained else ""
    return "; ".join(filter(None, (gained or unknown, effort, cost, unsure)))


def _other(change: ChangeGain) -> str:
    words = _in_words(change.about, None, change.measured)
    return f"{change.action}{f' ({words})' if words else ''}"


def to_act_on(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that ask for a change; one that gains nothing says what to leave alone."""
    return [finding for finding in findings if finding.urgent or not _gains_nothing(finding)]


def _gains_nothing(finding: Finding) -> bool:
    tried = finding.measured_gain
    return finding.fraction == 0.0 if tried is None else tried.gains_nothing

"""The checkup of a run in words: what failed first, then check by check."""

from trainperf.analysis.doctor import Checkup, Status
from trainperf.reports.layout.document import Heading, Kind, Part, Sentence
from trainperf.reports.layout.finding_view import NEXT


_STATES: dict[Status, tuple[str, str, Kind]] = {
    "pass": ("pass", "passed", "good"),
    "fail": ("FAIL", "failed", "bad"),
    "not_applicable": ("n/a", "not applicable", "soft"),
    "unknown": ("?", "unknown", "warn"),
}
"""In the margin, in a sentence, and how it is set."""


def checkup_document(checkup: Checkup, name: str) -> list[Part]:
    """The outcomes of the run that a person calls *name*."""
    parts: list[Part] = [Heading(f"trainperf doctor · {name}", 1)]
    parts.append(Sentence(text=answer(checkup), kind="answer"))
    for place, check in enumerate(checkup.checks, start=1):
        margin, _, kind = _STATES[check.status]
        title = check.title.replace("`", "")
        evidence = " · ".join(check.evidence)
        text = f"{title}: {evidence}" if evidence else title
        parts.append(Sentence(text=text, label=f"{margin:<5}{place:>2}", kind=kind))
        if check.action:
            parts.append(Sentence(text=check.action, label=f"{NEXT:>7}", kind="first"))
    return parts


def answer(checkup: Checkup) -> str:
    """How many checks ended how, and which failed."""
    counted = [
        f"{checkup.number(status)} {words}"
        for status, (_, words, _) in _STATES.items()
        if checkup.number(status) or status == "fail"
    ]
    failed = ", ".join(check.id for check in checkup.checks if check.status == "fail")
    return f"{', '.join(counted)} of {len(checkup.checks)} checks" + (
        f". Failed: {failed}." if failed else "."
    )

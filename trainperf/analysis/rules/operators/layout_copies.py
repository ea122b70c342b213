"""Does the step copy tensors only to have them in another order?"""

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.rules.base import TraceTime
from trainperf.analysis.rules.operators.audited import audited, place_of, total_s
from trainperf.analysis.rules.operators.copies import is_layout_copy
from trainperf.core.findings import LIMITS, Finding, severity
from trainperf.core.formatting.units import duration, share


TRACE_TIME: TraceTime = "operators"


def layout_copies(evidence: Evidence) -> Finding | None:
    """`contiguous()`, `clone()` and reshapes that copy take a notable part of the step."""
    known = audited(evidence)
    if known is None:
        return None
    rows = [row for row in known.operators if is_layout_copy(row)]
    spent_s = total_s(rows)
    if known.fraction(spent_s) < LIMITS.notable:
        return None
    lost = known.fraction(known.with_aftermath_s(rows))
    return Finding(
        id="layout_copies",
        title=f"copies to another memory layout take {share(spent_s / known.step_s)} of the step",
        advice="Keep one memory layout",
        evidence=(
            f"{duration(spent_s)} of {duration(known.step_s)} a step",
            *known.lines(rows),
            known.stands_on(),
        ),
        action="make the batch in the layout that the model wants, in the dataset; drop "
        "contiguous() and clone() where the next operator takes strides",
        fraction=lost,
        gain_upper_bound=known.bound(lost),
        confidence=known.confidence,
        severity=severity(lost),
        where=place_of(rows),
        confirm="trainperf compare BEFORE AFTER; the next audit has fewer clone and copy_",
    )

"""Does the step compute what is the same in every step?"""

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.base import audited, place_of, total_s
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import duration, share


TRACE_TIME: TraceTime = "operators"


def constant_rebuilt(evidence: Evidence) -> Finding | None:
    """Masks, tables and the like are made anew in forward from nothing but numbers.

    Those numbers may differ from step to step, a length for instance: that is not seen.
    """
    known = audited(evidence)
    if known is None:
        return None
    rows = [row for row in known.operators if row.use.constant and row.use.part == "forward"]
    spent_s = total_s(rows)
    if known.fraction(spent_s) < LIMITS.notable:
        return None
    lost = known.fraction(known.with_aftermath_s(rows))
    return Finding(
        id="constant_rebuilt",
        title=f"{share(spent_s / known.step_s)} of the step makes constants anew",
        advice="Make the constants once",
        evidence=(
            f"{duration(spent_s)} of {duration(known.step_s)} a step, without batch or parameter",
            *known.lines(rows),
            known.stands_on(),
        ),
        action='make it in __init__ with register_buffer("mask", …, persistent=False) for the '
        "longest input, and slice it in forward",
        **known.costs(lost),
        where=place_of(rows),
        confirm="trainperf compare BEFORE AFTER",
    )

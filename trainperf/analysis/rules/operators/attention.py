"""Does attention write its scores to memory?"""

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.rules.base import TraceTime
from trainperf.analysis.rules.operators.audited import audited, place_of, short, total_s
from trainperf.analysis.rules.operators.scores import SOFTMAX, attention_rows
from trainperf.core.findings import LIMITS, Finding, severity
from trainperf.core.formatting.units import duration, share


TRACE_TIME: TraceTime = "operators"


def attention(evidence: Evidence) -> Finding | None:
    """Eager attention makes all scores, where a fused one keeps a few at a time.

    The bound: of everything that touches the scores only the arithmetic of the products is left.
    """
    known = audited(evidence)
    rows = [] if known is None else attention_rows(known.operators)
    if known is None or not rows:
        return None
    spent_s = total_s(rows)
    kept_s = sum(row.floor.compute_s or 0.0 for row in rows if row.use.kind == "matmul")
    lost = known.fraction(spent_s - kept_s)
    if lost < LIMITS.notable:
        return None
    softmax = [row for row in rows if short(row.use) in SOFTMAX]
    shape = " × ".join(map(str, softmax[0].use.shapes[0]))
    return Finding(
        id="attention",
        title=f"attention that keeps its scores takes {share(spent_s / known.step_s)} of the step",
        advice="Use fused attention",
        evidence=(
            f"scores of {shape} in memory: {duration(spent_s)} of {duration(known.step_s)} a step",
            *known.lines(rows, 2),
            known.stands_on(),
        ),
        action="torch.nn.functional.scaled_dot_product_attention(q, k, v), is_causal=True for a "
        'causal mask; in transformers attn_implementation="sdpa"',
        fraction=lost,
        gain_upper_bound=known.bound(lost),
        confidence=known.confidence,
        severity=severity(lost),
        where=place_of(softmax),
        confirm="trainperf compare BEFORE AFTER; the next audit has no softmax between two bmm",
    )

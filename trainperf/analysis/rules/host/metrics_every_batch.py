"""Does every training batch pay for a metric?"""

from collections.abc import Sequence

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.host.base import heaviest, host_lines, is_near, read_in_loops
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, plural, share


DECIDES = (
    "argmax",
    "argmin",
    "topk",
    "sort",
    "argsort",
    "bincount",
    "histc",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "searchsorted",
    "bucketize",
    "kthvalue",
    "median",
    "mode",
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
    "count_nonzero",
)
"""Operators that turn scores into decisions or counts: what metrics are made of."""


def metrics_every_batch(evidence: Evidence) -> Finding | None:
    """Work after the model that no gradient flows through and that counts or compares.

    Metrics in hooks after the batch belong to `callbacks`.  A teacher without gradients is none:
    it has products.
    """
    known = host_lines(evidence)
    rows = metric_rows(known.rows) if known is not None else []
    if known is None or not rows:
        return None
    lost = known.share(rows)
    if lost < LIMITS.notable:
        return None
    lines = heaviest(known, rows)
    return Finding(
        id="metrics_every_batch",
        title=f"a metric in every batch takes {share(lost)} of the step",
        advice="Compute metrics less often",
        evidence=(
            (
                f"{plural(sum(row.calls for row in rows), 'operator')} after the model that no "
                "gradient flows through"
            ),
            *(f"{line}: {duration(part * known.step_s)} a step" for line, part in lines[:2]),
        ),
        action="compute it in validation_step, or every n-th batch: if batch_idx % 50 == 0: …",
        **costs(lost),
        confidence="medium",
        where=lines[0][0],
        confirm="phase_forward_s falls by about that much; trainperf compare before after",
    )


def metric_rows(rows: Sequence[OperatorUse]) -> list[OperatorUse]:
    """The rows that look like metrics; those of a Python loop over values have their own rule."""
    learns = [row for row in rows if row.part in ("backward", "recompute")]
    lines = {row.line for row in learns}
    modules = {row.module for row in learns if row.module}
    looped = {row.line for row in read_in_loops(rows)}
    first = next((at for at, row in enumerate(rows) if row.line in lines), len(rows))
    free = [
        row
        for row in rows[first + 1 :]
        if row.part == "forward"
        and row.line
        and row.line not in lines | looped
        and not row.logs
        and not any(module in modules for module in _paths(row.module))
    ]
    products = {row.line for row in free if row.matmul_flops}
    free = [row for row in free if row.line not in products]
    deciding = [row.line for row in free if row.short_name in DECIDES]
    return [row for row in free if any(is_near(row.line or "", at or "") for at in deciding)]


def _paths(module: str | None) -> list[str]:
    return [module] if module else []

"""Rule about metrics computed in every training batch."""

from collections.abc import Sequence

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.host.base import (
    hands_to_threads,
    heaviest,
    host_lines,
    is_near,
    read_in_loops,
)
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import plural, share


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


@hands_to_threads
def metrics_every_batch(evidence: Evidence) -> Finding | None:
    """Work after the model that no gradient flows through and that counts or compares.

    Metrics in hooks after the batch belong to `callbacks`.  A teacher without gradients is none:
    it has products.

    Wrong where: the metric is the loss of a teacher or a second head, and trains.
    To confirm: `trainperf prove` with the metric every n-th batch.
    """
    host = host_lines(evidence)
    if host is None:
        return None
    rows = metric_rows(host.rows)
    lost = host.share(rows)
    if lost < LIMITS.notable:
        return None
    operators = plural(sum(row.calls for row in rows), "operator")
    return Finding(
        id="metrics_every_batch",
        title=f"a metric in every batch takes {share(lost)} of the step",
        advice="Compute metrics less often",
        evidence=(
            f"{operators} after the model that no gradient flows through",
            *host.in_words(rows),
        ),
        action="compute it in validation_step, or every n-th batch: if batch_idx % 50 == 0: …",
        **costs(lost, confidence="medium"),
        where=heaviest(host, rows)[0][0],
        confirm="phase_forward_s falls by about that much; trainperf compare BEFORE AFTER",
    )


def metric_rows(rows: Sequence[OperatorUse]) -> list[OperatorUse]:
    """The rows that look like metrics; those of a Python loop over values have their own rule.

    What runs after the first line of the model, in lines and modules that nothing is learned in,
    without a matrix product, near an operator that decides something.  E.g. of

        logits = self.net(x)                          # learned in: its line is in backward too
        loss = cross_entropy(logits, y)               # so is this
        accuracy = (logits.argmax(-1) == y).mean()    # a metric: argmax and eq decide

    the last line.
    """
    free = _without_gradient(rows)
    products = {row.line for row in free if row.matmul_flops}
    deciding = {row.line for row in free if row.short_name in DECIDES} - products
    near = [line for line in deciding if line]
    return [
        row
        for row in free
        if row.line not in products and any(is_near(row.line or "", line) for line in near)
    ]


def _without_gradient(rows: Sequence[OperatorUse]) -> list[OperatorUse]:
    """Forward work after the first line of the model that no gradient flows through."""
    learned = [row for row in rows if row.part in ("backward", "recompute")]
    lines, modules = {row.line for row in learned}, {row.module for row in learned if row.module}
    first = next((at for at, row in enumerate(rows) if row.line in lines), len(rows))
    elsewhere = lines | {row.line for row in read_in_loops(rows)}
    return [
        row
        for row in rows[first + 1 :]
        if row.part == "forward"
        and row.line
        and row.line not in elsewhere
        and row.module not in modules
        and not row.logs
    ]

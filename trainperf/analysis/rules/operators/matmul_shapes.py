"""Rule about matrix products of sizes that tensor cores cannot take whole."""

from collections.abc import Iterator

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.base import Timed, audited, total_s
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share


TRACE_TIME: TraceTime = "operators"

STEPS = {"tf32": 4, "fp16": 8, "bf16": 8, "fp8": 16}
"""Elements of 16 bytes: sizes that are no multiple of them cost alignment (NVIDIA's guide)."""

VOCABULARY, TILE = 8192, 64
"""A size from here on is padded to whole tiles at no cost worth mentioning."""


def matmul_shapes(evidence: Evidence) -> Finding | None:
    """Sizes are no multiple of what tensor cores take; on other devices it makes no difference.

    The bound: those products at their floor.

    Wrong where: the library pads by itself, or the odd size is of one small product.
    To confirm: `trainperf.benchmark` of the step with the size rounded up to a multiple of 64.
    """
    step = audited(evidence)
    if step is None or step.audit.device != "cuda":
        return None
    rows = [row for row in step.operators if odd_sizes(row.use)]
    lost = step.fraction(sum(row.excess_s for row in rows))
    spent = step.fraction(total_s(rows))
    if spent < LIMITS.notable or lost <= 0:
        return None
    sizes = sorted({size for row in rows for size in odd_sizes(row.use)}, reverse=True)
    return Finding(
        id="matmul_shapes",
        title=f"products of odd sizes take {share(spent)} of the step",
        advice="Pad the odd sizes",
        action=_action(sizes[0], rows),
        **step.fields(
            rows, lost, f"sizes {', '.join(map(str, sizes[:4]))}: {step.spent(rows)}", lines=2
        ),
        confirm="trainperf compare BEFORE AFTER",
    )


def odd_sizes(use: OperatorUse) -> tuple[int, ...]:
    """Sizes of a product that are no multiple of its precision's step; empty where all are."""
    step = STEPS.get(use.precision)
    if step is None or use.kind != "matmul":
        return ()
    return tuple(size for size in _sizes(use) if size % step)


def _sizes(use: OperatorUse) -> Iterator[int]:
    """Rows, columns and inner size."""
    if use.short_name not in ("mm", "addmm", "bmm", "baddbmm") or len(use.shapes) < 2:
        return
    left, right = use.shapes[-2:]
    if min(len(left), len(right)) >= 2:
        yield from (left[-2], left[-1], right[-1])


def _action(largest: int, rows: list[Timed]) -> str:
    tile = TILE if largest >= VOCABULARY else max(STEPS[row.use.precision] for row in rows)
    padded = -(-largest // tile) * tile
    what = "vocab_size" if largest >= VOCABULARY else "size"
    return f"{what}={padded} instead of {largest}: the next multiple of {tile}"

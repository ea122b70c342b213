"""Rule about attention that writes its scores to memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from trainperf.analysis.rules.base import Evidence, TraceTime, warm_bound
from trainperf.analysis.rules.operators.base import PASSES, Timed, audited, total_s
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, REFILL_BYTES, Finding


TRACE_TIME: TraceTime = "operators"


def attention(evidence: Evidence) -> Finding | None:
    """Eager attention makes all scores, where a fused one keeps a few at a time.

    The bound: of everything that touches the scores only the arithmetic of the products is left.
    On a CPU scores push the rest of the model out of the caches, too, in forward and in backward.
    Where `scaled_dot_product_attention` is called already and runs unfused, that is said.

    Wrong where: the mask or the dropout is of a kind that fused kernels do not take.
    To confirm: `trainperf try --only attention_sdpa SCRIPT`.
    """
    step = audited(evidence)
    rows = [] if step is None else attention_rows(step.operators)
    if step is None or not rows:
        return None
    kept_s = sum(row.floor.compute_s or 0.0 for row in rows if row.use.kind == "matmul")
    lost = step.fraction(total_s(rows) - kept_s)
    if lost < LIMITS.notable:
        return None
    softmax = [row for row in rows if row.use.short_name in SOFTMAX]
    shape = " × ".join(map(str, softmax[0].use.shapes[0]))
    advice, action = _remedy(rows, step.audit.device)
    finding = Finding(
        id="attention",
        title=f"attention with scores in memory takes {step.share(rows)} of the step",
        advice=advice,
        action=action,
        **step.fields(
            rows, lost, f"scores of {shape} in memory: {step.spent(rows)}", lines=2, at=softmax
        ),
        confirm="trainperf compare BEFORE AFTER; the next audit has no softmax between two bmm",
    )
    if evidence.summary.run.device != "cpu":
        return finding
    return warm_bound(finding, evidence.summary, refills=max(1.0, _refills(softmax)))


def _remedy(rows: Sequence[Timed], device: str) -> tuple[str, str]:
    """Its advice and the code: another one where the fused call is there, and does not fuse."""
    names = {row.use.short_name for row in rows}
    if UNFUSED not in names:
        return "Use fused attention", _FUSED
    if device == "cpu" and names & DROPOUT:
        return "Attend without dropout", _WITHOUT_DROPOUT
    return "Have attention fused", _WHY_NOT


_FUSED = (
    "torch.nn.functional.scaled_dot_product_attention(q, k, v), is_causal=True for a causal mask; "
    'in transformers attn_implementation="sdpa"'
)
_WITHOUT_DROPOUT = (
    "scaled_dot_product_attention is unfused with dropout on a CPU: dropout_p=0.0, in transformers "
    "attn_pdrop=0.0 or attention_probs_dropout_prob=0.0, if the model can do without"
)
_WHY_NOT = (
    "scaled_dot_product_attention runs unfused here: sdpa_kernel(SDPBackend.FLASH_ATTENTION) of "
    "torch.nn.attention around it says why, mostly its mask, its dtype or the size of a head"
)


def _refills(softmax: Iterable[Timed]) -> float:
    """How often a step of these loses what it had in its caches."""
    forward = (row.use for row in softmax if row.use.part == "forward")
    full = (use.calls * min(1.0, BYTES * prod(use.shapes[0]) / REFILL_BYTES) for use in forward)
    return 2 * sum(full)


BYTES = 4
"""Of a score, at most."""
UNFUSED = "_safe_softmax"
"""Which nothing else calls than `scaled_dot_product_attention` without a fused kernel."""
SOFTMAX = ("_softmax", UNFUSED)
DROPOUT = {"bernoulli_", "native_dropout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One shape of attention scores."""

    rows: int
    """Queries."""
    columns: int
    """Keys."""
    number: int
    """Elements, over all sequences and heads."""

    def are_in(self, use: OperatorUse) -> bool:
        """Whether an operator reads or makes them."""
        if any(map(self.is_shape, use.shapes)):
            return True
        return self.number == result_of_product(use)

    def is_shape(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of that shape is one of scores, perhaps transposed."""
        if len(shape) < 3 or prod(shape) != self.number:
            return False
        return {shape[-2], shape[-1]} == {self.rows, self.columns}


def result_of_product(use: OperatorUse) -> int | None:
    """Elements of the result of a batched product; `None` for another operator."""
    if use.short_name not in ("bmm", "baddbmm") or len(use.shapes) < 2:
        return None
    left, right = use.shapes[-2:]
    return left[0] * left[1] * right[2] if len(left) == len(right) == 3 else None


def attention_rows(rows: Iterable[Timed]) -> list[Timed]:
    """Everything that touches the scores of eager attention, products included."""
    own = [row for row in rows if row.use.part in PASSES]
    kinds = set(_kinds([row.use for row in own]))
    return [row for row in own if any(kind.are_in(row.use) for kind in kinds)]


def _kinds(uses: Sequence[OperatorUse]) -> Iterator[Scores]:
    for use in uses:
        if use.short_name not in SOFTMAX or use.part != "forward" or not use.shapes:
            continue
        shape = use.shapes[0]
        if len(shape) < 3 or min(shape[-2:]) < 32:  # too few queries or keys to matter
            continue
        kind = Scores(rows=shape[-2], columns=shape[-1], number=prod(shape))
        if _is_result(kind, uses) and _used(kind, uses):
            yield kind


def _is_result(kind: Scores, uses: Iterable[OperatorUse]) -> bool:
    """Whether a product has such a result."""
    return any(result_of_product(use) == kind.number for use in uses if use.part == "forward")


def _used(kind: Scores, uses: Iterable[OperatorUse]) -> bool:
    """Whether a product takes them as its first factor."""
    forward = (use for use in uses if use.part == "forward")
    return any(
        result_of_product(use) is not None and kind.is_shape(use.shapes[-2]) for use in forward
    )

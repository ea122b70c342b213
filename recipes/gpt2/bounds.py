"""What can a change gain at most?  From the report and the audit of the run that was kept last.

Each function answers for one change, before it is made.  The bound is on the speed of the whole
step, by Amdahl's law: what the change can take away is left out, all the rest stays as it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.rules.base import value
from trainperf.analysis.rules.operators.audited import (
    PASSES,
    Audited,
    Timed,
    audited,
    short,
    total_s,
)
from trainperf.analysis.rules.operators.scores import attention_rows
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import amdahl
from trainperf.core.formatting.units import duration, share


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """At most so many times faster; `None` where no bound is known."""

    at_most: float | None
    why: str
    """What it stands on, or why there is none, in a clause."""


NO_AUDIT = "no bound: the last kept run has no audited step, or too few steady ones"


def _of_audit(bound: Callable[[Audited], Bounded]) -> Callable[[Evidence], Bounded]:
    """The bound that an audited step allows; none without one."""

    @wraps(bound)
    def known_or_not(evidence: Evidence) -> Bounded:
        known = audited(evidence)
        return Bounded(at_most=None, why=NO_AUDIT) if known is None else bound(known)

    return known_or_not


def nothing(evidence: Evidence) -> Bounded:
    """For a stage that promises nothing."""
    del evidence
    return Bounded(at_most=None, why="no bound")


def loader(evidence: Evidence) -> Bounded:
    """Neither waiting for a batch nor moving it takes any time."""
    spent_s = _phases_s(evidence.summary, "data_wait", "h2d")
    step_s = value(evidence.summary, "step_mean_s")
    if spent_s is None or not step_s:
        return Bounded(at_most=None, why="no bound: too few steady steps")
    waiting = f"{duration(spent_s)} of {duration(step_s)} a step waits for batches or moves them"
    return Bounded(at_most=amdahl(spent_s / step_s), why=waiting)


def packing(evidence: Evidence) -> Bounded:
    """No token is padding, and the whole step shrinks with the tokens, its data wait excepted."""
    wasted = value(evidence.summary, "padding_fraction")
    waited = value(evidence.summary, "data_wait_fraction")
    if wasted is None or waited is None:
        return Bounded(at_most=None, why="no bound: the padding was not counted")
    why = f"{share(wasted)} of the tokens are padding"
    return Bounded(at_most=amdahl(wasted * (1 - waited)), why=why)


@_of_audit
def attention(known: Audited) -> Bounded:
    """Of all that touches scores only the arithmetic of the products is left."""
    rows = attention_rows(known.operators)
    kept_s = sum(row.floor.compute_s or 0.0 for row in rows if row.use.kind == "matmul")
    return _without(known, total_s(rows) - kept_s, "attention scores that pass through memory")


def products_in(precision: str) -> Callable[[Evidence], Bounded]:
    """fp32 products run at the chip's peak in *precision*."""
    return _of_audit(lambda known: _products(known, precision, else_half=False))


def autocast_to(precision: str) -> Callable[[Evidence], Bounded]:
    """The same, and everything else in forward and backward moves half the bytes."""
    return _of_audit(lambda known: _products(known, precision, else_half=True))


def larger_batch(evidence: Evidence) -> Bounded:
    """Forward and backward at their floors, forward twice, and nothing around micro-batches."""
    known = audited(evidence)
    if known is None:
        return Bounded(at_most=None, why=NO_AUDIT)
    floors = known.light.phases
    least_s = 2 * floors["forward"].floor_s + floors["backward"].floor_s
    around_s = _phases_s(evidence.summary, "data_wait", "h2d", "callbacks", "loop") or 0.0
    what = "forward and backward above their floors, and what is around micro-batches"
    return _without(known, known.passes_s - least_s + around_s, what)


@_of_audit
def compiled(known: Audited) -> Bounded:
    """In forward and backward only the products are left: no Python, nothing elementwise."""
    products = [row for row in _passes(known) if row.use.kind == "matmul"]
    lost_s = known.passes_s - total_s(products)
    return _without(known, lost_s, "forward and backward outside of products")


def optimizer(evidence: Evidence) -> Bounded:
    """The update reads and writes each value once."""
    known, spent_s = audited(evidence), _phases_s(evidence.summary, "optimizer")
    if known is None or spent_s is None:
        return Bounded(at_most=None, why=NO_AUDIT)
    if any(short(row.use).startswith("_fused_") for row in known.operators):
        return Bounded(at_most=1.0, why="the update is fused already")
    floor_s = known.light.phases["optimizer"].fused_floor_s
    return _without(known, spent_s - floor_s, "the update above its floor")


def vocabulary(evidence: Evidence) -> Bounded:
    """Whatever has the vocabulary for a size runs at its floor."""
    known, rows = audited(evidence), evidence.summary.run.config.get("vocabulary")
    if known is None or not isinstance(rows, int):
        return Bounded(at_most=None, why=NO_AUDIT)
    wide = [row for row in _passes(known) if any(rows in shape for shape in row.use.shapes)]
    lost_s = sum(row.excess_s for row in wide)
    return _without(known, lost_s, f"operators {rows:,} wide above their floors")


@_of_audit
def launches(known: Audited) -> Bounded:
    """Nothing of forward and backward is left but what the device computes."""
    lost_s = known.passes_s - total_s(_passes(known))
    return _without(known, lost_s, "forward and backward outside of operators")


@_of_audit
def speed_of_light(known: Audited) -> Bounded:
    """Forward and backward at their floors, each chain of elementwise operators one kernel."""
    floors = known.light.phases
    least_s = floors["forward"].fused_floor_s + floors["backward"].fused_floor_s
    return _without(known, known.passes_s - least_s, "forward and backward above their floors")


def _products(known: Audited, precision: str, *, else_half: bool) -> Bounded:
    peaks = known.light.chip.flops_per_s
    peak, fp32 = peaks.get(precision), peaks.get("fp32")
    if peak is None or fp32 is None:
        why = f"no bound: the peak of {known.light.chip.name} in {precision} is not known"
        return Bounded(at_most=None, why=why)
    rows = [row for row in _passes(known) if row.use.kind == "matmul"]
    slow = [row for row in rows if row.use.precision != precision]
    saved_s = total_s(slow) - sum(row.use.flops for row in slow) / peak
    if else_half:
        saved_s += (known.passes_s - total_s(rows)) / 2
    tera = f"{peak / 1e12:.3g} TFLOP/s in {precision}, {fp32 / 1e12:.3g} in fp32"
    return _without(known, saved_s, f"what {precision} can save ({tera})")


def _without(known: Audited, lost_s: float, what: str) -> Bounded:
    """The bound if that much of the step goes away."""
    lost = known.fraction(lost_s)
    why = f"{what}: {duration(lost * known.step_s)} of {duration(known.step_s)} a step"
    if known.basis == "modelled":
        return Bounded(at_most=None, why=f"no bound: {why}, and that is a model without a trace")
    return Bounded(at_most=known.bound(lost), why=why)


def _passes(known: Audited) -> list[Timed]:
    return [row for row in known.operators if row.use.part in PASSES]


def _phases_s(summary: Summary, *phases: str) -> float | None:
    """Mean time of some phases in a steady step; one that does not apply takes none."""
    found: Iterable[float | None] = [value(summary, f"phase_{name}_s") for name in phases]
    known = [one for one in found if one is not None]
    return sum(known) if known else None

"""Upper bounds on the gain of each change, from the report and audit of the run kept last.

Each function bounds one change before it is made.  Where the report bounds it, that is the bound;
the others are here: by Amdahl's law, the time that a change can remove goes away, the rest stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from trainperf.analysis.rules.base import Evidence, phase_fraction, steady_step_s
from trainperf.analysis.rules.input.padding import lost_to_padding
from trainperf.analysis.rules.operators.base import (
    PASSES,
    AuditedStep,
    Timed,
    audited,
    total_s,
)
from trainperf.analysis.rules.operators.elementwise_chain import saved_by_compiling_s
from trainperf.analysis.rules.operators.matmul_precision import saved_at_most_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, amdahl
from trainperf.core.formatting.units import duration, share
from trainperf.core.phases import Phase
from trainperf.core.readings import PADDING_FRACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A bound on the gain."""

    at_most: float | None
    """Times faster at most; `None` where no bound is known."""
    why: str
    """Its basis, or why there is none, as a clause."""


NO_AUDIT = "no bound: the last kept run has no audited step, or too few steady ones"


def _of_audit(bound: Callable[[AuditedStep], Bounded]) -> Callable[[Evidence], Bounded]:
    """The bound that an audited step allows; none without one."""

    @wraps(bound)
    def bound_if_audited(evidence: Evidence) -> Bounded:
        step = audited(evidence)
        return Bounded(at_most=None, why=NO_AUDIT) if step is None else bound(step)

    return bound_if_audited


def of_product(
    *rules: str, otherwise: Callable[[Evidence], Bounded]
) -> Callable[[Evidence], Bounded]:
    """The bound that the report states for this change.

    Args:
        rules: Whose findings advise it.
        otherwise: Where the report has none of them: what is known then.
    """

    def bound(evidence: Evidence) -> Bounded:
        asking = [finding for finding in evidence.summary.findings if finding.id in rules]
        if not asking:
            return otherwise(evidence)
        why = "; ".join(finding.title for finding in asking)
        gains = [finding.gain_upper_bound for finding in asking]
        if None in gains:
            return Bounded(at_most=None, why=f"no bound: {why}, and the report has none of that")
        lost = sum(1 - 1 / gain for gain in gains if gain is not None)
        return Bounded(at_most=amdahl(lost), why=why)

    return bound


def _little(limit: float, *, warm: bool) -> Bounded:
    """A rule that looks from *limit* on found nothing; *warm* caches may save as much again."""
    why = f"the report finds less than {share(limit)} of the step there"
    return Bounded(at_most=amdahl(2 * limit if warm else limit), why=why)


def little(evidence: Evidence) -> Bounded:
    """A rule that needs no audit is silent: less than its limit is there, and warmer caches."""
    if steady_step_s(evidence.summary) is None:
        return Bounded(at_most=None, why="no bound: too few steady steps")
    return _little(LIMITS.notable, warm=True)


def little_in_audit(*, warm: bool) -> Callable[[Evidence], Bounded]:
    """Operator rules looked at the audited step and are silent: less than their limit is there.

    Args:
        warm: Whether the rule's own bound allows for caches that stay warm.
    """

    @_of_audit
    def bound(step: AuditedStep) -> Bounded:
        if step.basis == "modelled":
            why = "no bound: the times of the audited step are modelled, without a trace"
            return Bounded(at_most=None, why=why)
        return _little(LIMITS.notable, warm=warm)

    return bound


def one_worker(evidence: Evidence) -> Bounded:
    """As the report says of the loader, without copies to a device; one worker makes all batches.

    The report may advise more of them, or none.
    """
    summary = evidence.summary
    waited = phase_fraction(summary, Phase.DATA_WAIT)
    if waited is None:
        return Bounded(at_most=None, why="no bound: too few steady steps")
    stated = of_product("data_wait", otherwise=lambda _: _little(LIMITS.notable, warm=True))(
        evidence
    )
    if stated.at_most is None:
        return stated
    left = 1 / stated.at_most - (phase_fraction(summary, Phase.H2D) or 0.0)
    if left >= waited:
        return Bounded(at_most=amdahl(1 - left), why=stated.why)
    why = f"{stated.why}; one worker still takes {share(waited)} of the step for its batches"
    return Bounded(at_most=1 / waited, why=why)


def nothing(evidence: Evidence) -> Bounded:
    """No bound: for a stage that promises no gain."""
    del evidence
    return Bounded(at_most=None, why="no bound")


def packing(evidence: Evidence) -> Bounded:
    """No token is padding: the rule's bound, from the first one that is."""
    lost = lost_to_padding(evidence.summary)
    if lost is None:
        return Bounded(at_most=None, why="no bound: the padding was not counted")
    wasted = evidence.summary.value(PADDING_FRACTION) or 0.0
    return Bounded(at_most=amdahl(lost), why=f"{share(wasted)} of the tokens are padding")


def in_precision(precision: str) -> Callable[[Evidence], Bounded]:
    """The bound of `matmul_precision` for *precision*: TF32 in products, others by autocast."""

    @_of_audit
    def bound(step: AuditedStep) -> Bounded:
        peaks = step.light.chip.flops_per_s
        peak, fp32 = peaks.get(precision), peaks.get("fp32")
        if peak is None or fp32 is None:
            why = f"no bound: the {precision} peak of {step.light.chip.name} is unknown"
            return Bounded(at_most=None, why=why)
        tera = f"{peak / 1e12:.3g} TFLOP/s in {precision}, {fp32 / 1e12:.3g} in fp32"
        saved_s = saved_at_most_s(step, precision)
        return _without(step, saved_s, f"what {precision} can save ({tera})")

    return bound


def larger_batch(evidence: Evidence) -> Bounded:
    """Forward (twice) and backward at their floors, and no time around micro-batches."""
    step = audited(evidence)
    if step is None:
        return Bounded(at_most=None, why=NO_AUDIT)
    floors = step.light.phases
    least_s = 2 * floors["forward"].floor_s + floors["backward"].floor_s
    around_s = _phases_s(evidence.summary, "data_wait", "h2d", "callbacks", "loop") or 0.0
    what = "forward and backward above their floors, and what is around micro-batches"
    return _without(step, step.around_passes_s - least_s + around_s, what)


@_of_audit
def compiled(step: AuditedStep) -> Bounded:
    """As in `elementwise_chain`: in forward and backward only products are left."""
    return _without(step, saved_by_compiling_s(step), "forward and backward outside of products")


def vocabulary(evidence: Evidence) -> Bounded:
    """Every operator with a dimension of the vocabulary's size runs at its floor."""
    step, rows = audited(evidence), evidence.summary.run.config.get("vocabulary")
    if step is None or not isinstance(rows, int):
        return Bounded(at_most=None, why=NO_AUDIT)
    wide = [row for row in _passes(step) if any(rows in shape for shape in row.use.shapes)]
    lost_s = sum(row.excess_s for row in wide)
    return _without(step, lost_s, f"operators {rows:,} wide above their floors")


@_of_audit
def launches(step: AuditedStep) -> Bounded:
    """Of forward and backward only the device's computation is left."""
    lost_s = step.around_passes_s - total_s(_passes(step))
    return _without(step, lost_s, "forward and backward outside of operators")


@_of_audit
def speed_of_light(step: AuditedStep) -> Bounded:
    """Forward and backward at their floors, each chain of elementwise operators one kernel."""
    floors = step.light.phases
    least_s = floors["forward"].fused_floor_s + floors["backward"].fused_floor_s
    return _without(step, step.around_passes_s - least_s, "forward and backward above their floors")


def _without(step: AuditedStep, lost_s: float, what: str) -> Bounded:
    """The bound if *lost_s* of the step goes away."""
    lost = step.fraction(lost_s)
    why = f"{what}: {duration(lost * step.step_s)} of {duration(step.step_s)} per step"
    if step.basis == "modelled":
        return Bounded(at_most=None, why=f"no bound: {why}, and that is modelled, without a trace")
    return Bounded(at_most=step.costs(lost)["gain_upper_bound"], why=why)


def _passes(step: AuditedStep) -> list[Timed]:
    return [row for row in step.operators if row.use.part in PASSES]


def _phases_s(summary: Summary, *phases: str) -> float | None:
    """Mean time of some phases in a steady step; one that does not apply takes none."""
    readings = (summary.value(f"phase_{name}_s") for name in phases)
    measured = [seconds for seconds in readings if seconds is not None]
    return sum(measured) if measured else None

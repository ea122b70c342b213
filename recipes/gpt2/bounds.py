"""Upper bounds on the gain of each change, from the report and audit of the run kept last.

Each function bounds one change before it is made.  Where the report bounds it, that is the bound;
the others are here: what a change can remove of the account of a step goes away, by the law of the
step (`trainperf.analysis.diagnosis.law`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps

from trainperf.analysis.diagnosis.account import Claim, Region, StepAccount, total_s
from trainperf.analysis.diagnosis.detectors.operator_causes import PASSES
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.law import at_most
from trainperf.analysis.diagnosis.of_run import account_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, share
from trainperf.core.readings import PADDING_FRACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A bound on the gain."""

    at_most: float | None
    """Times faster at most; `None` where no bound is known."""
    why: str
    """Its basis, or why there is none, as a clause."""


NO_AUDIT = "no bound: the last kept run has no audited step, or too few steady ones"
NO_STEPS = "no bound: too few steady steps"

AuditedBound = Callable[[Facts, StepAccount], Bounded]


def account(evidence: Facts) -> StepAccount:
    """The mean steady step of a run."""
    return account_of(evidence)


def without(lost: float) -> float | None:
    """How many times faster a step gets without so much of it; `None` where nothing would be left.

    Amdahl's law: 40 % that vanish make it 1 / 0.6 = 1.67 times as fast.
    """
    return 1 / (1 - lost) if lost < 1 else None


def _of_audit(bound: AuditedBound) -> Callable[[Facts], Bounded]:
    """The bound that an audited step allows; none without one."""

    @wraps(bound)
    def bound_if_audited(evidence: Facts) -> Bounded:
        step = account(evidence)
        if not step.regions:
            return Bounded(at_most=None, why=NO_AUDIT)
        if step.regions_basis == "modelled":
            why = "no bound: the times of the audited step are modelled, without a trace"
            return Bounded(at_most=None, why=why)
        return bound(evidence, step)

    return bound_if_audited


def of_product(*findings: str, otherwise: Callable[[Facts], Bounded]) -> Callable[[Facts], Bounded]:
    """The bound that the report states for this change.

    Args:
        findings: Ids of those that advise it.
        otherwise: Where the report has none of them: what is known then.
    """

    def bound(evidence: Facts) -> Bounded:
        asking = [finding for finding in evidence.summary.findings if finding.id in findings]
        if not asking:
            return otherwise(evidence)
        why = "; ".join(finding.title for finding in asking)
        gains = [finding.gain_upper_bound for finding in asking]
        if None in gains:
            return Bounded(at_most=None, why=f"no bound: {why}, and the report has none of that")
        lost = sum(1 - 1 / gain for gain in gains if gain is not None)
        return Bounded(at_most=without(lost), why=why)

    return bound


def _little(step: StepAccount) -> Bounded:
    """A detector that looks from a tenth of the step on found nothing."""
    why = f"the report finds less than {share(LIMITS.notable)} of the step there"
    claim = Claim(removes_s=LIMITS.notable * step.step_s)
    return Bounded(at_most=at_most(step, claim), why=why)


def little(evidence: Facts) -> Bounded:
    """A detector that needs no audit is silent: less than its limit is there."""
    step = account(evidence)
    return _little(step) if step.judged else Bounded(at_most=None, why=NO_STEPS)


@_of_audit
def little_in_audit(evidence: Facts, step: StepAccount) -> Bounded:
    """Detectors looked at the audited step and are silent: less than their limit is there."""
    del evidence
    return _little(step)


def one_worker(evidence: Facts) -> Bounded:
    """No wait and no copies to a device; one worker makes all batches.

    The report may advise more of them, or none.
    """
    step = account(evidence)
    if not step.judged or step.loader is None:
        return Bounded(at_most=None, why=NO_STEPS)
    stated = of_product("data_wait", otherwise=little)(evidence)
    if stated.at_most is None:
        return stated
    copies_s = step.spent("h2d")
    left_s = step.step_s / stated.at_most - copies_s
    making_s = step.loader.making_s
    if left_s >= making_s:
        return Bounded(at_most=step.step_s / left_s, why=stated.why)
    why = f"{stated.why}; one worker still takes {duration(making_s)} of a step for its batches"
    return Bounded(at_most=step.step_s / making_s, why=why)


def nothing(evidence: Facts) -> Bounded:
    """No bound: for a stage that promises no gain."""
    del evidence
    return Bounded(at_most=None, why="no bound")


def packing(evidence: Facts) -> Bounded:
    """No token is padding: the bound of `padding`, from the first one that is."""
    step, wasted = account(evidence), evidence.summary.value(PADDING_FRACTION)
    if wasted is None or not step.judged:
        return Bounded(at_most=None, why="no bound: the padding was not counted")
    grows_s = step.spent("forward", "backward", "h2d", "other", "between")
    why = f"{share(wasted)} of the tokens are padding"
    return Bounded(at_most=at_most(step, Claim(removes_s=wasted * grows_s)), why=why)


def in_precision(precision: str) -> Callable[[Facts], Bounded]:
    """The bound of `matmul_precision` for *precision*: TF32 in products, others by autocast."""

    @_of_audit
    def bound(evidence: Facts, step: StepAccount) -> Bounded:
        if evidence.light is None:
            return Bounded(at_most=None, why=NO_AUDIT)
        chip = evidence.light.chip
        peak, fp32 = chip.flops_per_s.get(precision), chip.flops_per_s.get("fp32")
        if peak is None or fp32 is None:
            return Bounded(
                at_most=None, why=f"no bound: the {precision} peak of {chip.name} is unknown"
            )
        products = [region for region in _passes(step) if region.use.kind == "matmul"]
        slow = [region for region in products if region.use.precision != precision]
        saved_s = total_s(slow) - sum(region.use.flops for region in slow) / peak
        if precision != "tf32":  # everything else moves half the bytes, and takes half its time
            saved_s += (_passes_s(step) - total_s(products)) / 2
        tera = f"{peak / 1e12:.3g} TFLOP/s in {precision}, {fp32 / 1e12:.3g} in fp32"
        return _without(step, saved_s, f"what {precision} can save ({tera})")

    return bound


@_of_audit
def larger_batch(evidence: Facts, step: StepAccount) -> Bounded:
    """Forward (twice) and backward at their floors, and no time around micro-batches."""
    if evidence.typical is None:
        return Bounded(at_most=None, why=NO_AUDIT)
    floors = evidence.typical.phases
    least_s = 2 * floors["forward"].floor_s + floors["backward"].floor_s
    around_s = step.spent("data_wait", "h2d", "callbacks", "loop")
    what = "forward and backward above their floors, and what is around micro-batches"
    return _without(step, _passes_s(step) - least_s + around_s, what)


@_of_audit
def compiled(evidence: Facts, step: StepAccount) -> Bounded:
    """In forward and backward only products are left, without the Python around them."""
    del evidence
    products_s = _computed_s(row for row in _passes(step) if row.use.kind == "matmul")
    what = "forward and backward outside of products"
    return _without(step, _passes_s(step) - products_s, what)


@_of_audit
def vocabulary(evidence: Facts, step: StepAccount) -> Bounded:
    """Every operator with a dimension of the vocabulary's size runs at its floor."""
    rows = evidence.summary.run.config.get("vocabulary")
    if not isinstance(rows, int):
        return Bounded(at_most=None, why=NO_AUDIT)
    wide = [row for row in _passes(step) if any(rows in shape for shape in row.use.shapes)]
    lost_s = total_s(wide) - sum(row.ideal_s for row in wide)
    return _without(step, lost_s, f"operators {rows:,} wide above their floors")


@_of_audit
def launches(evidence: Facts, step: StepAccount) -> Bounded:
    """Of forward and backward only the device's computation is left."""
    del evidence
    lost_s = _passes_s(step) - _computed_s(_passes(step))
    return _without(step, lost_s, "forward and backward outside of operators")


@_of_audit
def speed_of_light(evidence: Facts, step: StepAccount) -> Bounded:
    """Forward and backward at their floors, each chain of elementwise operators one kernel."""
    if evidence.typical is None:
        return Bounded(at_most=None, why=NO_AUDIT)
    floors = evidence.typical.phases
    least_s = floors["forward"].fused_floor_s + floors["backward"].fused_floor_s
    lost_s = _passes_s(step) - least_s
    return _without(step, lost_s, "forward and backward above their floors")


def _without(step: StepAccount, lost_s: float, what: str) -> Bounded:
    """The bound if *lost_s* of the step goes away."""
    removes_s = min(max(lost_s, 0.0), step.step_s)
    why = f"{what}: {duration(removes_s)} of {duration(step.step_s)} per step"
    return Bounded(at_most=at_most(step, Claim(removes_s=removes_s)), why=why)


def _passes(step: StepAccount) -> list[Region]:
    return [region for region in step.regions if region.use.part in PASSES]


def _passes_s(step: StepAccount) -> float:
    """Time in which forward and backward run, at most.

    A device works on while its host is elsewhere: there it is the step.
    """
    around_s = step.spent("forward", "backward", "other")
    return around_s if step.device is None else step.step_s


def _computed_s(regions: Iterable[Region]) -> float:
    """Without the Python around them, which no compiled step waits for."""
    return sum(region.run_s for region in regions)

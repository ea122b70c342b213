"""Check that the loss matches a baseline's."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, unknown
from trainperf.core.formatting.units import share


def loss_parity(case: Case) -> Outcome:
    """Loss still matches the baseline.

    Fails when the losses at equal work are more than 2 % apart, and more than noise explains.
    Unknown without a baseline.
    """
    found = case.parity
    if found is None:
        return unknown("no baseline was given", "--baseline the run before the change")
    if found.verdict == "unknown":
        return unknown(found.why, "train both runs further, on the same data")
    limit = f"tolerance {share(found.tolerance)}"
    if found.verdict == "differs":
        return failed("undo the change, or prove it right before you go on", found.why, limit)
    return passed(found.why, limit)

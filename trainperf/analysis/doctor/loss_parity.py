"""Check that the loss matches a baseline's."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, unknown
from trainperf.core.formatting.units import share


def loss_parity(case: Case) -> Outcome:
    """Loss still matches the baseline.

    Fails when the losses at equal work are more than 2 % apart, and more than noise explains.
    Unknown without a baseline.
    """
    parity = case.parity
    if parity is None:
        return unknown("no baseline was given", "--baseline the run before the change")
    if parity.verdict == "unknown":
        return unknown(parity.why, "train both runs further, on the same data")
    limit = f"tolerance {share(parity.tolerance)}"
    if parity.verdict == "differs":
        return failed("undo the change, or prove it right before you go on", parity.why, limit)
    return passed(parity.why, limit)

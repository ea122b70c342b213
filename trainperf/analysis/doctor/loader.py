"""Check that the device does not wait for batches."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, failed_by, passed, reason, unknown
from trainperf.analysis.rules.input.base import lost_to_loader
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import share
from trainperf.core.readings import DATA_STALL_FRACTION, DATA_WAIT_FRACTION


FAILS_ON = ("data_wait", "epoch_start")


def loader(case: Case) -> Outcome:
    """The DataLoader does not make the device wait.

    Fails on `data_wait` and `epoch_start`, and on a wait of a tenth of the step whatever its cause.
    Unknown without enough steady steps.
    """
    summary = case.summary
    waited, stalled = summary.value(DATA_WAIT_FRACTION), summary.value(DATA_STALL_FRACTION)
    lost = lost_to_loader(summary)
    if waited is None or lost is None:
        few = "too few steady steps"
        why = reason(summary, DATA_WAIT_FRACTION) if waited is None else few
        return unknown(why, f"train past the warm-up with {case.loop.measures['data wait']}")
    evidence = f"{share(waited)} of the step in the loader's next()"
    if lost >= LIMITS.notable:
        more = failed("give the DataLoader more workers", evidence)
        # `data_wait` leaves a wait to the rules that name its cause.
        return failed_by(case, ("many_small_tensors", "straggler")) or more
    if summary.run.device == "cpu":
        return passed(evidence)
    if stalled is None:
        why = f"{evidence}; what the device lost to it was not measured"
        return unknown(why, case.loop.everything)
    return passed(evidence, f"the device idled for data {share(stalled)}")

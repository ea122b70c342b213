"""Does the device wait for its batches?"""

from trainperf.doctor.base import Case, Outcome, passed, reason, refused, unknown
from trainperf.rules.base import LIMITS, value
from trainperf.units import share


RULES = ("data_wait", "epoch_start")


def loader(case: Case) -> Outcome:
    """The DataLoader does not make the device wait."""
    bad = refused(case, RULES)
    if bad is not None:
        return bad
    summary = case.summary
    waited, stalled = value(summary, "data_wait_fraction"), value(summary, "data_stall_fraction")
    if waited is None or summary.run.steady_steps < LIMITS.steps:
        why = (
            "too few steady steps" if waited is not None else reason(summary, "data_wait_fraction")
        )
        return unknown(why, "train past the warm-up with TrainPerf() or DataWaitMonitor()")
    said = f"{share(waited)} of the step in the loader's next()"
    if summary.run.device == "cpu":
        return passed(said)
    if stalled is None:
        return unknown(f"{said}; what the device lost to it was not measured", "TrainPerf()")
    return passed(said, f"the device was idle because of it for {share(stalled)}")

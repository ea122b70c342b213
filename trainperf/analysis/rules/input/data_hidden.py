"""Rule about data wait that the device hides."""

from trainperf.analysis.rules.base import Evidence, phase_fraction, worst
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share
from trainperf.core.phases import Phase
from trainperf.core.readings import DATA_STALL_FRACTION


def data_hidden(evidence: Evidence) -> Finding | None:
    """The loader takes much of the host's time and none of the device's: nothing is to be done.

    A finding without gain, so that nobody speeds up a loader that costs nothing.

    Wrong where: the device gets faster: then the loader is what it waits for.
    To confirm: `trainperf try --only free_loader SCRIPT` gains nothing.
    """
    summary = evidence.summary
    waited = phase_fraction(summary, Phase.DATA_WAIT)
    stalled = worst(summary, DATA_STALL_FRACTION)
    if waited is None or stalled is None or summary.run.device == "cpu":
        return None
    # A stall below a quarter of the host's data wait: the device hides the rest.
    if waited < LIMITS.notable or stalled >= min(LIMITS.notable, waited / 4):
        return None
    return Finding(
        id="data_hidden",
        title=f"{share(waited)} of the step is data wait that the device hides",
        advice="Leave the loader as it is",
        evidence=(f"the device idled for data {share(stalled)} of the step",),
        action="nothing: while the host waits, the device still has work; a faster loader gains "
        "nothing",
        fraction=0.0,
        severity="low",
        confirm="data_stall_fraction stays small when the step gets faster",
    )

"""Rule about the framework's own time between steps."""

from trainperf.analysis.rules.base import Evidence, phase_fraction
from trainperf.analysis.rules.host.base import hands_to_threads
from trainperf.analysis.rules.host.logging import logging
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.loop_kind import LIGHTNING
from trainperf.core.phases import Phase
from trainperf.core.readings import HOST_BOUND_FRACTION, STEP_MEAN_S


SAMPLED = Phase.LOOP


@hands_to_threads
def loop(evidence: Evidence) -> Finding | None:
    """Logging, progress bars and metrics after the last hook take a notable part of the step.

    On several ranks only what even the last rank spends there counts.  Where a device works on
    while the host waits there, the wait is not lost: no finding, unless the run is host-bound.

    Wrong where: the time is a wait for the device or for another rank, which the next phase would
    have otherwise.
    To confirm: `trainperf try --only no_logging SCRIPT`; samples of the line in `report --full`.
    """
    summary = evidence.summary
    lost, step_s = phase_fraction(summary, Phase.LOOP), summary.value(STEP_MEAN_S)
    if lost is None or not step_s or summary.run.loop is not LIGHTNING:
        return None
    together = [p.transfer_s / step_s for p in summary.synchronisation if p.point == "loop"]
    lost = min([lost, *together])
    host_bound = summary.value(HOST_BOUND_FRACTION) or 0.0
    hidden = summary.run.device != "cpu" and host_bound < LIMITS.host_bound
    if lost < LIMITS.notable or hidden or logging(evidence) is not None:
        return None
    shown = summary.run.config.get("prog_bar_metrics")
    return Finding(
        id="loop",
        title=f"the framework takes {share(lost)} of the step after the last hook",
        advice="Log less often",
        evidence=(
            f"{duration(lost * step_s)} of {duration(step_s)} between last hook and fetch",
            *((f"on the progress bar: {shown}",) if shown else ()),
        ),
        action="self.log(…, prog_bar=False) and Trainer(log_every_n_steps=50): a value on the "
        "progress bar is read back in every batch",
        **costs(lost, confidence="medium"),
        confirm="trainperf compare BEFORE AFTER: phase_loop_s falls",
    )

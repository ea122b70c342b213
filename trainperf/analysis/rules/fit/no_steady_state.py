"""Rule about runs whose warm-up was never seen to end."""

from trainperf.analysis.rules.base import Evidence
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import plural, share
from trainperf.core.readings import STEP_MEAN_S, STEP_S
from trainperf.core.stats.warmup import TOLERANCE, WINDOW
from trainperf.meters.fold import not_covered


def no_steady_state(evidence: Evidence) -> Finding | None:
    """The warm-up was never seen to end, so there are no steady statistics.

    A run that is still being written may yet settle.

    Wrong where: the run is short, or the machine is shared: nothing is wrong with the training
    then.
    To confirm: the same training for ten times the steps, on a quiet machine.
    """
    summary = evidence.summary
    run = summary.run
    if not_covered(summary.reading(STEP_MEAN_S)):
        return None  # the log has one mean of all steps
    if run.steady_steps or not run.steps or run.state == "running":
        return None
    least = 2 * WINDOW + 1
    if run.steps < least:
        if run.state != "finished":
            return None
        are = "is" if run.steps == 1 else "are"
        return Finding(
            id="no_steady_state",
            title=f"{plural(run.steps, 'step')} {are} too few for a steady state",
            advice="Train longer",
            evidence=(f"at least {least} ordinary steps are needed to see the warm-up end",),
            action="200 steps are enough for a first answer",
            severity="low",
            confirm="trainperf report counts steady steps",
        )
    if not_covered(summary.reading(STEP_S)):
        return Finding(
            id="no_steady_state",
            title="the means in the log are too few, or too far apart, for a steady state",
            advice="Log more of it",
            evidence=(
                f"{plural(run.steps, 'step')}; means of {WINDOW} of them differ by over "
                + share(TOLERANCE),
            ),
            action="a log of more steps, or trainperf run SCRIPT for 200 of them",
            severity="low",
            confirm="trainperf report counts steady steps",
        )
    return Finding(
        id="no_steady_state",
        title="the step time never settled",
        advice="Find what keeps changing",
        evidence=(
            f"{plural(run.steps, 'step')}; medians of {WINDOW} differ by over {share(TOLERANCE)}",
        ),
        action="look for changing shapes, recompilations, or other work on this machine",
        # It says how much the other findings are worth: one that gains something comes first.
        severity="low",
        effort="hours",
        confirm="trainperf report counts steady steps",
    )

"""Rule about slow steps that come back."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches, own_fit_s, setting
from trainperf.analysis.rules.input.base import restarts_s
from trainperf.analysis.summary.schema import LineShare, RecurringSteps, Summary
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.phases import Phase


LEAST = 0.03
"""Share of the fit from which they are worth a finding."""


@leaves_cold_caches
def slow_steps(evidence: Evidence) -> Finding | None:
    """Every n-th step, or each after a pause, takes much longer than the others.

    The bound is of all they take beyond an ordinary step: doing it less often saves a part.

    Wrong where: something outside comes back at the same distance, e.g. another job's checkpoint.
    To confirm: the same run on another machine: what is the training's own comes at the same steps.
    """
    summary = evidence.summary
    slow, fit_s = summary.slow_steps, own_fit_s(summary)
    if slow is None or not fit_s or _bursts(slow, summary):
        return None
    # Where only the latest steps were looked at, the earlier ones are taken to be like them.
    lost = slow.lost_s * max(1.0, summary.run.steady_steps / slow.of_steps) / fit_s
    if lost < LEAST:
        return None
    which = _which(slow)
    line = slow.line
    doer = line.subject if line else f"what {which} does"
    return Finding(
        id="slow_steps",
        title=f"{which} takes {duration(slow.slow_s)} instead of {duration(slow.typical_s)}: "
        f"{share(lost)} of the fit",
        advice=f"Run {doer} less often" if line else f"Find {doer}",
        evidence=(
            f"{plural(slow.steps, 'slow step')} of {slow.of_steps:,}",
            f"{share(slow.phase_fraction)} of what they take longer is in {slow.phase}",
            *_sampled(line),
        ),
        action=f"do the work of {doer} less often, on less data, or in the background",
        **costs(min(lost, 0.99), scope="fit"),
        where=line.where if line else "",
        confirm="trainperf report: p99 comes close to the median",
    )


def _sampled(line: LineShare | None) -> tuple[str, ...]:
    if line is None:
        return ()
    return (f"{line.name}: {share(line.fraction)} of that in {line.samples} samples",)


def _which(slow: RecurringSteps) -> str:
    if slow.every is None:
        return f"the step {slow.tag.replace('_', ' ')}"
    ending = "th" if slow.every % 100 in (11, 12, 13) else _ENDINGS.get(slow.every % 10, "th")
    return f"every {slow.every:,}{ending} step"


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def _bursts(slow: RecurringSteps, summary: Summary) -> bool:
    """Workers that bring their batches in turn make one step wait for each round of them.

    What starts them anew in each epoch is `epoch_start`'s.
    """
    if restarts_s(summary):
        return True
    workers = setting(summary, "num_workers") or 0
    return slow.phase == Phase.DATA_WAIT.label and slow.every is not None and slow.every <= workers

"""What is the answer, in one sentence?"""

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import bracket, duration, plural, share
from trainperf.core.phases import Phase
from trainperf.reports.layout.finding_view import NO_FINDING, gain, to_act_on
from trainperf.reports.run.rows import PhaseRow, phase_rows


COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_DOING = {
    Phase.DATA_WAIT: "waiting for data",
    Phase.H2D: "moving the batch to the device",
    Phase.CALLBACKS: "in callbacks",
    Phase.LOOP: "in the framework's loop between steps",
    Phase.OTHER: "outside every phase",
}
UNSPLIT = 'To see more, put its parts into monitor.phase("forward"), "backward" and "optimizer".'
"""Said of a loop of which no part is known: that nothing stands out there means nothing."""

_ACTED_ON = {
    "data_wait": Phase.DATA_WAIT,
    "transfer": Phase.H2D,
    "callbacks": Phase.CALLBACKS,
    "loop": Phase.LOOP,
}
"""Findings about one phase: that is the share to name, though computing may take a larger one."""

FAR_FROM_MEDIAN = 0.05
"""Relative distance of mean and median above which the headline says both."""

_HIDDEN_STALL = 0.25
"""Of the host's wait for data: with less than that lost on the device, the wait is no answer."""


def headline(summary: Summary) -> str:
    """Step time, its largest share, and what to do first with the most it can gain."""
    return " ".join(part for part in (_where(summary), _what_first(summary)) if part)


def _where(summary: Summary) -> str:
    run, step = summary.run, summary.readings["step_s"]
    if not run.steps:
        return f"No step was recorded in a fit of {duration(run.fit_s)}."
    rows = phase_rows(summary)
    largest = _largest(summary, rows)
    mean_s = sum(row.seconds for row in rows)
    if step.value is not None:
        sure = bracket(step.value, step.low, step.high)
        return f"{duration(step.value)} a step{sure}{_mean(step.value, mean_s)}{largest}."
    if run.steps == 1:
        return f"One step of {duration(mean_s)}{largest}."
    return (
        f"No steady state in {plural(run.steps, 'step')}: {duration(mean_s)} on average{largest}."
    )


def _mean(median_s: float, mean_s: float) -> str:
    """The mean, where steps vary so much that the phases' means do not add up to the median."""
    if abs(mean_s - median_s) <= FAR_FROM_MEDIAN * median_s:
        return ""
    return f", {duration(mean_s)} on average"


def _what_first(summary: Summary) -> str:
    first = next(iter(to_act_on(summary.findings)), None)
    # One that gains nothing only explains what looks like a loss.
    if first is not None and first.fraction != 0.0:
        most = gain(first)
        return f"{first.advice} first{f': {most}' if most else ''}."
    if not summary.run.steady_steps:
        return ""
    if _unsplit(summary):
        return UNSPLIT
    return NO_FINDING


def _unsplit(summary: Summary) -> bool:
    """Whether a plain loop brackets none of its work."""
    return all(summary.readings[f"phase_{phase.label}_s"].value is None for phase in COMPUTE)


def _largest(summary: Summary, rows: list[PhaseRow]) -> str:
    first = next(iter(to_act_on(summary.findings)), None)
    if first is not None and first.fraction is not None:
        if first.id == "straggler":
            return f", {share(first.fraction)} of it lost by ranks that wait for each other"
        if first.id in _ACTED_ON:
            doing = _DOING[_ACTED_ON[first.id]]
            slowest = " on the slowest rank" if len(summary.run.ranks) > 1 else ""
            work = _work_beside(summary, rows, first.fraction)
            return f", {share(first.fraction)} of it {doing}{slowest}{work}"
    top = max(rows, key=lambda row: row.fraction, default=None)
    if top is None:
        return ""
    if _hidden(summary, top):
        return f", {share(top.fraction)} of it a wait for data behind a busy device"
    if top.phase not in COMPUTE:
        return f", {share(top.fraction)} of it {_DOING[top.phase]}"
    detail = " (forward, backward, optimizer)" if _computes(summary) else ""
    return f", {_together(rows)} of it {_computing(summary)}{detail}"


def _work_beside(summary: Summary, rows: list[PhaseRow], fraction: float) -> str:
    """The work itself, where one phase of it is larger than the share that can be acted on."""
    work = [row.fraction for row in rows if row.phase in COMPUTE]
    if max(work, default=0.0) <= fraction:
        return ""
    return f" and {_together(rows)} {_computing(summary)}"


def _together(rows: list[PhaseRow]) -> str:
    return share(sum(row.fraction for row in rows if row.phase in COMPUTE))


def _computes(summary: Summary) -> bool:
    """Whether the host's time in forward, backward and optimizer is that of computing."""
    return summary.run.device == "cpu" and len(summary.run.ranks) == 1


def _computing(summary: Summary) -> str:
    if _computes(summary):
        return "computing"
    if summary.run.device != "cpu":
        # The device is only given its work there: the host's time is not compute time.
        return "in forward, backward and optimizer (host time)"
    # The wait for the other ranks' gradients is in it.
    return "in forward, backward and optimizer"


def _hidden(summary: Summary, row: PhaseRow) -> bool:
    stalled = summary.readings["data_stall_fraction"].value
    return (
        row.phase is Phase.DATA_WAIT
        and summary.run.device != "cpu"
        and stalled is not None
        and stalled < _HIDDEN_STALL * row.fraction
    )

"""The headline of a run: step time, its largest share, and what to change first."""

from collections.abc import Sequence

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import confidence_interval, duration, plural, share
from trainperf.core.loop_kind import imported_from
from trainperf.core.phases import Phase
from trainperf.core.readings import DATA_STALL_FRACTION, STEP_S
from trainperf.reports.layout.finding_view import (
    NO_FINDING,
    NO_FINDING_IN_LOG,
    gain,
    to_act_on,
)
from trainperf.reports.run.rows import PhaseRow, phase_rows


COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_NAMES = {
    Phase.DATA_WAIT: "data wait",
    Phase.H2D: "copying the batch to the device",
    Phase.CALLBACKS: "callbacks",
    Phase.LOOP: "the framework's loop between steps",
    Phase.OTHER: "outside every phase",
}
_PHASE_OF_FINDING = {
    "data_wait": Phase.DATA_WAIT,
    "transfer": Phase.H2D,
    "callbacks": Phase.CALLBACKS,
    "loop": Phase.LOOP,
}
"""Findings about one phase: its share is named first, though compute may take a larger one."""

_WHOLE_SENTENCES = ("device_throttled", "device_shared", "host_shared", "host_pressure")
"""Findings about what was done to the loop: no phase is to blame, so the headline says what was."""

FAR_FROM_MEDIAN = 0.05
"""Relative distance of mean and median above which the headline gives both."""

_HIDDEN_STALL = 0.25
"""Of the host's wait for data: with less than that lost on the device, the wait is hidden."""


def headline(summary: Summary) -> str:
    """Step time, its largest share, and what to do first with the most it can gain."""
    return plain(" ".join(filter(None, (_where(summary), _what_first(summary)))))


def _where(summary: Summary) -> str:
    run, step = summary.run, summary.readings[STEP_S]
    if not run.steps:
        of = f" in a {run.loop.run_noun} of {duration(run.fit_s)}" if run.fit_s else ""
        return f"No step was recorded{of}."
    rows = phase_rows(summary)
    largest = _done_to_it(summary) or _largest(summary, rows)
    mean_s = sum(row.seconds for row in rows)
    if imported_from(run.config) and step.value is None and run.steps > 1:
        return f"{_mean_of_log(summary, mean_s)}{largest}."
    if step.value is not None:
        interval = confidence_interval(step.value, step.low, step.high)
        return f"Step time {duration(step.value)}{interval}{_mean(step.value, mean_s)}{largest}."
    if run.steps == 1:
        return f"One step of {duration(mean_s)}{largest}."
    return f"No steady state in {plural(run.steps, 'step')}: mean {duration(mean_s)}{largest}."


def _mean_of_log(summary: Summary, mean_s: float) -> str:
    """The mean step of a log that has no single ones."""
    run = summary.run
    if run.steady_steps:
        return f"Mean step {duration(mean_s)} over {plural(run.steady_steps, 'steady step')}"
    return f"Mean step {duration(mean_s)} over all {plural(run.steps, 'step')}, warm-up included"


def _mean(median_s: float, mean_s: float) -> str:
    """The mean, where steps vary so much that the phases' means do not add up to the median."""
    if abs(mean_s - median_s) <= FAR_FROM_MEDIAN * median_s:
        return ""
    return f", mean {duration(mean_s)}"


def _what_first(summary: Summary) -> str:
    first = next(iter(to_act_on(summary.findings)), None)
    # What the headline says was done to the steps has its remedy, however little it costs.
    if first is None or (first.severity == "low" and not _done_to_it(summary)):
        return nothing_found(summary)
    most = gain(first)
    has_gain = bool(most) or first.urgent
    after = _more_to_see(summary) if has_gain else f" {nothing_found(summary)}"
    return f"First: {_lowered(first.advice)}{f' — {most}' if most else ''}.{after}"


def nothing_found(summary: Summary) -> str:
    """In place of findings: what the step is made of, and what would see more of it."""
    if imported_from(summary.run.config):
        return NO_FINDING_IN_LOG
    steady, left = summary.run.steady_steps, summary.ordinary
    if steady < LIMITS.steps:
        few = f"Too few steady steps to say what to change: {steady} of at least {LIMITS.steps}."
        return few if summary.run.steps else ""
    if left is None or not left.fraction:
        return NO_FINDING
    light = ""
    if left.of_light is not None:
        light = f" at {share(min(left.of_light, 1.0))} of this machine's speed of light"
    sentence = (
        f"{share(left.fraction)} of the step is ordinary computing{light}; no waste was seen in it."
    )
    return f"{sentence}{_more_to_see(summary)}"


def _more_to_see(summary: Summary) -> str:
    """The look that sees more, where nobody has looked into what takes most of the step."""
    left = summary.ordinary
    if left is None or not left.look or left.fraction < LIMITS.mostly:
        return ""
    return f" {left.look} would see more."


def _lowered(advice: str) -> str:
    """The imperative inside a sentence; a name in capitals keeps them."""
    first = advice.partition(" ")[0]
    return advice if first[1:] != first[1:].lower() else advice[:1].lower() + advice[1:]


def _done_to_it(summary: Summary) -> str:
    first = next(iter(to_act_on(summary.findings)), None)
    return f"; {first.title}" if first is not None and first.id in _WHOLE_SENTENCES else ""


def _largest(summary: Summary, rows: Sequence[PhaseRow]) -> str:
    first = next(iter(to_act_on(summary.findings)), None)
    if first is not None and first.fraction is not None:
        if first.id == "straggler":
            named = first.title.partition("; ")[2]
            who = f" ({named})" if named else ""
            return f"; {share(first.fraction)} of it is lost to stragglers{who}"
        if first.id in _PHASE_OF_FINDING:
            phase = _PHASE_OF_FINDING[first.id]
            slowest = " on the slowest rank" if len(summary.run.ranks) > 1 else ""
            # What the advice leaves of it, e.g. the CPU time of workers, was waited for as well.
            spent = [row.fraction for row in rows if row.phase == phase and _host_computes(summary)]
            lost = max([first.fraction, *spent])
            work = _larger_work(summary, rows, lost)
            return f"; {share(lost)} of it is {_name(summary, phase)}{slowest}{work}"
    top = max(rows, key=lambda row: row.fraction, default=None)
    if top is None:
        return ""
    phase = Phase(top.phase)
    if phase is Phase.DATA_WAIT and _hidden(summary, top):
        return f"; {share(top.fraction)} of it is data wait, hidden behind a busy device"
    if phase not in COMPUTE:
        return f"; {share(top.fraction)} of it is {_name(summary, phase)}"
    parts = f" ({', '.join(summary.run.loop.work)})" if _host_computes(summary) else ""
    return f"; {_work_share(rows)} of it is {_work_name(summary)}{parts}"


def _name(summary: Summary, phase: Phase) -> str:
    if phase is Phase.OTHER and imported_from(summary.run.config):
        return "not divided in the log"
    return summary.run.loop.names.get(phase.label, _NAMES[phase])


def _larger_work(summary: Summary, rows: Sequence[PhaseRow], fraction: float) -> str:
    """The work itself, where one phase of it is larger than the share that can be acted on."""
    work = [row.fraction for row in rows if row.phase in COMPUTE]
    if max(work, default=0.0) <= fraction:
        return ""
    return f" and {_work_share(rows)} {_work_name(summary)}"


def _work_share(rows: Sequence[PhaseRow]) -> str:
    return share(sum(row.fraction for row in rows if row.phase in COMPUTE))


def _host_computes(summary: Summary) -> bool:
    """Whether host time in forward, backward and optimizer is compute time.

    Another device is only given its work there; with several ranks the wait for the other ranks'
    gradients is in it.
    """
    return summary.run.device == "cpu" and len(summary.run.ranks) == 1


def _work_name(summary: Summary) -> str:
    if _host_computes(summary):
        return "compute"
    host = "" if imported_from(summary.run.config) else summary.run.device_kind.host_time
    *first, last = summary.run.loop.work
    return f"{', '.join(first)} and {last}{host}" if first else f"{last}{host}"


def _hidden(summary: Summary, row: PhaseRow) -> bool:
    stalled = summary.readings[DATA_STALL_FRACTION].value
    return stalled is not None and stalled < _HIDDEN_STALL * row.fraction

"""The headline of a run: step time, its largest share, and what to change first."""

from collections.abc import Sequence

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import confidence_interval, duration, plural, share
from trainperf.core.loop_kind import imported_from
from trainperf.core.phases import PHASES, Phase
from trainperf.core.readings import DATA_STALL_FRACTION, STEP_S
from trainperf.reports.layout.finding_view import (
    NO_FINDING,
    NO_FINDING_IN_LOG,
    gain,
    to_act_on,
)
from trainperf.reports.run.rows import PhaseRow, phase_rows, prepared_of
from trainperf.reports.run.standstill import hang_sentence


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
    """What hangs; step time, its largest share, what to do first, and work before the fit."""
    hang, where, hangs = summary.hang, _where(summary), ""
    if hang is not None:
        hangs = hang_sentence(hang, several=len(summary.run.ranks) > 1)
        where = where if summary.run.steps else ""
    own_s, whole_s = prepared_of(summary)
    before = own_s and f"{duration(own_s)} of the script's {duration(whole_s)} came before the fit."
    return plain(" ".join(filter(None, (hangs, where, _what_first(summary), before or ""))))


def _where(summary: Summary) -> str:
    run, step = summary.run, summary.readings[STEP_S]
    if not run.steps:
        of = f" in a {run.loop.run_noun} of {duration(run.fit_s)}" if run.fit_s else ""
        return f"No step was recorded{of}."
    rows = phase_rows(summary)
    mean_s = sum(row.seconds for row in rows)
    largest = _done_to_it(summary) or _largest(summary, rows)
    if step.value is not None:
        interval = confidence_interval(step.value, step.low, step.high)
        # Where steps vary much the phases' means do not add up to the median.
        varies = abs(mean_s - step.value) > FAR_FROM_MEDIAN * step.value
        mean = f", mean {duration(mean_s)}" if varies else ""
        return f"Step time {duration(step.value)}{interval}{mean}{largest}."
    if run.steps == 1:
        return f"One step of {duration(mean_s)}{largest}."
    steps, steady = plural(run.steps, "step"), plural(run.steady_steps, "steady step")
    if imported_from(run.config):
        # The mean step of a log that has no single ones.
        over = steady if run.steady_steps else f"all {steps}, warm-up included"
        return f"Mean step {duration(mean_s)} over {over}{largest}."
    return f"No steady state in {steps}: mean {duration(mean_s)}{largest}."


def _what_first(summary: Summary) -> str:
    first = _first(summary)
    # What the headline says was done to the steps has its remedy, however little it costs.
    if first is None or (first.severity == "low" and not _done_to_it(summary)):
        return nothing_found(summary)
    most = gain(first)
    modest = first.option or (first.small and not first.urgent and first.measured_gain is None)
    unknown = any(f.gain is None and f.severity == "high" for f in to_act_on(summary.findings))
    if most and modest and not (unknown or _done_to_it(summary)) and _computes(summary):
        kind = "An option" if first.option else "A small gain"
        return f"{nothing_found(summary)} {kind}: {_lowered(first.advice)} — {most}."
    is_clear = most or first.urgent
    after = _more_to_see(summary) if is_clear else f" {nothing_found(summary)}"
    return f"First: {_lowered(first.advice)}{f' — {most}' if most else ''}.{after}"


def _computes(summary: Summary) -> bool:
    """Whether most of the step is known to be ordinary computing."""
    left, logged = summary.ordinary, imported_from(summary.run.config)
    enough = summary.run.steady_steps >= LIMITS.steps and not logged
    return left is not None and enough and left.fraction >= LIMITS.mostly


def _first(summary: Summary) -> Finding | None:
    return next(iter(to_act_on(summary.findings)), None)


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
    part = share(min(left.of_light or 0.0, 1.0))
    light = "" if left.of_light is None else f" at {part} of this machine's speed of light"
    computing = f"{share(left.fraction)} of the step is ordinary computing{light}"
    return f"{computing}; no waste was seen in it.{_more_to_see(summary)}"


def _more_to_see(summary: Summary) -> str:
    """The look that sees more, where nobody has looked into what takes most of the step."""
    left = summary.ordinary
    look = "" if left is None or left.fraction < LIMITS.mostly else left.look
    return f" {look} would see more." if look else ""


def _lowered(advice: str) -> str:
    """The imperative inside a sentence; a name in capitals keeps them."""
    first = advice.partition(" ")[0]
    return advice if first[1:] != first[1:].lower() else advice[:1].lower() + advice[1:]


def _done_to_it(summary: Summary) -> str:
    first = _first(summary)
    return f"; {first.title}" if first is not None and first.id in _WHOLE_SENTENCES else ""


def _largest(summary: Summary, rows: Sequence[PhaseRow]) -> str:
    first, several = _first(summary), len(summary.run.ranks) > 1
    longest = max(rows, key=lambda row: row.fraction, default=None)
    spent = {Phase(row.phase): row.fraction for row in rows if row.phase < len(PHASES)}
    if first is not None and first.fraction is not None and first.id == "straggler":
        named = first.title.partition("; ")[2]
        who = f" ({named})" if named else ""
        return f"; {share(first.fraction)} of it is lost to stragglers{who}"
    if first is not None and first.fraction is not None and first.id in _PHASE_OF_FINDING:
        phase = _PHASE_OF_FINDING[first.id]
        # Of a host that computes all of the phase: without what the advice leaves of it, e.g. the
        # CPU time of workers, and what goes beside it, as in a thread.
        waited = spent.get(phase, 0.0) if _host_computes(summary) else 0.0
        lost = waited if waited and not several else max(first.fraction, waited)
        slowest = " on the slowest rank" if several else ""
        larger = max((spent.get(each, 0.0) for each in COMPUTE), default=0.0) > lost
        work = f" and {_work_share(rows)} {_work_name(summary)}" if larger else ""
        return f"; {share(lost)} of it is {_name(summary, phase)}{slowest}{work}"
    if longest is None or longest.phase >= len(PHASES):
        return f"; {share(longest.fraction)} of it is {longest.label}" if longest else ""
    phase = max(spent, key=spent.__getitem__)
    stalled = summary.readings[DATA_STALL_FRACTION].value
    if phase in COMPUTE:
        parts = f" ({', '.join(summary.run.loop.work)})" if _host_computes(summary) else ""
        return f"; {_work_share(rows)} of it is {_work_name(summary)}{parts}"
    hidden = phase is Phase.DATA_WAIT and stalled is not None
    if hidden and (stalled or 0.0) < _HIDDEN_STALL * spent[phase]:
        return f"; {share(spent[phase])} of it is data wait, hidden behind a busy device"
    return f"; {share(spent[phase])} of it is {_name(summary, phase)}"


def _name(summary: Summary, phase: Phase) -> str:
    if phase is Phase.OTHER and imported_from(summary.run.config):
        return "not divided in the log"
    return summary.run.loop.names.get(phase.label, _NAMES[phase])


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
    host = "" if imported_from(summary.run.config) else summary.run.backend.host_time
    *first, last = summary.run.loop.work
    return f"{', '.join(first)} and {last}{host}" if first else f"{last}{host}"

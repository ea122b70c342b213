"""Slower steps and what the machine did meanwhile: shared by the rules of `machine`."""

from collections.abc import Collection
from functools import partial
from typing import get_args

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.summary.schema import Cause, CauseFacts, MachineWindow
from trainperf.core.findings import LIMITS, Costs, costs
from trainperf.core.formatting.units import plural, share


SLOWER = 0.05
"""Steps that are slower by less than that are not worth a word."""
LOST = 0.01
"""Share of the time of steady steps that must be lost, to ask for anything."""
SUSTAINED = 0.5
"""Share of the time from which on there is hardly anything outside to compare with."""
MOSTLY = 0.8
"""Of slower steps, and of how much slower they are, that a cause must account for."""
_NAMED = 2
"""Stretches of steps that are named."""


def costly(evidence: Evidence, *causes: Cause) -> CauseFacts | None:
    """The one of these causes that lost most, where steps in it are shown to be slower."""
    for facts in _of(evidence, causes):
        slower = facts.slower or 0.0
        if facts.shown and slower >= SLOWER and facts.lost_fraction >= LOST:
            return facts
    return None


def explained(evidence: Evidence, first_step: int, last_step: int, slower: float) -> bool:
    """Whether the machine is why just these steps are slower, by a finding of its own."""
    if evidence.summary.machine is None:
        return False
    for facts in map(partial(costly, evidence), get_args(Cause)):
        if facts is None or (facts.slower or 0.0) < MOSTLY * slower:
            continue
        inside = sum(
            max(0, min(last_step, window.last_step) - max(first_step, window.first_step) + 1)
            for window in facts.windows
        )
        if inside >= MOSTLY * (last_step - first_step + 1):
            return True
    return False


def lasting(evidence: Evidence, *causes: Cause) -> CauseFacts | None:
    """One that held for most of the run, so that nothing tells what steps take without it."""
    facts = _of(evidence, causes)
    return next(
        (each for each in facts if each.slower is None and each.fraction >= SUSTAINED), None
    )


def _of(evidence: Evidence, causes: Collection[Cause]) -> list[CauseFacts]:
    summary = evidence.summary
    if summary.machine is None or summary.run.steady_steps < LIMITS.steps:
        return []
    return [facts for facts in summary.machine.causes if facts.cause in causes]


def stretch(window: MachineWindow) -> str:
    """E.g. `steps 4,100–4,300`."""
    if window.first_step == window.last_step:
        return f"step {window.first_step:,}"
    return f"steps {window.first_step:,}–{window.last_step:,}"


def slower_steps(facts: CauseFacts) -> str:
    """Which steps, and by how much: `steps 4,100–4,300 were 12 % slower`."""
    if len(facts.windows) == 1:
        return f"{stretch(facts.windows[0])} were {share(facts.slower or 0.0)} slower"
    return f"{plural(facts.steps, 'step')} were {share(facts.slower or 0.0)} slower"


def stretches(facts: CauseFacts) -> tuple[str, ...]:
    """The longest ones by name, where there are several; and that others were at it as well."""
    return (*_longest(facts), *_together(facts))


def _together(facts: CauseFacts) -> tuple[str, ...]:
    """Where most of its steps are another cause's too, so that nothing tells the two apart."""
    if facts.with_others <= MOSTLY or facts.slower is None:
        return ()
    return (f"in {share(facts.with_others)} of these steps the machine had another trouble too",)


def _longest(facts: CauseFacts) -> tuple[str, ...]:
    if len(facts.windows) < 2:
        return ()
    longest = sorted(facts.windows, key=lambda window: -window.seconds)[:_NAMED]
    named = ", ".join(
        stretch(window) + (f" by {share(window.slower)}" if window.slower else "")
        for window in sorted(longest, key=lambda window: window.first_step)
    )
    more = len(facts.windows) - len(longest)
    return (f"the longest: {named}{f', and {more} more' if more else ''}",)


def place(facts: CauseFacts, evidence: Evidence) -> str:
    """Which device or host, where there are several; e.g. ` 3 of node7`."""
    machine = evidence.summary.machine
    hosts = {} if machine is None else {host.host: host for host in machine.hosts}
    host = f" of {facts.host}" if len(hosts) > 1 else ""
    devices = len(hosts[facts.host].devices) if facts.host in hosts else 0
    number = f" {facts.device}" if facts.device is not None and devices > 1 else ""
    return f"{number}{host}"


def lost(facts: CauseFacts) -> Costs:
    """The share of the steps' time that is lost; none where nothing tells."""
    if facts.slower is None:
        return Costs(
            fraction=None,
            gain_upper_bound=None,
            severity="medium",
            confidence="medium",
            scope="step",
        )
    return costs(facts.lost_fraction)

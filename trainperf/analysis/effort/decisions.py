"""Decision table: the findings of a run by what they return on the work that they take.

Of each part its share p, how many times faster it is believed to get, s, and the days that takes.
The gain of the whole is Amdahl's law, 1 / ((1 - p) + p / s), the return is the share of the fit
that is saved, over the days.

Worked example: data wait takes 40 % of a step, and steps 90 % of the fit.  Workers, an eighth of a
day, are believed to halve it: the step gets 1 / (0.6 + 0.2) = 1.25 times faster and saves 20 %, 18
% of the fit: 144 % per day of work.  A kernel that takes three days for a part of 30 % and makes it
4 times faster gains more, 1 / (0.7 + 0.075) = 1.29, and returns 7 % per day.
"""

from difflib import get_close_matches

import msgspec

from trainperf.analysis.effort.estimates import Estimates, PartEstimate
from trainperf.analysis.rules import RULES
from trainperf.analysis.rules.base import steps_fraction
from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import ConfigError
from trainperf.core.findings import DAYS, Basis, Decision, Finding, amdahl, saving
from trainperf.core.formatting.units import share


_NO_ESTIMATES = Estimates(file="", parts={})


def decisions(summary: Summary, estimates: Estimates = _NO_ESTIMATES) -> tuple[Decision, ...]:
    """The decision table of a run, by return per day of work; what is urgent comes first.

    A part is believed to get as much faster as the reader estimates; else as was measured, as it
    usually does in scripts, or twice as fast, in this order: the belief that findings are ranked
    by.  No gain is above the bound of its finding unless it was measured.  Gains of several parts
    do not add up.

    Args:
        summary: With its findings.
        estimates: The reader's; those of known findings that the run does not have are ignored.

    Raises:
        ConfigError: An estimate is of no finding, and does not tell of what part it is.
    """
    of_steps = steps_fraction(summary)
    findings = [each for each in summary.findings if each.urgent or each.fraction != 0.0]
    rows = [
        _of_finding(finding, estimates.parts.get(finding.id, PartEstimate()), estimates.file)
        for finding in findings
    ]
    own = {name: each for name, each in estimates.parts.items() if name not in _ids(summary)}
    rows += [_own_part(name, each, summary, estimates.file) for name, each in own.items()]
    returning = [_returning(row, 1.0 if row.scope == "fit" else of_steps) for row in rows]
    return tuple(sorted(returning, key=_place))


def with_estimates(summary: Summary, estimates: Estimates) -> Summary:
    """The summary, its decisions by the reader's estimates, and a warning of those without effect.

    Raises:
        ConfigError: As of `decisions`.
    """
    table = decisions(summary, estimates)
    idle = sorted(estimates.parts.keys() - {row.part for row in table})
    names = ", ".join(idle)
    warning = f"{estimates.file}: no finding of this run, without effect: {names}"
    return msgspec.structs.replace(
        summary, decisions=table, warnings=(*summary.warnings, *([warning] if idle else []))
    )


def _ids(summary: Summary) -> set[str]:
    """Names that mean a finding, in this run or another."""
    return {rule.__name__ for rule in RULES} | {finding.id for finding in summary.findings}


def _of_finding(finding: Finding, estimate: PartEstimate, file: str) -> Decision:
    """The row of a finding, but for its return."""
    fraction, scope = finding.fraction, finding.scope
    if estimate.phase is not None or (estimate.share is not None and fraction is not None):
        what = "" if fraction is None else f"; the run says {share(fraction)} of the {scope}"
        raise ConfigError(f"{file}: [{finding.id}] is a finding{what}: leave share and phase out")
    if estimate.share is not None:
        fraction, scope = estimate.share, estimate.of
    speedup, gain, basis = _belief(finding, fraction, estimate)
    return Decision(
        part=finding.id,
        scope=scope,
        fraction=fraction,
        speedup=speedup,
        gain=gain,
        ceiling=finding.gain_upper_bound,
        basis=basis,
        days=DAYS[finding.effort] if estimate.days is None else estimate.days,
        days_estimated=estimate.days is not None,
        urgent=finding.urgent,
    )


def _belief(
    finding: Finding, fraction: float | None, estimate: PartEstimate
) -> tuple[float | None, float | None, Basis]:
    """Speed-up of the part, gain of its scope, and what both are believed by."""
    tried = finding.measured_gain
    if estimate.speedup is not None and fraction is not None:
        return _finite(estimate.speedup), amdahl(fraction, estimate.speedup), "estimate"
    if tried is not None and tried.verdict == "loss differs":
        return None, None, "measured"
    if tried is not None:
        return _speedup(fraction, 1 - 1 / tried.speedup), tried.speedup, "measured"
    if fraction is None:
        return None, None, "guess"
    saved = saving(finding) if finding.fraction is not None else fraction / 2
    basis: Basis = "guess" if finding.expected_gain is None else "scripts"
    return _speedup(fraction, saved), amdahl(saved), basis


def _speedup(fraction: float | None, saved: float) -> float | None:
    """How many times faster a part gets that saves so much of the whole."""
    if fraction is None or saved >= fraction:
        return None
    return fraction / (fraction - saved)


def _finite(speedup: float) -> float | None:
    return None if speedup == float("inf") else speedup


def _own_part(name: str, estimate: PartEstimate, summary: Summary, file: str) -> Decision:
    """The row of a part that no finding names."""
    where, speedup, days = f"{file}: [{name}]", estimate.speedup, estimate.days
    fraction = estimate.share
    if estimate.phase is not None:
        fraction = _share_of_phase(estimate.phase, summary, where)
    if fraction is None:
        near = get_close_matches(name, sorted(_ids(summary)), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"{where} is no finding: {hint}A part of your own needs a phase or a share"
        )
    if speedup is None or days is None:
        raise ConfigError(f"{where} needs speedup and days, as it is a part of your own")
    return Decision(
        part=name,
        scope="step" if estimate.phase is not None else estimate.of,
        fraction=fraction,
        speedup=_finite(speedup),
        gain=amdahl(fraction, speedup),
        ceiling=amdahl(fraction),
        basis="estimate",
        days=days,
        days_estimated=True,
    )


def _share_of_phase(phase: str, summary: Summary, where: str) -> float:
    phases_s = summary.phases_s()
    step_s = sum(phases_s.values())
    if phase not in phases_s or not step_s:
        names = ", ".join(phases_s) or "none"
        raise ConfigError(
            f'{where} phase = "{phase}": no phase that was measured; there are {names}'
        )
    return phases_s[phase] / step_s


def _returning(row: Decision, of_fit: float) -> Decision:
    """With what it saves of the fit, and per day of work."""
    if row.gain is None:
        return row
    saved = (1 - 1 / row.gain) * of_fit
    return msgspec.structs.replace(row, saved_fraction=saved, return_per_day=saved / row.days)


def _place(row: Decision) -> tuple[bool, bool, float]:
    """Smaller is earlier."""
    return not row.urgent, row.return_per_day is None, -(row.return_per_day or 0.0)

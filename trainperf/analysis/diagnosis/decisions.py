"""Decision table: the findings of a run by what they return on the work that they take.

Of each part its share p, how many times faster it gets, s, and the days that takes.  The gain is
the finding's own, or by the reader's estimate Amdahl's law, 1 / ((1 - p) + p / s); the return is
the share of the fit that is saved, over the days.  The order is that of the findings.

Worked example: data wait takes 40 % of a step, and steps 90 % of the fit.  Workers, an eighth of a
day, halve it: the step gets 1 / (0.6 + 0.2) = 1.25 times faster and saves 20 %, 18 % of the fit:
144 % per day of work.

Estimates of a reader are a small TOML file.  A table that is named like a finding changes what is
taken by itself; any other one is a part that no finding names, by its phase or its share:

```toml
[data_wait]
speedup = 4.0
days = 0.5

[my_kernel]
phase = "forward"
speedup = 1.3
days = 5
```
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import msgspec

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import ConfigError
from trainperf.core.findings import DAYS, Basis, Decision, Finding, Scope, amdahl, saving
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import at_most, share
from trainperf.core.phases import PHASES, Gap


_EXAMPLE = (
    "an estimate is a table such as [data_wait] with speedup = 2.0 and days = 0.5; "
    "`trainperf report RUN --write-effort FILE` writes an example"
)


class PartEstimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reader believes of one part; `None` where they leave it to trainperf."""

    speedup: float | None = None
    """How many times faster the part itself gets; infinite where it goes away."""
    days: float | None = None
    """Of work."""
    share: float | None = None
    """Of the time of its scope, where no finding or phase says it."""
    phase: str | None = None
    """Label of the phase that is the part."""
    of: Scope = "step"
    """What *share* is a share of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Contents of an estimates file."""

    file: str
    """Its path, for messages."""
    parts: Mapping[str, PartEstimate]
    """By the id of a finding, or a name of the reader's."""


_NO_ESTIMATES = Estimates(file="", parts={})


def decisions(summary: Summary, estimates: Estimates = _NO_ESTIMATES) -> tuple[Decision, ...]:
    """The decision table of a run; with estimates by the return that these make.

    No gain is above the bound of its finding unless it was measured.  Gains of several parts do not
    add up.

    Args:
        summary: With its findings.
        estimates: The reader's; those of known findings that the run does not have are ignored.

    Raises:
        ConfigError: An estimate is of no finding, and does not tell of what part it is.
    """
    findings = [each for each in summary.findings if each.urgent or each.fraction != 0.0]
    names = {detect.__name__ for detect in DETECTORS} | {each.id for each in summary.findings}
    rows = [
        _of_finding(finding, estimates.parts.get(finding.id, PartEstimate()), estimates.file)
        for finding in findings
    ]
    own = {name: each for name, each in estimates.parts.items() if name not in names}
    rows += [_own_part(name, each, summary, estimates.file, names) for name, each in own.items()]
    of_steps = _steps_fraction(summary)
    returning = [_returning(row, 1.0 if row.scope == "fit" else of_steps) for row in rows]
    if not estimates.parts:
        return tuple(returning)
    return tuple(sorted(returning, key=lambda row: (not row.urgent, -(row.return_per_day or 0.0))))


def with_estimates(summary: Summary, estimates: Estimates) -> Summary:
    """The summary, its decisions by the reader's estimates, and a warning of those without effect.

    Raises:
        ConfigError: As of `decisions`.
    """
    table = decisions(summary, estimates)
    order = {row.part: place for place, row in enumerate(table)}
    idle = ", ".join(sorted(estimates.parts.keys() - order.keys()))
    warning = f"{estimates.file}: no finding of this run, without effect: {idle}"
    return msgspec.structs.replace(
        summary,
        decisions=table,
        findings=tuple(sorted(summary.findings, key=lambda each: order.get(each.id, len(order)))),
        warnings=(*summary.warnings, *([warning] if idle else [])),
    )


def _steps_fraction(summary: Summary) -> float:
    """Share of the fit that steps take; 0 where there was none."""
    fit_s = summary.run.fit_s - summary.ledger_s.get(Gap.OTHERS_TURN.label, 0.0)
    steps_s = sum(summary.ledger_s.get(phase.label, 0.0) for phase in PHASES)
    return steps_s / fit_s if fit_s else 0.0


def _of_finding(finding: Finding, estimate: PartEstimate, file: str) -> Decision:
    """The row of a finding, but for its return."""
    fraction, scope, gain = finding.fraction, finding.scope, finding.gain
    if estimate.phase is not None or (estimate.share is not None and fraction is not None):
        what = "" if fraction is None else f"; the run says {share(fraction)} of the {scope}"
        raise ConfigError(f"{file}: [{finding.id}] is a finding{what}: leave share and phase out")
    if estimate.share is not None:
        fraction, scope = estimate.share, estimate.of
    basis: Basis = "modelled" if finding.measured_gain is None else "measured"
    speedup = None
    if estimate.speedup is not None and fraction is not None:
        basis, gain = "estimate", amdahl(fraction, estimate.speedup)
        speedup = None if math.isinf(estimate.speedup) else estimate.speedup
    elif gain is not None and fraction is not None and saving(gain) < fraction:
        speedup = fraction / (fraction - saving(gain))
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


def _own_part(
    name: str, estimate: PartEstimate, summary: Summary, file: str, names: set[str]
) -> Decision:
    """The row of a part that no finding names."""
    where, speedup, days, fraction = (
        f"{file}: [{name}]",
        estimate.speedup,
        estimate.days,
        estimate.share,
    )
    if estimate.phase is not None:
        phases_s = summary.phases_s()
        if estimate.phase not in phases_s:
            known = ", ".join(phases_s) or "none"
            raise ConfigError(f'{where} phase = "{estimate.phase}": there are {known}')
        fraction = phases_s[estimate.phase] / sum(phases_s.values())
    if fraction is None:
        near = get_close_matches(name, sorted(names), n=1)
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
        speedup=None if math.isinf(speedup) else speedup,
        gain=amdahl(fraction, speedup),
        ceiling=amdahl(fraction),
        basis="estimate",
        days=days,
        days_estimated=True,
    )


def _returning(row: Decision, of_fit: float) -> Decision:
    """With what it saves of the fit, and per day of work."""
    if row.gain is None:
        return row
    saved = saving(row.gain) * of_fit
    return msgspec.structs.replace(row, saved_fraction=saved, return_per_day=saved / row.days)


def read_estimates(path: Path) -> Estimates:
    """Read an estimates file.

    Raises:
        ConfigError: It is missing, no TOML, or holds something that is no estimate.
    """
    try:
        text = path.read_bytes().decode("utf-8")
        parts = msgspec.toml.decode(text, type=dict[str, object])
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; `trainperf report RUN --write-effort {path}` writes one"
        ) from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: {error}; {_EXAMPLE}") from None
    estimates = {name: _estimate(f"{path}: [{name}]", part) for name, part in parts.items()}
    return Estimates(file=str(path), parts=estimates)


def _estimate(where: str, part: object) -> PartEstimate:
    """One table of the file; numbers that mean nothing are refused."""
    try:
        estimate = msgspec.convert(part, PartEstimate)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}; {_EXAMPLE}") from None
    speedup, days, fraction = estimate.speedup, estimate.days, estimate.share
    if speedup is not None and not speedup > 0:
        raise ConfigError(f"{where} speedup = {speedup}: must be above 0; 2.0 is twice as fast")
    if days is not None and not 0 < days < math.inf:
        raise ConfigError(f"{where} days = {days}: must be above 0; 0.125 is an hour")
    if fraction is not None and not 0 < fraction < 1:
        raise ConfigError(f"{where} share = {fraction}: must be between 0 and 1; 0.2 is a fifth")
    if fraction is not None and estimate.phase is not None:
        raise ConfigError(f"{where} has both share and phase: leave one of them out")
    return estimate


def write_template(summary: Summary, path: Path) -> None:
    """Write the estimates file of a run, to be edited.

    Raises:
        ConfigError: There is a file already: somebody's estimates are not overwritten.
        OSError: The file cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template(summary))
    except FileExistsError:
        raise ConfigError(
            f"{path}: exists already, and may hold estimates; delete it or give another name"
        ) from None


def template(summary: Summary) -> str:
    """An estimates file of a run: what is taken by default, as comments to be replaced."""
    titles = {finding.id: finding.title for finding in summary.findings}
    head = [
        f"# What changes are believed to bring in {plain(summary.run.name)}, and what they take.",
        "# Take the # away where you know better, then:",
        "#   trainperf report RUN --effort FILE",
        "# speedup: how many times faster the part itself gets; 2.0 halves it, inf: it goes away.",
        "# days: of work, 8 hours each, with the run that proves it.",
    ]
    own = [
        "# A part of your own: its phase, or its share of the step (of the fit, with of), and both",
        "# estimates.",
        "# [my_kernel]",
        '# phase = "forward"    # or: share = 0.2 and, of the fit, of = "fit"',
        "# speedup = 1.5",
        "# days = 5",
    ]
    parts = [_entry(decision, titles.get(decision.part, "")) for decision in summary.decisions]
    return "\n\n".join("\n".join(lines) for lines in (head, *parts, own)) + "\n"


def _entry(decision: Decision, title: str) -> list[str]:
    """The table of one finding."""
    lines = [f"[{decision.part}]", f"# {plain(title)}"]
    if decision.fraction is None:
        lines.append(f'# share = 0.1    # not known; of = "{decision.scope}"')
    else:
        most = "" if decision.ceiling is None else f", {at_most(decision.ceiling)}"
        lines.append(f"# {share(decision.fraction)} of the {decision.scope}{most}")
    speedup = math.inf if decision.speedup is None else decision.speedup
    if decision.gain is None:
        lines.append("# speedup = 2.0    # not known")
    else:
        lines.append(f"# speedup = {speedup:.4g}    # {decision.basis}")
    return [*lines, f"# days = {decision.days:.4g}"]

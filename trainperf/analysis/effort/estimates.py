"""Estimates of a reader, in a small TOML file: speed-ups, days of work, parts of their own.

A table that is named like a finding changes what trainperf takes by itself; any other one is a part
that no finding names, by its phase or its share:

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
from pathlib import Path

import msgspec

from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import ConfigError
from trainperf.core.findings import Decision, Scope
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import at_most, share


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
    """One table of the file, checked."""
    try:
        estimate = msgspec.convert(part, PartEstimate)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}; {_EXAMPLE}") from None
    _check(where, estimate)
    return estimate


def _check(where: str, estimate: PartEstimate) -> None:
    """Refuse numbers that mean nothing."""
    speedup, days, fraction = estimate.speedup, estimate.days, estimate.share
    if speedup is not None and not speedup > 0:
        raise ConfigError(f"{where} speedup = {speedup}: must be above 0; 2.0 is twice as fast")
    if days is not None and not 0 < days < math.inf:
        raise ConfigError(f"{where} days = {days}: must be above 0; 0.125 is an hour")
    if fraction is not None and not 0 < fraction < 1:
        raise ConfigError(f"{where} share = {fraction}: must be between 0 and 1; 0.2 is a fifth")
    if fraction is not None and estimate.phase is not None:
        raise ConfigError(f"{where} has both share and phase: leave one of them out")


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

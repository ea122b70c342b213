"""A user's own meters, sinks and probes, checked before the fit begins."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainperf.core.errors import ConfigError
from trainperf.core.readings import NAMES
from trainperf.core.steps.records import FACTS
from trainperf.meters import METERS, Meter
from trainperf.recording.probes.base import Probe
from trainperf.recording.sinks.base import Sink


UNITS = ("1", "s", "B", "B/s", "1/s", "J", "W", "Hz")
"""Units a reading may have; reports scale seconds and bytes."""

_PARTS = frozenset(
    {
        "chip",
        "device clock",
        "first answer",
        "last steps",
        "loop phases",
        "monitor",
        "pace",
        "readings",
        "report",
        "start of the fit",
        "totals",
    }
)
"""Parts of a fit that the guard knows by these names."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """What a user adds to a fit.  Build it with `Extensions.of`, which checks."""

    meters: tuple[Meter, ...] = ()
    sinks: tuple[Sink, ...] = ()
    probes: tuple[Probe, ...] = ()

    @classmethod
    def of(
        cls, meters: Sequence[Meter], sinks: Sequence[Sink], probes: Sequence[Probe]
    ) -> "Extensions":
        """Those that a user gave.

        Raises:
            ConfigError: One is of the wrong kind, or its name, unit or fact is refused.
        """
        _demand_kind("meters", meters, Meter)
        _demand_kind("sinks", sinks, Sink)
        _demand_kind("probes", probes, Probe)
        _demand_names("probes", probes, _builtin_names(Probe) | _PARTS)
        _demand_names("sinks", sinks, {*_builtin_names(Sink), *_PARTS, Sink.name})
        _demand_names("meters", meters, {*(meter.name for meter in METERS), *NAMES})
        facts = _facts(probes)
        for meter in meters:
            _demand_readable(meter, facts)
        return cls(meters=tuple(meters), sinks=tuple(sinks), probes=tuple(probes))


def _demand_kind(argument: str, members: Sequence[object], base: type) -> None:
    if isinstance(members, str | bytes) or not isinstance(members, Iterable):
        raise ConfigError(f"{argument}={members!r}: must be a list of {base.__name__} objects")
    for member in members:
        if isinstance(member, type) and issubclass(member, base):
            raise ConfigError(
                f"{argument}=[{member.__name__}]: a class; pass an instance: {member.__name__}()"
            )
        if not isinstance(member, base):
            raise ConfigError(
                f"{argument}=[{member!r}]: not a {base.__name__}; derive its class from "
                f"{base.__module__}.{base.__name__}"
            )


def _demand_names(argument: str, members: Sequence[object], taken: set[str]) -> None:
    """Every member has a name of its own: readings, faults and reasons are kept under it."""
    taken = set(taken)
    for member in members:
        name = getattr(member, "name", None)
        kind = type(member).__name__
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{argument}=[{kind}()]: it has no name; give the class a `name`")
        if name in taken:
            raise ConfigError(
                f"{argument}=[{kind}()]: the name {name!r} is taken; give the class another `name`"
            )
        taken.add(name)


def _builtin_names(base: type) -> set[str]:
    """Names of the members that come with trainperf, as far as they are loaded."""
    children: list[type] = base.__subclasses__()
    own = {str(getattr(child, "name", "")) for child in children if _is_ours(child)}
    return own.union(*(_builtin_names(child) for child in children)) - {""}


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("trainperf.")


def _facts(probes: Sequence[Probe]) -> set[str]:
    """All facts of the fit; those of the user's probes are new columns of its record files."""
    facts = set(FACTS)
    for probe in probes:
        for fact in probe.facts:
            if not _NAME.fullmatch(fact):
                raise ConfigError(
                    f"fact {fact!r} of probe {probe.name!r}: must be lower case letters, digits "
                    "and underscores, with its unit at the end; try 'queue_wait_ns'"
                )
            if fact in facts:
                raise ConfigError(f"fact {fact!r} of probe {probe.name!r}: it has a probe already")
            facts.add(fact)
        unknown = set(probe.counts) - set(probe.facts)
        if unknown:
            raise ConfigError(f"counts of probe {probe.name!r}: {sorted(unknown)} not in its facts")
    return facts


def _demand_readable(meter: Meter, facts: set[str]) -> None:
    if not _NAME.fullmatch(meter.name):
        raise ConfigError(
            f"name {meter.name!r} of a meter: must be lower case letters, digits and underscores; "
            "try 'queue_wait_s'"
        )
    unit = getattr(meter, "unit", None)
    if unit not in UNITS:
        raise ConfigError(
            f"unit {unit!r} of meter {meter.name!r}: must be one of {', '.join(UNITS)}"
        )
    if meter.better not in ("lower", "higher", None):
        raise ConfigError(
            f"better={meter.better!r} of meter {meter.name!r}: must be 'lower', 'higher' or None"
        )
    unknown = [fact for fact in meter.needs if fact not in facts]
    if unknown:
        raise ConfigError(
            f"meter {meter.name!r} needs {unknown[0]!r}, which no probe feeds; pass the probe "
            "that does as probes=[…]"
        )

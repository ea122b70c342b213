"""A user's own meters, sinks and probes, checked before the fit begins."""

import re
from collections.abc import Iterable, Sequence

from trainperf.core.errors import ConfigError
from trainperf.core.readings import NAMES
from trainperf.core.steps.records import CORE_COLUMNS, FACTS
from trainperf.meters import METERS, Meter, Scope
from trainperf.recording.guard import R
from trainperf.recording.probes.base import Probe
from trainperf.recording.sinks.base import Sink


UNITS = ("1", "s", "B", "B/s", "1/s", "J", "W", "Hz")
"""Units a reading may have; reports scale seconds and bytes."""

_PARTS = frozenset(
    {
        "hooks of the loop",
        "chip",
        "device clock",
        "first answer",
        "last steps",
        "loggers",
        "loop phases",
        "monitor",
        "readings",
        "report",
        "run directory",
        "sink",
        "start of the fit",
        "totals",
    }
)
"""Parts of a fit that the guard knows by these names."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def checked(
    meters: Sequence[Meter], sinks: Sequence[Sink], probes: Sequence[Probe]
) -> tuple[tuple[Meter, ...], tuple[Sink, ...], tuple[Probe, ...]]:
    """What a user adds to a fit.

    Raises:
        ConfigError: One is of the wrong kind, or its name, unit or fact is refused.
    """
    parts = {*_builtin_names(Probe), *_PARTS}
    own_probes = _members("probes", probes, Probe, parts)
    own_sinks = _members("sinks", sinks, Sink, parts)
    names = {*(meter.name for meter in METERS), *NAMES, "steps"}
    own_meters = _members("meters", meters, Meter, names)
    facts = _facts(own_probes)
    for meter in own_meters:
        _demand_readable(meter, facts)
    return own_meters, own_sinks, own_probes


def _demand(*rules: tuple[object, str]) -> None:
    """What holds of each, or the sentence for whoever has not kept it."""
    for holds, message in rules:
        if not holds:
            raise ConfigError(message)


def _members(argument: str, given: Iterable[R], base: type, taken: set[str]) -> tuple[R, ...]:
    """Each has a name of its own, *taken* from now on: much is kept under it."""
    listed = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    _demand((listed, f"{argument}={given!r}: must be a list of {base.__name__} objects"))
    members = tuple(given)
    for member in members:
        kind = member.__name__ if isinstance(member, type) and issubclass(member, base) else ""
        name, what = getattr(member, "name", None), f"{argument}=[{type(member).__name__}()]"
        _demand(
            (not kind, f"{argument}=[{kind}]: a class; pass an instance: {kind}()"),
            (
                isinstance(member, base),
                (
                    f"{argument}=[{member!r}]: not a {base.__name__}; derive its class from "
                    f"{base.__module__}.{base.__name__}"
                ),
            ),
            (
                isinstance(name, str) and name,
                f"{what}: it has no name; give the class a `name`",
            ),
            (
                name not in taken,
                f"{what}: the name {name!r} is taken; give the class another `name`",
            ),
        )
        taken.add(str(name))
    return members


def _builtin_names(base: type) -> set[str]:
    """Names of the members that come with trainperf, as far as they are loaded."""
    children: list[type] = base.__subclasses__()
    ours = [child for child in children if child.__module__.startswith("trainperf.")]
    own = {str(getattr(child, "name", "")) for child in ours}
    return own.union(*map(_builtin_names, children)) - {""}


def _facts(probes: Sequence[Probe]) -> set[str]:
    """All facts of the fit; those of the user's probes are new columns of its record files."""
    facts = {*FACTS, *CORE_COLUMNS}
    for probe in probes:
        for fact in _names(probe, "facts"):
            what = f"fact {fact!r} of probe {probe.name!r}"
            _demand(
                (
                    _NAME.fullmatch(fact),
                    (
                        f"{what}: must be lower case letters, digits and underscores, with its "
                        "unit at the end; try 'queue_wait_ns'"
                    ),
                ),
                (fact not in facts, f"{what}: it has a probe already"),
            )
            facts.add(fact)
        unknown = sorted(set(_names(probe, "counts")) - set(probe.facts))
        _demand((not unknown, f"counts of probe {probe.name!r}: {unknown} not in its facts"))
    return facts - set(CORE_COLUMNS)


def _names(owner: Probe | Meter, attribute: str) -> Sequence[str]:
    names: Sequence[str] = getattr(owner, attribute)
    _demand(
        (
            isinstance(names, list | tuple) and all(isinstance(name, str) for name in names),
            (
                f"{attribute}={names!r} of {owner.name!r}: must be a tuple of names; try "
                f"{attribute} = ('queue_wait_ns',)"
            ),
        )
    )
    return names


def _demand_readable(meter: Meter, facts: set[str]) -> None:
    unit, of = getattr(meter, "unit", None), f"of meter {meter.name!r}"
    _demand(
        (
            _NAME.fullmatch(meter.name),
            (
                f"name {meter.name!r} of a meter: must be lower case letters, digits and "
                "underscores; try 'queue_wait_s'"
            ),
        ),
        (unit in UNITS, f"unit {unit!r} {of}: must be one of {', '.join(UNITS)}"),
        (
            meter.better in ("lower", "higher", None),
            f"better={meter.better!r} {of}: must be 'lower', 'higher' or None",
        ),
        (isinstance(meter.title, str), f"title={meter.title!r} {of}: must be a text"),
        (
            isinstance(meter.scope, Scope),
            f"scope={meter.scope!r} {of}: must be Scope.STEADY or Scope.ALL, from trainperf.meters",
        ),
        *(
            (
                fact in facts,
                (
                    f"meter {meter.name!r} needs {fact!r}, which no probe feeds; pass the probe "
                    "that does as probes=[…]"
                ),
            )
            for fact in _names(meter, "needs")
        ),
    )

"""What the trace bench reads: a real trace repeated until it is as long as a long capture."""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any


FORMS = ("kineto", "compact", "pretty")
"""As the profiler prints it; on one line; one value a line, as tools rewrite it."""

_BETWEEN = {"kineto": ",\n  ", "compact": ",", "pretty": ",\n"}
FRESH = 10_000_000
"""What is added to the ids of each copy."""

_MARK = re.compile(r'"@@([tin])(\d+)@@"|@@(s)(\d+)@@')


@dataclass(frozen=True, slots=True)
class Original:
    """A real trace: its events, and everything that stands next to them."""

    events: list[dict[str, Any]]
    beside: dict[str, Any]
    span_ns: int


def original(path: Path) -> Original:
    """Read one trace whole, with all digits of its times."""
    with gzip.open(path) as file:
        beside = json.load(file, parse_float=Decimal)
    events = beside.pop("traceEvents")
    timed = [event for event in events if event.get("ph") == "X"]
    span_us = max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed)
    return Original(events, beside, int(span_us * 1000) + 1_000_000)


def write(path: Path, source: Original, events: int, form: str) -> None:
    """Write so many *events* in one of `FORMS`; each copy is later, with ids of its own."""
    beside = json.dumps(source.beside, default=float)
    between = _BETWEEN[form]
    with path.open("wb") as file:
        file.write(f'{beside[:-1]}, "traceEvents": ['.encode())
        for copy, part in enumerate(_copies(source, events, form)):
            file.write((between if copy else "").encode() + part.encode())
        file.write(b"]}" if form == "compact" else b"\n  ]\n}\n")


def _copies(source: Original, events: int, form: str) -> Iterator[str]:
    """The text of one copy after the other, made from one template with holes."""
    whole = _template(source.events, form)
    copies, rest = divmod(events, len(source.events))
    for copy in range(copies):
        yield _filled(*whole, copy, source.span_ns)
    if rest:
        yield _filled(*_template(source.events[:rest], form), copies, source.span_ns)


def _template(events: list[dict[str, Any]], form: str) -> tuple[str, list[tuple[str, int]]]:
    text = _BETWEEN[form].join(_printed(marked(event), form) for event in events)
    holes = [
        (mark.group(1) or mark.group(3), int(mark.group(2) or mark.group(4)))
        for mark in _MARK.finditer(text)
    ]
    return _MARK.sub("%s", text.replace("%", "%%")), holes


def _filled(text: str, holes: list[tuple[str, int]], copy: int, span_ns: int) -> str:
    later_ns, fresh = copy * span_ns, copy * FRESH
    values: list[str | int] = []
    for kind, value in holes:
        if kind == "t":
            ns = value + later_ns
            values.append(f"{ns // 1000}.{ns % 1000:03d}")
        else:
            values.append(value + (copy * 1000 if kind == "s" else fresh))
    return text % tuple(values)


def marked(event: dict[str, Any]) -> dict[str, Any]:
    """An event with marks for what differs from copy to copy: time, ids, number of the step."""
    copy = dict(event)
    if "ts" in event:
        copy["ts"] = f"@@t{int(event['ts'] * 1000)}@@"
    if "id" in event:
        copy["id"] = f"@@i{event['id']}@@"
    if str(event.get("name", "")).startswith("ProfilerStep#"):
        copy["name"] = f"ProfilerStep#@@s{event['name'][13:]}@@"
    if "args" in event:
        copy["args"] = dict(event["args"])
        for key in ("correlation", "External id"):
            if key in event["args"]:
                copy["args"][key] = f"@@n{event['args'][key]}@@"
    return copy


def _printed(event: dict[str, Any], form: str) -> str:
    if form == "compact":
        return json.dumps(event, default=float, separators=(",", ":"))
    if form == "pretty":
        return json.dumps(event, default=float, indent=1)
    lines = [f"{{\n    {_members({k: v for k, v in event.items() if k not in _OWN_LINE})}"]
    if "ts" in event:
        lines.append(f"    {_members({k: event[k] for k in ('ts', 'dur') if k in event})}")
    if "args" in event:
        inner = _members(event["args"]).replace(', "', ',\n      "')
        lines.append(f'    "args": {{\n      {inner}\n    }}')
    return ",\n".join(lines) + "\n  }"


_OWN_LINE = frozenset({"ts", "dur", "args"})


def _members(values: dict[str, Any]) -> str:
    return json.dumps(values, default=float)[1:-1]

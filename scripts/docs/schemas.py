"""JSON Schemas of what commands print and runs hold, made from the types that are encoded.

`python -m scripts.render_docs` writes them to `trainperf/schemas/`, which is shipped as data;
`trainperf explain --schema NAME` prints one.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from trainperf.analysis.diagnosis.offers import OfferedTrial
from trainperf.analysis.doctor import Checkup
from trainperf.analysis.doctor.base import CHECKUP_VERSION
from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.results import COMPARISON_VERSION, Comparison
from trainperf.core.artifacts.trials import Trials
from trainperf.core.findings import Finding
from trainperf.core.steps.records import SCHEMA_VERSION
from trainperf.reports.explanations import Explanation, explanations
from trainperf.traces.results import TRACE_VERSION, TraceReport


DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A document that programs may rely on."""

    type: Any
    version: int
    """Goes up where a field is renamed, removed or means something else."""
    title: str
    """Where it comes from."""


PUBLISHED: Mapping[str, Published] = {
    "summary": Published(
        type=Summary,
        version=SCHEMA_VERSION,
        title="`summary.json` of a run, and `trainperf report RUN --format json`",
    ),
    "finding": Published(
        type=Finding,
        version=1,
        title="a finding: an item of `findings` in a summary or a trace report",
    ),
    "comparison": Published(
        type=tuple[Comparison, ...],
        version=COMPARISON_VERSION,
        title="`trainperf compare … --format json` and `trainperf prove … --format json`: "
        "one comparison for each run after the first",
    ),
    "trace": Published(
        type=TraceReport | tuple[TraceReport, ...],
        version=TRACE_VERSION,
        title="`trainperf trace … --format json`: the report of a job; of several jobs a list",
    ),
    "doctor": Published(
        type=Checkup,
        version=CHECKUP_VERSION,
        title="`trainperf doctor RUN --format json`: every check",
    ),
    "trials": Published(
        type=Trials,
        version=Trials.version,
        title="`trials.json` of a run, and `trainperf try --format json SCRIPT`",
    ),
    "offers": Published(
        type=tuple[OfferedTrial, ...],
        version=1,
        title="`trainperf try --list --format json`: what can be tried",
    ),
    "explanation": Published(
        type=tuple[Explanation, ...],
        version=1,
        title="`trainperf explain ID --format json`: all that bears the name",
    ),
}
"""Name of the file in `trainperf/schemas/`, and what it describes."""


def schemas() -> Mapping[str, str]:
    """Every schema as it ought to be, by its file's name."""
    return {f"{name}.json": _text(name, published) for name, published in PUBLISHED.items()}


IDS = Path(__file__).with_name("ids.txt")
"""Ids that programs may rely on: once listed, always there with the same meaning."""


def ids() -> str:
    """The list with what is new; nothing is ever taken from it."""
    listed = IDS.read_text(encoding="utf-8").splitlines() if IDS.is_file() else []
    now = {f"{entry.kind} {entry.id}" for entry in explanations()}
    return "\n".join(sorted({*listed, *now})) + "\n"


def _text(name: str, published: Published) -> str:
    schema = msgspec.json.schema(published.type)
    definitions = schema.pop("$defs")
    kinds = {kind.__name__: kind for kind in _structs(published.type)}
    documented = {name: field_docs(kind) for name, kind in kinds.items()}
    for title, definition in definitions.items():
        if "description" in definition:  # Python 3.13 takes the indent from a docstring itself
            definition["description"] = inspect.cleandoc(definition["description"])
        for field, meaning in documented.get(title, {}).items():
            if field in definition.get("properties", {}):
                _describe(definition["properties"], field, meaning)
        config = getattr(kinds.get(title), "__struct_config__", None)
        fields = definition.get("properties")
        if config is not None and fields and not config.omit_defaults:  # all is always written
            definition["required"] = [*fields]
    head = {
        "$schema": DRAFT,
        "$id": f"urn:trainperf:schema:{name}:{published.version}",
        "title": published.title,
    }
    return json.dumps({**head, **schema, "$defs": definitions}, indent=1, ensure_ascii=False) + "\n"


def _describe(properties: dict[str, Any], field: str, meaning: str) -> None:
    properties[field] = {"description": meaning, **properties[field]}


def field_docs(kind: type) -> dict[str, str]:
    """What stands under each field of a class, those that it inherits included."""
    documented: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        if base.__module__.startswith("trainperf."):
            documented |= dict(_own_docs(base))
    return documented


def _own_docs(kind: type) -> Iterator[tuple[str, str]]:
    (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    body = getattr(parsed, "body", [])
    for field, after in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            yield field.target.id, " ".join(after.value.value.split())


def _structs(kind: object) -> set[type]:
    """Every structure that a type is made of."""
    structs: set[type] = set()
    pending = [msgspec.inspect.type_info(kind)]
    while pending:
        info = pending.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in structs:
                continue
            structs.add(info.cls)
            pending += [field.type for field in info.fields]
        pending += _parts(info)
    return structs


def _parts(info: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    """What a container or a union is made of."""
    single = (getattr(info, name, None) for name in ("item_type", "key_type", "value_type"))
    several = (getattr(info, name, ()) for name in ("item_types", "types"))
    nested = [part for parts in several for part in parts]
    return [*(part for part in single if part is not None), *nested]

"""Results of the GPU check as one page, without external resources or links.

python -m scripts.gpu.page RESULT.json PAGE.html
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recipes.cases.case import Case
from recipes.cases.picture import verdicts
from recipes.cases.text import overview, tally
from trainperf.core.formatting.html.markup import (
    Markup,
    bullets,
    page,
    paragraph,
    section,
    table,
    tag,
    text,
)
from trainperf.core.formatting.units import count, duration, rate, share, size, times


Json = Mapping[str, Any]
"""A piece of the JSON file."""


def page_of(result: Json) -> str:
    """The whole check as a page."""
    title = f"trainperf on {result['hardware']}"
    versions = result.get("versions", {})
    ran_on = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    failed = result["failed"]
    verdict = f"failed: {', '.join(failed)}" if failed else "every part passed"
    return page(
        title,
        tag("h1", text(title)),
        paragraph(f"{verdict}, after {duration(result['took_s'])}", "bad" if failed else "good"),
        paragraph(ran_on, "soft"),
        *(_section(name, part) for name, part in result["parts"].items()),
    )


def _section(name: str, part: Json) -> Markup:
    drawn = _DRAWN.get(name)
    shown = drawn(part) if drawn is not None and "took_s" in part else []
    return section(name, paragraph(_ended(part), "good" if part["ok"] else "bad"), *shown)


def _ended(part: Json) -> str:
    if "not_run" in part:
        return f"not run: {part['not_run']}"
    how = "cut off" if part["timed_out"] else "passed" if part["ok"] else "failed"
    last = str(part["stderr"]).strip().splitlines()[-1:]
    return f"{how} after {duration(part['took_s'])}" + "".join(f": {line}" for line in last)


def _tests(part: Json) -> list[Markup]:
    counts = ", ".join(f"{number} {name}" for name, number in part["counts"].items() if number)
    bad = [case for case in part["cases"] if case["outcome"] == "failed"]
    rows = [(case["name"], case["message"].splitlines()[0]) for case in bad if case["message"]]
    values = [
        f"{name}: {value}" for case in part["cases"] for name, value in case["values"].items()
    ]
    return [paragraph(counts), bullets(values), table(("test", "said"), rows, words=(0, 1))]


def _roofline(part: Json) -> list[Markup]:
    figures = part.get("figures")
    if not figures:
        return []
    limits = figures["ceilings"]
    chip = limits["table"]
    data_sheet = chip or {"flops_per_s": {}, "memory_bytes_per_s": None}
    rows = [
        (name, _tera(peak), _tera(data_sheet["flops_per_s"].get(name)))
        for name, peak in limits["measured"]["flops_per_s"].items()
    ]
    sheet = data_sheet["memory_bytes_per_s"]
    memory = rate(limits["measured"]["memory_bytes_per_s"])
    rows.append(("memory", memory, rate(sheet) if sheet else "–"))
    for way, speed in (limits["link_bytes_per_s"] or {}).items():
        link = data_sheet.get("link_bytes_per_s")
        rows.append(
            (f"host link {way.replace('_', ' ')}", rate(speed), rate(link) if link else "–")
        )
    head = ("what", "reached", "table")
    source = f"table: {chip['name']}, {chip['source']}" if chip else "no row in the table of chips"
    return [
        paragraph(source, "soft"),
        table(head, rows),
        table(
            _STEP_HEAD,
            [_step(step) for step in figures["steps"]],
        ),
    ]


_STEP_HEAD = (
    "step",
    "measured",
    "audited",
    "FLOPs / textbook",
    "speed of light",
    "measured / floor",
    "MFU",
    "peak memory",
)


def _step(step: Json) -> Sequence[str]:
    against = "table" if "table" in step["floors"] else "measured"
    floor, speed = step["floors"][against], step["speed"][against]
    return (
        step["variant"],
        duration(step["step_s"]),
        times(step["audit_times"]),
        f"{step['flops_ratio']:.4f}",
        duration(floor["step_s"]),
        times(speed["over_floor"]),
        share(speed["mfu"]) if speed["mfu"] is not None else "–",
        size(step["peak_bytes"]) if step["peak_bytes"] else "–",
    )


def _trace(part: Json) -> list[Markup]:
    figures = part.get("figures") or {}
    trace, readings = figures.get("trace"), figures.get("readings", {})
    names = ("step_s", "host_bound_fraction", "h2d_s", "data_wait_fraction", "overhead_s")
    rows = [(name, _reading(readings[name])) for name in names if name in readings]
    drawn = [table(("reading", "value"), rows)]
    if trace:
        report = trace["report"]
        findings = [_finding(finding) for finding in report["findings"]]
        kept = f"{size(trace['bytes'])} kept of {count(trace['events'])} events"
        drawn = [paragraph(report["answer"]), bullets(findings), paragraph(kept, "soft"), *drawn]
    return drawn


def _finding(finding: Json) -> str:
    return f"{finding['title']}: {'; '.join(finding['evidence'])}"


def _reading(reading: Json) -> str:
    value = reading["value"]
    if value is None:
        return f"– ({reading.get('reason') or 'not measured'})"
    return duration(value) if reading["unit"] == "s" else share(value)


def _overhead(part: Json) -> list[Markup]:
    rows = [
        (
            f"{row['setting']}: {row['name']}",
            f"{row['ratio']['median']:.3f}",
            f"{row['ratio']['low']:.3f} to {row['ratio']['high']:.3f}",
            f"{row['added_us']['median']:+.1f} µs",
        )
        for row in (part.get("figures") or {}).get("rows", [])
    ]
    return [table(("attached", "× the loop alone", "95 % interval", "a step"), rows)]


def _accuracy(part: Json) -> list[Markup]:
    figures = part.get("figures")
    if not figures:
        return []
    counts = ", ".join(f"{number} {name}" for name, number in figures["verdicts"].items())
    wrong = [case for case in figures["cases"] if case["verdict"] != "right"]
    rows = [(case["name"], case["reading"], case["verdict"]) for case in wrong]
    return [paragraph(counts), table(("planted", "found in", "verdict"), rows, words=(0, 1, 2))]


def _cases(part: Json) -> list[Markup]:
    """The verdicts of a recipe that is made of cases."""
    if not part.get("figures"):
        return []
    cases = msgspec.convert(part["figures"]["cases"], list[Case])
    verdict_rows = overview(cases)
    reasons = [f"{case.name}: {case.reason}" for case in cases]
    drawn = table(verdict_rows.head, verdict_rows.rows, words=(0, len(verdict_rows.head) - 1))
    return [paragraph(tally(cases)), verdicts(cases), drawn, bullets(reasons)]


_COLUMNS = (
    "stage",
    "predicted",
    "measured [95 %]",
    "cumulative",
    "step",
    "effective tokens/s",
    "MFU",
    "loss",
    "verdict",
)
"""Of the walkthrough's table; the JSON file has all of it."""


def _walkthrough(part: Json) -> list[Markup]:
    lines = [line for line in part["table"].splitlines() if line.strip()]
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    head = cells[0] if cells else []
    places = [head.index(name) for name in _COLUMNS if name in head]
    rows = [[row[place] for place in places] for row in cells[2:] if len(row) == len(head)]
    drawn = [paragraph(lines[0]), table([head[place] for place in places], rows)] if rows else []
    runs = [
        (name, *(_shown(readings.get(reading)) for reading in ("step_s", "effective_tokens_per_s")))
        for name, readings in part["runs"].items()
    ]
    return [*drawn, table(("run", "step", "effective tokens/s"), runs)]


def _shown(reading: Json | None) -> str:
    if reading is None or reading["value"] is None:
        return "–"
    return duration(reading["value"]) if reading["unit"] == "s" else count(reading["value"])


def _tera(peak: float | None) -> str:
    return "–" if peak is None else f"{peak / 1e12:.4g} TFLOP/s"


_DRAWN: dict[str, Callable[[Json], list[Markup]]] = {
    "first": _tests,
    "tests": _tests,
    "roofline": _roofline,
    "trace": _trace,
    "overhead": _overhead,
    "accuracy": _accuracy,
    "claims": _cases,
    "inference": _cases,
    "overlap": _cases,
    "walkthrough": _walkthrough,
}


if __name__ == "__main__":
    result, drawn_to = map(Path, sys.argv[1:])
    drawn_to.write_text(page_of(json.loads(result.read_text(encoding="utf-8"))), encoding="utf-8")

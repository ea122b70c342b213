"""Parts of the GPU check: their commands, time limits and results."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from scripts.gpu.runs import KEPT, FinishedRun


SUMMARISED = ("step_s", "effective_tokens_per_s", "padding_fraction", "memory_peak_bytes", "mfu")
"""Readings that are kept of each run of the walkthrough, whatever else it has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSetup:
    """Where a part writes, and on what it runs."""

    scratch: Path
    cuda: bool
    trace: Path
    """Where the trimmed trace goes."""
    limit_s: float = 0.0
    """Of the part that is to run."""

    @property
    def work(self) -> tuple[str, ...]:
        """Size and device of the parts that train GPT-2."""
        size, device = ("small", "cuda") if self.cuda else ("toy", "cpu")
        return ("--size", size, "--device", device)


SHOWING_S = 30.0
"""What a walkthrough takes apart from its runs: importing, reading text, its table and page."""

Outcome = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: what it runs, for how long at most, and how its results are read."""

    name: str
    limit_s: float
    command: Callable[[CheckSetup], Sequence[str]]
    results: Callable[[CheckSetup, FinishedRun], Outcome]
    """What it wrote, also if it was cut short.  An `ok` in it may only say *no*."""
    least_s: float = 15.0
    """With less time left it is not begun."""


def figures(name: str) -> Callable[[CheckSetup, FinishedRun], Outcome]:
    """Reads what a part wrote as JSON, and what it printed."""

    def results(place: CheckSetup, done: FinishedRun) -> Outcome:
        written = _json(place.scratch / f"{name}.json")
        return {"ok": written is not None, "figures": written, "printed": done.printed[-KEPT:]}

    return results


def case_results(name: str) -> Callable[[CheckSetup, FinishedRun], Outcome]:
    """Reads every test and how it ended: with CUDA all must pass, else none may fail.

    Without CUDA they run on the device in threads, where there is a compiler, or are skipped.
    """

    def results(place: CheckSetup, done: FinishedRun) -> Outcome:
        cases = list(_cases(place.scratch / f"{name}.xml"))
        outcomes = [str(case["outcome"]) for case in cases]
        counts = {each: outcomes.count(each) for each in ("passed", "failed", "skipped")}
        right = len(cases) > 0 and counts["failed"] + place.cuda * counts["skipped"] == 0
        printed = "" if right else done.printed[-KEPT:]
        return {"ok": right, "counts": counts, "cases": cases, "printed": printed}

    return results


def walkthrough(place: CheckSetup, done: FinishedRun) -> Outcome:
    """Its table, and the readings of every run it has finished: also of those before a cut."""
    out = place.scratch / "walkthrough"
    runs = {
        str(path.parent.relative_to(out)): _readings(path)
        for path in sorted(out.rglob("summary.json"), key=lambda path: path.stat().st_mtime)
    }
    table = out / "walkthrough.md"
    documents = {
        str(path.relative_to(out)): _json(path)
        for pattern in ("*.json", "*/prediction*.json", "*/outcome*.json", "*/verdict*.json")
        for path in sorted(out.glob(pattern))
    }
    return {
        "ok": table.is_file(),
        "table": table.read_text(encoding="utf-8") if table.is_file() else "",
        "runs": runs,
        "documents": documents,
        "printed": done.printed[-4 * KEPT :],
    }


def _tests(name: str, marked: str) -> Callable[[CheckSetup], Sequence[str]]:
    def command(place: CheckSetup) -> Sequence[str]:
        # Versions are not the pinned ones here: a warning of theirs is no failure of ours.
        options = ("-q", "-m", marked, "-W", "default", "-p", "no:cacheprovider")
        written = f"--junitxml={place.scratch / f'{name}.xml'}"
        return ("-m", "pytest", "tests/gpu", *options, written)

    return command


def _roofline(place: CheckSetup) -> Sequence[str]:
    return ("-m", "scripts.gpu.roofline", *place.work, *_written(place, "roofline"))


def _trace(place: CheckSetup) -> Sequence[str]:
    written = _written(place, "trace")
    return ("-m", "scripts.gpu.trace", *place.work, *written, "--trace", str(place.trace))


def _overhead(place: CheckSetup) -> Sequence[str]:
    toy = ("--setting", "plain", "--fits", "1", "--blocks", "2", "--steps", "10")
    effort = ("--quick",) if place.cuda else toy
    ours = ("--only", "TrainPerf", "--only", "LoopMonitor")
    return ("-m", "scripts.bench.overhead", *ours, *effort, *_written(place, "overhead"))


def _accuracy(place: CheckSetup) -> Sequence[str]:
    toy = () if place.cuda else ("--only", "masks")
    return ("-m", "scripts.bench.accuracy", "--quick", *toy, *_written(place, "accuracy"))


def _walkthrough(place: CheckSetup) -> Sequence[str]:
    # It plans its runs by its own limit, and shows its table before ours ends it.
    minutes = f"{max(place.limit_s - SHOWING_S, SHOWING_S) / 60:.1f}"
    size = ("--preset", "small", "--minutes", minutes)
    toy = ("--preset", "tiny", "--steps", "6", "--stages", "baseline", "--accelerator", "cpu")
    out = ("--out", str(place.scratch / "walkthrough"))
    return ("-m", "recipes.gpt2", *(size if place.cuda else toy), *out)


def _recipe(name: str) -> Callable[[CheckSetup], Sequence[str]]:
    """A recipe of cases: what it has finished is in its JSON, also if it was cut short."""

    def command(place: CheckSetup) -> Sequence[str]:
        size = ("--size", "full" if place.cuda else "small")
        out = ("--out", str(place.scratch / f"recipe-{name}"))
        return ("-m", f"recipes.{name}", *size, *out, *_written(place, name))

    return command


def _written(place: CheckSetup, name: str) -> Sequence[str]:
    return ("--json", str(place.scratch / f"{name}.json"))


PARTS: tuple[Part, ...] = (
    # Which of the claims about CUDA hold: what an event costs, stalls, losses, capture, allocator,
    # NVML, the tail of NCCL, and that nothing waits.
    Part(
        name="first",
        limit_s=60,
        command=_tests("first", "gpu and first"),
        results=case_results("first"),
    ),
    Part(
        name="tests",
        limit_s=120,
        command=_tests("tests", "gpu and not first"),
        results=case_results("tests"),
    ),
    Part(name="roofline", limit_s=60, command=_roofline, results=figures("roofline")),
    Part(name="trace", limit_s=50, command=_trace, results=figures("trace")),
    Part(name="overhead", limit_s=50, command=_overhead, results=figures("overhead")),
    Part(name="accuracy", limit_s=60, command=_accuracy, results=figures("accuracy")),
    Part(name="claims", limit_s=90, command=_recipe("claims"), results=figures("claims")),
    Part(name="inference", limit_s=60, command=_recipe("inference"), results=figures("inference")),
    Part(name="overlap", limit_s=90, command=_recipe("overlap"), results=figures("overlap")),
    # Last, since it takes what the others have left; each of its stages is kept as it ends.
    Part(name="walkthrough", limit_s=480, command=_walkthrough, results=walkthrough, least_s=45.0),
)
"""In the order of running: what is short and must be known comes first."""


def _json(path: Path) -> object:
    """Its contents; `None` where there is none, or half of one."""
    try:
        contents: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return contents


def _readings(path: Path) -> Outcome:
    summary = _json(path)
    readings = summary.get("readings", {}) if isinstance(summary, dict) else {}
    return {name: readings[name] for name in SUMMARISED if name in readings}


def _cases(report: Path) -> Iterator[Outcome]:
    """Name, outcome, seconds and message of every test; none when pytest was killed."""
    if not report.exists():
        return
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 pytest has just written it
        unhappy = next((e for e in case if e.tag in ("failure", "error", "skipped")), None)
        tag = "passed" if unhappy is None else unhappy.tag
        yield {
            "name": f"{case.get('classname')}::{case.get('name')}",
            "outcome": "failed" if tag in ("failure", "error") else tag,
            "took_s": float(case.get("time", "0")),
            "message": "" if unhappy is None else unhappy.get("message", "")[:KEPT],
            "values": {each.get("name"): each.get("value") for each in case.iter("property")},
        }

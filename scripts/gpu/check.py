"""The GPU check: everything that needs CUDA, tested and measured in nine minutes.

    scripts/gpu_check --out FILE.json [--allow-cpu] [--only PART] [--seconds 540]

Tests, roofline, a trace, what measuring costs, how right it is, and the walkthrough.  Next to the
JSON file come a page for people (`FILE.html`) and the trimmed trace (`FILE.trace.json.gz`).

Works where nothing can be installed: the repository is put on `PYTHONPATH`, and wheels from the
folder named by `TRAINPERF_WHEELS` are unpacked into a scratch folder.  Every part runs in its own
process under a time limit; one that fails or overruns is written down and the next one runs.  Both
files are written again after each part.  The first one decides in a minute which of the claims
about CUDA hold.  The exit code is 0 when all parts succeeded and 1 when one did not; without CUDA
and without `--allow-cpu` it says what it skips, writes nothing, and is 0.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.bench.harness import machine, write_json
from scripts.gpu.parts import PARTS, CheckSetup, Part
from scripts.gpu.runs import KEPT, ROOT, FinishedRun, run


ALLOWED_S = 540.0
"""All of it, the wheels included: machines are lent for ten minutes at most."""

CLOSING_S = 10.0
"""Left for the last writing."""

INSTALL_S, FACTS_S, PAGE_S = 40.0, 40.0, 20.0

# In a process of its own: a CUDA context of ours would count with those that are measured.
FACTS = """
import importlib.metadata, json, platform, sys, torch
versions = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        versions[name] = None
facts = {"cuda": torch.cuda.is_available(), "versions": versions, "hardware": None}
if facts["cuda"]:
    device = torch.cuda.get_device_properties(0)
    facts["hardware"] = device.name
    facts["device"] = {
        "memory_bytes": device.total_memory,
        "multiprocessors": device.multi_processor_count,
        "capability": f"{device.major}.{device.minor}",
        "devices": torch.cuda.device_count(),
        "cuda": torch.version.cuda,
    }
print(json.dumps(facts))
"""

Parts = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How much of the allowed time is left."""

    ends_s: float
    """On the clock of `time.perf_counter`."""

    def left_s(self) -> float:
        """Until the last writing has to begin."""
        return self.ends_s - CLOSING_S - time.perf_counter()


def main() -> int:
    """Look, then part by part: run, read, write."""
    begun_s = time.perf_counter()
    given = _parser().parse_args()
    clock, longer = Clock(ends_s=begun_s + given.seconds), given.seconds / ALLOWED_S
    with tempfile.TemporaryDirectory() as scratch:
        parts: Parts = {}
        environment, installed = wheels(Path(scratch), INSTALL_S * longer)
        if installed is not None:
            parts["wheels"] = installed.outcome()
        facts, looked = machine_facts(environment, FACTS_S * longer)
        parts["machine"] = looked.outcome()
        cuda = bool(facts.get("cuda"))
        if not cuda:
            print("no CUDA device", file=sys.stderr)
            if not given.allow_cpu:
                print(f"skipped, nothing is written: {', '.join(part.name for part in PARTS)}")
                return 0
            # Threads of a toy on shared cores mostly wait for each other.
            environment["OMP_NUM_THREADS"] = "1"
        facts["hardware"] = facts.get("hardware") or machine()["processor"]
        trace = given.out.absolute().with_suffix(".trace.json.gz")
        place = CheckSetup(scratch=Path(scratch), cuda=cuda, trace=trace)
        given.out.parent.mkdir(parents=True, exist_ok=True)

        def write() -> None:
            took_s = time.perf_counter() - begun_s
            written = {**_result(facts, parts), "allowed_s": given.seconds, "took_s": took_s}
            write_json(given.out, written)
            page = given.out.with_suffix(".html").absolute()
            # In a process of its own: this one may lack the packages that came as wheels.
            command = ("-m", "scripts.gpu.page", str(given.out.absolute()), str(page))
            drawn = run(command, environment, PAGE_S)
            if drawn.code != 0:
                print(f"{page}: not written: {drawn.complained[-KEPT:]}", file=sys.stderr)

        chosen = [
            replace(part, limit_s=part.limit_s * longer)
            for part in PARTS
            if not given.only or part.name in given.only
        ]
        check(chosen, place, environment, clock.left_s, parts, write)
    failed = _failed(parts)
    print(f"{given.out}: " + (f"failed: {', '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0


def check(
    chosen: Sequence[Part],
    place: CheckSetup,
    environment: Mapping[str, str],
    left_s: Callable[[], float],
    parts: Parts,
    write: Callable[[], None],
) -> None:
    """Run the chosen parts one after the other; write after each."""
    write()
    for part in chosen:
        limit_s = min(part.limit_s, left_s())
        if limit_s < part.least_s:
            parts[part.name] = {"ok": False, "not_run": f"no time left: {limit_s:.0f} s"}
        else:
            print(f"{part.name}: at most {limit_s:.0f} s", flush=True)
            command = part.command(replace(place, limit_s=limit_s))
            done = run(command, environment, limit_s)
            parts[part.name] = _outcome(part, place, done)
        write()


def _outcome(part: Part, place: CheckSetup, done: FinishedRun) -> dict[str, object]:
    general, own = done.outcome(), part.results(place, done)
    return {**general, **own, "ok": bool(general["ok"]) and bool(own["ok"])}


def _result(facts: Mapping[str, object], parts: Parts) -> dict[str, object]:
    return {"cuda": False, **facts, "failed": _failed(parts), "parts": parts}


def _failed(parts: Parts) -> list[str]:
    return [name for name, part in parts.items() if not part["ok"]]


def wheels(scratch: Path, limit_s: float) -> tuple[dict[str, str], FinishedRun | None]:
    """The environment of all parts, with the wheels that travelled along unpacked into it."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    folder = os.environ.get("TRAINPERF_WHEELS")
    done = None
    if folder:
        target = str(scratch / "packages")
        packed = [str(wheel) for wheel in sorted(Path(folder).glob("*.whl"))]
        options = ("--quiet", "--no-index", "--no-deps", "--target", target)
        done = run(["-m", "pip", "install", *options, *packed], dict(os.environ), limit_s)
        paths.insert(1, target)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}, done


def machine_facts(
    environment: Mapping[str, str], limit_s: float
) -> tuple[dict[str, object], FinishedRun]:
    """Whether there is CUDA, the hardware's name and versions; nothing when torch is broken.

    Says which packages are missing.
    """
    done = run(["-c", FACTS, *required()], environment, limit_s)
    facts: dict[str, object] = json.loads(done.printed) if done.code == 0 else {}
    versions: Mapping[str, str | None] = facts.get("versions", {})  # type: ignore[assignment]
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        print(f"not installed, bring wheels: {', '.join(missing)}", file=sys.stderr)
    return facts, done


def required() -> list[str]:
    """Packages that a run imports: what the project declares for every machine, and two more."""
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = declared.partition("\ndependencies = [")[2].partition("\n]")[0]
    return [*re.findall(r'^ +"([\w-]+)[^;\n]*$', block, re.MULTILINE), "transformers", "pytest"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument(
        "--allow-cpu", action="store_true", help="go on without CUDA, every part at a toy size"
    )
    names = [part.name for part in PARTS]
    parser.add_argument("--only", choices=names, action="append", help="a part; default: all")
    parser.add_argument(
        "--seconds",
        type=float,
        default=ALLOWED_S,
        help="for everything, each part in proportion; default: 540",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

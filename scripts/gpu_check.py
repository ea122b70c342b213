"""Does everything hold on this GPU?  Its tests and both benches in one call, into one JSON file.

    scripts/gpu_check --out FILE [--allow-cpu] [--no-benches]

Works where nothing can be installed: the repository is put on `PYTHONPATH`, and wheels from the
folder named by `TRAINPERF_WHEELS` are unpacked into a scratch folder.  Every part runs in its own
process under a time limit; one that fails is written down and the next one runs.  The exit code is
0 when all parts succeeded, 1 when one did not or, without `--allow-cpu`, when there is no CUDA.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from _bench import machine, write_json


ROOT = Path(__file__).resolve().parents[1]
KEPT = 4000
"""Characters of a part's output that are kept: the end of it says what went wrong."""

INSTALL_S, FACTS_S, TESTS_S, OVERHEAD_S, ACCURACY_S = 40, 40, 200, 180, 130
"""Time limits of the parts in seconds; together below ten minutes."""

# In a process of its own: a CUDA context of ours would stand beside those that are measured.
FACTS = """
import importlib.metadata, json, platform, torch
packages = ("torch", "lightning", "numpy", "scipy", "msgspec", "psutil", "rich", "typer", "pytest")
versions = {"python": platform.python_version()}
for name in packages:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A part that has run: how it ended, how long it took, and the end of what it printed."""

    code: int | None
    """Exit code; `None` when the time limit ended it."""
    took_s: float
    printed: str
    complained: str

    def outcome(self) -> dict[str, object]:
        """What is written down about any part."""
        return {
            "ok": self.code == 0,
            "exit_code": self.code,
            "timed_out": self.code is None,
            "took_s": round(self.took_s, 1),
            "stderr": self.complained[-KEPT:] if self.code != 0 else "",
        }


def main() -> int:
    """Look, test, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--allow-cpu", action="store_true", help="go on without CUDA, quickly")
    parser.add_argument("--no-benches", action="store_true", help="only the tests")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        parts: dict[str, dict[str, object]] = {}
        environment, installed = wheels(scratch)
        if installed is not None:
            parts["wheels"] = installed.outcome()
        facts, looked = machine_facts(environment)
        parts["machine"] = looked.outcome()
        if not facts.get("cuda"):
            print("no CUDA device: tests of the GPU are skipped", file=sys.stderr)
            if not arguments.allow_cpu:
                return 1
        parts["tests"] = tests(environment, scratch, cuda=bool(facts.get("cuda")))
        if not arguments.no_benches:
            parts |= benches(environment, scratch, cuda=bool(facts.get("cuda")))
    facts["hardware"] = facts.get("hardware") or machine()["processor"]
    failed = [name for name, part in parts.items() if not part["ok"]]
    write_json(arguments.out, {"cuda": False, **facts, "failed": failed, "parts": parts})
    print(f"{arguments.out}: " + (f"failed: {', '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0


def wheels(scratch: Path) -> tuple[dict[str, str], Done | None]:
    """The environment of all parts, with the wheels that travelled along unpacked into it."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    folder = os.environ.get("TRAINPERF_WHEELS")
    done = None
    if folder:
        target = str(scratch / "packages")
        found = [str(wheel) for wheel in sorted(Path(folder).glob("*.whl"))]
        options = ("--quiet", "--no-index", "--no-deps", "--target", target)
        done = run(["-m", "pip", "install", *options, *found], dict(os.environ), INSTALL_S)
        paths.insert(1, target)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}, done


def machine_facts(environment: Mapping[str, str]) -> tuple[dict[str, object], Done]:
    """Whether there is CUDA, the hardware's name and versions; nothing when torch is broken."""
    done = run(["-c", FACTS], environment, FACTS_S)
    facts: dict[str, object] = json.loads(done.printed) if done.code == 0 else {}
    return facts, done


def tests(environment: Mapping[str, str], scratch: Path, *, cuda: bool) -> dict[str, object]:
    """Run the tests marked gpu.  With CUDA all of them must run, else all must be skipped."""
    report = scratch / "tests.xml"
    # Versions are not the pinned ones here: a warning of theirs is no failure of ours.
    options = ("-q", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider")
    command = ["-m", "pytest", "tests/gpu", *options, f"--junitxml={report}"]
    done = run(command, environment, TESTS_S)
    cases = outcomes(report)
    said = [str(case["outcome"]) for case in cases]
    counts = {name: said.count(name) for name in ("passed", "failed", "skipped")}
    right = counts["passed" if cuda else "skipped"] == len(cases) > 0
    part = done.outcome()
    return {
        **part,
        "ok": bool(part["ok"]) and right,
        "counts": counts,
        "cases": cases,
        "output": "" if right else done.printed[-KEPT:],
    }


def outcomes(report: Path) -> list[dict[str, object]]:
    """Name, outcome, seconds and message of every test; none when pytest was cut short."""
    if not report.exists():
        return []
    cases: list[dict[str, object]] = []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 pytest has just written it
        unhappy = next((e for e in case if e.tag in ("failure", "error", "skipped")), None)
        tag = "passed" if unhappy is None else unhappy.tag
        cases.append(
            {
                "name": f"{case.get('classname')}::{case.get('name')}",
                "outcome": "failed" if tag in ("failure", "error") else tag,
                "took_s": float(case.get("time", "0")),
                "message": "" if unhappy is None else unhappy.get("message", "")[:KEPT],
            }
        )
    return cases


def benches(
    environment: Mapping[str, str], scratch: Path, *, cuda: bool
) -> dict[str, dict[str, object]]:
    """Run both benches: figures as they wrote them, tables as they printed them."""
    parts = {}
    planned = (("bench_overhead", True, OVERHEAD_S), ("bench_accuracy", not cuda, ACCURACY_S))
    for name, quick, limit_s in planned:
        figures = scratch / f"{name}.json"
        command = [f"scripts/{name}.py", "--json", str(figures), *(["--quick"] if quick else [])]
        done = run(command, environment, limit_s)
        written = json.loads(figures.read_text()) if figures.exists() else None
        parts[name] = {**done.outcome(), "table": done.printed, "figures": written}
    return parts


def run(arguments: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Done:
    """A Python process in the repository, ended with all its children at the limit."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        code: int | None = None
        try:
            printed, complained = process.communicate(timeout=limit_s)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, complained = process.communicate()
    took_s = time.perf_counter() - begun
    return Done(code=code, took_s=took_s, printed=printed, complained=complained)


if __name__ == "__main__":
    sys.exit(main())

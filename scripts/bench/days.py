"""Bench of a long run on simulated parts: what it takes on disk, and every report of it.

Writes a million steps (`scripts/simulation/days.py`), of which the data wait gets longer after two
thirds, and runs the installed commands:
`python -m scripts.bench.days [--steps N] [--ranks N] [--json FILE]`.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench.harness import arguments, installed, publish, watched
from scripts.simulation.days import shorter, week, write


TARGETS = {"report_s": 10.0, "peak_mb": 500.0, "bytes_per_step": 60.0}
"""For a million steps on two cores."""


def main() -> None:
    """Write, measure, print."""
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=1)
    given = parser.parse_args()
    job = shorter(week(given.ranks), given.steps)
    with tempfile.TemporaryDirectory() as temporary:
        run, begun = Path(temporary) / "trainperf", time.perf_counter()
        disk = write(job, run)
        disk["write_s"] = time.perf_counter() - begun
        rows = []
        middle = f"{given.steps // 2}:{given.steps // 2 + 10_000}"
        for name, command in {
            "report": ["report", str(run)],
            "report --format html": ["report", str(run), "--format", "html"],
            f"report --steps {middle}": ["report", str(run), "--steps", middle],
            "report --since 2h": ["report", str(run), "--since", "2h"],
            "compare, each run of that length": ["compare", str(run), str(run)],
        }.items():
            spent = watched([sys.executable, "-m", "trainperf", *command])
            figures = (spent.seconds, spent.peak_mb, spent.printed_kb)
            names = ("seconds", "peak_mb", "printed_kb")
            rows.append({"command": name, **dict(zip(names, map(_rounded, figures), strict=True))})
            print(rows[-1], flush=True)
        levels = _levels(run)
    result = {
        "steps": given.steps,
        "ranks": given.ranks,
        "planted": {"slower_from": job.slower_from, "slower_ms": job.slower_ms},
        "told": levels,
        "disk": {name: _rounded(value) for name, value in disk.items()},
        "commands": rows,
        "targets": TARGETS,
    }
    publish(given.json, list(rows[0]), [[*map(str, row.values())] for row in rows], result)
    print(result["disk"], levels)


def _rounded(value: float) -> float:
    return round(value, 1)


def _levels(run: Path) -> list[dict[str, object]]:
    """What the report says of the change."""
    command = [sys.executable, "-m", "trainperf", "report", str(run), "--format", "json"]
    printed = subprocess.run(command, capture_output=True, check=True, env=installed()).stdout
    changes: list[dict[str, object]] = json.loads(printed)["long_term"]
    return [change for change in changes if change["from_step"]]


if __name__ == "__main__":
    main()

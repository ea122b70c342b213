"""Bench of a long run on simulated parts: what it takes on disk, and every report of it.

Writes a million steps (`scripts/simulation/days.py`), of which the data wait gets longer after two
thirds, and runs the installed commands:
`python -m scripts.bench.days [--steps N] [--ranks N] [--json FILE]`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench.harness import installed, machine_line, table, write_json
from scripts.bench.many_ranks import measured
from scripts.simulation.days import shorter, week, write


TARGETS = {"report_s": 10.0, "peak_mb": 500.0, "bytes_per_step": 60.0}
"""For a million steps on two cores."""


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    given = parser.parse_args()
    job = shorter(week(given.ranks), given.steps)
    with tempfile.TemporaryDirectory() as temporary:
        run, begun = Path(temporary) / "trainperf", time.perf_counter()
        disk = write(job, run)
        disk["write_s"] = time.perf_counter() - begun
        rows = []
        middle = f"{given.steps // 2}:{given.steps // 2 + 10_000}"
        for name, arguments in {
            "report": ["report", str(run)],
            "report --format html": ["report", str(run), "--format", "html"],
            f"report --steps {middle}": ["report", str(run), "--steps", middle],
            "report --since 2h": ["report", str(run), "--since", "2h"],
            "compare, each run of that length": ["compare", str(run), str(run)],
        }.items():
            took_s, peak_mb, printed = measured([sys.executable, "-m", "trainperf", *arguments])
            rows.append(
                {
                    "command": name,
                    "seconds": round(took_s, 2),
                    "peak_mb": round(peak_mb, 1),
                    "printed_kb": round(printed / 1e3, 1),
                }
            )
            print(rows[-1], flush=True)
        levels = _levels(run)
    print(machine_line())
    print(table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))
    print({name: round(value, 1) for name, value in disk.items()}, levels)
    write_json(
        given.json,
        {
            "steps": given.steps,
            "ranks": given.ranks,
            "planted": {"slower_from": job.slower_from, "slower_ms": job.slower_ms},
            "told": levels,
            "disk": {name: round(value, 1) for name, value in disk.items()},
            "commands": rows,
            "targets": TARGETS,
        },
    )


def _levels(run: Path) -> list[dict[str, object]]:
    """What the report says of the change."""
    command = [sys.executable, "-m", "trainperf", "report", str(run), "--format", "json"]
    printed = subprocess.run(command, capture_output=True, check=True, env=installed()).stdout
    levels: list[dict[str, object]] = json.loads(printed)["long_term"]["levels"]
    return levels


if __name__ == "__main__":
    main()

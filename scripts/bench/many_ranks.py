"""Bench of `trainperf report` on simulated jobs of many ranks: time and memory, by ranks.

Writes 2,000 steps of each, reads them with the installed command, and adds up the memory of all of
its processes: `python -m scripts.bench.many_ranks [--ranks N …] [--json FILE] [-- OPTIONS]`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.harness import installed, machine_line, table, write_json
from scripts.simulation.arrivals import Job, Plant
from scripts.simulation.records import write


RANKS = (64, 128, 256, 512, 1024)
STEPS = 2000
TARGETS = {"report_s": 30.0, "peak_mb": 1000.0}
"""Of issue 14, for 1,024 ranks on two cores."""

SAMPLE_S = 0.02


def proportional_mb(pid: int) -> float:
    """Memory of a process and its children: pages that several share are counted once."""
    total_kb = 0
    for each in _family(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1024


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        below = [int(child) for child in children.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(each for child in below for each in _family(child))]


def measured(command: Sequence[str]) -> tuple[float, float, int]:
    """Seconds, peak megabytes of all processes, and bytes printed."""
    begun, peak_mb = time.perf_counter(), 0.0
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(command, stdout=printed, env=installed()) as process,
    ):
        while process.poll() is None:
            peak_mb = max(peak_mb, proportional_mb(process.pid))
            time.sleep(SAMPLE_S)
        took_s = time.perf_counter() - begun
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
        return took_s, peak_mb, printed.seek(0, 2)


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    parser.add_argument("options", nargs="*", help="of the command, after --")
    given = parser.parse_args()
    rows: list[dict[str, float]] = []
    for ranks in given.ranks:
        plant = Plant(ranks=(ranks // 3,), piece="data_wait", delay_ms=20)
        job = Job(ranks=ranks, steps=given.steps, device=given.device, plants=(plant,))
        with tempfile.TemporaryDirectory() as temporary:
            run = Path(temporary) / "trainperf"
            written = write(job, run)
            report = [sys.executable, "-m", "trainperf", "report", str(run), *given.options]
            row: dict[str, float] = {"ranks": ranks, "run_mb": written / 1e6}
            row["bytes_per_step"] = written / ranks / given.steps
            row["report_s"], row["peak_mb"], text = measured([*report, "--format", "json"])
            row["json_kb"] = text / 1e3
            row["page_s"], _, page = measured([*report, "--format", "html"])
            row["page_kb"] = page / 1e3
        rows.append({name: round(value, 2) for name, value in row.items()})
        print(rows[-1], flush=True)
    print(machine_line())
    print(table(list(rows[0]), [[f"{value:,g}" for value in row.values()] for row in rows]))
    print(f"targets for 1,024 ranks: {TARGETS}")
    result = {"steps": given.steps, "device": given.device, "options": given.options, "rows": rows}
    write_json(given.json, {**result, "targets": TARGETS})


if __name__ == "__main__":
    main()

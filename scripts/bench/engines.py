"""Bench of the engines: time and memory of the traces of many ranks.

    python -m scripts.bench.engines --traces 64 --from FILE [--packed-mb 16] [--at DIR]
        [--json FILE]

Real-sized traces, made from a real one by moved times, are analysed by `local:2`, a quarter of them
first and then a half: time should grow with the number of files, and memory not at all.  They are
written to `--at`, and not again if they are there.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.harness import installed, machine_line, table, write_json
from scripts.simulation import traces


WORKERS = 2
SAMPLE_S = 0.05
TARGETS = {"worker_mb": 300.0}
"""Of issue 14: a worker's memory with traces of 16 MB."""


def watched(command: Sequence[str]) -> dict[str, float]:
    """Seconds, CPU time of all its processes, and the largest memory of any one of them.

    Pages that they share are divided among them.
    """
    begun, cpu_s, peak_mb = time.perf_counter(), _children_s(), 0.0
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(command, stdout=printed, env=installed()) as process,
    ):
        while process.poll() is None:
            every = [process.pid, *_children(process.pid)]
            peak_mb = max(peak_mb, *map(_proportional_mb, every))
            time.sleep(SAMPLE_S)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
    spent = {"seconds": time.perf_counter() - begun, "cpu_seconds": _children_s() - cpu_s}
    return {**spent, "process_mb": peak_mb}


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in text.split()]


def _proportional_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has just ended
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def real_traces(source: Path, files: int, packed_mb: float, at: Path | None) -> dict[str, object]:
    """Seconds and memory for a quarter of the files, a half, and all."""
    rows = []
    # Below it on the same disk: links of files.
    with tempfile.TemporaryDirectory(dir=at and at.parent) as temporary:
        everything = at or Path(temporary) / "all"
        if not everything.exists():
            job = traces.TraceJob(ranks=files, packed_bytes=round(packed_mb * 1e6), late=1)
            traces.write(job, source, everything)
        written = sum(path.stat().st_size for path in everything.iterdir())
        for number in (files // 4, files // 2, files):
            some = Path(temporary) / str(number)
            some.mkdir()
            for rank in range(number):
                name = f"rank{rank}.pt.trace.json.gz"
                (some / name).hardlink_to(everything / name)
            command = [sys.executable, "-m", "trainperf", "trace", str(some)]
            spent = watched([*command, "--engine", f"local:{WORKERS}"])
            rows.append({"files": number, **spent})
            print(rows[-1], flush=True)
    print(machine_line())
    print(table(list(rows[0]), [[f"{value:,g}" for value in row.values()] for row in rows]))
    return {"source": source.name, "file_mb": written / files / 1e6, "rows": rows}


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=64)
    parser.add_argument("--packed-mb", type=float, default=16.0)
    parser.add_argument("--at", type=Path, help="where traces are, or are written")
    parser.add_argument("--from", type=Path, dest="source", help="the real trace")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = {"traces": real_traces(given.source, given.traces, given.packed_mb, given.at)}
    print(f"targets: {TARGETS}")
    write_json(given.json, {**result, "targets": TARGETS})


if __name__ == "__main__":
    main()

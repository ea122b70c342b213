"""Bench of the engines: time and memory of the traces of many ranks.

    python -m scripts.bench.engines --traces 64 --from FILE [--packed-mb 16] [--at DIR]
        [--json FILE]

Real-sized traces, made from a real one by moved times, are analysed by `local:2`, a quarter of them
first and then a half: time should grow with the number of files, and memory not at all.  They are
written to `--at`, and not again if they are there.
"""

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from scripts.bench.harness import arguments, publish, watched
from scripts.simulation import traces


WORKERS = 2
TARGETS = {"worker_mb": 300.0}
"""Of issue 14: a worker's memory with traces of 16 MB."""


def real_traces(
    source: Path, files: int, packed_mb: float, at: Path | None
) -> tuple[dict[str, object], list[dict[str, float]]]:
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
            rows.append({"files": number, **asdict(spent)})
            print(rows[-1], flush=True)
    return {"source": source.name, "file_mb": written / files / 1e6}, rows


def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__)
    parser.add_argument("--traces", type=int, default=64)
    parser.add_argument("--packed-mb", type=float, default=16.0)
    parser.add_argument("--at", type=Path, help="where traces are, or are written")
    parser.add_argument("--from", type=Path, dest="source", help="the real trace")
    given = parser.parse_args()
    files, rows = real_traces(given.source, given.traces, given.packed_mb, given.at)
    result = {"traces": {**files, "rows": rows}, "targets": TARGETS}
    cells = [[f"{value:,g}" for value in row.values()] for row in rows]
    publish(given.json, list(rows[0]), cells, result)
    print(f"targets: {TARGETS}")


if __name__ == "__main__":
    main()

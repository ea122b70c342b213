"""Bench of `trainperf report` on simulated jobs of many ranks: time and memory, by ranks.

Writes 2,000 steps of each, reads them with the installed command, and adds up the memory of all of
its processes: `python -m scripts.bench.many_ranks [--ranks N …] [--json FILE] [-- OPTIONS]`.
"""

import sys
import tempfile
from pathlib import Path

from scripts.bench.harness import arguments, publish, watched
from scripts.simulation.arrivals import Job, Plant
from scripts.simulation.records import write


RANKS = (64, 128, 256, 512, 1024)
STEPS = 2000
TARGETS = {"report_s": 30.0, "peak_mb": 1000.0}
"""Of issue 14, for 1,024 ranks on two cores."""


def main() -> None:
    """Write, measure, print."""
    parser = arguments(__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
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
            text = watched([*report, "--format", "json"])
            row |= {"report_s": text.seconds, "peak_mb": text.peak_mb, "json_kb": text.printed_kb}
            page = watched([*report, "--format", "html"])
            row |= {"page_s": page.seconds, "page_kb": page.printed_kb}
        rows.append({name: round(value, 2) for name, value in row.items()})
        print(rows[-1], flush=True)
    cells = [[f"{value:,g}" for value in row.values()] for row in rows]
    result = {"steps": given.steps, "device": given.device, "options": given.options, "rows": rows}
    publish(given.json, list(rows[0]), cells, {**result, "targets": TARGETS})
    print(f"targets for 1,024 ranks: {TARGETS}")


if __name__ == "__main__":
    main()

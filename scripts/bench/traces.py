"""Bench of trace analysis, from file to answer: time and memory.

Repeats a real trace until it is as large as a long capture, reads and analyses it in processes of
their own, and prints the figures next to their targets:
`python -m scripts.bench.traces [--times N] [--without-large] [--json FILE]`.
"""

import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.harness import arguments, installed, publish
from scripts.bench.synthetic_traces import FORMS, Original, original, write


HERE = Path(__file__).parent
TRACES = Path(os.environ.get("TRAINPERF_TRACES", HERE.parents[2] / "shared" / "traces"))
REPEATED = "ddp_a100_rank0of2.pt.trace.json.gz"
SMALL = "infer_h100_vit.pt.trace.json.gz"

EVENTS = 650_000
EVENTS_OF_RANK = 134_000
EVENTS_OF_LARGE = 3_930_000
RANKS = 8

TARGETS = {
    "total_s": 2.0,
    "peak_mb": 200.0,
    "large_peak_mb": 500.0,
    "ranks_s": 3.0,
    "small_command_s": 0.5,
}
"""Of issue 3: the first two for 650,000 events in every form."""

Figures = dict[str, float]


def measured(command: Sequence[str | Path], times: int) -> Figures:
    """Medians of what a child prints as JSON, over so many runs, and the spread of its time."""
    runs = [_child(command) for _ in range(times)]
    figures = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}
    totals = [run["total_s"] for run in runs]
    return {**figures, "total_s_low": round(min(totals), 3), "total_s_high": round(max(totals), 3)}


def _child(command: Sequence[str | Path]) -> Figures:
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=installed())
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def ours(path: Path, times: int) -> Figures:
    """A trace through the reader and the analysis."""
    return measured([sys.executable, HERE / "traces_ours.py", path], times)


def command_s(path: Path, times: int) -> float:
    """Seconds of `trainperf trace` on a file or a directory, start included."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "trainperf", "trace", path, "--format", "json"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=installed(),
        )
        took.append(time.perf_counter() - begun)
    return round(statistics.median(took), 3)


def packed(path: Path) -> Path:
    """The same file under gzip, next to it."""
    out = path.with_suffix(".json.gz")
    with path.open("rb") as plain, gzip.open(out, "wb", 6) as file:
        shutil.copyfileobj(plain, file, 2**22)
    return out


def in_forms(folder: Path, source: Original, times: int) -> dict[str, Figures]:
    """650,000 events in every form, one file on the disk at a time."""
    figures: dict[str, Figures] = {}
    for form in FORMS:
        path = folder / f"{form}.json"
        write(path, source, EVENTS, form)
        figures[form] = {"file_mb": round(path.stat().st_size / 1e6, 1), **ours(path, times)}
        if form == "kineto":
            small = packed(path)
            size = {"file_mb": round(small.stat().st_size / 1e6, 1)}
            figures["kineto, gzip"] = {**size, **ours(small, times)}
            small.unlink()
        path.unlink()
    return figures


def ranks_s(folder: Path, source: Original, times: int) -> tuple[float, float]:
    """Seconds of the command on eight ranks of 34 MB, and the size of one."""
    inside = folder / "ranks"
    inside.mkdir()
    beside = source.beside["distributedInfo"]
    for rank in range(RANKS):
        info = {**source.beside, "distributedInfo": {**beside, "rank": rank, "world_size": RANKS}}
        of_rank = Original(source.events, info, source.span_ns)
        write(inside / f"rank{rank}.json", of_rank, EVENTS_OF_RANK, "kineto")
    size_mb = round((inside / "rank0.json").stat().st_size / 1e6, 1)
    took = command_s(inside, times)
    shutil.rmtree(inside)
    return took, size_mb


def small_s(folder: Path, times: int) -> tuple[float, float]:
    """Seconds of the command on a trace of a megabyte, and its size."""
    path = folder / "small.json"
    path.write_bytes(gzip.decompress((TRACES / SMALL).read_bytes()))
    return command_s(path, times), round(path.stat().st_size / 1e6, 1)


def line(name: str, figures: Figures) -> list[str]:
    """A row of the table."""
    spread = f"{figures['total_s_low']:.2f}–{figures['total_s_high']:.2f}"
    return [
        name,
        f"{figures['file_mb']:.0f} MB",
        f"{figures['read_s']:.2f} s",
        f"{figures['analyse_s']:.2f} s",
        f"{figures['total_s']:.2f} s [{spread}]",
        f"{figures['cpu_s']:.2f} s",
        f"{figures['peak_mb']:.0f} MB",
    ]


def main() -> None:
    """Write, measure, print."""
    parser = arguments(__doc__)
    parser.add_argument("--times", type=int, default=3, help="runs of each; medians are shown")
    parser.add_argument("--without-large", action="store_true", help="leave out the gigabyte")
    given = parser.parse_args()
    source = original(TRACES / REPEATED)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        forms = in_forms(folder, source, given.times)
        ranks, rank_mb = ranks_s(folder, source, given.times)
        small, small_mb = small_s(folder, given.times)
        if not given.without_large:
            large = folder / "large.json"
            write(large, source, EVENTS_OF_LARGE, "kineto")
            size_mb = round(large.stat().st_size / 1e6, 1)
            forms["kineto, large"] = {"file_mb": size_mb, **ours(large, 1)}
    head = ["form", "file", "reading", "analysis", f"both, of {given.times}", "CPU", "peak"]
    result: dict[str, object] = {"events": EVENTS, "times": given.times, "forms": forms}
    result |= {"ranks_s": ranks, "rank_mb": rank_mb}
    result |= {"small_command_s": small, "small_mb": small_mb, "targets": TARGETS}
    publish(given.json, head, [line(name, figures) for name, figures in forms.items()], result)
    print(f"trainperf trace, {RANKS} ranks of {rank_mb} MB: {ranks} s")
    print(f"trainperf trace, {small_mb} MB, start included: {small} s")


if __name__ == "__main__":
    main()

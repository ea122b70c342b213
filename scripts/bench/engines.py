"""Bench of the engines: what Dask costs beside this machine's processes, and memory per worker.

    python -m scripts.bench.engines [--files 256] [--megabytes 1] [--pairs 5] [--tasks-of 8]
        [--returned] [--json FILE]
    python -m scripts.bench.engines --traces 64 --from FILE [--packed-mb 16] [--at DIR]
        [--json FILE]

The same summary of a simulated job by `local:2` and by a Dask cluster of two workers on this
machine, in turns; both have started and have read the job once before.  `--tasks-of`: Dask once
more, with tasks of so many files instead of as many as suit it.  `--returned`: Dask once more, with
workers whose malloc returns memory at each release, as Dask starts them.  With `--traces`
real-sized traces, made from a real one by moved times, are analysed by `local:2`, a quarter of them
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
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from scripts.bench.harness import estimate, installed, machine_line, table, write_json
from scripts.simulation import traces
from scripts.simulation.arrivals import Job, Plant
from scripts.simulation.records import write
from trainperf.analysis.run import replay
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import encode_summary
from trainperf.core.engines import engine_of
from trainperf.core.engines.base import Engine


WORKERS = 2
BYTES_A_STEP = 172
SAMPLE_S = 0.05
TARGETS = {"overhead": 0.10, "worker_mb": 300.0}
"""Of issue 14: of Dask at 256 files of 1 MB, and a worker's memory with traces of 16 MB."""


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


def records(
    files: int, megabytes: float, pairs: int, tasks_of: int | None, *, returned: bool
) -> dict[str, object]:
    """Seconds of either engine in turns."""
    from distributed import LocalCluster

    job = Job(
        ranks=files,
        steps=round(megabytes * 1e6 / BYTES_A_STEP),
        device="cuda",
        plants=(Plant(ranks=(files // 3,), piece="data_wait", delay_ms=20),),
    )
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "trainperf"
        written = write(job, place)
        run = Run.open(place)
        cluster = stack.enter_context(
            LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=WORKERS,
                threads_per_worker=1,
                memory_limit="700MB",
                dashboard_address=None,
                silence_logs=50,
            )
        )
        address = cluster.scheduler_address.removeprefix("tcp://")
        engines = {
            name: stack.enter_context(engine_of(name_of, large=True))
            for name, name_of in (("local", f"local:{WORKERS}"), ("dask", f"dask://{address}"))
        }
        rows = {name: (name, replay.FILES_AT_ONCE) for name in engines}
        if tasks_of is not None:
            rows[f"dask, {tasks_of} files a task"] = "dask", tasks_of
        if returned and engines["dask"] is not None:
            engines["returning"] = replace(engines["dask"], around=None)
            rows["dask, memory returned"] = "returning", replay.FILES_AT_ONCE
        seconds: dict[str, list[float]] = {name: [] for name in rows}
        summaries = set()
        for number in range(pairs + 1):
            for name in sorted(rows, reverse=bool(number % 2)):
                engine, at_once = rows[name]
                replay.FILES_AT_ONCE = at_once
                took_s, summary = _timed(run, engines[engine])
                summaries.add(summary)
                if number:
                    seconds[name].append(took_s)
    if len(summaries) != 1:
        raise RuntimeError("the engines' results differ")
    local = seconds["local"]
    overhead = {
        name: estimate([other / own - 1 for other, own in zip(seconds[name], local, strict=True)])
        for name in rows
        if name != "local"
    }
    print(machine_line())
    print(f"{files} files, {written / files / 1e6:.2f} MB each; overhead against local:{WORKERS}:")
    for name, each in overhead.items():
        print(f"{name}: {each.median:+.1%} ({each.low:+.1%} to {each.high:+.1%})")
    return {
        "files": files,
        "file_mb": written / files / 1e6,
        "seconds": seconds,
        "overhead": {name: asdict(each) for name, each in overhead.items()},
    }


def _timed(run: Run, engine: Engine | None) -> tuple[float, bytes]:
    begun = time.perf_counter()
    summary = summarize(run, now_s=0.0, engine=engine)
    return time.perf_counter() - begun, encode_summary(summary)


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
    parser.add_argument("--files", type=int, default=256)
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tasks-of", type=int, metavar="FILES")
    parser.add_argument("--returned", action="store_true")
    parser.add_argument("--traces", type=int, default=0, help="measure so many traces instead")
    parser.add_argument("--packed-mb", type=float, default=16.0)
    parser.add_argument("--at", type=Path, help="where traces are, or are written")
    parser.add_argument("--from", type=Path, dest="source", help="the real trace")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.traces:
        result = {"traces": real_traces(given.source, given.traces, given.packed_mb, given.at)}
    else:
        sizes = given.files, given.megabytes, given.pairs, given.tasks_of
        result = {"records": records(*sizes, returned=given.returned)}
    print(f"targets: {TARGETS}")
    write_json(given.json, {**result, "targets": TARGETS})


if __name__ == "__main__":
    main()

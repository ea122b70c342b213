"""What the benches share: statistics of pairs, turns, costs, tables, quiet runs, the machine."""

import argparse
import contextlib
import io
import json
import logging
import os
import platform
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import numpy as np


T = TypeVar("T")

SAMPLE_S = 0.02
"""Between two looks at the memory of a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """A median of paired values with a 95 % bootstrap interval, and on how many pairs it stands."""

    median: float
    low: float
    high: float
    n: int


def estimate(values: Sequence[float], *, resamples: int = 2000, seed: int = 0) -> PairedEstimate:
    """Median of the *values* and the percentile-bootstrap interval of that median."""
    sample = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(sample), (resamples, len(sample)))
    medians = np.median(sample[drawn], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975]).tolist()
    return PairedEstimate(median=float(np.median(sample)), low=low, high=high, n=len(sample))


def spread(of: PairedEstimate, form: str = ".3f") -> list[str]:
    """The median and the interval, as two cells of a table."""
    return [f"{of.median:{form}}", f"{of.low:{form}} to {of.high:{form}}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Microseconds a step took: CPU time of the training thread and of the process, and wall."""

    thread_us: float
    process_us: float
    wall_us: float


class CostClock:
    """Reads the three clocks from when it is made."""

    def __init__(self) -> None:
        self._begun_ns = self._now_ns()

    @staticmethod
    def _now_ns() -> tuple[int, int, int]:
        return time.thread_time_ns(), time.process_time_ns(), time.perf_counter_ns()

    def cost(self, steps: int) -> Cost:
        """Of each of so many steps."""
        spent = (now - begun for now, begun in zip(self._now_ns(), self._begun_ns, strict=True))
        thread_us, process_us, wall_us = (ns / steps / 1e3 for ns in spent)
        return Cost(thread_us=thread_us, process_us=process_us, wall_us=wall_us)


def cost_of(step: Callable[[], object], seconds: float) -> Cost:
    """A step called again and again for so long."""
    clock, steps, until = CostClock(), 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        step()
        steps += 1
    return clock.cost(steps)


def in_turns(first: Callable[[], T], second: Callable[[], T], pairs: int) -> list[tuple[T, T]]:
    """Results of both, pair by pair; who goes first changes from pair to pair."""
    results = []
    for number in range(pairs):
        if number % 2:
            results.append((first(), second()))
        else:
            later = second()
            results.append((first(), later))
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a command took."""

    seconds: float
    cpu_seconds: float
    """Of all its processes."""
    peak_mb: float
    """The most memory of all its processes at any look; pages that they share count once."""
    process_mb: float
    """The most memory of any one of them."""
    printed_kb: float


def watched(command: Sequence[str]) -> Spent:
    """Run a command to its end.

    Raises:
        SystemExit: It failed.
    """
    begun, cpu_s, peak_mb, process_mb = time.perf_counter(), _children_s(), 0.0, 0.0
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(command, stdout=printed, env=installed()) as process,
    ):
        while process.poll() is None:
            sizes_mb = [_proportional_mb(pid) for pid in _family(process.pid)]
            peak_mb, process_mb = max(peak_mb, sum(sizes_mb)), max(process_mb, *sizes_mb, 0.0)
            time.sleep(SAMPLE_S)
        seconds = time.perf_counter() - begun
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: ended with {process.returncode}")
        return Spent(
            seconds=seconds,
            cpu_seconds=_children_s() - cpu_s,
            peak_mb=peak_mb,
            process_mb=process_mb,
            printed_kb=printed.seek(0, 2) / 1e3,
        )


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        below = [int(child) for child in children.read_text().split()]
        return [pid, *(each for child in below for each in _family(child))]
    return [pid]


def _proportional_mb(pid: int) -> float:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in markdown, its first column left and all others right aligned."""
    cells = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        padded = [row[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *["-" * (width - 1) + ":" for width in widths[1:]]]
    return "\n".join([line(head), line(rule), *[line(row) for row in rows]])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Progress bars, tips and warnings of what is measured go nowhere."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    void = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(void),
            contextlib.redirect_stderr(void),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def installed() -> dict[str, str]:
    """The environment for a child whose modules are compiled once, as those of a package are.

    Without it a child compiles all of them each time where Python is told to write no bytecode.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def machine() -> dict[str, str | int | float]:
    """Where a figure was taken: processor, cores this process may use, load, versions."""
    facts: dict[str, str | int | float] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "load_1min": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    for name in ("torch", "lightning", "trainperf", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            facts[name] = metadata.version(name)
    return facts


def machine_line() -> str:
    """The same in one line."""
    facts = machine()
    versions = ", ".join(f"{k} {facts[k]}" for k in ("python", "torch", "lightning") if k in facts)
    return f"{facts['cores']} cores of {facts['processor']}, load {facts['load_1min']}; {versions}"


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the first line of a module's docstring, and with `--json`."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser


def publish(
    path: Path | None,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    result: Mapping[str, object],
) -> None:
    """Print the machine and a table, and write *result* where a path is given."""
    print(f"{machine_line()}\n\n{table(head, rows)}", flush=True)
    write_json(path, result)


def write_json(path: Path | None, result: Mapping[str, object]) -> None:
    """Write *result* with the machine it was measured on; nothing when there is no path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

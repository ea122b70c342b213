"""What the benches share: paired statistics, tables, quiet runs, and the machine they ran on."""

import contextlib
import io
import json
import logging
import os
import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np


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

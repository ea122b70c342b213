"""Cache of measured chip limits, for machines without a data sheet.

Figures are kept in the user's cache directory, by device, release of torch and number of threads.
The best of each counts: of the benchmark after the first few audited runs, and of what the audited
steps themselves have reached.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec
import torch

from trainperf.audit.attention_times import time_attention
from trainperf.audit.chip_benchmark import (
    BUDGET_S,
    PRECISIONS,
    SOURCE,
    best_of,
    chip_here,
    probe,
)
from trainperf.core.artifacts import read_document, write_document
from trainperf.core.artifacts.audit import MeasuredChip, StepAudit
from trainperf.core.errors import RunError
from trainperf.core.groups import grouped
from trainperf.core.machine.chips import Chip, chip_of
from trainperf.core.machine.limits import free_bytes
from trainperf.core.run_directory import write_atomically


CACHE = "TRAINPERF_CACHE"
"""Environment variable: a directory to use instead of the user's cache directory."""

LEAST_FREE_BYTES = 1 << 30
"""Memory that must be free for a benchmark, which takes some hundred megabytes."""

PROBES = 3
"""Runs after which the machine is no longer measured: one of them probably found it idle."""


def note_chip(run: Path, *, measure: bool) -> None:
    """Write the limits of an audited run's chip into its directory, after the fit.

    Args:
        run: The run directory; without an audit nothing is written.
        measure: Whether there is time for benchmarks of about a second; they are left out where
            little memory is free.

    Raises:
        OSError: The directory cannot be written.
    """
    try:
        audit = read_document(StepAudit, run)
    except RunError:
        return  # the report says that the audit is damaged
    measure = measure and free_bytes() >= LEAST_FREE_BYTES
    chip = None if audit is None else chip_for(audit, measure=measure)
    if audit is not None and chip is not None:
        attention = time_attention(audit, chip) if measure else ()
        write_document(MeasuredChip(chip=chip, attention=attention), run)


def chip_for(audit: StepAudit, *, measure: bool, budget_s: float = BUDGET_S) -> Chip | None:
    """The limits of an audit's device; `None` if unknown and not to be measured.

    Args:
        audit: The audit.
        measure: Whether there is time for a benchmark.
        budget_s: Of the benchmark.
    """
    on_it = "" if audit.device_index is None else f":{audit.device_index}"
    device, file = torch.device(f"{audit.device}{on_it}"), cache_file(audit.device_name)
    if audit.device != "cpu" and chip_of(audit.device_name) is not None:
        return chip_here(device) if measure else None
    chips = _load(file)
    if measure and len(chips) < PROBES:
        chips.append(probe(device, budget_s=budget_s))
    if not chips:
        return None
    if audit.device == "cpu":
        chips[0] = best_of([chips[0], reached(audit)])
    _save(chips, file)
    return best_of(chips)


def reached(audit: StepAudit) -> Chip:
    """The rates that a step's operators reached on the CPU: no limit is below them."""
    # Shorter operators tell nothing about rates: launch time dominates.
    long = [use for use in audit.operators if use.host_s / use.calls >= 100e-6]
    rates = grouped(
        (use.precision, use.flops / use.host_s)
        for use in long
        if use.flops and use.precision in PRECISIONS
    )
    return Chip(
        name=audit.device_name,
        flops_per_s={precision: max(several) for precision, several in rates.items()},
        memory_bytes_per_s=max((use.memory_bytes / use.host_s for use in long), default=0.0),
        link_bytes_per_s=None,
        source=SOURCE,
    )


def cache_file(device_name: str) -> Path:
    """Cache file of a device, for this release of torch and number of threads."""
    what = f"{device_name} torch {torch.__version__} {torch.get_num_threads()} threads"
    name = re.sub(r"[^a-z0-9.+]+", "-", what.lower())
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # The directory's name changes when a measurement is added: files without it are not read.
    return Path(os.environ.get(CACHE) or users / "trainperf") / "chips-3" / f"{name}.json"


def _load(file: Path) -> list[Chip]:
    """The chip as each probe found it."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Chip])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return []  # measured again


def _save(chips: list[Chip], file: Path) -> None:
    with suppress(OSError):  # measured again by the next run; this one has its figures
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, msgspec.json.encode(chips) + b"\n")

"""Tensors take 39 of 40 GiB at the peak."""

from pathlib import Path

from faults.base import script
from faults.recorded_by_hand import write_run


@script("memory_limit", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    full = {"peak_bytes": 39 << 30, "reserved_peak_bytes": (39 << 30) + (1 << 29)}
    write_run(out, facts={} if fixed else full)

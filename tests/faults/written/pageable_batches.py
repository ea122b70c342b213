"""Forty megabytes a step from pageable memory: the host waits for the copy."""

from pathlib import Path

from faults.base import script
from faults.recorded_by_hand import write_run


@script("transfer", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    slow = {"h2d_device_ns": 12_000_000, "h2d_bytes": 40 << 20}
    write_run(out, facts={} if fixed else slow, phases_ms={} if fixed else {"h2d": 12.0})

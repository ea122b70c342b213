"""The host waits for the loader, and the device has work enough meanwhile."""

from pathlib import Path

from faults.base import script
from faults.recorded_by_hand import write_run


@script("data_hidden", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    write_run(out, phases_ms={} if fixed else {"data_wait": 20.0, "backward": 10.0})

"""The device has caught up whenever forward and backward return."""

from pathlib import Path

from faults.base import Script
from faults.recorded_by_hand import write_run


def _train(out: Path, *, fixed: bool) -> None:
    write_run(out, facts={} if fixed else {"lead_forward": 0, "lead_backward": 0})


SCRIPT = Script(expected=("launch_bound",), train=_train, same_work=False)

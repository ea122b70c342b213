"""The hook that moves a batch to the device unpacks it first, while the loop waits."""

import time
from pathlib import Path
from typing import Any

from faults.base import script, train
from faults.calm import Calm, Ready


class Unpacks(Calm):
    """Takes a while to move a batch."""

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """The same batch, later."""
        time.sleep(0.006)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)


@script("transfer")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Calm() if fixed else Unpacks(), Ready(60), audit_at=None)

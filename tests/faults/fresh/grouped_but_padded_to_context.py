"""A length-grouped sampler whose collate function pads to the context all the same; plain loop."""

from pathlib import Path

import torch

from faults.base import script
from faults.encoders import LONGEST, Encoder, loss_of, padded
from trainperf.loop import LoopMonitor


@script("padding", changes=("pad_to_longest",))
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    lengths = torch.randint(16, LONGEST + 1, (60 * 8,)).sort().values.reshape(60, 8)
    batches = padded(lengths[torch.randperm(60)].tolist(), to=None if fixed else LONGEST)
    model = Encoder()
    update = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    with LoopMonitor(out, report=False, audit_at=12).watch(model, update) as monitor:
        for batch in monitor.batches(batches):
            loss = loss_of(model, batch)
            update.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            update.step()
            monitor.end_step(loss)

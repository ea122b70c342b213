"""What each of four gloo ranks runs, of which the last one is struck in the middle of its training.

Run as a program, so that a rank that was stopped or killed is a process like any other.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainperf.loop import LoopMonitor
from trainperf.recording import monitor as recording


STEPS, FATAL = 300, 100
"""Of the training, and the one in which a rank is struck."""

EVERY = 10
"""Steps between two windows."""

STRIKES = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


class Scalars:
    """Keeps what a `SummaryWriter` would be given."""

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Count it."""
        del scalar_value, global_step
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def add_custom_scalars(self, layout: object) -> None:
        """No charts."""


def trained(model: torch.nn.Module, monitor: LoopMonitor | None, strike: str) -> int:
    """Steps that a rank takes; under DDP it may end by an error of torch's."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = [torch.full((2, 4), 1.0 + number / STEPS) for number in range(STEPS)]
    steps = 0
    for batch in batches if monitor is None else monitor.batches(batches):
        if steps == FATAL and strike in STRIKES:
            os.kill(os.getpid(), STRIKES[strike])
        time.sleep(0.003)
        try:
            model(batch).square().mean().backward()
        except RuntimeError:  # torch's, where others do not answer
            break
        optimizer.step()
        optimizer.zero_grad()
        if monitor is not None:
            monitor.end_step()
        steps += 1
    return steps


def main(rank: int, ranks: int, base: Path, strike: str, *flags: str) -> None:
    """Train with the monitor and its aggregation, or without; leave steps and parameters."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(base / "store"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=5),
    )
    torch.manual_seed(rank)
    model: torch.nn.Module = torch.nn.Linear(4, 4)
    if "ddp" in flags:
        model = DistributedDataParallel(model)
    recording.SHOW_SHARE = 1.0  # a window as soon as its steps are there
    writer = Scalars()
    monitor = None
    if "alone" not in flags:
        monitor = LoopMonitor(
            base / "runs",
            writer=writer if rank == 0 else None,
            log_every_n_steps=EVERY,
            report=False,
            lines=False,
            aggregate=True,
        ).watch(model)
    steps = trained(model, monitor, strike if rank == ranks - 1 else "")
    begun = time.monotonic()
    if monitor is not None:
        monitor.close("interrupted")
    left = {
        "steps": steps,
        "parameters": [parameter.tolist() for parameter in model.parameters()],
        "tags": writer.tags,
        "closing_s": time.monotonic() - begun,
    }
    (base / f"left-{rank}.json").write_text(json.dumps(left))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])

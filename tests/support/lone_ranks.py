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


STEPS, FATAL = 300, 100
"""Of the training, and the one in which a rank is struck."""

STRIKES = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


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
    """Train with the monitor, or without; leave steps and parameters."""
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
    monitor = None
    if "alone" not in flags:
        monitor = LoopMonitor(base / "runs", report=False, lines=False).watch(model)
    steps = trained(model, monitor, strike if rank == ranks - 1 else "")
    begun = time.monotonic()
    if monitor is not None:
        monitor.close("interrupted")
    left = {
        "steps": steps,
        "parameters": [parameter.tolist() for parameter in model.parameters()],
        "closing_s": time.monotonic() - begun,
    }
    (base / f"left-{rank}.json").write_text(json.dumps(left))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])

"""One of two gloo ranks that train a few traced steps: run by `test_recorded.py`."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule


LATE_RANK, LATE_S = 1, 0.05


def main() -> None:
    """Train, trace, write."""
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2)
    ) as profiler:
        for _ in range(4):
            loss = model(torch.ones(4, 64)).sum()
            if rank == LATE_RANK:
                time.sleep(LATE_S)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(Path(sys.argv[1]) / f"rank{rank}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

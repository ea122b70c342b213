"""Bench of the overhead on an asynchronous device: the plain loop there, in turns with itself.

    PYTHONPATH=tests python -m scripts.bench.overhead_device [--quick] [--json FILE]

The device is that of the tests, whose streams are threads of this process: its kernels take the
same cores, so CPU time of the training thread is what counts.  Each step queues work of some
milliseconds, so the host is ahead.  Synchronisations are counted with trainperf attached and
without: a step of ours makes none.
"""

import gc
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from support.device.frontend import NAME, attach
from support.device.plants import counted_synchronisations, work

from scripts.bench.alternation import Stopwatch
from scripts.bench.checks import check
from scripts.bench.contenders import LOOP_MONITOR, NOTHING, Contender
from scripts.bench.harness import arguments, write_json
from scripts.bench.overhead import Effort, run_setting
from trainperf.loop import LoopMonitor


WORK_MS = 0.5
"""On the device, in each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLoop:
    """A loop written by hand on the device, with pinned batches, all phases bracketed."""

    name: str = "device"
    title: str = "Plain loop on an asynchronous device"
    takes_turns: bool = True

    def contenders(self) -> Sequence[Contender]:
        """Nothing, and our monitor."""
        return (NOTHING, LOOP_MONITOR)

    def run(self, contender: Contender, watch: Stopwatch, scratch: Path) -> None:
        """One epoch; what is read at its end is waited for."""
        layer = torch.nn.Linear(32, 32, device=NAME)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        batches = [torch.randn(4, 32).pin_memory()] * watch.needed
        monitor = LoopMonitor(scratch)
        gc.collect()
        if contender.is_ours:
            monitor.watch(layer, optimizer)
            for step, batch in enumerate(monitor.batches(batches)):
                watch.at(step)
                with monitor.phase("h2d"):
                    rows = batch.to(NAME, non_blocking=True)
                with monitor.phase("forward"):
                    work(WORK_MS)
                    loss = layer(rows).pow(2).mean()
                with monitor.phase("backward"):
                    loss.backward()
                with monitor.phase("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss)
            monitor.close()
            check(contender, scratch, watch.needed)
            return
        for step, batch in enumerate(batches):
            watch.at(step)
            work(WORK_MS)
            loss = layer(batch.to(NAME, non_blocking=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="2 fits of 4 blocks: that it works")
    given = parser.parse_args()
    attach()
    torch.set_num_threads(1)
    effort = Effort(fits=2, blocks=4 if given.quick else 16, steps=50)
    with tempfile.TemporaryDirectory() as scratch, counted_synchronisations() as counts:
        rows = run_setting(DeviceLoop(), (), effort, Path(scratch))
    print(f"\nsynchronisations in all of it: {sum(counts.values())}")
    write_json(given.json, {"rows": [asdict(row) for row in rows], "synchronisations": counts})


if __name__ == "__main__":
    main()

"""Bench of the upload's effect on the loop: two monitors of one process in turns, one with a URL.

    python -m scripts.bench.upload [--blocks N] [--every-s 1] [--json FILE]

Both write the same records: one into a directory, the other into a spool that a child process
uploads to a real S3 protocol server, in a third process, thirty times as often as by default.  A
row is the median difference of neighbouring blocks per step, in CPU time of the training thread and
in wall time; the first pair of contenders are two local directories.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path

import torch

from scripts.bench.harness import PairedEstimate, estimate, machine_line, table, write_json
from trainperf.loop import LoopMonitor
from trainperf.recording import upload


STEPS = 200
"""Of a block."""
BUCKET = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRow:
    """What a contender costs more than a local directory."""

    contender: str
    cpu_us: PairedEstimate
    wall_us: PairedEstimate


class Trained:
    """A loop whose records go to *base*."""

    def __init__(self, base: str) -> None:
        self.model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.monitor = LoopMonitor(base, report=False)
        self.monitor.watch(self.model, self.optimizer)
        self.batches = iter(self.monitor.batches(repeat(torch.ones(16, 32))))

    def block(self) -> tuple[float, float]:
        """CPU time of this thread, and wall time, per step in µs."""
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        for _ in range(STEPS):
            batch = next(self.batches)
            with self.monitor.phase("forward"):
                loss = self.model(batch).sum()
            with self.monitor.phase("backward"):
                loss.backward()
            with self.monitor.phase("optimizer"):
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.monitor.end_step(loss)
        spent = (time.thread_time_ns() - cpu, time.perf_counter_ns() - wall)
        return spent[0] / STEPS / 1e3, spent[1] / STEPS / 1e3


@contextmanager
def object_store() -> Iterator[str]:
    """A server in a process of its own, with a bucket; where the environment says it is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-p", str(port), "-H", "127.0.0.1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "dummy",
        "AWS_SECRET_ACCESS_KEY": "dummy",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        _make_bucket()
        yield f"s3://{BUCKET}"
    finally:
        server.kill()
        server.wait()


def _make_bucket() -> None:
    import fsspec

    for _ in range(100):
        with suppress(OSError):
            fsspec.filesystem("s3").mkdir(BUCKET)
            return
        time.sleep(0.1)
    raise RuntimeError("the object store does not answer")


def measure(blocks: int, scratch: Path, url: str) -> list[UploadRow]:
    """Blocks in turns; who goes first changes from turn to turn."""
    contenders = [
        Trained(base) for base in (str(scratch / "local"), str(scratch / "other"), f"{url}/run")
    ]
    for each in contenders:
        each.block()
    rows: list[list[tuple[float, float]]] = []
    for number in range(blocks):
        order = contenders if number % 2 else contenders[::-1]
        spent = {id(each): each.block() for each in order}
        rows.append([spent[id(each)] for each in contenders])
    for each in contenders:
        each.monitor.close()
        if each.monitor.monitor.guard.faults:
            raise RuntimeError(f"a fault: {each.monitor.monitor.guard.faults}")
    return [
        UploadRow(
            contender=name,
            cpu_us=estimate([row[place][0] - row[0][0] for row in rows]),
            wall_us=estimate([row[place][1] - row[0][1] for row in rows]),
        )
        for place, name in ((1, "another directory"), (2, "a URL"))
    ]


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--every-s", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    upload.Upload.__init__.__defaults__ = (given.every_s,)
    with tempfile.TemporaryDirectory() as scratch, object_store() as url:
        rows = measure(given.blocks, Path(scratch), url)
    print(machine_line())
    print(
        table(["records go to", "CPU µs", "95 % CI", "wall µs", "95 % CI"], list(map(_cells, rows)))
    )
    write_json(given.json, {"every_s": given.every_s, "rows": [asdict(row) for row in rows]})


def _cells(row: UploadRow) -> list[str]:
    return [
        row.contender,
        *(
            text
            for each in (row.cpu_us, row.wall_us)
            for text in (f"{each.median:+.2f}", f"{each.low:+.2f} to {each.high:+.2f}")
        ),
    ]


if __name__ == "__main__":
    main()

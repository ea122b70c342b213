"""Jobs of ranks that train until what is planted in each holds them up: `ROOT RANKS:PLANT …`.

Everything is imported once; each rank is a fork.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from support.hangs import LIMIT, OVER
from support.ranks import free_port, launched
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from trainperf.loop import LoopMonitor


LASTS_S = 900.0
"""Longer than any test looks."""
AT = 20
"""Steps before it."""
LIMIT_S = float(os.environ.get(LIMIT, "4"))
"""Without the end of a step, after which a rank may stand still."""
LONG_S = 5 * LIMIT_S
"""A healthy job waits for, once."""
COMPILES = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
"""In a process of its own, as Inductor's compiler."""
SLOW = ("slow first batch", "slow worker")
"""On all ranks."""
WITH_WORKER = ("worker", "slow worker")
MEMORY = Path("/sys/fs/cgroup/memory")
"""Where a group of processes may be given little memory."""


class Rows(Dataset[torch.Tensor]):
    """Rows of noise, of which one may never come."""

    def __init__(self, plant: str, root: Path) -> None:
        self.plant, self.root = plant, root

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 4 * AT and self.plant in ROWS:
            ROWS[self.plant](self)
        if index < 4 and self.plant in SLOW:
            self.read()
        return torch.randn(8)

    def wait(self) -> None:
        """For a lock that nobody gives back: nobody ends a worker whose rank was killed."""
        lock = threading.Lock()
        lock.acquire()
        lock.acquire(timeout=LASTS_S)

    def fail(self) -> None:
        """As a file that is damaged does; another thread does not let the process end."""
        threading.Thread(target=time.sleep, args=(LASTS_S,)).start()
        raise ValueError("no row")

    def fill(self) -> None:
        """All memory that the process may have."""
        resource.setrlimit(resource.RLIMIT_AS, (0, resource.RLIM_INFINITY))
        bytearray(2**28)

    def thrash(self) -> None:
        """Memory that has to come from a disk again and again, in one call."""
        file, size = self.root / "pages", 2**28
        with file.open("wb") as written:
            written.write(bytes(size))
            os.fsync(written.fileno())
            os.posix_fadvise(written.fileno(), 0, size, os.POSIX_FADV_DONTNEED)
        mapped = torch.from_file(str(file), size=size, dtype=torch.uint8)
        limit_memory()
        end = time.monotonic() + LASTS_S
        while time.monotonic() < end:
            mapped[torch.randint(size, (100_000,))].sum()

    def read(self) -> None:
        """Files of a slow disk, one after the other."""
        end = time.monotonic() + LONG_S / 4
        while time.monotonic() < end:
            time.sleep(0.02)
            torch.randn(20_000).sort()


ROWS: dict[str, Callable[[Rows], None]] = {
    "worker": Rows.wait,
    "raises": Rows.fail,
    "memory": Rows.fill,
    "swaps": Rows.thrash,
}
"""What happens to the rows of rank 1."""


def limit_memory() -> None:
    """This process may have 64 MiB more."""
    group = MEMORY / f"trainperf-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(2**26))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def evaluate(model: torch.nn.Module, lasts_s: float = LASTS_S) -> None:
    """Batch after batch."""
    end = time.monotonic() + lasts_s
    while time.monotonic() < end:
        model(torch.randn(256, 8))
        time.sleep(0.001)


class SlowFile:
    """A disk that takes its time."""

    def write(self, data: bytes) -> int:
        """As a network file system may."""
        time.sleep(LONG_S / 4)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept."""


def validate(model: torch.nn.Module) -> None:
    """On all ranks, and it ends."""
    evaluate(model, LONG_S)
    dist.barrier()


def compile_it(_: object) -> None:
    """In a child that computes."""
    subprocess.run([sys.executable, "-c", COMPILES.format(LONG_S)], check=True)


def save(_: object) -> None:
    """To a slow disk."""
    torch.save(torch.zeros(2**20), SlowFile())


def be_stopped(_: object) -> None:
    """By a signal."""
    os.kill(os.getpid(), signal.SIGSTOP)


def be_killed(_: object) -> None:
    """As others begin a group of processes."""
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.new_group()


def be_starved(_: object) -> None:
    """The same, by the system."""
    if dist.get_rank() == 1:
        limit_memory()
        torch.ones(2**28)
    dist.new_group()


ALL = 4
AFTER: dict[str, tuple[range, Callable[[torch.nn.Module], None]]] = {
    "evaluation": (range(1), evaluate),
    "both evaluate": (range(ALL), evaluate),
    "long validation": (range(ALL), validate),
    "long compile": (range(ALL), compile_it),
    "long save": (range(1), save),
    "stopped": (range(1, 2), be_stopped),
    "killed": (range(ALL), be_killed),
    "starved": (range(ALL), be_starved),
}
"""Ranks on which something happens after a step, and what."""
CHECKPOINTS = {"checkpoint": LASTS_S, "long checkpoint": LONG_S}


def train(root: Path, plant: str) -> None:
    """Train, and come to it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Linear(8, 8)
    ranks = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    planted = rank == 1 or plant in SLOW
    rows = Rows(plant if planted else "", root)
    loader = DataLoader(rows, batch_size=4, num_workers=int(plant in WITH_WORKER and planted))
    monitor = LoopMonitor(root, hang_after_s=LIMIT_S, report=False, machine=False)
    monitor.watch(ranks, optimizer)
    for number, batch in enumerate(monitor.batches(loader)):
        if plant == "unequal" and rank == 0 and number == AT:
            break
        loss = ranks(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        monitor.end_step(loss)
        on, happens = AFTER.get(plant, (range(0), evaluate))
        if number == AT and rank in on:
            happens(model)
        elif number == AT and rank == 0 and plant in CHECKPOINTS:
            with monitor.phase("checkpoint"):
                time.sleep(CHECKPOINTS[plant])
    monitor.close()
    dist.barrier()


def main(root: Path, *jobs: str) -> None:
    """Each in a folder of its name, all at once; none outlives whoever has started them."""
    parent = os.getppid()
    for job in jobs:
        world, _, plant = job.partition(":")
        port = free_port()
        for rank in range(int(world)):
            if os.fork() == 0:
                os.environ.update(launched(rank, port, int(world)))
                try:
                    train(root / job, plant)
                except MemoryError:
                    time.sleep(LASTS_S)  # as what tells a server may
                return
    with suppress(ChildProcessError):
        while os.getppid() == parent:
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.2)
        os.killpg(0, signal.SIGKILL)  # it was killed, and could end nobody
    (root / OVER).touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

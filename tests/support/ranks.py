"""Two ranks over gloo, started as an elastic launcher would, and what they left behind."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.fits import Ran, read


PATIENCE_S = 300
"""Longest time for all fits of both ranks on a busy machine."""


def start_two(script: Path, root: Path) -> None:
    """Run *script ROOT* as two ranks until both have ended; neither outlives the call."""
    with two_ranks(script, root) as started:
        codes = [process.wait(PATIENCE_S) for process in started]
    logs = "\n".join((root / f"rank-{rank}.log").read_text()[-3000:] for rank in (0, 1))
    assert codes == [0, 0], logs


@contextmanager
def two_ranks(script: Path, root: Path, *more: str) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Two ranks that run *script ROOT* and *more*; neither outlives the block."""
    paths = [str(script.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "test",
    }
    started = []
    for rank in ("0", "1"):
        with (root / f"rank-{rank}.log").open("wb") as log:
            own = {**environment, "RANK": rank, "LOCAL_RANK": rank}
            command = [sys.executable, str(script), str(root), *more]
            started.append(subprocess.Popen(command, env=own, stdout=log, stderr=log))
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass
class Ranks:
    """The fits of `ranks.py`, by name."""

    root: Path

    def run(self, fit: str, rank: int) -> Ran:
        """What a rank recorded."""
        return read(self.directory(fit, rank), rank)

    def directory(self, fit: str, rank: int) -> Path:
        """Where a rank was told to record."""
        return Path(str(self.planted(fit, rank)["run"]))

    def planted(self, fit: str, rank: int) -> dict[str, object]:
        """What a rank says of itself: its sleeps, its run directory, hooks left on parameters."""
        told: dict[str, object] = json.loads((self.root / fit / f"planted-{rank}.json").read_text())
        return told

"""Two ranks over gloo, started as an elastic launcher would, and what they left behind."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.fits import Ran, read


PATIENCE_S = 300
"""Longest time for all fits of both ranks on a busy machine."""


def start_two(script: Path, root: Path) -> None:
    """Run *script ROOT* as two ranks until both have ended; neither outlives the call."""
    paths = [str(script.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    started, port = [], free_port()
    for rank in range(2):
        with (root / f"rank-{rank}.log").open("wb") as log:
            own = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **launched(rank, port)}
            command = [sys.executable, str(script), str(root)]
            started.append(subprocess.Popen(command, env=own, stdout=log, stderr=log))
    try:
        codes = [process.wait(PATIENCE_S) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    logs = "\n".join((root / f"rank-{rank}.log").read_text()[-3000:] for rank in (0, 1))
    assert codes == [0, 0], logs


def launched(rank: int, port: int, world: int = 2) -> dict[str, str]:
    """What an elastic launcher tells one of the ranks of a host."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "test",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
    }


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
        return json.loads((self.root / fit / f"planted-{rank}.json").read_text())

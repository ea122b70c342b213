"""Two real ranks over gloo, started once; the tests read what they left."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.ranks import Ranks


PATIENCE_S = 300
"""Longest time for all fits of both ranks on a busy machine."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """All fits of two ranks, started as an elastic launcher would."""
    root = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).parent / "ranks.py"
    environment = {
        **os.environ,
        "PYTHONPATH": str(script.parent.parent),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "test",
    }
    started = []
    for rank in ("0", "1"):
        with (root / f"rank-{rank}.log").open("wb") as log:
            own = {**environment, "RANK": rank, "LOCAL_RANK": rank}
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
    return Ranks(root)

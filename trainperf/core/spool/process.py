"""The low-priority process of a fit that uploads one rank's files, `python -m …`.

It ends some time after the fit: told so by a line on its standard input, or because the training
process is gone, however that ended.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainperf.core.errors import ConfigError
from trainperf.core.machine.processes import this_process
from trainperf.core.places import RemotePath
from trainperf.core.spool import Progress, UploadState, remove, states, write_state
from trainperf.core.spool.mirror import Mirror


EVERY_S = 30.0
"""Between two uploads."""

LAST_S = 60.0
"""The most that the last one may take, repetitions included."""

PATIENCE_S = 10.0
"""How long the last one is repeated while it fails."""

_LOOK_S = 0.5
LOWEST_PRIORITY = 19


class Uploading:
    """The upload of one rank's files, again and again."""

    def __init__(self, spool: Path, url: RemotePath, rank: int) -> None:
        self._spool, self._rank = spool, rank
        self._mirror = Mirror(spool, url, rank)
        self._process = this_process()

    def once(self) -> bool:
        """Upload what is new, and note whether that worked."""
        problem = ""
        try:
            self._mirror.upload()
        except (OSError, ConfigError) as error:
            problem = _why(error)
        self._note("kept" if problem else "running", problem)
        return not problem

    def last(self) -> bool:
        """The fit is over: upload the rest, and remove a spool that nobody needs any more."""
        began = time.monotonic()
        self._note("running")
        while not (uploaded := self.once()):
            if time.monotonic() - began > PATIENCE_S:
                break
            time.sleep(1)
        if not uploaded:
            return False
        self._note("uploaded")
        if all(state.state == "uploaded" for state in states(self._spool)):
            remove(self._spool)
        return True

    def _note(self, state: Progress, problem: str = "") -> None:
        with suppress(OSError):  # the disk is full: nothing is uploaded less for that
            pending = self._mirror.pending_bytes()
            upload = UploadState(
                state=state, problem=problem, pending_bytes=pending, process=self._process
            )
            write_state(self._spool, self._rank, upload)


def main(arguments: Sequence[str]) -> int:
    """Upload until the fit is over; 0 if everything was uploaded."""
    parser = argparse.ArgumentParser(prog="trainperf.core.spool.process")
    parser.add_argument("spool", type=Path)
    parser.add_argument("url", type=RemotePath)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--every-s", type=float, default=EVERY_S)
    given = parser.parse_args(arguments)
    over = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the fit
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with suppress(OSError, AttributeError):
        os.nice(LOWEST_PRIORITY)
    threading.Thread(target=_listen, args=(over,), daemon=True).start()
    uploading = Uploading(given.spool, given.url, given.rank)
    due = time.monotonic() + min(given.every_s, 5.0)
    while not over.wait(_LOOK_S) and os.getppid() == given.parent:
        if time.monotonic() >= due:
            uploading.once()
            due = time.monotonic() + given.every_s
    # A request that hangs is none that this process waits for.
    threading.Timer(LAST_S, os._exit, (1,)).start()
    code = 0 if uploading.last() else 1
    sys.stdout.flush()
    os._exit(code)


def _listen(over: threading.Event) -> None:
    """Wait for the line that says that the fit is over; its end says so too."""
    sys.stdin.readline()
    over.set()


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

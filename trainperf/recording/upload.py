"""Upload of a run directory behind a URL, while a fit goes on, by one child process per rank.

The child is a fresh interpreter without torch.  The loop only starts it, and at its end waits a
bounded time; nothing in a step waits for it, and whatever becomes of it costs only the upload.
"""

import logging
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from trainperf.core import spool
from trainperf.core.places import RemotePath
from trainperf.core.spool import UploadState
from trainperf.core.spool.process import EVERY_S, LAST_S
from trainperf.recording.child_process import start_child


log = logging.getLogger("trainperf")

UPLOADER = "trainperf.core.spool.process"
"""The module that the child runs."""


class Upload:
    """The upload of what one rank writes into its spool.

    Args:
        run: The spool.
        rank: Whose files are uploaded.
        every_s: Seconds between two uploads.
    """

    part = "upload"

    def __init__(self, run: Path, url: RemotePath, rank: int, every_s: float = EVERY_S) -> None:
        self.url = url
        self._run, self._rank, self._every_s = run, rank, every_s
        self._child: subprocess.Popen[bytes] | None = None
        self._begun = False

    def start(self) -> None:
        """Start the child.

        Raises:
            OSError: There is no process or no space left.
        """
        self._begun = True
        spool.write_state(self._run, self._rank, UploadState(state="running"))
        self._child = start_child(
            UPLOADER,
            *(str(self._run.resolve()), self.url.url, "--rank", str(self._rank)),
            *("--parent", str(os.getpid()), "--every-s", str(self._every_s)),
            stdin=subprocess.PIPE,
        )

    def end(self) -> None:
        """Have the rest uploaded, and wait for that, but not for ever; say what is left."""
        child, self._child = self._child, None
        begun, self._begun = self._begun, False
        if not begun or (child is not None and self._uploaded(child)):
            return
        if spool.not_uploaded(self._run) is None:
            problem = "the process that uploads did not do it"
            spool.write_state(self._run, self._rank, UploadState(state="kept", problem=problem))
        log.warning("trainperf: %s", spool.not_uploaded(self._run))

    @staticmethod
    def _uploaded(child: "subprocess.Popen[bytes]") -> bool:
        with suppress(OSError, subprocess.TimeoutExpired):
            child.communicate(b"end\n", timeout=LAST_S + 5)
        if child.poll() is None:
            child.kill()
            child.wait()
        return child.returncode == 0

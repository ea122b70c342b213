"""Upload of a run directory behind a URL, while a fit goes on, by one child process per rank.

The child is a fresh interpreter without torch.  The loop only starts it, and at its end waits a
bounded time; nothing in a step waits for it, and whatever becomes of it costs only the upload.
"""

import subprocess
from contextlib import suppress
from pathlib import Path

from trainperf.core import spool
from trainperf.core.machine.processes import this_process
from trainperf.core.paths import AnyPath
from trainperf.core.spool import EVERY_S, LAST_S, UploadState
from trainperf.recording.child_process import start_child
from trainperf.recording.guard import log


class Upload:
    """The upload of what one rank writes into its spool.

    Args:
        run: The spool.
        rank: Whose files are uploaded.
        every_s: Seconds between two uploads.
    """

    part = "upload"

    def __init__(self, run: Path, url: AnyPath, rank: int, every_s: float = EVERY_S) -> None:
        self.url = url
        self._run, self._rank, self._every_s = run, rank, every_s
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the child.

        Raises:
            OSError: There is no process or no space left.
        """
        spool.write_state(self._run, self._rank, UploadState(process=this_process()))
        self._child = start_child(
            "trainperf.core.spool",
            *(str(self._run.resolve()), str(self.url), str(self._rank), str(self._every_s)),
            stdin=subprocess.PIPE,
        )

    def end(self) -> None:
        """Have the rest uploaded, and wait for that, but not for ever; say what is left."""
        if self._child is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._child.communicate(b"end\n", timeout=LAST_S + 5)
            self._child.kill()  # unless it has ended
            if self._child.wait() == 0:
                return
        if spool.not_uploaded(self._run) is None:
            problem = "the process that uploads did not do it"
            spool.write_state(self._run, self._rank, UploadState(problem=problem))
        log.warning("trainperf: %s", spool.not_uploaded(self._run))

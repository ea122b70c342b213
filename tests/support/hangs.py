"""Jobs in which something hangs, what is told of each while it does, and what should be."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.errors import RunError
from trainperf.reports.run.headline import headline


SCRIPT = Path(__file__).parents[1] / "ddp/hanging_ranks.py"
HANGING = r"Hanging for [\d.]+ \w+ in step 2\d: "
REST = r"(rank \d waits|ranks [\d–, and]+ wait) in "

NAMED = {
    "evaluation": (
        r"No step has ended for .*, since step 2\d began: rank 0 is in evaluate \(.*\); " + REST
    ),
    "stopped": HANGING + "rank 1 is stopped by a signal; " + REST + "backward",
    "unequal": HANGING + "rank 0 has left the training; " + REST + "backward",
    "worker": HANGING + r"rank 1 waits for a batch of the loader \(.*\); " + REST,
    "checkpoint": "A checkpoint has lasted for .*: rank 0 is saving a checkpoint",
    "raises": HANGING + "rank 1 has left the training with ValueError; " + REST + "backward",
    "memory": (
        r"No step has ended for .*: rank 1 is in main \(.*\) while it handles MemoryError; "
        + REST
        + "backward"
    ),
    "killed": HANGING + "rank 1 is gone: no such process; " + REST + "new_group(?!.*memory)",
    "starved": HANGING + r"rank 1 is gone: .* The system ended \d process(es)? for lack of memory",
    "swaps": r"No step has ended for .*: rank 1 is in .*Rank 1 reads [\d.]+ \wB/s of its memory",
}
"""What is planted, and what is told of it."""
IN_A_GROUP = ("starved", "swaps")
"""Those that need a group of processes with little memory, which root alone can make."""
LIMIT = "HANGING_RANKS_LIMIT_S"
"""Variable with the seconds without the end of a step after which a rank may stand still."""
OVER = "over"
"""File that says that all jobs have ended."""
HEALTHY = (
    "long validation",
    "long compile",
    "long checkpoint",
    "long save",
    "slow first batch",
    "slow worker",
)
"""What lasts and hangs nothing."""


@contextmanager
def started(root: Path, jobs: Sequence[str]) -> Iterator[Path]:
    """Jobs, as `2:evaluation`, each in a folder of its name; none outlives this.

    Args:
        root: Where they are.
        jobs: Ranks and plant of each.
    """
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, SCRIPT, root, *jobs],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield root
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def now_said(root: Path) -> str:
    """The first line of a report that is asked for now; empty before there is a run."""
    try:
        run = Run.open(root)
    except RunError:
        return ""
    return headline(summarize(run, now_s=datetime.now(tz=timezone.utc).timestamp()))

"""Two real ranks that hang: the report says which is where, while they do."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from support.ranks import PATIENCE_S

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.errors import RunError
from trainperf.core.run_directory import STANDSTILL
from trainperf.reports.run.headline import headline


pytestmark = [pytest.mark.ddp, pytest.mark.slow]

SCRIPT = Path(__file__).parent / "hanging_ranks.py"
HANGING = r"Hanging for [\d.]+ \w+ in step 2\d: "


def now_said(root: Path) -> str:
    """The first line of a report that is asked for now; empty before there is a run."""
    try:
        run = Run.open(root)
    except RunError:
        return ""
    return headline(summarize(run, now_s=datetime.now(tz=timezone.utc).timestamp()))


NAMED = {
    "evaluation": (
        r"No step has ended for .*, since step 2\d began: rank 0 is in evaluate \(.*\); rank"
    ),
    "stopped": HANGING + r"rank 1 is stopped by a signal; rank 0 waits in backward",
    "unequal": HANGING + r"rank 0 has ended the training; rank 1 waits in backward",
    "worker": HANGING + r"rank 1 waits for a batch of the loader \(.*\); rank 0 waits in",
    "checkpoint": r"A checkpoint has lasted for .*: rank 0 is saving a checkpoint",
}
"""What is planted, and what is told of it."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Jobs of two ranks, each in a folder of its name, in all of which something hangs."""
    root = tmp_path_factory.mktemp("jobs")
    with (root / "log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, SCRIPT, root, *NAMED, "both evaluate"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    yield root
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()


@pytest.mark.parametrize("plant", NAMED)
def test_a_planted_hang_is_named_while_it_lasts(plant: str, jobs: Path) -> None:
    """Which rank holds the others up comes first."""
    told, end = "", time.monotonic() + PATIENCE_S
    while not re.match(NAMED[plant], told) and time.monotonic() < end:
        time.sleep(1.0)
        told = now_said(jobs / plant)
    assert re.match(NAMED[plant], told), told


def test_ranks_that_evaluate_for_long_hang_nothing(jobs: Path) -> None:
    """Both have written that no step ends, and both go from line to line."""
    job, written = jobs / "both evaluate", [STANDSTILL.format(rank) for rank in (0, 1)]
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if all(list(job.rglob(name)) for name in written):
            break
        time.sleep(0.5)
    time.sleep(3.0)
    told = now_said(job)
    assert told
    assert not re.match("Hanging|No step has ended", told)

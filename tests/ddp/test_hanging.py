"""Real ranks that hang: the report says which is where, while they do."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hangs import IN_A_GROUP, NAMED, now_said, started
from support.ranks import PATIENCE_S

from trainperf.core.run_directory import STANDSTILL


pytestmark = [pytest.mark.ddp, pytest.mark.slow]

JOBS = [f"{ranks}:{plant}" for plant in NAMED if plant not in IN_A_GROUP for ranks in (2, 4)]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Jobs, each in a folder of its name, in all of which something hangs."""
    with started(tmp_path_factory.mktemp("jobs"), [*JOBS, "2:both evaluate"]) as root:
        yield root


@pytest.mark.parametrize("job", JOBS)
def test_a_planted_hang_is_named_while_it_lasts(job: str, jobs: Path) -> None:
    """Which rank holds the others up comes first."""
    pattern, told = NAMED[job.partition(":")[2]], ""
    end = time.monotonic() + PATIENCE_S
    while not re.match(pattern, told) and time.monotonic() < end:
        time.sleep(1.0)
        told = now_said(jobs / job)
    assert re.match(pattern, told), told


def test_ranks_that_evaluate_for_long_hang_nothing(jobs: Path) -> None:
    """Both have written that no step ends, and both go from line to line."""
    job, written = jobs / "2:both evaluate", [STANDSTILL.format(rank) for rank in (0, 1)]
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if all(list(job.rglob(name)) for name in written):
            break
        time.sleep(0.5)
    time.sleep(3.0)
    told = now_said(job)
    assert told
    assert not re.match("Hanging|No step has ended", told)

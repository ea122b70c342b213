"""Ranks that ended otherwise than the run: killed, stopped, early, or on a host out of sight."""

import os
import sys
from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.machine.processes import this_process


RANKS = 4
NOW_S = 10_000.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are seen in /proc")


ALIVE = this_process()
"""A process that is seen to run."""
_process, _, _started = ALIVE.rpartition("/")
GONE = f"{_process}/{int(_started or 1) - 1}"
"""One that is seen to be gone: its number belongs to another."""


def rank(number: int, *, steps: int = 60, end: str | None = None, process: str = "") -> RankSpec:
    """One of four, on host `b` from the third on."""
    info = make_info(rank=number, world_size=RANKS, hardware={"host": "a" if number < 2 else "b"})
    info = msgspec.structs.replace(info, process=process)
    return RankSpec(steps=make_steps(steps, forward=1), info=info, end=end)


def summary(path: Path, ranks: list[RankSpec], silent_s: dict[int, float] | None = None) -> Summary:
    """Of files that were written just now, or so long ago."""
    run = make_run_dir(path / "run", ranks)
    for spec in ranks:
        written_s = NOW_S - (silent_s or {}).get(spec.info.rank, 1.0)
        os.utime(run / f"steps-rank{spec.info.rank}.jsonl", (written_s, written_s))
    return summarize(Run.open(run), now_s=NOW_S)


SILENT = dict.fromkeys(range(RANKS), 600.0)

ENDS: dict[str, tuple[list[RankSpec], dict[int, float], str, list[tuple[int, str]], list[str]]] = {
    "alike, with as many steps each": (
        [rank(r, end="finished") for r in range(RANKS)],
        {},
        "finished",
        [],
        [],
    ),
    "killed, by an error, or early in a run that finished": (
        [
            rank(0, end="finished"),
            rank(1, steps=20, process=GONE),
            rank(2, steps=30, end="ValueError"),
            rank(3, steps=40, end="finished"),
        ],
        {},
        "finished",
        [(1, "killed"), (2, "failed"), (3, "finished")],
        [
            "rank 1 (on a): gone without an end (killed?), after 20 of 60 steps",
            "rank 2 (on b): ended by ValueError, after 30 of 60 steps",
            "rank 3 (on b): ended, after 40 of 60 steps",
        ],
    ),
    # The run goes on as long as one rank does.
    "a process that is gone though the others run": (
        [rank(0, steps=20, process=GONE), *(rank(r, process=ALIVE) for r in (1, 2, 3))],
        {},
        "running",
        [(0, "killed")],
        ["rank 0 (on a): gone without an end (killed?), after 20 of 60 steps"],
    ),
    # It is not killed, however long ago it wrote.
    "a process that lives and writes nothing": (
        [rank(r, process=ALIVE) for r in range(RANKS)],
        {2: 600.0},
        "running",
        [(2, "silent")],
        ["rank 2 (on b): silent for 10.0 min, waiting or stopped, after 60 of 60 steps"],
    ),
    # How far each had flushed is chance.
    "all gone": (
        [rank(r, steps=60 + r, process=GONE) for r in range(RANKS)],
        {},
        "killed",
        [],
        ["3 steps excluded: not every rank recorded them"],
    ),
    # On another host a rank may wait for a file system.
    "silent out of sight": (
        [rank(r) for r in range(RANKS)],
        {3: 600.0},
        "running",
        [(3, "silent")],
        ["rank 3 (on b): silent for 10.0 min, waiting or stopped, after 60 of 60 steps"],
    ),
    "all silent out of sight": ([rank(r) for r in range(RANKS)], SILENT, "killed", [], []),
    # The first of them, and how many there are.
    "many that ended alike": (
        [
            rank(0, end="finished"),
            *(
                RankSpec(
                    steps=make_steps(10 + number, forward=1),
                    info=make_info(rank=number, world_size=13),
                    end="OSError",
                )
                for number in range(1, 13)
            ),
        ],
        {},
        "finished",
        [(number, "failed") for number in range(1, 13)],
        ["12 ranks, 1, 2, 3, 4, 5, 6, 7, 8, …: ended by OSError, the first after 11 of 60 steps"],
    ),
}
"""What ranks wrote, how long ago, how the run ended, and which ranks did otherwise."""


@linux
@pytest.mark.parametrize(("ranks", "silent_s", "state", "ends", "says"), ENDS.values(), ids=ENDS)
def test_ranks_that_ended_otherwise_than_the_run_are_told(
    ranks: list[RankSpec],
    silent_s: dict[int, float],
    state: str,
    ends: list[tuple[int, str]],
    says: list[str],
    tmp_path: Path,
) -> None:
    """With their hosts and their steps."""
    of = summary(tmp_path, ranks, silent_s)

    assert of.run.state == state
    assert [(end.rank, end.state) for end in of.run.ended_otherwise] == ends
    assert list(of.warnings[: len(says) or 9]) == says

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


def alive() -> str:
    """A process that is seen to run."""
    return this_process()


def gone() -> str:
    """One that is seen to be gone: its number belongs to another."""
    space, pid, started = this_process().rsplit("/", 2)
    return f"{space}/{pid}/{int(started) - 1}"


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


def test_ranks_that_ended_alike_are_not_told(tmp_path: Path) -> None:
    """With as many steps each."""
    of = summary(tmp_path, [rank(r, end="finished") for r in range(RANKS)])

    assert of.run.ended_otherwise == ()
    assert of.warnings == ()


@linux
def test_a_killed_rank_of_a_finished_run_is_named_with_its_steps(tmp_path: Path) -> None:
    """Also a rank that ended early, by an error of its own or not."""
    ranks = [
        rank(0, end="finished"),
        rank(1, steps=20, process=gone()),
        rank(2, steps=30, end="ValueError"),
        rank(3, steps=40, end="finished"),
    ]
    of = summary(tmp_path, ranks)

    assert of.run.state == "finished"
    assert [(end.rank, end.state, end.steps) for end in of.run.ended_otherwise] == [
        (1, "killed", 20),
        (2, "failed", 30),
        (3, "finished", 40),
    ]
    assert of.warnings[:3] == (
        "rank 1 (on a): gone without an end (killed?), after 20 of 60 steps",
        "rank 2 (on b): ended by ValueError, after 30 of 60 steps",
        "rank 3 (on b): ended, after 40 of 60 steps",
    )


@linux
def test_a_rank_whose_process_is_gone_is_not_running_though_the_others_are(tmp_path: Path) -> None:
    """Rank 0 too: the run goes on as long as one rank does."""
    ranks = [rank(0, steps=20, process=gone()), *(rank(r, process=alive()) for r in (1, 2, 3))]
    of = summary(tmp_path, ranks)

    assert of.run.state == "running"
    assert [(end.rank, end.state) for end in of.run.ended_otherwise] == [(0, "killed")]


@linux
def test_a_process_that_lives_and_writes_nothing_is_stopped_or_waits(tmp_path: Path) -> None:
    """It is not killed, however long ago it wrote."""
    ranks = [rank(r, process=alive()) for r in range(RANKS)]
    of = summary(tmp_path, ranks, silent_s={2: 600.0})

    assert of.run.state == "running"
    assert of.warnings[0] == (
        "rank 2 (on b): silent for 10.0 min, waiting or stopped, after 60 of 60 steps"
    )


@linux
def test_a_run_whose_ranks_are_all_gone_was_killed(tmp_path: Path) -> None:
    """No rank ended otherwise than it, and how far each had flushed is chance."""
    of = summary(tmp_path, [rank(r, steps=60 + r, process=gone()) for r in range(RANKS)])

    assert (of.run.state, of.run.ended_otherwise) == ("killed", ())


def test_out_of_sight_a_silent_rank_was_killed_only_if_nobody_writes(tmp_path: Path) -> None:
    """On another host a rank may wait for a file system."""
    ranks = [rank(r) for r in range(RANKS)]
    some = summary(tmp_path / "some", ranks, silent_s={3: 600.0})
    all_silent = summary(tmp_path / "all", ranks, silent_s=dict.fromkeys(range(RANKS), 600.0))

    assert some.run.state == "running"
    assert [(end.rank, end.state) for end in some.run.ended_otherwise] == [(3, "silent")]
    assert (all_silent.run.state, all_silent.run.ended_otherwise) == ("killed", ())


def test_many_ranks_that_ended_alike_are_one_sentence(tmp_path: Path) -> None:
    """The first of them, and how many there are."""
    ranks = [rank(0, end="finished")]
    for number in range(1, 13):
        info = make_info(rank=number, world_size=13)
        steps = make_steps(10 + number, forward=1)
        ranks.append(RankSpec(steps=steps, info=info, end="OSError"))
    of = summary(tmp_path, ranks)

    assert of.warnings[0] == (
        "12 ranks, 1, 2, 3, 4, 5, 6, 7, 8, …: ended by OSError, the first after 11 of 60 steps"
    )

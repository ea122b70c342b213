"""A run that is looked at while it is written: the report of its end, look after look."""

import os
from functools import partial
from pathlib import Path

import msgspec
import pytest
from support.growing import GrowingRun, even_ranks
from support.late import named
from support.machines import plant_machine
from support.runs import MS, RankSpec, make_gap, make_info, make_run_dir, make_steps, rounded
from upath import UPath

from trainperf.analysis.live import look_at
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.phases import Gap
from trainperf.core.readings import STEP_S
from trainperf.core.run_directory import record_file, record_part
from trainperf.core.steps.packing import pack_parts
from trainperf.core.steps.records import Totals
from trainperf.core.window import RunWindow


NOW_S = 1.0e9


def reported(path: Path) -> Summary:
    """What the report of the directory says at that moment."""
    return summarize(Run.open(path), now_s=NOW_S)


def meeting(path: Path) -> Path:
    """Two ranks that meet in forward, which only their totals tell; the loader of one is slow."""
    ranks = [
        RankSpec(
            steps=make_steps(
                120, data_wait=load, forward=30 - load, backward=9, facts={"tail_ns": MS}
            ),
            info=make_info(rank=rank, world_size=2),
            totals=Totals(at_step=20, config={"collectives": "forward 1, backward 1"}),
        )
        for rank, load in enumerate((1.0, 21.0))
    ]
    return make_run_dir(path, ranks)


def test_every_way_to_look_at_a_run_knows_where_its_ranks_meet(tmp_path: Path) -> None:
    """All of it, a window of it, the latest minute of it: one slow loader, by the same name."""
    path = meeting(tmp_path / "run")
    look = look_at(path, NOW_S)
    windows = [
        summarize(Run.open(path, RunWindow(first=first, last=119)), now_s=NOW_S)
        for first in (0, 60)
    ]

    for summary in (reported(path), look.whole, look.latest, *windows):
        late = {point.point: named(point) for point in summary.synchronisation}
        assert late["forward"] == (1, "data_wait")


def test_looks_add_up_to_the_report(tmp_path: Path) -> None:
    """Lines cut in the middle, ranks that are ahead: in the end all is as if read at once."""
    run = GrowingRun(tmp_path / "run", even_ranks(3, 300))
    watched = partial(look_at, run.path)
    for lines in (20, 1, 55, 90):
        run.grow(lines, cut=7)
        run.grow(11, ranks=[1])
        watched(now_s=NOW_S)
    run.finish()

    look = watched(now_s=NOW_S)

    assert rounded(look.whole, 12) == rounded(reported(run.path), 12)
    assert look.whole.run.state == "finished"


def test_the_latest_minute_is_the_report_of_that_window(tmp_path: Path) -> None:
    """Steps of 50 ms, then of 100 ms: the last 60 s are 600 of these."""
    steps = make_steps(2_000, forward=50)
    slow = make_steps(3_000, forward=100)[2_000:]
    gaps = [
        make_gap(Gap.VALIDATION, 700, start_ns=50 * MS * at, after_step=at) for at in (5, 2_700)
    ]
    run = make_run_dir(tmp_path / "run", [RankSpec(steps=[*steps, *slow], gaps=gaps)])

    look = look_at(run, NOW_S)

    first = 3_000 - look.latest.run.steps
    assert 600 <= look.latest.run.steps <= 601
    window = summarize(Run.open(run, RunWindow(first=first)), now_s=NOW_S)
    assert look.latest.readings == window.readings
    assert look.latest.ledger_s == window.ledger_s
    assert look.latest.value(STEP_S) == pytest.approx(0.1, rel=1e-3)
    assert look.whole.value(STEP_S) == pytest.approx(0.05, rel=1e-3)


def test_what_is_read_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """Its end, whatever came before."""
    run = GrowingRun(tmp_path / "run", even_ranks(1, 30_000, end=None))
    watched = partial(look_at, run.path, most_bytes=500_000)
    read = []
    for _ in range(6):
        run.grow(5_000)
        read.append(watched(now_s=NOW_S).whole.run.steps)

    assert max(read) < 2 * 5_000 + 4_096
    assert read[-1] <= read[1]


def test_a_long_run_is_read_from_its_end(tmp_path: Path) -> None:
    """The first look does not read what is far back, and says from where it does."""
    run = make_run_dir(tmp_path / "run", even_ranks(1, 20_000))

    whole = look_at(run, NOW_S, most_bytes=1).whole

    assert whole.run.window.startswith("from step ")
    assert 200 < whole.run.steps < 2_000
    assert whole.value(STEP_S) == reported(run).value(STEP_S)


def parts_of(run: GrowingRun, lines: int) -> None:
    """What is on the disk as a part, the rest as the next one; the first is packed."""
    first = run.files[0]
    content = b"".join(run.lines[0])
    left = b"".join(run.lines[0][:lines])
    first.write_bytes(left)
    first.with_name(record_part(first.name, 1)).write_bytes(content[len(left) :])
    pack_parts(first)


@pytest.mark.parametrize("read", [0, 900, 3_001])
def test_a_part_that_is_packed_meanwhile_is_read_once(tmp_path: Path, read: int) -> None:
    """Whether none, some or all of it was read as lines; its gaps too."""
    gaps = [
        make_gap(Gap.VALIDATION, 700, start_ns=35 * MS * at, after_step=at)
        for at in range(100, 4_000, 100)
    ]
    spec = RankSpec(steps=make_steps(4_000, data_wait=5, forward=30), gaps=gaps)
    run = GrowingRun(tmp_path / "run", [spec])
    # As a fit writes them: gaps among the steps.
    header, steps, others = run.lines[0][0], run.lines[0][1:4_001], run.lines[0][4_001:]
    for place, gap in enumerate(others[:-1]):
        steps.insert(101 + place * 101, gap)
    run.lines[0] = [header, *steps, others[-1]]
    watched = partial(look_at, run.path)
    if read:
        run.grow(read - 1)
        assert watched(now_s=NOW_S).whole.run.steps > 0

    parts_of(run, 3_001)
    look = watched(now_s=NOW_S)

    assert not record_file(run.path, 0).exists()
    assert look.whole.run.steps == 4_000
    assert look.whole.gaps == {"validation": len(gaps)}
    assert look.whole.ledger_s == reported(run.path).ledger_s


def test_a_part_that_was_just_packed_is_read_from_its_end(tmp_path: Path) -> None:
    """Or a look would have the few steps of the new part alone."""
    run = GrowingRun(tmp_path / "run", even_ranks(1, 30_000, end=None))
    watched = partial(look_at, run.path, most_bytes=300_000)
    run.finish()
    before = watched(now_s=NOW_S).whole.run.steps

    parts_of(run, 29_998)
    after = watched(now_s=NOW_S).whole

    assert after.run.steps >= before / 2
    assert after.value(STEP_S) == reported(run.path).value(STEP_S)


def test_a_rank_that_stays_behind_is_not_waited_for(tmp_path: Path) -> None:
    """No step of the end is one of all ranks; who is behind, is said."""
    run = GrowingRun(tmp_path / "run", even_ranks(2, 12_000, end=None))
    watched = partial(look_at, run.path, most_bytes=200_000)
    run.grow(100)
    watched(now_s=NOW_S)
    silent = run.files[1].stat()
    for _ in range(4):
        run.grow(3_000, ranks=[0])
        look = watched(now_s=NOW_S)
    os.utime(run.files[1], (silent.st_atime, run.files[0].stat().st_mtime - 1_000))

    look = watched(now_s=run.files[0].stat().st_mtime + 1)

    assert look.whole.run.steps == 0
    assert look.latest is None
    assert look.whole.run.state == "running"
    assert any("rank 1: silent for 16" in warning for warning in look.whole.warnings), (
        look.whole.warnings
    )


def test_a_rank_whose_file_is_written_later_has_steps_with_the_others(tmp_path: Path) -> None:
    """Of each of 16 some 2,000 steps are held; all but one are 2,500 behind, as uploads are."""
    run = GrowingRun(tmp_path / "run", even_ranks(16, 12_000, end=None))
    run.grow(3_000)
    run.grow(2_500, ranks=[0])

    seen = look_at(run.path, NOW_S).whole.run

    assert seen.steps > 0
    first = seen.window.removeprefix("from step ").removesuffix(" on").replace(",", "")
    assert int(first or 0) + seen.steps == 3_000


def test_a_restart_is_followed_once_its_file_has_a_header(tmp_path: Path) -> None:
    """From there on that attempt is shown; a file is there before its first line is."""
    path = make_run_dir(tmp_path / "run", even_ranks(1, 300))
    record_file(path, 0, 1).touch()
    watched = partial(look_at, path)
    before = watched(now_s=NOW_S)

    make_run_dir(path, [RankSpec(steps=make_steps(50, forward=40), attempt=1, end=None)])
    look = watched(now_s=NOW_S)

    assert (before.whole.run.steps, before.attempts_before) == (300, 0)
    assert before.whole.run.state == "finished"
    assert (look.whole.run.steps, look.attempts_before, look.steps_before) == (50, 1, 300)
    assert look.whole.run.state != "finished"


def test_what_earlier_attempts_came_to_is_read_of_their_ends(tmp_path: Path) -> None:
    """Two of 100 and 60 steps of 10 ms: a minute without training, and 20 steps done twice.

    How many there were is shown while the run is followed; what they cost is in the report.
    """
    began = ("2026-11-01T12:00:00", "2026-11-01T12:01:01", "2026-11-01T12:02:00")
    specs = [
        RankSpec(
            steps=make_steps(steps, forward=10),
            info=msgspec.structs.replace(
                make_info(), started_at=f"{at}+00:00", totals={"steps": begins} if begins else {}
            ),
            end=end,
            fit_ns=None if end is None else 10_000_000 * steps,
            attempt=attempt,
        )
        for attempt, (steps, at, begins, end) in enumerate(
            zip((100, 60, 30), began, (0, 80, 140), ("ValueError", None, None), strict=True)
        )
    ]

    path = make_run_dir(tmp_path / "run", specs)
    look, whole = look_at(path, NOW_S), reported(path)

    assert (look.attempts_before, look.steps_before, look.ended_before) == (2, 160, "")
    assert whole.ledger_s["restart"] == pytest.approx(60 + 58.4)
    assert whole.restarts.again_steps == 20


def test_the_machine_is_that_of_the_latest_minute(tmp_path: Path) -> None:
    """Ten minutes of samples in which a neighbour came in the last two."""
    steps = make_steps(6_000, forward=100)
    run = make_run_dir(tmp_path / "run", [RankSpec(steps=steps)])
    plant_machine(
        run, 600, device=lambda second: {"reasons": 0x20, "sm_mhz": 1305} if second >= 480 else {}
    )

    look = look_at(run, NOW_S)

    ((cause,), (host,)) = look.latest.machine.causes, look.latest.machine.hosts
    assert (cause.cause, cause.fraction) == ("thermal", pytest.approx(1.0, abs=0.05))
    assert host.samples <= 600
    assert look.whole.machine is None


def test_a_run_in_object_storage_is_followed(tmp_path: Path) -> None:
    """A URL, whose objects are parts that appear whole."""
    memory = UPath(f"memory://{tmp_path.name}/run")
    run = GrowingRun(tmp_path / "run", even_ranks(1, 90))
    content = b"".join(run.lines[0])
    half = len(b"".join(run.lines[0][:40]))
    (memory / "steps-rank0.jsonl").write_bytes(content[:half])
    watched = partial(look_at, memory)
    assert watched(now_s=NOW_S).whole.run.steps == 39

    (memory / "steps-rank0.part1.jsonl").write_bytes(content[half:])

    assert watched(now_s=NOW_S).whole.run.steps == 90
    assert watched(now_s=NOW_S).whole.run.state == "finished"


def test_ranks_without_a_step_yet(tmp_path: Path) -> None:
    """Headers alone: a run that begins."""
    run = GrowingRun(tmp_path / "run", even_ranks(2, 30))
    run.grow(5, ranks=[0])

    look = look_at(run.path, NOW_S)

    assert look.latest is None
    assert look.whole.run.steps == 0

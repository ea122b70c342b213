"""A run that grows, or is another one by now, is read as it is."""

import os
from pathlib import Path

import numpy as np
from support.runs import RankSpec, encode_rank, make_info, make_run_dir
from support.tab import a_run, steps_of

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.record_file import Damaged
from trainperf.analysis.run.replay import Replay
from trainperf.core.steps.block import StepBlock
from trainperf.tensorboard.runs import HeldRun


def walls(run: Run) -> list[float]:
    """Wall times of all steps."""
    return [wall for blocks in Replay(run).blocks() for wall in blocks[0].wall_ns.tolist()]


def unfinished(root: Path, number: int) -> Path:
    """The record file of a run that is being written."""
    spec = RankSpec(steps=steps_of(number), info=make_info(), end=None)
    return make_run_dir(root / "r" / "trainperf", [spec]) / "steps-rank0.jsonl"


def test_what_is_held_is_what_is_on_disk(tmp_path: Path) -> None:
    """Steps, gaps, totals and the end mark, more than a block of them."""
    directory = a_run(tmp_path, steps=steps_of(9000))

    held, plain = HeldRun(directory).read(), Run.open(directory)

    ours, theirs = list(held.attempts[0][0].entries()), list(plain.attempts[0][0].entries())
    blocks = [[e for e in each if isinstance(e, StepBlock)] for each in (ours, theirs)]
    assert [len(b) for b in blocks[0]] == [len(b) for b in blocks[1]] == [4096, 4096, 808]
    assert np.array_equal(StepBlock.joined(blocks[0]).core(), StepBlock.joined(blocks[1]).core())
    assert [e for e in ours if not isinstance(e, StepBlock)] == [
        e for e in theirs if not isinstance(e, StepBlock)
    ]


def test_a_line_that_is_half_written_counts_when_it_is_whole(tmp_path: Path) -> None:
    """Neither lost nor taken for damage."""
    file = unfinished(tmp_path, 40)
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    held = HeldRun(file.parent)

    before = walls(held.read())
    with file.open("ab") as stream:
        stream.write(whole[-30:])
    after = held.read()

    assert len(before) == 39
    assert len(walls(after)) == 40
    assert not [e for e in after.attempts[0][0].entries() if isinstance(e, Damaged)]


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """By another one of more bytes under the same name."""
    directory = a_run(tmp_path, steps=steps_of(50))
    held = HeldRun(directory)
    held.read()

    a_run(tmp_path, steps=steps_of(80, data_wait=30.0))

    assert walls(held.read()) == walls(Run.open(directory))


def test_a_file_that_was_put_in_its_place_is_read_anew(tmp_path: Path) -> None:
    """Another inode, though it is longer and the same where reading stopped."""
    file = unfinished(tmp_path, 100)
    held = HeldRun(file.parent)
    held.read()
    longer = encode_rank(RankSpec(steps=steps_of(130), info=make_info(), end=None))
    other = file.with_name("other")
    other.write_bytes(longer.replace(b",20000000,", b",30000000,", 1))
    other.replace(file)

    after = walls(held.read())

    assert len(after) == 130
    assert after[0] == after[3] + 10_000_000


def test_a_file_that_changed_in_place_is_read_anew(tmp_path: Path) -> None:
    """Same inode, same size: the time of the change tells."""
    file = a_run(tmp_path, steps=steps_of(50)) / "steps-rank0.jsonl"
    held = HeldRun(file.parent)
    before = walls(held.read())
    text = file.read_bytes().replace(b",20000000,", b",30000000,")
    with file.open("r+b") as stream:
        stream.write(text)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))

    after = walls(held.read())

    assert [late - early for early, late in zip(before, after, strict=True)] == [10_000_000] * 50


def test_a_file_that_became_shorter_is_read_anew(tmp_path: Path) -> None:
    """A run directory that was made again."""
    file = unfinished(tmp_path, 50)
    held = HeldRun(file.parent)
    held.read()

    unfinished(tmp_path, 20)

    assert len(walls(held.read())) == 20


def test_a_run_that_is_too_large_to_be_held_is_streamed(tmp_path: Path) -> None:
    """The same steps, and nothing kept; smaller ones are kept."""
    directory = a_run(tmp_path, steps=steps_of(300))
    size = (directory / "steps-rank0.jsonl").stat().st_size
    streamed, kept = HeldRun(directory, size - 1), HeldRun(directory, size)

    assert walls(streamed.read()) == walls(kept.read())
    assert streamed.held_bytes == 0
    assert kept.held_bytes == 300 * 8 * (12 + 7)


def test_memory_is_counted_by_steps_and_columns(tmp_path: Path) -> None:
    """Twelve core columns and seven facts of eight bytes."""
    held = HeldRun(a_run(tmp_path, steps=steps_of(5000)))
    held.read()

    assert held.held_bytes == 5000 * 8 * (12 + 7)

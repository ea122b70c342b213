"""One pass over a run: the same steps of every rank, and nothing lost in silence."""

from pathlib import Path

import pytest
from support.blocks import records_of
from support.runs import (
    MS,
    RankSpec,
    encode_rank,
    make_gap,
    make_info,
    make_run_dir,
    make_step,
    make_steps,
)

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.block import BLOCK_STEPS
from trainperf.core.steps.records import StepRecord, Totals


def replayed(path: Path, ranks: list[RankSpec]) -> tuple[Replay, list[tuple[list[int], ...]]]:
    """A finished replay, and the step numbers of its blocks, per rank."""
    replay = Replay(Run.open(make_run_dir(path / "run", ranks)))
    blocks = [
        tuple(block.index.astype(int).tolist() for block in blocks) for blocks in replay.blocks()
    ]
    return replay, blocks


def of_rank(rank: int, indices: list[int], *, tags: int = 0) -> RankSpec:
    """A rank that recorded these steps."""
    steps = [make_step(index, forward=10, tags=tags) for index in indices]
    return RankSpec(steps=steps, info=make_info(rank=rank, world_size=2))


def numbers(blocks: list[tuple[list[int], ...]], place: int = 0) -> list[int]:
    """All step numbers of one rank."""
    return [index for block in blocks for index in block[place]]


def test_a_long_run_comes_in_blocks_of_4096(tmp_path: Path) -> None:
    """Never the whole run in memory."""
    _, blocks = replayed(tmp_path, [RankSpec(steps=make_steps(10_000, forward=1))])

    assert [len(block[0]) for block in blocks] == [BLOCK_STEPS, BLOCK_STEPS, 10_000 - 8192]


def test_gaps_between_steps_do_not_break_up_the_blocks(tmp_path: Path) -> None:
    """Validation every few steps must not make reading slow."""
    spec = RankSpec(steps=make_steps(1000, forward=1), end=None)
    lines = encode_rank(spec).splitlines(keepends=True)
    gap = encode_rank(RankSpec(steps=[], gaps=[make_gap(Gap.VALIDATION, 5)])).splitlines(True)[1]
    directory = tmp_path / "run"
    directory.mkdir()
    mixed = [lines[0], *(part for line in lines[1:] for part in (line, gap))]
    (directory / "steps-rank0.jsonl").write_bytes(b"".join(mixed))

    replay = Replay(Run.open(directory))
    blocks = list(replay.blocks())

    assert [len(block) for (block,) in blocks] == [1000]
    assert {gap: len(of) for gap, of in replay.journals[0].pauses.items()} == {"validation": 1000}


EVERY = list(range(9000))
LACKING = [step for step in EVERY if step not in {5, 4096, 8999}]


def anew(rank: int, *, world_size: int = 2) -> RankSpec:
    """A second attempt of a rank, of two steps."""
    info = make_info(rank=rank, world_size=world_size)
    return RankSpec(steps=make_steps(2, forward=1), info=info, attempt=1)


@pytest.mark.parametrize(
    ("ranks", "expected", "left_out"),
    [
        ([of_rank(0, [0, 1, 2, 4, 5]), of_rank(1, [1, 2, 3, 4])], ([1, 2, 4],) * 2, 3),
        ([of_rank(0, EVERY), of_rank(1, LACKING)], (LACKING,) * 2, 3),
        ([of_rank(0, [0, 1, 2]), anew(0, world_size=1)], ([0, 1, 2, 3, 4],), 0),
        (
            [of_rank(0, [0, 1, 2]), of_rank(1, [0, 1]), anew(0), anew(1)],
            ([0, 1, 3, 4],) * 2,
            1,
        ),
        (
            [of_rank(0, [0, 1, 2]), of_rank(1, [0, 1, 2]), anew(0, world_size=1)],
            ([0, 1, 2, 3, 4], [0, 1, 2]),
            0,
        ),
    ],
    ids=[
        "the others are left out and counted",
        "aligned in every later block",
        "a later attempt counts on",
        "attempts are aligned one by one",
        "an attempt with fewer ranks keeps its steps",
    ],
)
def test_only_steps_of_every_rank_are_read_together(
    ranks: list[RankSpec], expected: tuple[list[int], ...], left_out: int, tmp_path: Path
) -> None:
    """Each is numbered on from the attempt before."""
    replay, blocks = replayed(tmp_path, ranks)

    assert tuple(numbers(blocks, place) for place in range(len(expected))) == expected
    assert replay.left_out == left_out
    recorded = {spec.info.rank: 0 for spec in ranks}
    for spec in ranks:
        recorded[spec.info.rank] += len(spec.steps)
    assert {rank: of.steps for rank, of in replay.journals.items()} == recorded


def test_a_step_that_is_unusual_on_one_rank_is_unusual(tmp_path: Path) -> None:
    """All ranks wait for the one that collects garbage."""
    ranks = [of_rank(0, [0, 1]), of_rank(1, [0, 1], tags=int(Tag.GC))]

    ((first, second),) = list(Replay(Run.open(make_run_dir(tmp_path / "run", ranks))).blocks())

    assert first.tags.tolist() == second.tags.tolist() == [int(Tag.GC)] * 2


def test_totals_of_attempts_add_up_and_the_last_of_each_holds(tmp_path: Path) -> None:
    """They are cumulative within an attempt."""
    first = Totals(at_step=4, actions_ns={"A.x": 5}, sequence_lengths={128: 2}, dropped={"p": 1})
    second = Totals(at_step=2, actions_ns={"A.x": 7, "B.y": 1}, sequence_lengths={64: 1})
    steps = make_steps(5, forward=10)
    ranks = [RankSpec(steps=steps, totals=first), RankSpec(steps=steps, totals=second, attempt=1)]

    replay, _ = replayed(tmp_path, ranks)

    totals = replay.journals[0].totals
    assert totals.actions_ns == {"A.x": 12, "B.y": 1}
    assert totals.sequence_lengths == {128: 2, 64: 1}
    assert totals.dropped == {"p": 1}


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[1,2]\n",
        b"{}\n",
        b"\x00\x00\n",
        b'{"kind":"gap"}\n',
        b"[0,0,0,1,9,9,9,9,9,9,9,9]\n",
        b"[1,0,0,1,9,9,9,9,9,9,9,9]\n",
        # Forty megabytes, as a file system leaves behind: they do not fill the memory.
        pytest.param(b"[" * (40 << 20) + b"\n", id="a line without end"),
    ],
)
def test_damaged_and_repeated_lines_are_counted(tmp_path: Path, line: bytes) -> None:
    """The last two lines of steps were there before."""
    directory = make_run_dir(tmp_path / "run", [RankSpec(steps=make_steps(3, forward=10))])
    path = directory / "steps-rank0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], line, *lines[3:]]))

    replay = Replay(Run.open(directory))

    assert [block.index.tolist() for (block,) in replay.blocks()] == [[0, 1, 2]]
    assert replay.journals[0].damaged_lines == 1


def test_a_file_cut_at_any_byte_is_readable_up_to_the_last_whole_line(tmp_path: Path) -> None:
    """SIGKILL, a full disk, or simply a run that is still being written."""
    steps = make_steps(6, data_wait=1, forward=2, facts={"loss": 2.5})
    spec = RankSpec(steps=steps, gaps=[make_gap(Gap.VALIDATION, 3)], totals=Totals(at_step=5))
    data = encode_rank(spec)
    header = data.index(b"\n") + 1
    path = tmp_path / "steps-rank0.jsonl"
    for end in range(header, len(data) + 1):
        path.write_bytes(data[:end])
        replay = Replay(Run.open(tmp_path))
        found = sum(len(block) for (block,) in replay.blocks())
        whole = [line for line in data[:end].split(b"\n")[1:-1] if line.startswith(b"[")]
        assert found == len(whole), end
        assert replay.journals[0].damaged_lines == 0
        assert (replay.journals[0].end is None) == (end < len(data))


def test_a_step_record_is_never_invented(tmp_path: Path) -> None:
    """What comes out is what went in."""
    steps = [make_step(i, forward=1 + i, facts={"samples": i + 1}) for i in range(4)]
    replay = Replay(Run.open(make_run_dir(tmp_path / "run", [RankSpec(steps=steps)])))

    found: list[StepRecord] = [step for (block,) in replay.blocks() for step in records_of(block)]

    assert found == steps
    assert found[3].wall_ns == 4 * MS

"""`trainperf merge`: what each machine's ranks left, joined and read as one run."""

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.object_store import ObjectStore, object_store
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.core.paths import listed


__all__ = ["object_store"]


def part(path: Path, rank: int, *, forward: float = 30, world_size: int = 2, size: int = 9) -> Path:
    """What one of the ranks left on its machine."""
    config = {"parameters": size}
    info = make_info(rank=rank, world_size=world_size, config=config)
    steps = make_steps(200, forward=forward, facts={"samples": 8})
    return make_run_dir(path / f"machine{rank}" / "trainperf", [RankSpec(steps=steps, info=info)])


def test_samples_are_summed_and_the_slowest_rank_is_the_time(
    tmp_path: Path, command: Command
) -> None:
    """Two ranks of 8 samples a step, the slower one at 40 ms: 400 a second."""
    parts = [part(tmp_path, 0), part(tmp_path, 1, forward=40)]

    code, said, _ = command("merge", *parts, "--out", tmp_path / "both")

    assert code == 0
    assert "2 ranks" in said
    assert "400 samples/s" in said
    assert said.endswith(f"{tmp_path / 'both'}\n")
    assert (tmp_path / "both" / "summary.json").exists()
    assert (tmp_path / "both" / "report.html").exists()


def test_what_was_looked_at_once_comes_along_and_the_lowest_rank_holds(
    tmp_path: Path, command: Command
) -> None:
    """The summary of a part is none of the whole."""
    parts = [part(tmp_path, 0), part(tmp_path, 1)]
    for rank, path in enumerate(parts):
        (path / "traces").mkdir()
        (path / "traces" / f"of-rank{rank}.gz").write_bytes(b"")
        (path / "note.txt").write_text(f"rank {rank}")
        (path / "summary.json").write_text("of a part")

    command("merge", *reversed(parts), "--out", tmp_path / "both")

    traces = sorted(path.name for path in (tmp_path / "both" / "traces").iterdir())
    assert traces == ["of-rank0.gz", "of-rank1.gz"]
    assert (tmp_path / "both" / "note.txt").read_text() == "rank 0"
    assert (tmp_path / "both" / "summary.json").read_text() != "of a part"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"rank": 0}, "rank 0 is in"),
        ({"rank": 1, "world_size": 4}, "a run of 4 ranks"),
        ({"rank": 1, "size": 10}, "another model"),
    ],
)
def test_parts_of_different_runs_are_refused_before_anything_is_copied(
    other: dict[str, int],
    said: str,
    tmp_path: Path,
    command: Command,
) -> None:
    """In one line, with exit code 2."""
    parts = [part(tmp_path / "a", 0), part(tmp_path / "b", **other)]

    code, _, error = command("merge", *parts, "--out", tmp_path / "both")

    assert code == 2
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "both").exists()


def readings(run: Path) -> object:
    """What the summary in a run directory says of it."""
    return json.loads((run / "summary.json").read_bytes())["readings"]


def test_ranks_are_merged_in_object_storage(
    tmp_path: Path,
    object_store: ObjectStore,
    command: Command,
) -> None:
    """From this machine into a bucket, and from a bucket into it."""
    parts = [part(tmp_path, rank) for rank in range(2)]
    urls = [object_store.bucket / f"machine{rank}" for rank in range(2)]

    ended = [
        command("merge", *parts, "--out", tmp_path / "local"),
        *(command("merge", parts[rank], "--out", urls[rank]) for rank in range(2)),
        command("merge", *urls, "--out", object_store.bucket / "both"),
        command("merge", *urls, "--out", object_store.bucket / "both"),
    ]

    assert [each.code for each in ended] == [0, 0, 0, 0, 2]
    assert "exists already" in ended[-1].err
    names = [file.path.name for file in listed(object_store.bucket / "both")]
    records = ["steps-rank0.jsonl", "steps-rank1.jsonl"]
    assert names == ["report.html", *records, "summary.json"]
    there = json.loads((object_store.bucket / "both" / "summary.json").read_bytes())
    assert there["readings"] == readings(tmp_path / "local")

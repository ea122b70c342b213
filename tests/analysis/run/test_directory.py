"""Finding a run, and saying in one line why there is none."""

from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, encode_rank, make_info, make_run_dir, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.core.errors import RunError
from trainperf.core.steps.records import SCHEMA_VERSION, RunInfo


def spec(rank: int = 0, *, started_at: str = "", attempt: int = 0) -> RankSpec:
    """A rank with three steps."""
    base = make_info(rank=rank)
    info = msgspec.structs.replace(base, started_at=started_at or base.started_at)
    return RankSpec(steps=make_steps(3, forward=10), info=info, attempt=attempt)


def test_a_run_directory_is_opened(tmp_path: Path) -> None:
    """With its ranks, its header and its name."""
    run = Run.open(make_run_dir(tmp_path / "gpt2" / "trainperf", [spec(1), spec(0)]))

    assert run.ranks == (0, 1)
    assert run.info.rank == 0
    assert run.name == "gpt2"
    assert run.warnings == ()


@pytest.mark.parametrize(
    ("place", "given"),
    [
        # `trainperf report lightning_logs` is what people type.
        ("trainperf", "."),
        ("version_0/trainperf", "."),
        ("logs/version_3/trainperf", "logs"),
        # Completion in a shell goes one level too far.
        ("a", "a/steps-rank0.jsonl"),
    ],
)
def test_a_directory_above_the_only_run_or_its_file_will_do(
    place: str, given: str, tmp_path: Path
) -> None:
    """Whatever stands for it."""
    make_run_dir(tmp_path / place, [spec()])
    run = Run.open(tmp_path / given)

    assert (run.path, run.warnings) == (tmp_path / place, ())


def test_of_several_runs_the_newest_is_taken_and_that_is_said(tmp_path: Path) -> None:
    """Newest by the run's own start, not by the file system or the name."""
    make_run_dir(tmp_path / "trainperf", [spec(started_at="2026-11-03T00:00:00+00:00")])
    make_run_dir(tmp_path / "trainperf-1", [spec(started_at="2026-11-01T00:00:00+00:00")])

    run = Run.open(tmp_path)

    assert run.path == tmp_path / "trainperf"
    assert run.warnings == (f"2 runs in {tmp_path}: reading the newest, trainperf",)


def test_a_rank_with_a_damaged_header_is_left_out_and_named(tmp_path: Path) -> None:
    """The others are still worth reading."""
    directory = make_run_dir(tmp_path / "a", [spec(0), spec(1)])
    (directory / "steps-rank1.jsonl").write_bytes(b"garbage\n")

    run = Run.open(directory)

    assert run.ranks == (0,)
    assert "steps-rank1.jsonl" in run.warnings[0]


def test_attempts_come_in_order(tmp_path: Path) -> None:
    """Ten comes after two."""
    directory = make_run_dir(tmp_path / "a", [spec(attempt=k) for k in (10, 0, 2)])

    assert [files[0].attempt for files in Run.open(directory).attempts] == [0, 2, 10]


@pytest.mark.parametrize(
    ("below", "name"),
    [
        ("a/trainperf", "a"),
        ("a/trainperf-1", "a/trainperf-1"),
        ("a/trainperf-bf16", "trainperf-bf16"),
        ("7", "7"),
    ],
)
def test_a_run_has_the_name_of_its_directory(tmp_path: Path, below: str, name: str) -> None:
    """A plain `trainperf`, and `trainperf-1`, say nothing of which training it was."""
    assert Run.open(make_run_dir(tmp_path / below, [spec()])).name == name


NEWER = encode_rank(RankSpec(steps=[], info=RunInfo(schema=SCHEMA_VERSION + 1)))
RECORDS = "steps-rank0.jsonl"


@pytest.mark.parametrize(
    ("file", "content", "given", "says"),
    [
        ("other", b"", "nowhere", "no such file or directory"),
        ("steps-rank.jsonl", b"{}", "", r"not a run directory: no steps-rank\*\.jsonl"),
        ("last.ckpt", b"PK", "last.ckpt", "not a run directory"),
        # Never half understood.
        (RECORDS, NEWER, "", f"version {SCHEMA_VERSION + 1}"),
        # Killed before the first line was out, or not ours.
        *(
            (RECORDS, content, "", r"steps-rank0\.jsonl")
            for content in (b"", b'{"kind":"run","schema":1', b"\x00" * 100, b"[]\n")
        ),
    ],
)
def test_what_is_no_run_is_said_in_one_line(
    file: str, content: bytes, given: str, says: str, tmp_path: Path
) -> None:
    """With what was looked for."""
    (tmp_path / file).write_bytes(content)

    with pytest.raises(RunError, match=says) as caught:
        Run.open(tmp_path / given)

    assert "\n" not in str(caught.value)

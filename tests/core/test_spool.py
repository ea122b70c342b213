"""What a fit has written into its spool arrives behind the URL."""

from pathlib import Path

import pytest
from support.object_store import ObjectStore, object_store
from support.runs import RankSpec, encode_rank, make_info, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.paths import listed
from trainperf.core.run_directory import last_part, record_part
from trainperf.core.spool import upload
from trainperf.core.steps.packing import pack_parts


__all__ = ["object_store"]


def records(rank: int = 0, ranks: int = 1) -> bytes:
    """The record file of a rank."""
    info = make_info(rank=rank, world_size=ranks)
    return encode_rank(RankSpec(steps=make_steps(300, forward=30 + rank), info=info))


def test_a_file_that_grows_arrives_also_where_the_network_was_lost(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    """Behind the URL is what is on the disk, which stays as it was."""
    url, content = object_store.bucket / "run", records()
    file = tmp_path / "steps-rank0.jsonl"
    sent: dict[str, tuple[int, int]] = {}

    for end in (500, 3000, 3010, len(content)):
        file.write_bytes(content[:end])
        if end == len(content):
            object_store.stop()
            with pytest.raises(OSError, match="endpoint"):
                upload(tmp_path, url, sent, 0)
            object_store.restart()
        upload(tmp_path, url, sent, 0)
        assert (url / file.name).read_bytes() == file.read_bytes() == content[:end]
    assert summarize(Run.open(url)).readings == summarize(Run.open(tmp_path)).readings


def test_what_has_not_changed_is_not_uploaded_again(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    """Somebody may have taken it away there; drafts and requests are no files of a run."""
    url = object_store.bucket / "run"
    (tmp_path / "traces").mkdir()
    for name in ("audit.json", "traces/rank0-step000005-3steps.trace.json.gz"):
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / ".audit.json-7.tmp").write_bytes(b"half")
    (tmp_path / "capture").write_bytes(b"3")
    sent: dict[str, tuple[int, int]] = {}
    upload(tmp_path, url, sent, 0)
    assert [file.path.name for file in listed(url)] == ["audit.json", "traces"]

    (url / "traces" / "rank0-step000005-3steps.trace.json.gz").write_bytes(b"theirs")
    (tmp_path / "audit.json").write_bytes(b"22")
    upload(tmp_path, url, sent, 0)

    assert (url / "audit.json").read_bytes() == b"22"
    assert (url / "traces" / "rank0-step000005-3steps.trace.json.gz").read_bytes() == b"theirs"


def test_each_rank_uploads_its_own_files(tmp_path: Path, object_store: ObjectStore) -> None:
    """Together they upload every file once: ranks of one machine share a spool."""
    url = object_store.bucket / "run"
    names = {
        0: ["summary.json", "steps-rank0.jsonl", "traces/step000005-3steps.analysis.json"],
        1: [
            "steps-rank1.attempt2.jsonl",
            "traces/rank1-step000005-3steps.trace.json.gz",
            "tb/step000005-3steps/rank_1.pt.trace.json.gz",
        ],
    }
    for name in (name for several in names.values() for name in several):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")

    for rank, own in names.items():
        upload(tmp_path, url / str(rank), {}, rank)
        assert sorted(files_below(url / str(rank))) == sorted(own)


def files_below(directory: object, above: str = "") -> list[str]:
    """Every file, by its path."""
    files: list[str] = []
    for file in listed(directory):
        name = f"{above}{file.path.name}"
        files += files_below(file.path, f"{name}/") if file.is_dir else [name]
    return files


def test_a_part_that_is_packed_replaces_its_lines(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    """Parts of a rotated file keep their numbers; behind the URL nothing is there twice."""
    url, first = object_store.bucket / "run", tmp_path / "steps-rank0.jsonl"
    lines = records().splitlines(keepends=True)
    for part, begin in enumerate(range(0, len(lines), 100)):
        path = tmp_path / record_part(first.name, part)
        path.write_bytes(b"".join(lines[begin : begin + 100]))
    sent: dict[str, tuple[int, int]] = {}
    upload(tmp_path, url, sent, 0)
    before = summarize(Run.open(url))

    packed = pack_parts(first)
    upload(tmp_path, url, sent, 0)

    names = [file.path.name for file in listed(url)]
    assert packed == 3
    assert sum(name.endswith(".packed") for name in names) == packed
    assert [name for name in names if name.endswith(".jsonl")] == [last_part(first).name]
    after = summarize(Run.open(url))
    assert after.ledger_s == before.ledger_s
    assert after.run.steps == 300

"""Runs in object storage, and record files in several parts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.object_store import ObjectStore, object_store
from support.runs import RankSpec, encode_rank, make_info, make_run_dir, make_steps
from upath import UPath

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.errors import RunError
from trainperf.core.paths import AnyPath, listed, storage_errors
from trainperf.core.run_directory import record_file, record_part


__all__ = ["object_store"]


def specs() -> Iterator[RankSpec]:
    """Two ranks, of which the second is slower."""
    for rank in range(2):
        info = make_info(rank=rank, world_size=2)
        yield RankSpec(steps=make_steps(300, forward=30 + 10 * rank), info=info)


def put(run: AnyPath, *, part_bytes: int = 1 << 30) -> None:
    """Write the two ranks' record files in parts of so many bytes, whatever they cut in two."""
    for rank, spec in enumerate(specs()):
        content = encode_rank(spec)
        name = record_file(Path(), rank).name
        for part, start in enumerate(range(0, len(content), part_bytes)):
            path = run / record_part(name, part)
            path.write_bytes(content[start : start + part_bytes])


def test_a_run_in_a_bucket_reads_like_one_on_disk(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    """Given as its URL, as one above it, and as that of a record file."""
    local = summarize(Run.open(make_run_dir(tmp_path / "job" / "trainperf", list(specs()))))
    url = object_store.bucket / "job" / "trainperf"
    put(url)

    for given in (url, object_store.bucket, url / "steps-rank1.jsonl", f"{url}/"):
        run = Run.open(given)
        summary = summarize(run)
        assert (run.path, run.name) == (url, "job")
        assert summary.readings == local.readings
        assert summary.warnings == local.warnings == ()
    # One was put after the other, perhaps in another second.
    written_s = [(url / f"steps-rank{rank}.jsonl").stat().st_mtime for rank in range(2)]
    assert run.last_write_s() == max(written_s)


@pytest.mark.parametrize("part_bytes", [700, 1024])
def test_parts_are_joined_wherever_they_were_cut(tmp_path: Path, part_bytes: int) -> None:
    """More than ten of them, so that their numbers are not in the order of their names."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    put(whole)
    put(parts, part_bytes=part_bytes)

    assert len(list(parts.iterdir())) > 10
    assert summarize(Run.open(parts)).readings == summarize(Run.open(whole)).readings


def test_what_stands_behind_a_missing_part_is_not_read(tmp_path: Path) -> None:
    """It would be taken for the rest of the part before; the file is named."""
    put(tmp_path, part_bytes=4096)
    (tmp_path / "steps-rank1.part2.jsonl").unlink()

    run = Run.open(tmp_path)

    parts = [len(file.parts) for file in run.attempts[0]]
    assert parts[0] > 2
    assert parts[1] == 2
    gap = tmp_path / "steps-rank1.part3.jsonl"
    assert run.warnings == (
        f"skipped: {gap}: the part before it is missing, nothing from there on is read",
    )


def test_a_url_that_cannot_be_read_is_named_in_one_line(object_store: ObjectStore) -> None:
    """Nothing there, and nobody there."""
    with pytest.raises(RunError, match=r"^s3://records/none: no such file or directory$"):
        Run.open("s3://records/none")
    object_store.stop()
    with pytest.raises(RunError, match=r"^s3://records/none: .*endpoint") as caught:
        Run.open("s3://records/none")
    assert "\n" not in str(caught.value)


def test_a_network_that_is_lost_while_reading_names_the_file(object_store: ObjectStore) -> None:
    """The header was read; half of the file is never taken for all of it."""
    url = object_store.bucket / "run"
    put(url)
    run = Run.open(url)
    object_store.stop()

    with pytest.raises(OSError, match=r"steps-rank0\.jsonl"), storage_errors():
        list(run.attempts[0][0].entries())


def test_what_is_uploaded_anew_while_it_is_read_is_read_on(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of a fit that goes on are put again, just as somebody opens them."""
    url, opened = object_store.bucket / "run", UPath.open
    put(url)
    contents = {file.path: file.path.read_bytes() for file in listed(url)}
    for path, content in contents.items():
        path.write_bytes(content[: len(content) // 2])

    def replaced(path: Any, *given: Any, **options: Any) -> Any:
        file = opened(path, *given, **options)
        if path in contents:
            path.fs.pipe(path.path, contents.pop(path))
        return file

    monkeypatch.setattr(UPath, "open", replaced)
    assert summarize(Run.open(url)).run.steps == 300
    assert contents == {}


def test_one_long_header_is_read_to_its_end(object_store: ObjectStore) -> None:
    """Most fit into what is read of every file at once."""
    spec = next(specs())
    info = make_info(config={f"setting{number}": "x" * 90 for number in range(1000)})
    content = encode_rank(replace(spec, info=info))
    (object_store.bucket / "a" / "steps-rank0.jsonl").write_bytes(content)

    assert len(Run.open("s3://records/a").info.config) == 1001

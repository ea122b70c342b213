"""Local paths and URLs are read and listed alike, and what storage raises names the URL."""

import errno
import json
import pickle
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.object_store import ObjectStore, object_store

from trainperf.core.errors import ConfigError
from trainperf.core.paths import (
    AnyPath,
    is_remote,
    is_url,
    listed,
    path_of,
    prefetched,
    reread,
    storage_errors,
)
from trainperf.core.run_directory import write_atomically


__all__ = ["object_store"]


@pytest.mark.parametrize("url", ["s3://bucket/run", "https://a.b/run", "simplecache::s3://b/r"])
def test_a_url_survives_the_command_line(url: str) -> None:
    """`Path` would make one slash of two."""
    assert str(path_of(f"{url}/")) == url
    assert is_url(url)


@pytest.mark.parametrize("path", ["runs/a", "/runs/a", "C:\\runs\\a", "s3:/bucket", "a://"])
def test_anything_else_is_a_local_path(path: str) -> None:
    """`file://` too."""
    assert path_of(path) == Path(path)
    assert path_of("file:///runs/a") == Path("/runs/a")


def test_a_url_has_the_parts_of_a_path() -> None:
    """The bucket is the root."""
    run = path_of("s3://bucket/job/run")

    assert str(run / "a.json") == "s3://bucket/job/run/a.json"
    assert (run.name, run.parent.name) == ("run", "job")
    assert pickle.loads(pickle.dumps(run)) == run  # noqa: S301 what this test pickled


@pytest.mark.parametrize(
    ("number", "times", "reads"),
    [(errno.EBUSY, 1, True), (errno.EBUSY, 9, False), (errno.EIO, 1, False)],
)
def test_what_is_written_anew_meanwhile_is_read_again(number: int, times: int, reads: bool) -> None:  # noqa: FBT001
    """Some times; another error is none that goes away."""
    errors = [OSError(number, "") for _ in range(times)]

    def read() -> bytes:
        if errors:
            raise errors.pop()
        return b"new"

    with nullcontext() if reads else pytest.raises(OSError, match=str(number)):
        assert reread(read) == b"new"


def test_a_local_path_loads_no_fsspec(tmp_path: Path) -> None:
    """Nor anything else that takes long."""
    program = (
        "import sys; from trainperf.core.paths import listed, path_of\n"
        f"listed(path_of({str(tmp_path)!r})); path_of('runs')\n"
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert not {"upath", "fsspec", "asyncio", "numpy"} & set(json.loads(result.stdout))


def filled(directory: AnyPath) -> list[tuple[str, bool, int]]:
    """What `listed` says of a directory with two files and a folder."""
    if not is_remote(directory):
        (directory / "sub").mkdir()
    write_atomically(directory / "b.json", b"four")
    write_atomically(directory / "a.json", b"")
    write_atomically(directory / "sub" / "c", b"c")
    return [
        (file.path.name, file.is_dir, 0 if file.is_dir else file.size_bytes)
        for file in listed(directory)
    ]


def test_a_bucket_is_listed_like_a_directory(tmp_path: Path, object_store: ObjectStore) -> None:
    """By name, with sizes and times."""
    here, there = filled(tmp_path), filled(object_store.bucket / "run")

    assert here == there == [("a.json", False, 0), ("b.json", False, 4), ("sub", True, 0)]
    run = object_store.bucket / "run"
    assert (run.is_dir(), run.is_file(), (run / "b.json").is_file()) == (True, False, True)
    assert (run / "b.json").stat().st_mtime == listed(run)[1].modified_s > 1e9


def test_what_is_written_by_somebody_else_is_listed(object_store: ObjectStore) -> None:
    """No listing is kept: a running fit goes on uploading."""
    run = object_store.bucket / "run"
    (run / "first").write_bytes(b"1")
    before = listed(run)

    (run / "second").write_bytes(b"2")

    assert (len(before), len(listed(run))) == (1, 2)


def test_an_object_is_read_from_anywhere(object_store: ObjectStore) -> None:
    """From its beginning, and from its end."""
    path = object_store.bucket / "large"
    content = bytes(range(256)) * 40_000
    path.write_bytes(content)

    with path.open("rb") as file:
        pieces = list(iter(lambda: file.read(1 << 20), b""))
        file.seek(-3, 2)
        end = file.read()

    assert b"".join(pieces) == content
    assert end == content[-3:]
    assert prefetched([path], 5) == [content[:5]]


@pytest.mark.parametrize("size", [0, 1, 1 << 18, 3 << 18])
def test_an_object_ends_where_it_ends(size: int, object_store: ObjectStore) -> None:
    """A range that begins there is refused by the storage, and no error here."""
    path = object_store.bucket / "object"
    path.write_bytes(bytes(size))

    with path.open("rb") as file:
        assert file.read() == bytes(size)


def test_what_is_missing_is_a_missing_file(object_store: ObjectStore) -> None:
    """With the URL, as the errors of a disk have the path."""
    missing = object_store.bucket / "none"

    assert not missing.exists()
    for access in (missing.read_bytes, lambda: missing.open("rb").read(), lambda: listed(missing)):
        with pytest.raises(FileNotFoundError, match="no such object") as caught, storage_errors():
            access()
        assert caught.value.filename == "records/none"


def test_a_lost_network_is_an_error_of_the_system(object_store: ObjectStore) -> None:
    """Whatever class the library below has for it."""
    path = object_store.bucket / "a"
    path.write_bytes(b"1")
    object_store.stop()

    with pytest.raises(OSError, match="endpoint") as caught, storage_errors():
        path.read_bytes()

    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("gs://bucket/run", "install gcsfs"),
        ("s4://bucket/run", "s3://bucket"),
        ("memory://run", "memory:// is no storage"),
    ],
)
def test_storage_that_cannot_be_reached_is_refused_with_the_remedy(url: str, remedy: str) -> None:
    """The package for it is missing, or there is no such storage."""
    with pytest.raises(ConfigError, match=remedy):
        path_of(url)

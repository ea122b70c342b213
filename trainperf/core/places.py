"""Paths of files that may be far away: local ones, and URLs of what `fsspec` reaches.

A `RemotePath` has those methods of `pathlib.Path` that are used for both, so that one code reads a
disk and a bucket.  `fsspec` is imported at the first access to a URL, never for a local path.
Credentials, endpoints and regions are fsspec's own configuration; nothing here handles any.
"""

import errno
import importlib
import importlib.util
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import IO, Any

from trainperf.core.errors import ConfigError


# The most that one request reads: large enough for its latency, small enough for memory.
RANGE_BYTES = 4 << 20
_FIRST_RANGE_BYTES = 1 << 18  # each further request reads twice as much
_AT_ONCE = 16  # requests for the beginnings of files
_BLOCK_BYTES = 8 << 20  # of a larger file: S3 takes no less than five mebibytes
_URL = re.compile(r"[A-Za-z][\w+.-]+(::[A-Za-z][\w+.-]+)*://.")
_FAULTS = {
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "aiohttp": ("ClientError",),
    "gcsfs.retry": ("HttpError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "azure.core.exceptions": ("AzureError",),
    "fsspec.exceptions": ("FSTimeoutError",),
}
"""Errors of storage that are no `OSError`: module to classes."""

# Where file systems say when an object was written.
_MODIFIED = ("LastModified", "mtime", "updated", "last_modified", "created")


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """What storage says of an object; the names are those of `os.stat_result`."""

    st_size: int
    st_mtime: float
    """Seconds since 1970; 0.0 where the storage does not say."""


@dataclass(frozen=True, slots=True, order=True)
class RemotePath:
    """A file or folder behind a URL.  Making one reaches nothing.

    Every method that reaches storage raises `OSError` with the URL in it, as those of `Path` do,
    and `ConfigError` where the package for that kind of storage is not installed.
    """

    url: str
    """Without a slash at its end."""

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self.url}/{name.strip('/')}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        """The folder it is in; a bucket is its own."""
        above = self.url.rpartition("/")[0]
        return self if above.endswith("/") else RemotePath(above)

    def relative_to(self, above: "AnyPath") -> str:
        """The rest of the URL below a folder that it is in."""
        return self.url.removeprefix(f"{above}/")

    def resolve(self) -> "RemotePath":
        """Itself: a URL is absolute."""
        return self

    def exists(self) -> bool:
        """Whether there is an object, or anything in a folder, of that name."""
        return bool(self._ask("exists"))

    def is_file(self) -> bool:
        """Whether there is an object of that name."""
        return bool(self._ask("isfile"))

    def is_dir(self) -> bool:
        """Whether there is anything in a folder of that name."""
        return bool(self._ask("isdir"))

    def stat(self) -> RemoteStat:
        """Size and time of an object."""
        return _stat(self._ask("info"))

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The object, to be read in ranges of up to `RANGE_BYTES`; it may seek.

        Nothing is reached before the first one is read.
        """
        if mode != "rb":
            raise ValueError(f"mode={mode!r}: an object is read with 'rb', written whole")
        return io.BufferedReader(_Ranges(self), RANGE_BYTES)

    def read_bytes(self, start: int | None = None, end: int | None = None) -> bytes:
        """The object, or the bytes from *start* to *end* of it."""
        return bytes(self._ask("cat_file", start=start, end=end))

    def write_bytes(self, content: bytes) -> int:
        """Write the object whole or not at all; returns its size."""
        self._ask("pipe_file", content)
        return len(content)

    def put(self, local: Path) -> None:
        """Write the object from a local file, piece by piece; it appears whole."""
        # `put_file` of s3fs takes a hundred megabytes into memory.
        with (
            local.open("rb") as source,
            self._reached() as (system, path),
            system.open(path, "wb", block_size=_BLOCK_BYTES) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)

    def unlink(self) -> None:
        """Remove the object."""
        self._ask("rm_file")

    def ls(self) -> list[dict[str, Any]]:
        """What fsspec says of everything in the folder, but not of itself."""
        with self._reached() as (system, path):
            infos = system.ls(path, detail=True)
        return [info for info in infos if str(info["name"]).strip("/") != path.strip("/")]

    def _ask(self, method: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401 fsspec is untyped
        """What a method of the file system says of it."""
        with self._reached() as (system, path):
            return getattr(system, method)(path, *arguments, **options)

    @contextmanager
    def _reached(self) -> Iterator[tuple[Any, str]]:
        """The file system, and the path in it; what it raises becomes an `OSError`."""
        try:
            yield _file_system(self.url)
        except _faults() as error:
            raise _os_error(error, self.url) from error


AnyPath = Path | RemotePath


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """What a listing says of something in a directory."""

    path: AnyPath
    is_dir: bool
    size_bytes: int
    modified_s: float
    """As `RemoteStat.st_mtime`."""


def is_url(text: str) -> bool:
    """Whether a text names something that only `fsspec` reaches."""
    return _URL.match(text) is not None and not text.startswith("file://")


def path_of(text: str | Path | RemotePath) -> AnyPath:
    """The path or URL that somebody wrote; reaches nothing.  For argparse too, as a `type`."""
    if not isinstance(text, str):
        return text
    if is_url(text):
        return RemotePath(text.rstrip("/"))
    return Path(text.removeprefix("file://"))


def local_path(text: str) -> Path:
    """A path that somebody wrote.

    Raises:
        ConfigError: It is a URL.
    """
    path = path_of(text)
    if isinstance(path, RemotePath):
        raise ConfigError(f"{path}: must be on this machine; give a path, such as runs/{path.name}")
    return path


def storage(text: str | AnyPath) -> AnyPath:
    """As `path_of`, where other processes are to reach it too.

    Raises:
        ConfigError: The package for that storage is not installed, or it is no storage.
    """
    path = path_of(text)
    if isinstance(path, Path):
        return path
    from fsspec.registry import known_implementations  # noqa: PLC0415 see above

    protocol = path.url.split(":", maxsplit=1)[0]
    package = known_implementations.get(protocol, {}).get("class", "").partition(".")[0]
    if not package or protocol == "memory":
        raise ConfigError(
            f"{path}: {protocol}:// is no storage; give a URL such as s3://bucket/run"
        )
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"{path}: {protocol}:// cannot be reached; {_remedy(protocol)}")
    return path


def listed(directory: AnyPath) -> list[ListedFile]:
    """What is in a directory, by name; of a URL in one request per thousand objects.

    Raises:
        OSError: It cannot be listed.
    """
    if isinstance(directory, RemotePath):
        return _listed_remotely(directory)
    with os.scandir(directory) as entries:
        present = sorted(entries, key=lambda entry: entry.name)
    files = []
    for entry in present:
        try:
            stat = entry.stat()
        except FileNotFoundError:  # a draft, or a link to nothing
            continue
        file = ListedFile(
            path=directory / entry.name,
            is_dir=entry.is_dir(),
            size_bytes=stat.st_size,
            modified_s=stat.st_mtime,
        )
        files.append(file)
    return files


def first_bytes(paths: Sequence[AnyPath], count: int) -> list[bytes | OSError]:
    """The beginning of each file, or why it cannot be read; of objects many at a time.

    At the exit of a process, when reports are made too, no thread can be started any more.
    """
    if not any(isinstance(path, RemotePath) for path in paths):
        return [_first_bytes(path, count) for path in paths]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(_first_bytes, paths, repeat(count)))


def _first_bytes(path: AnyPath, count: int) -> bytes | OSError:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        return error


def _listed_remotely(directory: RemotePath) -> list[ListedFile]:
    files = {}
    for info in directory.ls():
        name = str(info["name"]).rstrip("/").rpartition("/")[2]
        stat = _stat(info)
        files[name] = ListedFile(
            path=directory / name,
            is_dir=info["type"] == "directory",
            size_bytes=stat.st_size,
            modified_s=stat.st_mtime,
        )
    return [files[name] for name in sorted(files)]


class _Ranges(io.RawIOBase):
    """An object as it was at the first access, a range per request."""

    def __init__(self, path: RemotePath) -> None:
        super().__init__()
        self._path, self._at = path, 0
        self._next_bytes = _FIRST_RANGE_BYTES

    @cached_property
    def _size(self) -> int:
        return self._path.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            offset += self._size
        elif whence == os.SEEK_CUR:
            offset += self._at
        self._at = max(0, offset)
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 any buffer, as the base has it
        end = min(self._at + min(len(buffer), self._next_bytes), self._size)
        content = self._path.read_bytes(self._at, end) if self._at < end else b""
        buffer[: len(content)] = content
        self._at += len(content)
        self._next_bytes = min(2 * self._next_bytes, RANGE_BYTES)
        return len(content)


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 see above

    protocol = url.split(":", maxsplit=1)[0]
    try:
        # A listing that was kept would hide what a running fit uploads.
        system, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise ConfigError(f"{url}: cannot be reached ({error}); {_remedy(protocol)}") from None
    except ValueError as error:
        raise ConfigError(
            f"{url}: cannot be reached ({error}); give a local path or a URL such as "
            "s3://bucket/run"
        ) from None
    return system, path


def _remedy(protocol: str) -> str:
    from fsspec.registry import known_implementations  # noqa: PLC0415 see above

    package = known_implementations[protocol]["class"].partition(".")[0]
    return f"pip install {package}"


def _stat(info: Mapping[str, Any]) -> RemoteStat:
    return RemoteStat(int(info.get("size") or 0), _modified_s(info))


def _modified_s(info: Mapping[str, Any]) -> float:
    when = next((info[key] for key in _MODIFIED if info.get(key)), 0.0)
    try:
        if isinstance(when, str):
            when = datetime.fromisoformat(when.replace("Z", "+00:00"))
        return float(when.timestamp() if isinstance(when, datetime) else when)
    except ValueError:
        return 0.0


def _faults() -> tuple[type[Exception], ...]:
    """What storage raises: `OSError`, and those of `_FAULTS` whose module is loaded."""
    others = (
        getattr(importlib.import_module(module), name)
        for module, names in _FAULTS.items()
        if module in sys.modules
        for name in names
    )
    return (OSError, *others)


def _os_error(error: Exception, url: str) -> OSError:
    """The same with a number, a reason and the URL, as the operating system's errors have them."""
    kinds = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
    usual = next((number for kind, number in kinds.items() if isinstance(error, kind)), errno.EIO)
    number = getattr(error, "errno", None) or usual
    missing = number == errno.ENOENT
    return OSError(number, "no such object" if missing else _reason(error), url)


def _reason(error: Exception) -> str:
    """In a line: libraries quote whole responses."""
    lines = (getattr(error, "strerror", None) or str(error)).splitlines()
    return (lines[0] if lines else "")[:200] or type(error).__name__

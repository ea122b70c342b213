"""Paths of files that may be far away: of this machine, or URLs of what `fsspec` reaches.

Behind a URL stands a `upath.UPath`, which has the methods of `pathlib.Path`, so that one code reads
a disk and a bucket.  It is imported at the first URL, never for a local path.  Credentials,
endpoints and regions are fsspec's own configuration; nothing here handles any.
"""

import errno
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from stat import S_ISDIR
from typing import Any, TypeVar, cast

from trainperf.core.errors import ConfigError


AnyPath = Path
"""In signatures: a local path, or the `UPath` of a URL, of which `is_remote` is true."""

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

T = TypeVar("T")

# Where file systems say when an object was written.
_MODIFIED = ("LastModified", "mtime", "updated", "last_modified", "created")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """What a listing says of something in a directory."""

    path: AnyPath
    is_dir: bool
    size_bytes: int
    modified_s: float
    """Seconds since 1970 by the storage's clock; 0.0 where it does not say."""


def is_url(text: str) -> bool:
    """Whether a text names something that only `fsspec` reaches."""
    return _URL.match(text) is not None and not text.startswith("file://")


def is_remote(path: AnyPath) -> bool:
    """Whether a path is that of a URL."""
    return not isinstance(path, Path)


def path_of(text: str | AnyPath) -> AnyPath:
    """The path or URL that somebody wrote; reaches nothing.  For argparse too, as a `type`.

    Raises:
        ConfigError: It is no storage that other processes reach, or its package is not installed.
    """
    if not isinstance(text, str):
        return text
    if not is_url(text):
        return Path(text.removeprefix("file://"))
    from fsspec.registry import get_filesystem_class, known_implementations  # noqa: PLC0415 see above
    from upath import UPath  # noqa: PLC0415 see above

    protocol = text.split(":", maxsplit=1)[0]
    if protocol not in known_implementations or protocol == "memory":
        raise ConfigError(
            f"{text}: {protocol}:// is no storage; give a local path or a URL such as "
            "s3://bucket/run"
        )
    try:
        get_filesystem_class(protocol)
    except ImportError as error:
        raise ConfigError(f"{text}: {protocol}:// cannot be reached ({error})") from None
    # A listing that was kept would hide what a running fit uploads.
    return cast("AnyPath", UPath(text.rstrip("/"), use_listings_cache=False))


def local_path(text: str) -> Path:
    """A path that somebody wrote.

    Raises:
        ConfigError: It is a URL.
    """
    if is_url(text):
        name = text.rstrip("/").rpartition("/")[2]
        raise ConfigError(f"{text}: must be on this machine; give a path, such as runs/{name}")
    return path_of(text)


def listed(directory: AnyPath) -> list[ListedFile]:
    """What is in a directory, by name; of a URL in one request per thousand objects.

    Raises:
        OSError: It cannot be listed.
    """
    if is_remote(directory):
        system, above = _system(directory)
        files = [
            ListedFile(
                path=directory / str(info["name"]).rstrip("/").rpartition("/")[2],
                is_dir=info["type"] == "directory",
                size_bytes=int(info.get("size") or 0),
                modified_s=_modified_s(info),
            )
            for info in system.ls(above, detail=True)
            if str(info["name"]).strip("/") != above.strip("/")
        ]
        return sorted(files, key=lambda file: file.path.name)
    files = []
    for path in sorted(directory.iterdir()):
        with suppress(FileNotFoundError):  # a draft, or a link to nothing
            stat = path.stat()
            files.append(
                ListedFile(
                    path=path,
                    is_dir=S_ISDIR(stat.st_mode),
                    size_bytes=stat.st_size,
                    modified_s=stat.st_mtime,
                )
            )
    return files


def prefetched(paths: Sequence[AnyPath], count: int) -> list[bytes | Exception | None]:
    """The beginning of each object, or why it cannot be read, many at a time; of a file `None`."""
    if not paths or not is_remote(paths[0]):
        return [None] * len(paths)
    system, _ = _system(paths[0])
    below = [_system(path)[1] for path in paths]
    return list(system.cat_ranges(below, 0, count, on_error="return"))


def reread(read: Callable[[], T], times: int = 3) -> T:
    """What *read* gives of an object: of its newer version where it is written anew meanwhile.

    Raises:
        OSError: It cannot be read.
    """
    try:
        return read()
    except OSError as error:
        if not times or not is_replaced(error):
            raise
    return reread(read, times - 1)


def is_replaced(error: OSError) -> bool:
    """Whether it says that an object was written anew since it was opened."""
    return error.errno == errno.EBUSY


@contextmanager
def storage_errors() -> Iterator[None]:
    """What storage raises in the block, whatever class it has, is raised as an `OSError` in a line.

    Raises:
        OSError: With a number and a reason, as the operating system's errors have them.
    """
    try:
        yield
    except FileNotFoundError as error:
        if error.errno is not None:
            raise
        raise FileNotFoundError(errno.ENOENT, "no such object", str(error)) from error
    except _faults() as error:
        # Libraries quote whole responses.
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise OSError(errno.EIO, reason) from error


def _faults() -> tuple[type[Exception], ...]:
    """Those of `_FAULTS` whose module is loaded."""
    return tuple(
        getattr(importlib.import_module(module), name)
        for module, names in _FAULTS.items()
        if module in sys.modules
        for name in names
    )


def _system(path: AnyPath) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    remote: Any = path
    return remote.fs, remote.path


def _modified_s(info: dict[str, Any]) -> float:
    when = next((info[key] for key in _MODIFIED if info.get(key)), 0.0)
    if isinstance(when, str):
        when = datetime.fromisoformat(when.replace("Z", "+00:00"))
    return when.timestamp() if isinstance(when, datetime) else float(when)

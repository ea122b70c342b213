"""Spools: local directories in which runs behind a URL are written, until they are uploaded.

A fit writes all its files into the spool, as it would into any run directory.  A process of low
priority per rank, `python -m trainperf.core.spool`, uploads them, so that training never waits for
the network; what it could not upload stays.  Object storage cannot append, but record files are
written in parts, of which only the last one still grows: a file that has changed is uploaded whole.
"""

import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from trainperf.core import run_directory
from trainperf.core.machine.processes import has_died, take_lowest_priority, this_process
from trainperf.core.paths import AnyPath, is_remote, path_of, storage_errors
from trainperf.core.run_directory import (
    CAPTURE_REQUEST,
    copy_file,
    packed_part,
    write_atomically,
)


ROOT_VARIABLE = "TRAINPERF_SPOOL"
"""Environment variable: folder of the spools; the system's for temporary files by default."""

EVERY_S = 30.0
"""Between two uploads."""

LAST_S = 60.0
"""The most that the last one may take, repetitions included."""

_TRIES = 10
"""How often the last one is tried, a second apart, while it fails."""

_NOTE, _STATES = "spool.json", "upload-rank*.json"


class SpoolNote(msgspec.Struct, frozen=True):
    """What a folder with a spool is for: `spool.json`."""

    url: str
    """The run directory."""


class UploadState(msgspec.Struct, frozen=True, kw_only=True):
    """Of a rank's files that are not all uploaded: `upload-rank0.json` next to the spool."""

    problem: str = ""
    """Why the last upload failed; empty if it did not."""
    process: str = ""
    """Identity of the process that uploads, as `has_died` takes it."""


def local(run: AnyPath) -> Path:
    """Where a run directory is written: itself, or the spool of a URL, the same for all ranks here.

    Raises:
        OSError: The spool cannot be made.
    """
    if not is_remote(run):
        return run
    # An attempt has one of its own: that of the attempt before may be under way still.
    key = sha256(f"{run} {run_directory.attempt()}".encode()).hexdigest()[:12]
    root = Path(os.environ.get(ROOT_VARIABLE) or tempfile.gettempdir())
    spool = root / f"trainperf-spool-{key}" / run.name
    spool.mkdir(parents=True, exist_ok=True)
    write_atomically(spool.parent / _NOTE, msgspec.json.encode(SpoolNote(str(run))))
    return spool


def url_of(run: AnyPath) -> str | None:
    """The URL that a spool is uploaded to; `None` if it is no spool."""
    if is_remote(run):
        return None
    try:
        note = msgspec.json.decode((run.resolve().parent / _NOTE).read_bytes(), type=SpoolNote)
    except (OSError, msgspec.DecodeError):
        return None
    return note.url if note.url.endswith(f"/{run.resolve().name}") else None


def write_state(spool: Path, rank: int, state: UploadState) -> None:
    """Note how the upload of a rank's files goes.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(spool.parent / f"upload-rank{rank}.json", msgspec.json.encode(state))


def not_uploaded(run: AnyPath) -> str | None:
    """A sentence on what is only in this spool, and how to upload it; `None` if there is nothing.

    While all goes well something is always about to be uploaded: nothing is said then.
    """
    url = url_of(run)
    if url is None:
        return None
    for file in sorted(run.parent.glob(_STATES)):
        with suppress(FileNotFoundError):  # by now it is
            state = msgspec.json.decode(file.read_bytes(), type=UploadState)
            if problem := state.problem or (has_died(state.process) and "its process is gone"):
                return (
                    f"not all uploaded to {url} ({problem}): kept in {run}; upload it with "
                    f"`trainperf merge {run} --out {url}`"
                )
    return None


def note_uploaded(spool: Path) -> None:
    """Note that everything in a spool is behind its URL by now."""
    for file in spool.parent.glob(_STATES):
        file.unlink()


def discard_empty(run: Path) -> None:
    """Remove a run directory, or a spool, in which nothing was written: the fit never began."""
    with suppress(OSError):
        is_spool = url_of(run) is not None
        run.rmdir()
        if is_spool:
            shutil.rmtree(run.parent)


@storage_errors()
def upload(run: Path, url: AnyPath, sent: dict[str, tuple[int, int]], rank: int | None) -> None:
    """Upload all of a run directory that is new; what has arrived is not uploaded again.

    Args:
        run: The directory; nothing in it is ever changed.
        url: Where it goes.
        sent: What has arrived, empty at first: path below the directory, to size and time.
        rank: Whose files are uploaded, and with rank 0 those of no rank; `None` uploads all.

    Raises:
        OSError: A file cannot be read, or storage not be reached: the next time does the rest.
    """
    files = {file.relative_to(run).as_posix(): file for file in _files(run, rank)}
    for below in sorted(files, key=lambda below: ("/" in below, below)):  # traces last
        with suppress(FileNotFoundError):  # packed or replaced since it was listed
            status = files[below].stat()
            stamp = status.st_size, status.st_mtime_ns
            if sent.get(below) != stamp:
                copy_file(files[below], url / below)
                sent[below] = stamp
    # Lines that were packed, once that has arrived: a reader that finds both takes that.
    for below in [name for name in sent if name.endswith(".jsonl") and name not in files]:
        if packed_part(run / below).relative_to(run).as_posix() in sent:
            (url / below).unlink(missing_ok=True)
            del sent[below]


def _files(run: Path, rank: int | None) -> Iterator[Path]:
    for file in run.rglob("*"):
        writer = re.search(r"rank_?(\d+)", file.name)
        own = rank in (None, int(writer[1]) if writer else 0)
        ours = not file.name.startswith(".") and file.name != CAPTURE_REQUEST
        if own and ours and file.is_file():
            yield file


def main(arguments: Sequence[str]) -> int:
    """Upload a rank's files, given spool, URL, rank and seconds, until the fit is over.

    It is over when a line comes on standard input, or the training process is gone, however that
    ended.  Returns 0 if everything was uploaded; then a spool that nobody needs is removed.
    """
    run, url, rank, every_s = Path(arguments[0]), arguments[1], int(arguments[2]), arguments[3]
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    threading.Thread(target=_listen, args=(over,), daemon=True).start()
    take_lowest_priority()
    again = partial(_upload, run, path_of(url), {}, rank)
    wait_s = min(float(every_s), 5.0)
    while not over.wait(wait_s):
        again()
        wait_s = float(every_s)
    # A request that hangs is none that this process waits for.
    threading.Timer(LAST_S, os._exit, (1,)).start()
    for _ in range(_TRIES):
        if uploaded := again():
            break
        time.sleep(1)
    if uploaded:
        (run.parent / f"upload-rank{rank}.json").unlink()
        if not list(run.parent.glob(_STATES)):
            shutil.rmtree(run.parent, ignore_errors=True)
    os._exit(0 if uploaded else 1)


def _listen(over: threading.Event) -> None:
    """Wait for the line that says that the fit is over; its end says so too."""
    sys.stdin.readline()
    over.set()


def _upload(run: Path, url: AnyPath, sent: dict[str, tuple[int, int]], rank: int) -> bool:
    """Whether what is new could be uploaded; if not, why is noted."""
    problem = ""
    try:
        upload(run, url, sent, rank)
    except OSError as error:
        problem = error.strerror or str(error)
    with suppress(OSError):  # the disk is full: nothing is uploaded less for that
        write_state(run, rank, UploadState(problem=problem, process=this_process()))
    return not problem


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Spools: local directories in which runs behind a URL are written, until they are uploaded.

A fit writes all its files into the spool, as it would into any run directory.  A process of its own
uploads them, so that training never waits for the network; what it could not upload stays.
"""

import os
import secrets
import shutil
import tempfile
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from trainperf.core import run_directory
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.units import size
from trainperf.core.machine.processes import has_died
from trainperf.core.places import AnyPath, RemotePath, listed, path_of, storage
from trainperf.core.run_directory import NAME, rank_and_attempt, write_atomically


ROOT_VARIABLE = "TRAINPERF_SPOOL"
"""Environment variable: folder of the spools; the system's for temporary files by default."""

_NOTE = "spool.json"


Progress = Literal["running", "uploaded", "kept"]


class SpoolNote(msgspec.Struct, frozen=True):
    """What a folder with a spool is for: `spool.json`."""

    url: str
    """The run directory."""


class UploadState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the upload of one rank's files is: `upload-rank0.json` next to the spool."""

    state: Progress
    problem: str = ""
    """Why the last upload failed; empty if it did not."""
    pending_bytes: int = 0
    """What had not been uploaded when this was written."""
    process: str = ""
    """Identity of the process that uploads, as `has_died` takes it."""


def choose(base: AnyPath) -> AnyPath:
    """The directory of a new run, or of the one an elastic launcher is restarting.

    Of a new run behind a URL nothing is read: two jobs never choose the same name.

    Raises:
        OSError: The directory cannot be made, or that of the run before cannot be found.
    """
    if isinstance(base, Path):
        return run_directory.choose(base)
    before = _latest(base) if run_directory.attempt() else None
    return before or create(base)


def create(base: AnyPath) -> AnyPath:
    """A new run's directory under *base*; one behind a URL has the time and a number in its name.

    Raises:
        OSError: The directory cannot be made.
    """
    if isinstance(base, Path):
        return run_directory.create(base)
    try:
        storage(base)
    except ConfigError as error:
        raise OSError(str(error)) from None
    began = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return base / f"{NAME}-{began}-{secrets.token_hex(3)}"


def _latest(base: RemotePath) -> RemotePath | None:
    """The newest run there that this attempt has no record file in."""
    try:
        names = [file.path.name for file in listed(base) if file.is_dir]
    except FileNotFoundError:
        return None
    # Their names begin with the time.
    newest = max((name for name in names if name.startswith(f"{NAME}-")), default=None)
    if newest is None:
        return None
    writers = (rank_and_attempt(file.path.name) for file in listed(base / newest))
    again = (0, run_directory.attempt()) in writers
    return None if again else base / newest


def local(run: AnyPath) -> Path:
    """Where a run directory is written: itself, or the spool of a URL, the same for all ranks here.

    Raises:
        OSError: The spool cannot be made.
    """
    if isinstance(run, Path):
        return run
    # An attempt has one of its own: that of the attempt before may be under way still.
    key = sha256(f"{run.url} {run_directory.attempt()}".encode()).hexdigest()[:12]
    root = Path(os.environ.get(ROOT_VARIABLE) or tempfile.gettempdir())
    spool = root / f"trainperf-spool-{key}" / run.name
    spool.mkdir(parents=True, exist_ok=True)
    write_atomically(spool.parent / _NOTE, msgspec.json.encode(SpoolNote(run.url)))
    return spool


def url_of(run: AnyPath) -> RemotePath | None:
    """The URL that a spool is uploaded to; `None` if it is no spool."""
    if isinstance(run, RemotePath):
        return None
    try:
        note = msgspec.json.decode((run.resolve().parent / _NOTE).read_bytes(), type=SpoolNote)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    url = path_of(note.url)
    return url if isinstance(url, RemotePath) and url.name == run.resolve().name else None


def write_state(spool: Path, rank: int, state: UploadState) -> None:
    """Note how far the upload of a rank's files is.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(spool.parent / f"upload-rank{rank}.json", msgspec.json.encode(state))


def states(spool: Path) -> list[UploadState]:
    """Those of the ranks on this machine."""
    noted = (_state(file) for file in sorted(spool.parent.glob("upload-rank*.json")))
    return [state for state in noted if state is not None]


def _state(file: Path) -> UploadState | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=UploadState)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def not_uploaded(run: AnyPath) -> str | None:
    """A sentence on what is only in this spool, and how to upload it; `None` if there is nothing.

    While all goes well something is always about to be uploaded: nothing is said then.
    """
    url = url_of(run)
    if url is None or isinstance(run, RemotePath):
        return None
    failed = [(problem, state) for state in states(run) if (problem := _problem(state))]
    if not failed:
        return None
    pending_bytes = sum(state.pending_bytes for _, state in failed)
    amount = size(pending_bytes) if pending_bytes else "the last of it"
    return (
        f"{amount} not uploaded to {url} ({failed[0][0]}): kept in {run}; upload it with "
        f"`trainperf merge {run} --out {url}`"
    )


def _problem(state: UploadState) -> str:
    if state.state == "running" and has_died(state.process):
        return "the process that uploads is gone"
    return state.problem


def note_uploaded(spool: Path) -> None:
    """Note that everything in a spool is behind its URL by now.

    Raises:
        OSError: It cannot be written to.
    """
    for file in spool.parent.glob("upload-rank*.json"):
        write_atomically(file, msgspec.json.encode(UploadState(state="uploaded")))


def discard_empty(run: Path) -> bool:
    """Remove a run directory, or a spool, in which nothing was written: the fit never began."""
    is_spool = url_of(run) is not None
    empty = run_directory.discard_empty(run)
    if empty and is_spool:
        remove(run)
    return empty


def remove(spool: Path) -> None:
    """Take the spool away; something that is in use there stays."""
    shutil.rmtree(spool.parent, ignore_errors=True)

"""Merging of the directories that ranks without a shared file system wrote for one run.

The new directory gets a manifest that names the record files and the original traces where they
are; what is small and looked at with the run, such as an audit, is copied.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainperf.analysis.run.directory import Run, record_files
from trainperf.analysis.run.record_file import RecordFile
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.manifest import Manifest, ManifestRecords
from trainperf.core.errors import RunError
from trainperf.core.places import AnyPath, RemotePath, listed, path_of
from trainperf.core.run_directory import (
    ANALYSIS_SUFFIX,
    REPORT,
    SUMMARY,
    TB,
    TRACES,
    copy_joined,
    is_packed,
    packed_part,
    rank_and_attempt,
    record_file,
    record_part,
)
from trainperf.core.spool import note_uploaded, url_of
from trainperf.core.spool.mirror import Mirror


_MADE_ANEW = {SUMMARY, REPORT, Manifest.file}
"""Files about all ranks: that of a part does not hold for the whole run."""


def merge(parts: Sequence[Run], into: AnyPath, *, copy: bool = False) -> Run:
    """Make one new run directory of all parts, and open it.

    Nothing is computed here, and the parts stay as they are.  Where two parts have a file of one
    name that is not a rank's own, e.g. an audit, that of the lowest rank is taken.

    Args:
        parts: The run directories.
        into: The new one; a file of this machine is copied into a URL, where nobody else could
            reach it otherwise.  That of a kept spool exists already, and gets what it lacks.
        copy: Whether all files are copied, so that the parts are no longer needed.

    Raises:
        RunError: *into* exists, or the parts are not ranks of one run; nothing was written then.
        OSError: A file cannot be read or written.
    """
    if len(parts) == 1 and isinstance(into, RemotePath) and into == url_of(parts[0].path):
        spool = Path(str(parts[0].path))
        Mirror(spool, into).upload()
        note_uploaded(spool)
        return Run.open(into)
    _refuse_strangers(parts)
    _make(into)
    records: list[ManifestRecords] = []
    traces: list[str] = []
    for part in sorted(parts, key=lambda part: part.ranks, reverse=True):
        records += [_taken(each, into, copy=copy) for each in _record_files(part)]
        for below, path in _other_files(part.path):
            if copy or not _is_trace(below) or _only_here(path, into):
                copy_joined([path], into / below)
            elif below.startswith(TRACES):
                traces.append(str(path.resolve()))
    if any(path_of(file).parent != into for each in records for file in each.parts):
        records.sort(key=lambda each: (each.attempt, each.rank))
        write_document(Manifest(records=tuple(records), traces=tuple(sorted(traces))), into)
    return Run.open(into)


def _make(into: AnyPath) -> None:
    if into.exists():
        raise RunError(f"{into}: exists already; name a directory that does not")
    if isinstance(into, Path):
        into.mkdir(parents=True)


def _record_files(part: Run) -> Iterator[ManifestRecords]:
    """Those of a run, the ones that cannot be read among them: whoever reads the whole says so."""
    records, _ = record_files(part.path, listed(part.path))
    for (rank, attempt), parts in records.items():
        yield ManifestRecords(
            rank=rank,
            attempt=attempt,
            parts=tuple(str(each.path.resolve()) for each in parts),
            size_bytes=sum(each.size_bytes for each in parts),
        )


def _taken(records: ManifestRecords, into: AnyPath, *, copy: bool) -> ManifestRecords:
    """The same where they are from now on."""
    parts = [path_of(part) for part in records.parts]
    if not copy and not any(_only_here(part, into) for part in parts):
        return records
    name = record_file(Path(), records.rank, records.attempt).name
    targets = [into / record_part(name, number) for number in range(len(parts))]
    for number, part in enumerate(parts):
        if is_packed(part.name):
            targets[number] = packed_part(targets[number])
        copy_joined([part], targets[number])
    return ManifestRecords(
        rank=records.rank,
        attempt=records.attempt,
        parts=tuple(map(str, targets)),
        size_bytes=records.size_bytes,
    )


def _other_files(directory: AnyPath, above: str = "") -> Iterator[tuple[str, AnyPath]]:
    """Every file that holds no records, by its path below the directory."""
    for file in listed(directory):
        below = f"{above}{file.path.name}"
        if file.is_dir:
            yield from _other_files(file.path, f"{below}/")
        elif above or not (below in _MADE_ANEW or rank_and_attempt(below)):
            yield below, file.path


def _is_trace(below: str) -> bool:
    """Whether a file is one of those that are large and not read with the run."""
    return below.startswith(f"{TB}/") or (
        below.startswith(f"{TRACES}/") and not below.endswith(ANALYSIS_SUFFIX)
    )


def _only_here(path: AnyPath, into: AnyPath) -> bool:
    return isinstance(path, Path) and isinstance(into, RemotePath)


def _refuse_strangers(parts: Sequence[Run]) -> None:
    first = parts[0].info
    files: dict[tuple[int, int], RecordFile] = {}
    for file in (file for part in parts for attempt in part.attempts for file in attempt):
        other = files.setdefault((file.rank, file.attempt), file)
        if other is not file:
            raise RunError(
                f"{file.path}: rank {file.rank} is in {other.path.parent} as well; merge the "
                "directories of one run"
            )
        if file.info.world_size != first.world_size:
            raise RunError(
                f"{file.path}: a run of {file.info.world_size} ranks, but {parts[0].path} is one "
                f"of {first.world_size}; merge the directories of one run"
            )
        if file.info.config.get("parameters") != first.config.get("parameters"):
            raise RunError(
                f"{file.path}: another model than in {parts[0].path}; merge the directories of "
                "one run"
            )

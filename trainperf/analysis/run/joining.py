"""Joining of run directories: of one job after each restart, or of ranks without shared storage.

Directories that one job wrote become attempts of one run, in the order in which they began: steps
are numbered on, and the time between two is a `restart` gap.

Directories of ranks become a new one, with a manifest that names the record files and the original
traces where they are; what is small and looked at with the run, such as an audit, is copied.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trainperf.analysis.run.directory import Run, record_files
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.window import numbered_on
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.manifest import Manifest, ManifestRecords
from trainperf.core.errors import RunError
from trainperf.core.places import AnyPath, RemotePath, listed
from trainperf.core.run_directory import (
    ANALYSIS_SUFFIX,
    REPORT,
    SUMMARY,
    TB,
    TRACES,
    copy_joined,
    rank_and_attempt,
)
from trainperf.core.spool import note_uploaded, url_of
from trainperf.core.spool.mirror import Mirror
from trainperf.core.window import RunWindow


_MADE_ANEW = {SUMMARY, REPORT, Manifest.file}
"""Files about all ranks: that of a part does not hold for the whole run."""


def joined(runs: Sequence[Run], window: RunWindow | None = None) -> Run:
    """One run of several directories; documents, such as an audit, are those of the last.

    Args:
        runs: In any order.
        window: What is read of all of it.

    Raises:
        RunError: They are not of one job, or there is no step in the window.
    """
    ordered = sorted(runs, key=lambda run: run.attempts[0][0].info.started_at)
    _refuse_other_models(ordered)
    files = [files for run in ordered for files in run.attempts]
    attempts = numbered_on(
        tuple(
            tuple(replace(file, attempt=number) for file in each)
            for number, each in enumerate(files)
        )
    )
    warnings = tuple(dict.fromkeys(warning for run in ordered for warning in run.warnings))
    whole = replace(ordered[-1], attempts=attempts, warnings=warnings)
    return whole.within(window or RunWindow())


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
    _refuse_other_models(parts)
    _refuse_other_ranks(parts)
    _make(into)
    records: list[ManifestRecords] = []
    traces: list[str] = []
    for part in sorted(parts, key=lambda part: part.ranks, reverse=True):
        # What of it can be reached from the new directory only as a copy.
        copied = copy or (isinstance(part.path, Path) and isinstance(into, RemotePath))
        records += _records(part, into if copied else None)
        for below, path in _other_files(part.path):
            if copied or not _is_trace(below):
                copy_joined([path], into / below)
            elif below.startswith(TRACES):
                traces.append(str(path.resolve()))
    if any(not part.startswith(f"{into}/") for each in records for part in each.parts):
        write_document(Manifest(records=tuple(records), traces=tuple(sorted(traces))), into)
    return Run.open(into)


def _make(into: AnyPath) -> None:
    if into.exists():
        raise RunError(f"{into}: exists already; name a directory that does not")
    if isinstance(into, Path):
        into.mkdir(parents=True)


def _records(part: Run, into: AnyPath | None) -> Iterator[ManifestRecords]:
    """Its record files, copied if *into* is given.

    Those that cannot be read are among them: whoever reads the whole says so.
    """
    files, _ = record_files(part.path, listed(part.path))
    for (rank, attempt), parts in files.items():
        paths = [each.path.resolve() for each in parts]
        if into is not None:
            for path in paths:
                copy_joined([path], into / path.name)
            paths = [into / path.name for path in paths]
        yield ManifestRecords(
            rank=rank,
            attempt=attempt,
            parts=tuple(map(str, paths)),
            size_bytes=sum(each.size_bytes for each in parts),
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


def _refuse_other_models(runs: Sequence[Run]) -> None:
    """Directories of one job: one model, and none of them twice."""
    first, places = runs[0], [str(run.path.resolve()) for run in runs]
    for run, place in zip(runs, places, strict=True):
        if places.count(place) > 1:
            raise RunError(f"{run.path}: given twice; name each directory once")
        if run.info.config.get("parameters") != first.info.config.get("parameters"):
            raise RunError(
                f"{run.path}: another model than in {first.path}; give the directories of one job"
            )


def _refuse_other_ranks(parts: Sequence[Run]) -> None:
    """Directories of one run: of as many ranks, and none of them twice."""
    files: dict[tuple[int, int], RecordFile] = {}
    for file in (file for part in parts for attempt in part.attempts for file in attempt):
        other = files.setdefault((file.rank, file.attempt), file)
        if other is not file:
            raise RunError(
                f"{file.path}: rank {file.rank} is in {other.path.parent} as well; merge the "
                "directories of one run"
            )
        if file.info.world_size != parts[0].info.world_size:
            raise RunError(
                f"{file.path}: a run of {file.info.world_size} ranks, but {parts[0].path} is one "
                f"of {parts[0].info.world_size}; merge the directories of one run"
            )

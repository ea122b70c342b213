"""Joining of run directories: of one job after each restart, or of ranks without shared storage.

Directories that one job wrote become attempts of one run, in the order in which they began: steps
are numbered on, and the time between two is a `restart` gap.

Directories of ranks are copied into a new one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.window import numbered_on
from trainperf.core.errors import RunError
from trainperf.core.paths import AnyPath, listed
from trainperf.core.run_directory import REPORT, SUMMARY, copy_file
from trainperf.core.spool import note_uploaded, upload, url_of
from trainperf.core.window import RunWindow


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


def merge(parts: Sequence[Run], into: AnyPath) -> Run:
    """Copy all parts into one new run directory, and open it.

    Nothing is computed here, and the parts stay as they are.  Where two parts have a file of one
    name that is not a rank's own, e.g. an audit, that of the lowest rank is taken.

    Args:
        parts: The run directories.
        into: The new one.  That of a kept spool exists already, and gets what it lacks.

    Raises:
        RunError: *into* exists, or the parts are not ranks of one run; nothing was written then.
        OSError: A file cannot be read or written.
    """
    if len(parts) == 1 and str(into) == url_of(parts[0].path):
        upload(parts[0].path, into, {}, rank=None)
        note_uploaded(parts[0].path)
        return Run.open(into)
    _refuse_other_models(parts)
    _refuse_other_ranks(parts)
    if into.exists():
        raise RunError(f"{into}: exists already; name a directory that does not")
    for part in sorted(parts, key=lambda part: part.ranks, reverse=True):
        for below, path in _files(part.path):
            copy_file(path, into / below)
    return Run.open(into)


def _files(directory: AnyPath, above: str = "") -> Iterator[tuple[str, AnyPath]]:
    """Every file that holds for any run it is a part of, by its path below the directory."""
    for file in listed(directory):
        below = f"{above}{file.path.name}"
        if file.is_dir:
            yield from _files(file.path, f"{below}/")
        elif below not in (SUMMARY, REPORT):
            yield below, file.path


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

"""Merging of the directories that ranks without a shared file system wrote for one run."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from trainperf.analysis.run.directory import RecordFile, Run
from trainperf.core.errors import RunError
from trainperf.core.run_directory import REPORT, SUMMARY


_MADE_ANEW = {SUMMARY, REPORT}
"""Files about all ranks: that of a part does not hold for the whole run."""


def merge(parts: Sequence[Run], into: Path) -> Run:
    """Copy the files of all parts into one new run directory, and open it.

    Nothing is computed here, and the parts stay as they are.  Where two parts have a file of one
    name that is not a rank's own, e.g. an audit, that of the lowest rank is taken.

    Raises:
        RunError: *into* exists, or the parts are not ranks of one run; nothing was copied then.
        OSError: A file cannot be read or written.
    """
    _refuse_strangers(parts)
    try:
        into.mkdir(parents=True)
    except FileExistsError:
        raise RunError(f"{into}: exists already; name a directory that does not") from None
    for part in sorted(parts, key=lambda part: part.ranks, reverse=True):
        shutil.copytree(
            part.path,
            into,
            ignore=lambda _, names: _MADE_ANEW.intersection(names),
            dirs_exist_ok=True,
        )
    return Run.open(into)


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

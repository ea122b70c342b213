"""Which run does a training script leave?  The script runs in a child process of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainperf.core.errors import ConfigError, RunError
from trainperf.core.run_directory import RECORD_FILES


@contextmanager
def run_of(script: Path, below: Path | None) -> Iterator[Path]:
    """Run *script* and yield the directory of the run that it wrote.

    What it prints goes to stderr.  Its working directory is ours if *below* is given; else an
    empty one, where Lightning leaves its runs, and which is removed afterwards.

    Raises:
        ConfigError: There is no such script.
        RunError: It left no run.
    """
    if not script.is_file():
        raise ConfigError(f"{script}: no such file; give the script that trains")
    with tempfile.TemporaryDirectory(prefix="trainperf-doctor-") as empty:
        place = Path(empty) if below is None else below
        before = _written(place)
        code = subprocess.run(  # noqa: S603 the user asked for this script
            [sys.executable, str(script.resolve())],
            cwd=empty if below is None else None,
            stdout=sys.stderr,
            stdin=subprocess.DEVNULL,
            check=False,
        ).returncode
        after = _written(place)
        new = [file for file in after if after[file] != before.get(file)]
        if not new:
            ended = f"ended with exit code {code} and " if code else ""
            raise RunError(
                f"{script}: {ended}wrote no run below {below or 'its working directory'}; add "
                "TrainPerf() to its Trainer, or give the directory it writes to"
            )
        yield max(new, key=lambda file: after[file]).parent


def _written(place: Path) -> dict[Path, int]:
    """Record files of the first rank below a directory, and when each was last written, in ns."""
    files = place.rglob(RECORD_FILES) if place.is_dir() else ()
    return {file: file.stat().st_mtime_ns for file in files}

"""`trainperf doctor RUN`: health checks on a run, or on the run that a script leaves."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from trainperf.commands._options import add_format_option
from trainperf.commands.cli import Command, CommandResult
from trainperf.core.errors import ConfigError, RunError
from trainperf.core.places import AnyPath, RemotePath, path_of
from trainperf.core.run_directory import RECORD_FILES
from trainperf.reports import NAMES


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        type=path_of,
        nargs="?",
        help="run directory, or a directory above it, by path or URL",
    )
    parser.add_argument(
        "--script",
        metavar="FILE",
        type=Path,
        help="run this training script first, then check the run it leaves below RUN, or without "
        "RUN in an empty working directory (default: nothing is run)",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        type=path_of,
        help="earlier run to compare precision and loss with (default: neither is compared)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a check failed, rather than with 0"
    )
    add_format_option(parser, NAMES)


def _run(given: argparse.Namespace) -> CommandResult:
    if given.script is not None:
        with _run_of(given.script, given.run) as run:
            return _checked(run, given.script.name, given)
    if given.run is None:
        raise ConfigError("no RUN: give a run directory, or --script FILE; see trainperf doctor -h")
    return _checked(given.run, None, given)


COMMAND = Command(
    name="doctor",
    about="Check the health of a run: what passes, what fails, and the evidence for each.",
    examples=("runs/a", "runs/b --baseline runs/a --strict", "--script train.py"),
    add_arguments=_add_arguments,
    run=_run,
)


def _checked(path: AnyPath, name: str | None, given: argparse.Namespace) -> CommandResult:
    """Check the run at or below *path*, called *name* or else by its directory."""
    from trainperf.analysis.doctor import Case, examined
    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.summarize import examine
    from trainperf.analysis.summary.loss_parity import parity
    from trainperf.reports.doctor import checkup_document
    from trainperf.reports.layout.forms import rendered

    now_s = datetime.now(tz=timezone.utc).timestamp()
    run = Run.open(path)
    case = Case(evidence=examine(run, now_s=now_s))
    if given.baseline is not None:
        before = Run.open(given.baseline)
        case = Case(
            evidence=case.evidence,
            baseline=examine(before, now_s=now_s),
            parity=parity(run, before),
        )
    checkup = examined(case)
    title = name or case.summary.run.name
    text = rendered(checkup_document(checkup, title), checkup, given.format, sys.stdout)
    return CommandResult(text=text, code=1 if given.strict and checkup.number("fail") else 0)


@contextmanager
def _run_of(script: Path, below: AnyPath | None) -> Iterator[Path]:
    """Run *script* in a child process and yield the directory of the run that it wrote.

    Its output goes to stderr.  Its working directory is ours if *below* is given; else an empty
    one, where Lightning leaves its runs, and which is removed afterwards.
    """
    if not script.is_file():
        raise ConfigError(f"{script}: no such file; give the script that trains")
    if isinstance(below, RemotePath):
        raise ConfigError(f"{below}: a script's run is looked for on this machine; give a path")
    with tempfile.TemporaryDirectory(prefix="trainperf-doctor-") as empty:
        folder = Path(empty) if below is None else below
        before = _record_files(folder)
        code = subprocess.run(  # noqa: S603 the user asked for this script
            [sys.executable, str(script.resolve())],
            cwd=empty if below is None else None,
            stdout=sys.stderr,
            stdin=subprocess.DEVNULL,
            check=False,
        ).returncode
        after = _record_files(folder)
        written = [file for file in after if after[file] != before.get(file)]
        if not written:
            ended = f"ended with exit code {code} and " if code else ""
            raise RunError(
                f"{script}: {ended}wrote no run below {below or 'its working directory'}; add "
                "TrainPerf() to its Trainer or LoopMonitor to its loop, or give the directory it "
                "writes to"
            )
        yield max(written, key=lambda file: after[file]).parent


def _record_files(folder: Path) -> dict[Path, int]:
    """Record files below a folder, and when each was last written, in ns."""
    files = folder.rglob(RECORD_FILES) if folder.is_dir() else ()
    return {file: file.stat().st_mtime_ns for file in files}

"""`trainperf view RUN`: TensorBoard on a run, at this machine's own address."""

import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from trainperf.errors import ConfigError, RunError
from trainperf.run import Run


HOST = "127.0.0.1"

_TAB = "#trainperf"


def view(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run directory, or one above it.", show_default=False),
    ],
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Port, 0 for any; 6006 or the next that is free."
        ),
    ] = None,
) -> str:
    """Show a run in TensorBoard, also while it is training; Ctrl-C ends it."""
    address = _served(_log_directory(run), port)
    sys.stdout.write(f"trainperf: {address}{_TAB}\n")
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return "\n"
    return ""


def _log_directory(run: Path) -> Path:
    """A run is seen beside the runs next to it; a directory above runs is what was asked for."""
    try:
        found = Run.open(run)
    except RunError:
        # The tab looks deeper, and shows the readable ones of several runs.
        if run.is_dir() and next(run.rglob("steps-rank*.jsonl"), None):
            return run
        raise
    return found.path.parent if run.resolve() in {found.path.resolve(), *_files(found)} else run


def _files(run: Run) -> set[Path]:
    return {file.path.resolve() for files in run.attempts for file in files}


def _served(logdir: Path, port: int | None) -> str:
    """Start TensorBoard in this process; its address."""
    if find_spec("tensorboard") is None:
        raise ConfigError("tensorboard: not installed; pip install tensorboard")
    # It takes seconds to load, which no other subcommand shall wait for.
    from tensorboard import default, program  # noqa: PLC0415

    server = program.TensorBoard(default.get_plugins())
    # Without a port given TensorBoard goes on to the next one where another of it is running.
    chosen = [] if port is None else ["--port", str(port)]
    server.configure(argv=["tensorboard", "--logdir", str(logdir), "--host", HOST, *chosen])
    try:
        address: str = server.launch()
    except program.TensorBoardServerException as error:
        said = "" if port is None else f"--port {port}: "
        raise ConfigError(f"{said}{error.msg}; try --port 0") from None
    return address

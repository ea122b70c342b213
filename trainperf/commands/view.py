"""`trainperf view RUN`: TensorBoard on a run, at this machine's own address."""

import argparse
import sys
import threading
from pathlib import Path

from trainperf.commands.cli import Command
from trainperf.core.errors import ConfigError, RunError
from trainperf.core.run_directory import RECORD_FILES


HOST = "127.0.0.1"

_TAB = "#trainperf"
_LAST_PORT = 65535


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory, or one above it")
    parser.add_argument(
        "--port", type=_port, help="0 for any; by default 6006 or the next that is free"
    )


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text}: must be a number from 0 to {_LAST_PORT}")
    return port


def _run(given: argparse.Namespace) -> str:
    address = _served(_log_directory(given.run), given.port)
    sys.stdout.write(f"trainperf: {address}{_TAB}\n")
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return "\n"
    return ""


VIEW = Command(
    name="view",
    about="Show a run in TensorBoard, also while it is training; Ctrl-C ends it.",
    declare=_declare,
    run=_run,
)


def _log_directory(run: Path) -> Path:
    """A run is seen beside the runs next to it; a directory above runs is what was asked for."""
    from trainperf.analysis.run.directory import Run

    try:
        found = Run.open(run)
    except RunError:
        # The tab looks deeper, and shows the readable ones of several runs.
        if run.is_dir() and next(run.rglob(RECORD_FILES), None):
            return run
        raise
    files = {file.path.resolve() for attempt in found.attempts for file in attempt}
    return found.path.parent if run.resolve() in {found.path.resolve(), *files} else run


def _served(logdir: Path, port: int | None) -> str:
    """Start TensorBoard in this process; its address."""
    try:
        from tensorboard import default, program
    except ModuleNotFoundError:
        raise ConfigError("tensorboard: not installed; pip install tensorboard") from None
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

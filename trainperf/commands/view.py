"""`trainperf view RUN`: TensorBoard on a run, served to this machine only."""

import argparse
import sys
import threading
from pathlib import Path

from trainperf.commands.cli import Command
from trainperf.core.errors import ConfigError
from trainperf.core.paths import AnyPath, is_remote, path_of
from trainperf.core.run_directory import RECORD_FILES


HOST = "127.0.0.1"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        type=path_of,
        help="run directory, or a directory above it, on this machine",
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=_port,
        help="port to listen on, on 127.0.0.1; 0 is any free one (default: 6006, or the next free)",
    )


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port < 2**16:
        raise argparse.ArgumentTypeError(f"{text}: must be a number from 0 to 65535")
    return port


def _run(given: argparse.Namespace) -> str:
    address = _served(_log_directory(given.run), given.port)
    sys.stdout.write(f"trainperf: {address}#trainperf\n")
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return "\n"
    return ""


COMMAND = Command(
    name="view",
    about="Open a run in TensorBoard, also while it is training; Ctrl-C stops it.",
    add_arguments=_add_arguments,
    run=_run,
    examples=("runs/a", "runs --port 0"),
)


def _log_directory(run: AnyPath) -> Path:
    """The folder that holds the run and its neighbours; a folder of runs stands for itself."""
    from trainperf.analysis.run.directory import Run

    if is_remote(run):
        raise ConfigError(
            f"{run}: TensorBoard reads directories of this machine; copy it with `trainperf merge "
            f"{run} --out {run.name}`"
        )
    folder = run.parent if run.is_file() else run
    if next(folder.glob(RECORD_FILES), None):
        return folder.parent
    # The tab searches deeper, and shows those of several runs that can be read.
    if next(folder.rglob(RECORD_FILES), None) is None:
        Run.open(run)
    return folder


def _served(logdir: Path, port: int | None) -> str:
    """Start TensorBoard in this process and return its address."""
    try:
        from tensorboard import default, program
    except ModuleNotFoundError:
        raise ConfigError("tensorboard: not installed; pip install tensorboard") from None
    server = program.TensorBoard(default.get_plugins())
    # Without a port TensorBoard takes the next free one.
    port_option = [] if port is None else ["--port", str(port)]
    server.configure(argv=["tensorboard", "--logdir", str(logdir), "--host", HOST, *port_option])
    try:
        address: str = server.launch()
    except program.TensorBoardServerException as error:
        where = "" if port is None else f"--port {port}: "
        raise ConfigError(f"{where}{error.msg}; try --port 0") from None
    return address

"""`trainperf view RUN`: TensorBoard on a run, served to this machine only."""

import argparse
import sys

from trainperf.commands._options import location
from trainperf.commands.cli import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        type=location,
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
    import threading

    from trainperf.commands._tab import log_directory, serve

    address = serve(log_directory(given.run), given.port)
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

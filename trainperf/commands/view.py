"""`trainperf view RUN`: TensorBoard on a run, served to this machine only."""

import argparse
import sys

from trainperf.commands._options import at_least, location
from trainperf.commands.cli import Command, argument


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
    arguments=(
        argument(
            "run",
            metavar="RUN",
            type=location,
            help="run directory, or a directory above it, on this machine",
        ),
        argument(
            "--port",
            metavar="N",
            type=at_least(0, most=65535),
            help="port to listen on, on 127.0.0.1; 0 is any free one (default: 6006, or the next "
            "free)",
        ),
    ),
    run=_run,
    examples=("runs/a", "runs --port 0"),
)

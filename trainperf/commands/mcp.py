"""`trainperf mcp`: the commands as tools of an assistant that speaks the Model Context Protocol."""

import argparse

from trainperf.commands.cli import Command, argument
from trainperf.core.errors import ConfigError


def _run(given: argparse.Namespace) -> str:
    from importlib.util import find_spec

    from trainperf.core.paths import local_path

    root = local_path(given.root)
    if not root.is_dir():
        raise ConfigError(f"--root {root}: no such folder; give the one that has runs and scripts")
    if find_spec("mcp") is None:
        raise ConfigError('trainperf mcp needs the mcp package: pip install "trainperf[mcp]"')
    from trainperf.commands._mcp_tools import serve

    serve(root, allow_run=given.allow_run)
    return ""


COMMAND = Command(
    name="mcp",
    about="Serve report, findings, compare and explain to an assistant (MCP, on stdio).",
    examples=("--root .", "--root ~/project --allow-run"),
    arguments=(
        argument(
            "--root",
            metavar="DIR",
            default=".",
            help="folder that the tools see: runs and scripts outside of it are refused "
            "(default: .)",
        ),
        argument(
            "--allow-run",
            action="store_true",
            help="offer try and prove too, which start training scripts below the root; otherwise "
            "nothing is started or written",
        ),
    ),
    run=_run,
)

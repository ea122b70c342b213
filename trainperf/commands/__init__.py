"""The command line: one file and one line here per subcommand.

A file of the family defines `COMMAND`; its name is the subcommand's.  Only the one that runs is
loaded, and nothing here imports torch.
"""

from trainperf.commands.cli import dispatch


COMMANDS = (
    "run",
    "try",
    "report",
    "watch",
    "compare",
    "prove",
    "bisect",
    "doctor",
    "trace",
    "explain",
    "view",
    "merge",
    "import",
    "mcp",
    "completion",
)
"""The subcommands, in the order of `trainperf --help`."""


def main() -> int:
    """Run `trainperf` with the process's arguments and return the exit code.

    0; 1 if a gate was asked for and failed; 2 for unusable input, reported in one line on stderr.
    """
    return dispatch(__name__, COMMANDS)

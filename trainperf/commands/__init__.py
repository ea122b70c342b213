"""The command line.  To add a subcommand: a file here and a line in `COMMANDS`.

Offline only: nothing here imports torch.
"""

from trainperf.commands.cli import Command, dispatch
from trainperf.commands.compare import COMPARE
from trainperf.commands.doctor import DOCTOR
from trainperf.commands.merge import MERGE
from trainperf.commands.prove import PROVE
from trainperf.commands.report import REPORT
from trainperf.commands.run import RUN
from trainperf.commands.trace import TRACE
from trainperf.commands.view import VIEW


COMMANDS: tuple[Command, ...] = (RUN, REPORT, COMPARE, PROVE, DOCTOR, TRACE, VIEW, MERGE)

__all__ = ["COMMANDS", "Command", "main"]


def main() -> int:
    """Run `trainperf` with the process's arguments and return the exit code.

    0; 1 if a gate was asked for and failed; 2 for unusable input, said in one line on stderr.
    """
    return dispatch(COMMANDS)

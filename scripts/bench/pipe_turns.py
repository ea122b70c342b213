"""Processes that take turns: the one that started them says through pipes whose block it is."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from scripts.bench.alternation import Turns


MARK = "block over:"
"""Begins what a process tells its parent."""


class PipeTurns(Turns):
    """Turns that the parent process gives, line by line."""

    def swap(self, me: int) -> None:
        """Say that the block is over, and wait for the next turn."""
        del me
        print(MARK, file=sys.__stdout__, flush=True)
        sys.stdin.readline()


def let_go_on(child: "subprocess.Popen[str]") -> None:
    """Give the child its turn."""
    if child.stdin is not None:
        child.stdin.write("\n")
        child.stdin.flush()


def heard(child: "subprocess.Popen[str]") -> str:
    """What the child tells next: nothing as its block is over, and figures at its end.

    Raises:
        RuntimeError: It has ended without a word.
    """
    for line in child.stdout or ():
        if line.startswith(MARK):  # a launcher may speak too
            return line.removeprefix(MARK)
    raise RuntimeError(f"a process ended with {child.wait()}: its error is above")


def figures_in_turns(children: "Sequence[subprocess.Popen[str]]", blocks: int) -> list[Any]:
    """What each child tells at its end, after so many blocks in which who goes first changes."""
    for child in children:
        heard(child)  # warmed up
    for block in range(blocks):
        for child in children if block % 2 else children[::-1]:
            let_go_on(child)
            heard(child)
    figures = []
    for child in children:
        let_go_on(child)
        figures.append(json.loads(heard(child)))
        child.communicate()
    return figures

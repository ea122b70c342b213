"""Where is a container filled, and where is code?  Lines of source, as people write them."""

import linecache
import os
import re
from pathlib import Path
from types import CodeType


_METHODS = "append|appendleft|extend|add|insert|update"
_FILLS = rf"\s*(?:\[[^\]]*\]\s*)?(?:\.(?:{_METHODS})\(|\[.*\]\s*=[^=]|\+=)"
"""What follows a name where something is put into what it names."""


def place(file: str, line: int) -> str:
    """`file:line`, the file relative to the working directory where it lies below it."""
    path, here = Path(file), Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{os.fspath(shown)}:{line}"


def filled_in(code: CodeType, name: str) -> str:
    """The first line of a function that puts something into the variable *name*; else its own."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    last = max(lines, default=code.co_firstlineno)
    found = _search(code.co_filename, rf"(?<![\w.]){re.escape(name)}", code.co_firstlineno, last)
    return place(code.co_filename, found or code.co_firstlineno)


def filled_as_attribute(file: str, name: str) -> str:
    """The first line of a file that puts something into an attribute *name*; empty if none does."""
    found = _search(file, rf"\.{re.escape(name)}", 1, len(linecache.getlines(file)))
    return place(file, found) if found else ""


def filled_as_global(file: str, name: str) -> str:
    """The first line of a file that puts something into its global *name*; empty if none does."""
    found = _search(file, rf"(?<![\w.]){re.escape(name)}", 1, len(linecache.getlines(file)))
    return place(file, found) if found else ""


def _search(file: str, name: str, first: int, last: int) -> int | None:
    wanted = re.compile(name + _FILLS)
    lines = linecache.getlines(file)
    for number in range(first, min(last, len(lines)) + 1):
        if wanted.search(lines[number - 1]):
            return number
    return None

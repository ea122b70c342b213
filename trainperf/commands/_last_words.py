"""Reason of a failed training, from what it has printed: its error, and where, not our report."""

import re


_LAST_LINES = 5
"""Quoted where there is no traceback."""

_TRACEBACK = "Traceback (most recent call last):"
_REPORT = "trainperf · "
"""Begins what we print when a training ends, also one that has failed."""
_RANK = re.compile(r"^(?:\[?default\d+\]?:)?(?:\[?rank\d+\]?:\s?)?")
_LAUNCHER = "ChildFailedError"
"""Of torchrun: that a rank has failed, whose own error is further up."""


def last_words(output: str) -> str:
    """In one line: the error of the last traceback with its innermost frame, or the last lines.

    Example: `RuntimeError: no more data (File "train.py", line 30, in <module>)`.
    """
    lines = [_RANK.sub("", line).rstrip() for line in output.splitlines()]
    report = next((at for at, line in enumerate(lines) if line.startswith(_REPORT)), len(lines))
    for part in (lines[:report], lines[report:]):
        starts = [at for at, line in enumerate(part) if line == _TRACEBACK]
        errors = [error for start in starts if (error := _error(part[start + 1 :]))]
        own = [error for error in errors if _LAUNCHER not in error]
        if own or errors:
            return (own or errors)[-1]
    printed = [line for line in lines[:report] if line] or [line for line in lines if line]
    return " | ".join(printed[-_LAST_LINES:])


def _error(lines: list[str]) -> str:
    """Of the lines behind a traceback's first one; empty where it was cut."""
    frame = ""
    for line in lines:
        if line.startswith('  File "'):
            frame = line.strip()
        elif line and not line.startswith(" "):
            return f"{line} ({frame})" if frame else line
    return ""

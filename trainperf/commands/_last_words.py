"""Reason of a failed training, from what it has printed: its error, and where, not our report."""

import re


_LAST_LINES = 5
"""Quoted where there is no traceback."""

_ERROR = re.compile(
    r"^Traceback \(most recent call last\):\n((?:[ ].*\n|\n)*)(\S.*)$", re.MULTILINE
)
"""The frames of a traceback, and its error."""

_FRAME = re.compile(r'^  (File ".*)$', re.MULTILINE)
_REPORT = re.compile(r"^trainperf · .*", re.MULTILINE | re.DOTALL)
"""What we print when a training ends, also one that has failed."""

_RANK = re.compile(r"^(?:\[?default\d+\]?:)?(?:\[?rank\d+\]?:[ ]?)?", re.MULTILINE)
_LAUNCHER = "ChildFailedError"
"""Of torchrun: that a rank has failed, whose own error is further up."""


def last_words(output: str) -> str:
    """In one line: the error of the last traceback with its innermost frame, or the last lines.

    Example: `RuntimeError: no more data (File "train.py", line 30, in <module>)`.
    """
    text = _RANK.sub("", output)
    before = _REPORT.sub("", text)
    errors = _ERROR.findall(before) or _ERROR.findall(text)
    own = [each for each in errors if _LAUNCHER not in each[1]]
    for frames, error in (own or errors)[-1:]:
        frame = _FRAME.findall(frames)
        return f"{error} ({frame[-1]})" if frame else error
    printed = [line.rstrip() for line in (before.strip() or text).splitlines() if line.strip()]
    return " | ".join(printed[-_LAST_LINES:])

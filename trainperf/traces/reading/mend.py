"""Repair of damaged events: text in, valid JSON out, where that can be told.

Profilers of the past wrote names as they came: control characters, backslashes of Windows paths,
bare quotes, bytes of another encoding, halves of surrogate pairs; and numbers JSON has no word for.
"""

import re


_STRICT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_LOOSE = r'".*?"(?=\s*(?:[}\]:]|,\s*["{\[\d\-tfn]))'
"""Up to the first quote behind which a value may end: a bare quote inside has words around it."""

_FIELDS = re.compile(r'(?<!\\)"\s*:|[{,]\s*"')
"""A bare quote where a key starts or ends."""

_NO_NUMBER = r"-?\b(?:NaN|nan|Infinity|inf)\b|[-+\d.eE]{400,}"
_WITHIN = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r'|(?P<valid>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|(?P<backslash>\\)"
    r'|(?P<quote>")'
    r"|(?P<control>[\x00-\x1f])"
)


def mend(piece: bytes, *, loose: bool) -> bytes:
    """The JSON of one event made valid; *loose* also takes quotes inside texts for characters.

    Numbers that JSON does not have become `null`.  The result may still be invalid.
    """
    text = piece.decode("utf-8", errors="replace")
    try:
        return (_LOOSE_TOKEN if loose else _STRICT_TOKEN).sub(_token, text).encode()
    except _TornError:
        return piece


class _TornError(Exception):
    """A text holds what looks like fields: two events in one."""


_STRICT_TOKEN = re.compile(f"{_STRICT}|{_NO_NUMBER}", re.DOTALL)
_LOOSE_TOKEN = re.compile(f"{_LOOSE}|{_NO_NUMBER}", re.DOTALL)


def _token(match_: re.Match[str]) -> str:
    text = match_.group()
    if not text.startswith('"'):
        return "null"
    if _FIELDS.search(text, 1, len(text) - 1):
        raise _TornError
    return f'"{_WITHIN.sub(_character, text[1:-1])}"'


def _character(match_: re.Match[str]) -> str:
    text = match_.group()
    match match_.lastgroup:
        case "half":
            return "\\ufffd"
        case "backslash":
            return "\\\\"
        case "quote":
            return '\\"'
        case "control":
            return f"\\u{ord(text):04x}"
        case _:
            return text

"""Which texts does a trace repeat?  Each is kept once and stands in a column as a number."""

import msgspec

from trainperf.errors import TraceError


MOST_TEXT_CHARACTERS = 2**28
"""All different names of a trace together; real ones stay below a thousandth of it."""

Key = str | int | float | bytes | None


class Names(dict[Key, int]):
    """Text to code, in order of appearance; a text that is new gets the next code."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0

    def __missing__(self, key: Key) -> int:
        self.characters += len(key) if isinstance(key, str | bytes) else 8
        if self.characters > MOST_TEXT_CHARACTERS:
            raise TraceError(
                "its events have names of more than 256 million characters together: "
                "no trace of a training has; nothing was read"
            )
        code = self[key] = len(self)
        return code

    def texts(self) -> list[str]:
        """All texts, each at the place of its code."""
        return [str(key) for key in self]


class Texts:
    """Texts that may be missing, and the ways they are written in the file."""

    def __init__(self) -> None:
        self.names = Names()
        self._raw = Names()
        self._codes: list[int] = []

    def code(self, text: Key) -> int:
        """Code of a text."""
        return self.names[str(text)]

    def json(self, body: bytes) -> int:
        """Code of a JSON value, written without blanks."""
        known = self._raw[body]
        if known == len(self._codes):
            self._codes.append(self.names[_compact(body)])
        return self._codes[known]


def _compact(body: bytes) -> str:
    try:
        return msgspec.json.format(body, indent=-1).decode("utf-8", errors="replace")
    except (msgspec.DecodeError, RecursionError):
        return body.decode("utf-8", errors="replace")


class Threads(dict[tuple[Key, Key], int]):
    """A pair of process and thread, as number or text, to one code for both spellings."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: dict[tuple[str, str], int] = {}

    def __missing__(self, key: tuple[Key, Key]) -> int:
        pair = (str(key[0]), str(key[1]))
        code = self[key] = self.pairs.setdefault(pair, len(self.pairs))
        return code

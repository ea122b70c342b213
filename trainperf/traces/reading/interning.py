"""Kinds of events, and interned texts: each is kept once and stands in a column as a number."""

import re

import msgspec

from trainperf.core.errors import TraceError
from trainperf.traces.event_table import Kind


MEMORY_NAME = "[memory]"
MEMORY_CATEGORY = "cpu_instant_event"

_BY_CATEGORY = {
    "cpu_op": Kind.CPU_OP,
    "operator": Kind.CPU_OP,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "python_function": Kind.PYTHON,
    MEMORY_CATEGORY: Kind.MEMORY,
    "overhead": Kind.OVERHEAD,
}

_BY_ENDING = (("_runtime", Kind.RUNTIME), ("_driver", Kind.RUNTIME), ("_sync", Kind.DEVICE_SYNC))
"""`cuda_runtime`, `hip_runtime`, `xpu_driver`, `cuda_sync` and those of devices to come."""

_ANNOTATION = re.compile(
    r"ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.|nccl:|gloo:|## "
)
"""Names of ranges that PyTorch itself opens, which old profilers wrote as operators."""


def kind_of(category: str | None) -> Kind:
    """The kind by category alone; `OTHER` for one that is not known."""
    lowered = (category or "").lower()
    if lowered in _BY_CATEGORY:
        return _BY_CATEGORY[lowered]
    for ending, kind in _BY_ENDING:
        if lowered.endswith(ending):
            return kind
    return Kind.OTHER


def is_annotation(name: str) -> bool:
    """Whether an operator of this name is a range in truth.

    Told by the name, since the traces of 2021 have one category for both.  A range that a user
    named cannot be told from an operator there, and stays one.
    """
    return _ANNOTATION.match(name) is not None


MOST_CATEGORIES = 1000

Key = str | int | float | bytes | None


class Names(dict[Key, int]):
    """Text to code, in order of appearance; a text that is new gets the next code."""

    def __init__(self, most_characters: int) -> None:
        super().__init__()
        self.keys_in_order: list[Key] = []
        self._left = most_characters

    def __missing__(self, key: Key) -> int:
        self._left -= len(key) if isinstance(key, str | bytes) else 8
        if self._left < 0:
            raise TraceError(
                "the names of its events take more memory than those of any real trace; "
                "raise the limit if you trust it"
            )
        code = self[key] = len(self.keys_in_order)
        self.keys_in_order.append(key)
        return code

    def texts(self) -> list[str]:
        """All texts, each at the place of its code."""
        return [str(key) for key in self.keys_in_order]


class Texts:
    """Texts that may be missing, and the ways they are written in the file."""

    def __init__(self, most_characters: int) -> None:
        self.names = Names(most_characters)
        self._raw = Names(most_characters)
        self._codes: list[int] = []

    def code(self, text: Key) -> int:
        """Code of a text."""
        return self.names[str(text)]

    def json(self, raw: msgspec.Raw) -> int:
        """Code of a JSON value, written without blanks."""
        body = bytes(raw)
        place = self._raw[body]
        if place == len(self._codes):
            self._codes.append(self.names[_compact(body)])
        return self._codes[place]


def _compact(body: bytes) -> str:
    try:
        return msgspec.json.format(body, indent=-1).decode("utf-8", errors="replace")
    except (msgspec.DecodeError, RecursionError):
        return body.decode("utf-8", errors="replace")


class Kinds(dict[str | None, Kind]):
    """Category to kind, looked up once."""

    def __missing__(self, category: str | None) -> Kind:
        kind = kind_of(category)
        if len(self) < MOST_CATEGORIES:
            self[category] = kind
        return kind


class Threads(dict[tuple[Key, Key], int]):
    """A pair of process and thread, as number or text, to one code for both spellings."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: dict[tuple[str, str], int] = {}

    def __missing__(self, key: tuple[Key, Key]) -> int:
        pair = (str(key[0]), str(key[1]))
        code = self[key] = self.pairs.setdefault(pair, len(self.pairs))
        return code


PlaceKey = tuple[str | None, Key, Key]


class Places(dict[PlaceKey, int]):
    """Category, process and thread to one code, which stands for a kind and a thread.

    One look-up an event for what is two columns.
    """

    def __init__(self) -> None:
        super().__init__()
        self.threads = Threads()
        self.kind_of: list[Kind] = []
        self.thread_of: list[int] = []
        self._kinds = Kinds()
        self._codes: dict[tuple[Kind, int], int] = {}

    def __missing__(self, key: PlaceKey) -> int:
        category, process, row = key
        kind, thread = self._kinds[category], self.threads[(process, row)]
        code = self._codes.setdefault((kind, thread), len(self._codes))
        if code == len(self.kind_of):
            self.kind_of.append(kind)
            self.thread_of.append(thread)
        # A file may have any number of categories; of those that are not kept this is not either.
        if category in self._kinds:
            self[key] = code
        return code

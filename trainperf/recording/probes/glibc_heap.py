"""Memory handed out by the process's C allocator, as glibc counts it, to the byte.

The resident set cannot tell: what was freed stays in it, and what is allocated next goes there.
"""

import ctypes
from collections.abc import Callable


_PROBE_BYTES = 8 << 20
"""An allocation that must show, or another allocator is at work."""


class _MallInfo2(ctypes.Structure):
    """As in malloc.h, since glibc 2.33."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def heap() -> Callable[[], int] | None:
    """A function that tells the bytes in use; `None` where nothing tells, or not the truth."""
    library = ctypes.CDLL(None)
    ask = getattr(library, "mallinfo2", None)
    if ask is None:
        return None
    ask.restype = _MallInfo2

    def in_use() -> int:
        info = ask()
        return int(info.uordblks + info.hblkhd)

    before = in_use()
    held = bytearray(_PROBE_BYTES)
    shows = in_use() - before >= len(held)
    return in_use if shows else None

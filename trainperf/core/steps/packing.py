"""The low-priority process that packs parts of a record file, `python -m …`.

A part is packed when a later one is written to.  The packed one is on the disk before the other is
taken away: at any moment, also after a crash, at least one of them is whole, and where both are,
readers take the packed one.
"""

import os
import signal
import sys
from pathlib import Path

from trainperf.core.machine.processes import run_beside_parent
from trainperf.core.run_directory import drafted, last_part, packed_part, part_number, record_part
from trainperf.core.steps.codec import decode_info
from trainperf.core.steps.packed import packed


def pack_parts(first: Path) -> int:
    """Pack all parts of a record file but the last; returns how many were.

    Args:
        first: Its first part.

    Raises:
        OSError: A part cannot be read, or the packed one not be written.
        RunError: The file has no readable header.
    """
    number_packed = 0
    for number in range(part_number(last_part(first).name)):
        part = first.with_name(record_part(first.name, number))
        if not part.exists():
            continue
        if not packed_part(part).exists():
            content = _packed(part, first)
            if content is None:
                continue
            with drafted(packed_part(part)) as draft, draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            number_packed += 1
        part.unlink(missing_ok=True)
    return number_packed


def _packed(part: Path, first: Path) -> bytes | None:
    """`None` where the part stays as it is: it is damaged, or would not become smaller."""
    *lines, rest = part.read_bytes().split(b"\n")
    if rest:
        return None  # cut in the middle of a line
    if part == first:
        info = decode_info(lines.pop(0))
    else:
        with (first if first.exists() else packed_part(first)).open("rb") as file:
            info = decode_info(file.readline())
    content = packed(info, lines)
    return content if content is not None and len(content) < part.stat().st_size else None


if __name__ == "__main__":
    run_beside_parent(signal.SIGTERM)
    pack_parts(Path(sys.argv[1]))

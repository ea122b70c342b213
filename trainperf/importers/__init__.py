"""The formats of logs that become run directories, one file each, in display order.

To add one: a file that defines `FORMAT`, and its name here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.core.errors import LogError
from trainperf.core.families import load_members
from trainperf.importers.base import LogFormat


FORMATS: tuple[LogFormat, ...] = tuple(
    load_members(
        __name__, ("torchtitan", "deepspeed", "megatron", "huggingface", "mlperf"), "FORMAT"
    )
)

_LOOK_BYTES = 16 << 20
"""Looked at beyond the first line that is recognised: another format may follow."""

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Recognised:
    """The format of some files."""

    kind: LogFormat
    lines: int
    """Lines seen that it is recognised by; 0 where the format was named."""


def recognise(files: Sequence[Path], name: str | None = None) -> Recognised:
    """The one format of all *files*, or the one of that *name*.

    Raises:
        LogError: They have none that is known, or more than one.
        OSError: A file cannot be read.
    """
    if name is not None:
        return Recognised(next(kind for kind in FORMATS if kind.name == name), 0)
    counts: Counter[str] = Counter()
    first: dict[str, Path] = {}
    for file in files:
        of_file = _counts(file)
        if not of_file:
            looked = "; ".join(f"{kind.name}: {kind.marks}" for kind in FORMATS)
            raise LogError(f"{file}: no format that is known; looked for {looked}")
        counts += of_file
        first = {**dict.fromkeys(of_file, file), **first}
    if len(counts) > 1:
        both = " and ".join(
            f"{number:,} of {name} ({first[name].name})" for name, number in counts.most_common()
        )
        raise LogError(
            f"lines of several formats, {both}: give one of them, or choose with --format"
        )
    (only, number), *_ = counts.items()
    return Recognised(next(kind for kind in FORMATS if kind.name == only), number)


def _counts(file: Path) -> Counter[str]:
    """Format to the lines of a file that look like it."""
    counts: Counter[str] = Counter()
    looked = 0
    with file.open("rb") as log:
        while looked < _LOOK_BYTES and (text := log.read(_CHUNK_BYTES) + log.readline()):
            for kind in FORMATS:
                counts[kind.name] += sum(1 for _ in kind.mark.finditer(text))
            looked += len(text) if +counts else 0
    return +counts


__all__ = ["FORMATS", "LogFormat", "Recognised", "recognise"]

"""The formats of logs that become run directories, one file each, in display order.

To add one: a file that defines `FORMAT`, and its name here.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from trainperf.core.errors import LogError
from trainperf.core.families import load_members
from trainperf.importers.base import LogFormat, lines_of


FORMATS: tuple[LogFormat, ...] = tuple(
    load_members(__name__, ("torchtitan", "deepspeed", "megatron", "huggingface", "verl"), "FORMAT")
)
_LOOK_LINES = 100_000
"""Of each file: one that is recognised is not enough, as another format may follow."""


def recognise(files: Sequence[Path], name: str | None = None) -> LogFormat:
    """The one format of all *files*, or the one of that *name*.

    Raises:
        LogError: They have none that is known, or more than one; or there is none of that name.
        OSError: A file cannot be read.
    """
    counts: dict[tuple[str, str], int] = {}
    for file in files if name is None else ():
        lines = islice(lines_of(file), _LOOK_LINES)
        names = Counter(kind.name for line in lines for kind in FORMATS if kind.mark.search(line))
        if not names:
            looked = "; ".join(f"{kind.name}: {kind.marks}" for kind in FORMATS)
            raise LogError(
                f"{file}: no format that is known; looked for {looked} (not read: MLPerf logs, "
                "UTF-16)"
            )
        counts |= {(each, file.name): number for each, number in names.items()}
    kinds = [kind for kind in FORMATS if kind.name in {name, *(each for each, _ in counts)}]
    if not kinds:
        raise LogError(f"--format {name}: there are {', '.join(kind.name for kind in FORMATS)}")
    if len(kinds) > 1:
        both = " and ".join(f"{n:,} of {each} ({file})" for (each, file), n in counts.items())
        raise LogError(
            f"lines of several formats, {both}: give one of them, or choose with --format"
        )
    return kinds[0]


__all__ = ["FORMATS", "LogFormat", "recognise"]

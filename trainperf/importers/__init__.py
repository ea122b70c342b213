"""The formats of logs that become run directories, one file each, in display order.

To add one: a file that defines `FORMAT`, its name here, and as a choice of `import --format`, whose
help loads none of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from trainperf.core.errors import LogError
from trainperf.core.families import load_members
from trainperf.importers.base import LogFormat, lines_of


FORMATS: Mapping[str, LogFormat] = {
    kind.name: kind
    for kind in load_members(
        __name__, ("torchtitan", "deepspeed", "megatron", "huggingface", "verl"), "FORMAT"
    )
}
_LOOK_LINES = 100_000
"""Of each file: one that is recognised is not enough, as another format may follow."""


def recognise(files: Sequence[Path]) -> LogFormat:
    """The one format of all *files*.

    Raises:
        LogError: They have none that is known, or more than one.
        OSError: A file cannot be read.
    """
    counts: dict[tuple[str, str], int] = {}
    for file in files:
        lines = islice(lines_of(file), _LOOK_LINES)
        names = Counter(
            name for line in lines for name, kind in FORMATS.items() if kind.mark.search(line)
        )
        if not names:
            looked = "; ".join(f"{name}: {kind.marks}" for name, kind in FORMATS.items())
            raise LogError(
                f"{file}: no format that is known; looked for {looked} (not read: MLPerf logs, "
                "UTF-16)"
            )
        counts |= {(name, file.name): number for name, number in names.items()}
    first, *others = {name for name, _ in counts}
    if others:
        both = " and ".join(f"{n:,} of {name} ({file})" for (name, file), n in counts.items())
        raise LogError(
            f"lines of several formats, {both}: give one of them, or choose with --format"
        )
    return FORMATS[first]


__all__ = ["FORMATS", "LogFormat", "recognise"]

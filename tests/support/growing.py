"""Runs that are written while somebody looks: the bytes of a run, a part at a time."""

from collections.abc import Sequence
from pathlib import Path

from support.runs import RankSpec, encode_rank, make_info, make_steps

from trainperf.core.run_directory import record_file


class GrowingRun:
    """Record files of which so much is on the disk as was asked for.

    Args:
        path: The run directory.
        ranks: What each rank writes in the end.
    """

    def __init__(self, path: Path, ranks: Sequence[RankSpec]) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.lines = [encode_rank(spec).splitlines(keepends=True) for spec in ranks]
        self.files = [record_file(path, spec.info.rank, spec.attempt) for spec in ranks]
        self.written = [0] * len(ranks)
        self.grow(1)

    def grow(self, lines: int, ranks: Sequence[int] | None = None, cut: int = 0) -> None:
        """Append so many lines to the files of some ranks, the last one cut short."""
        for place in range(len(self.files)) if ranks is None else ranks:
            content = b"".join(self.lines[place])
            end = len(b"".join(self.lines[place][: self.written[place] + lines])) - cut
            begin = self.files[place].stat().st_size if self.files[place].exists() else 0
            with self.files[place].open("ab") as file:
                file.write(content[begin:end])
            self.written[place] += lines

    def finish(self) -> None:
        """Append what is left."""
        self.grow(max(map(len, self.lines)))


def even_ranks(number: int, steps: int, *, end: str | None = "finished") -> list[RankSpec]:
    """Ranks of which each waits a millisecond longer for data than the one before."""
    return [
        RankSpec(
            steps=make_steps(steps, data_wait=5 + rank, forward=10, backward=20),
            info=make_info(rank=rank, world_size=number),
            end=end,
        )
        for rank in range(number)
    ]

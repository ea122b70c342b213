"""What do the traces of all ranks say together?  Finds them, reads them, sets them side by side."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trainperf.core.errors import TraceError
from trainperf.core.formatting.units import plural
from trainperf.traces.findings import findings
from trainperf.traces.headline import answer
from trainperf.traces.rank_results import Analysed, RankCollectives, Wanted
from trainperf.traces.results import RankTrace, TraceReport
from trainperf.traces.trace_files import NAMED, TraceFile, some, trace_files
from trainperf.traces.worker_pool import Outcome, outcomes


__all__ = ["Wanted", "report"]

_MOST_RANKS = 1 << 20
"""A job of more is not believed, and none has to be counted."""


def report(paths: Sequence[Path], wanted: Wanted | None = None) -> TraceReport:
    """Analyse traces: files, or directories with one per rank.

    Of a directory that holds several captures, the last one.

    Raises:
        TraceError: nothing of a named file, or of a whole directory, can be used.
        OSError: a file cannot be read.
    """
    files, said = trace_files([Path(path) for path in paths])
    found, unusable = _usable(files, outcomes(files, wanted or Wanted()))
    said += unusable
    # Numpy, which `outcomes` loads while other processes do.
    from trainperf.traces.stragglers import stragglers  # noqa: PLC0415

    found.sort(key=lambda one: (one.trace.rank is None, one.trace.rank or 0, one.trace.file))
    by_rank, doubled = _by_rank(found)
    late, unlike = stragglers(by_rank)
    ranks = tuple(one.trace for one in found)
    warnings = (*said, *doubled, *_missing(ranks), *unlike, *_of_ranks(ranks))
    out = TraceReport(ranks=ranks, stragglers=late, warnings=warnings)
    out = msgspec.structs.replace(out, findings=findings(out))
    return msgspec.structs.replace(out, answer=answer(out))


def _usable(
    files: Sequence[TraceFile], results: Sequence[Outcome]
) -> tuple[list[Analysed], list[str]]:
    found = [one for one in results if isinstance(one, Analysed)]
    wrong = [one for one in results if isinstance(one, str)]
    if not found:
        said = f": {wrong[0]}" if wrong else ""
        raise TraceError(f"{files[0].path.parent}: no usable trace in this directory{said}")
    return found, [f"left out: {one}" for one in wrong]


def _by_rank(found: Sequence[Analysed]) -> tuple[dict[int, RankCollectives], list[str]]:
    """The ranks to compare; of two traces of one rank the first, which is said."""
    by_rank: dict[int, RankCollectives] = {}
    files: dict[int, list[str]] = defaultdict(list)
    for one in found:
        rank = one.trace.rank
        if rank is not None:
            by_rank.setdefault(rank, one.collectives)
            files[rank].append(one.trace.file)
    said = [
        f"{len(names)} traces say they are of rank {rank}: {some(names)}; ranks are compared "
        "with the first of them"
        for rank, names in files.items()
        if len(names) > 1
    ]
    unknown = sum(one.trace.rank is None for one in found)
    if unknown and len(found) > 1:
        said.append(f"{plural(unknown, 'trace')} without a rank: not compared with the others")
    return by_rank, said


def _missing(ranks: Sequence[RankTrace]) -> list[str]:
    present = {one.rank for one in ranks if one.rank is not None}
    sizes = {one.world_size for one in ranks if one.world_size is not None}
    said = []
    if len(sizes) > 1:
        said.append(f"the traces are of jobs of different size: {some(sorted(map(str, sizes)))}")
    size = max(sizes, default=1)
    missing = size - len(present & set(range(min(size, _MOST_RANKS))))
    if missing > 0 and present:
        first = [str(rank) for rank in range(len(present) + NAMED) if rank not in present][:NAMED]
        named = ", ".join(first[:missing])
        more = f" and {missing - NAMED:,} more" if missing > NAMED else ""
        said.append(
            f"{len(present)} of {size:,} ranks read, without {named}{more}: who is waited for may "
            "be one of those"
        )
    return said


def _of_ranks(ranks: Sequence[RankTrace]) -> list[str]:
    """What each trace must say, with its file where there are several; the same thing once."""
    said: Mapping[str, list[str]] = defaultdict(list)
    for one in ranks:
        for warning in one.warnings:
            said[warning].append(one.file)
    if len(ranks) == 1:
        return list(said)
    return [f"{some(files)}: {warning}" for warning, files in said.items()]

"""How is the analysis of several files shared out?  A second process takes its part of large ones.

It starts before this one loads numpy and all that stands on it: both load at the same time.
"""

from collections.abc import Sequence

from trainperf.traces.rank_results import Analysed, Wanted
from trainperf.traces.trace_files import TraceFile


PROCESSES = 2
"""This one among them: as many tables are in memory at the same time."""

LARGE_BYTES = 4 << 20
"""Files that are together smaller than this are read sooner than a second process starts."""

_AHEAD = 2
"""Files that each other process has been given: the one it reads, and the next."""

Outcome = Analysed | str
"""The analysis of a file, or what is wrong with it."""


def outcomes(files: Sequence[TraceFile], wanted: Wanted) -> list[Outcome]:
    """What each of the files gives; raises as `one.attempt` does."""
    size = {file: file.path.stat().st_size if file.path.exists() else 0 for file in files}
    if len(files) > 1 and sum(size.values()) >= LARGE_BYTES:
        found = _shared(sorted(files, key=lambda file: -size[file]), wanted)
        if found is not None:
            return [found[file] for file in files]
    return [_attempt(file, wanted) for file in files]


def _shared(files: Sequence[TraceFile], wanted: Wanted) -> dict[TraceFile, Outcome] | None:
    """`None` if other processes do not work, as in a script that starts itself anew."""
    # Loading these takes longer than reading a small trace.
    from concurrent.futures import Future, ProcessPoolExecutor  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415
    from multiprocessing import get_context  # noqa: PLC0415

    left = list(files)
    own: dict[TraceFile, Outcome] = {}
    others: dict[TraceFile, Future[Outcome]] = {}
    try:
        with ProcessPoolExecutor(PROCESSES - 1, mp_context=get_context("spawn")) as pool:
            while left:
                busy = sum(not other.done() for other in others.values())
                given = min(_AHEAD * (PROCESSES - 1) - busy, len(left) - 1)
                for file in left[:given]:
                    others[file] = pool.submit(_attempt, file, wanted)
                left = left[given:]
                # The others have the largest, so that the last one to end has a small one.
                mine = left.pop()
                own[mine] = _attempt(mine, wanted)
            return own | {file: other.result() for file, other in others.items()}
    except BrokenProcessPool:
        return None


def _attempt(file: TraceFile, wanted: Wanted) -> Outcome:
    # Numpy and all of the analysis: see above.
    from trainperf.traces.single_trace import attempt  # noqa: PLC0415

    return attempt(file, wanted)

"""The run directory that ranks share: rank 0 chooses, the others ask.

Ranks agree without a collective: a rank on which trainperf is not attached would never enter it,
and the others would hang.  The store of the process group, which every backend has, keeps rank 0's
answer until it is asked for.
"""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from trainperf.core import run_directory, spool
from trainperf.core.errors import ConfigError
from trainperf.core.paths import AnyPath, path_of
from trainperf.recording.guard import R, log
from trainperf.recording.schedule import comes_true


B = TypeVar("B")

PATIENCE_NS = 30_000_000_000
"""How long another rank waits for rank 0's answer before it goes on alone."""

NONE = "-"
"""Rank 0's answer where it writes no run directory."""


def shared_run_directory(
    base: AnyPath | None, rank: int, ranks: int, patience_ns: int = PATIENCE_NS
) -> AnyPath | None:
    """The run directory of this rank: rank 0's, or one of its own if rank 0 publishes none.

    The k-th run of a rank shares the directory of rank 0's k-th run.  Ranks that torch's process
    group knows nothing of choose each by itself.
    """
    if ranks == 1 or not (dist.is_available() and dist.is_initialized()):
        return written(base, run_directory.choose)
    try:
        return _shared(base, rank, patience_ns)
    except RuntimeError as error:  # also of a store that is gone, e.g. with rank 0's process
        run = written(base, run_directory.create)
        if base is not None:
            log.warning(
                "trainperf: there is no run of rank 0 to share (%s), so rank %s writes one of its "
                "own (%s): attach trainperf on every rank, as often on each",
                error,
                rank,
                run,
            )
        return run


def _shared(base: AnyPath | None, rank: int, patience_ns: int) -> AnyPath | None:
    """Rank 0's run of the same number.

    Raises:
        RuntimeError: There is none that this rank can write into.
    """
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 there is no public way
    number = store.add(f"trainperf/runs/{rank}", 1)
    key = f"trainperf/run/{number}"
    if rank == 0:
        run: AnyPath | None = None
        try:
            run = written(base, run_directory.choose)
        finally:  # or the others would wait
            store.set(key, str(run.resolve()) if run is not None else NONE)
        return run
    if not comes_true(lambda: store.check([key]), patience_ns):
        raise RuntimeError(f"rank 0 has begun no run in {patience_ns // 10**9} seconds")
    path = store.get(key).decode()
    if path == NONE:
        return None
    run = path_of(path)
    first = run_directory.record_file(spool.local(run), 0, run_directory.attempt())
    if run_directory.has_ended(first):
        raise RuntimeError(f"rank 0's run number {number} has ended already")
    return run


def written(base: B | None, make: Callable[[B], R]) -> R | None:
    """What *make* makes of a place; `None` with a warning where nothing can be written there."""
    if base is None:
        return None
    try:
        return make(base)
    except (OSError, ConfigError) as error:
        log.warning(
            "trainperf: no run directory can be written (%s): there will be no records and "
            "no report",
            error,
        )
        return None

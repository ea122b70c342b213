"""Which run directory do the ranks of a plain loop share?  Rank 0 says it, and waits for nobody.

Not a collective: a rank without a monitor would never enter it, and the others would hang.  The
store of the process group, which every backend has, keeps the answer until it is asked for.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

from trainperf.core import run_directory
from trainperf.core.machine.clocks import monotonic_ns


log = logging.getLogger("trainperf")

PATIENCE_NS = 30_000_000_000
"""How long another rank waits for rank 0's answer before it goes on alone."""

NONE = "-"
"""Rank 0's answer where it writes no run directory."""

_POLL_S = 0.02


def shared_run_directory(
    base: Path | None, rank: int, ranks: int, patience_ns: int = PATIENCE_NS
) -> Path | None:
    """The run directory for this rank; of its own if rank 0 has none to share.

    The k-th run of a rank shares the directory of rank 0's k-th run.
    """
    if ranks == 1:
        return _made(base, run_directory.choose)
    try:
        return _shared(base, rank, patience_ns)
    except RuntimeError as error:  # the store is gone, e.g. with rank 0's process
        return _alone(base, rank, f"the process group's store failed ({error})")


def _shared(base: Path | None, rank: int, patience_ns: int) -> Path | None:
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 there is no public way
    number = store.add(f"trainperf/runs/{rank}", 1)
    key = f"trainperf/run/{number}"
    if rank == 0:
        run = _made(base, run_directory.choose)
        store.set(key, str(run.resolve()) if run is not None else NONE)
        return run
    deadline = monotonic_ns() + patience_ns
    while not store.check([key]):
        if monotonic_ns() > deadline:
            waited_s = patience_ns // 1_000_000_000
            return _alone(base, rank, f"rank 0 has begun no run in {waited_s} seconds")
        time.sleep(_POLL_S)
    answer = store.get(key).decode()
    if answer == NONE:
        return None
    run = Path(answer)
    if run_directory.has_ended(run_directory.record_file(run, 0, run_directory.attempt())):
        return _alone(base, rank, f"rank 0's run number {number} has ended already")
    return run


def _alone(base: Path | None, rank: int, why: str) -> Path | None:
    run = _made(base, run_directory.create)
    if base is not None:
        log.warning(
            "trainperf: %s, so rank %s writes a run of its own (%s): make a LoopMonitor on every "
            "rank, as often on each",
            why,
            rank,
            run,
        )
    return run


def _made(base: Path | None, make: Callable[[Path], Path]) -> Path | None:
    if base is None:
        return None
    try:
        return make(base)
    except OSError as error:
        log.warning(
            "trainperf: no run directory can be written (%s): nothing is recorded, and no report "
            "will come",
            error,
        )
        return None

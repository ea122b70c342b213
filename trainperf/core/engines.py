"""Engines: where work is done when one process is not enough; executors of Python, or of Dask.

`--engine local[:N]` is processes of this machine.  `--engine dask://HOST:PORT` is a cluster that
`dask scheduler` has started, and `dask worker HOST:PORT` on each machine; its workers need this
version of trainperf, and must reach the files by the names given.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import contextmanager, suppress
from typing import TypeVar

from trainperf.core.errors import ConfigError
from trainperf.core.machine.limits import cpu_count


TIMEOUT_S = 10.0
"""So long a scheduler may take to answer, and its first worker to be there."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def engine_of(name: str | None, *, large: bool) -> Iterator[Executor | None]:
    """The engine of that name, open; `None` for this process.

    Args:
        name: `local`, `local:4`, `dask://HOST:PORT`; `None` for `local` where the input is large.
        large: Whether it is: else it is read before other processes have started.

    Raises:
        ConfigError: There is no such engine, or it cannot be reached; the remedy is in the message.
    """
    kind, _, where = (name or ("local" if large else "local:1")).partition(":")
    if kind == "dask":
        with _dask(where.removeprefix("//")) as executor:
            yield executor
    elif kind == "local" and (not where or (where.isascii() and where.isdigit() and int(where))):
        workers = int(where) if where else cpu_count() or 1
        if workers == 1:
            yield None
            return
        # Loading these takes longer than reading a small file.
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415
        from multiprocessing import get_context  # noqa: PLC0415

        # Forking a process that has threads can leave a lock held for ever.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        raise ConfigError(f"--engine {name}: give local, local:N or dask://HOST:PORT")


def mapped(
    engine: Executor | None, work: Callable[[Task], Result], tasks: Sequence[Task]
) -> list[Result]:
    """The result of each task, in the order of tasks, whoever is ready first.

    If the executor breaks, as when the system ends one of its processes, this process does it all.

    Args:
        engine: Where the work is done; in this process without one.
        work: A function of a module, so that another process can call it.
        tasks: What it is called with.

    Raises:
        Exception: What *work* raised, for the first task that failed.
    """
    if engine is not None:
        with suppress(BrokenExecutor):
            return list(engine.map(work, tasks))
    return [work(task) for task in tasks]


@contextmanager
def _dask(where: str) -> Iterator[Executor]:
    named = f"--engine dask://{where}"
    try:
        from distributed import Client, KilledWorker  # noqa: PLC0415 an extra
        from distributed.comm.core import connect  # noqa: PLC0415 as above
    except ImportError:
        raise ConfigError(f"{named}: needs `pip install 'trainperf[dask]'`") from None
    try:
        # A client's own time-out does not hold where something listens that never answers.
        greeting = connect(f"tcp://{where}")  # type: ignore[no-untyped-call]  # half typed
        asyncio.run(asyncio.wait_for(greeting, TIMEOUT_S)).abort()
        client = Client(f"tcp://{where}", timeout=TIMEOUT_S, set_as_default=False)  # type: ignore[no-untyped-call]
        client.wait_for_workers(1, timeout=TIMEOUT_S)
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        raise ConfigError(
            f"{named}: no scheduler that has a worker answers ({str(error) or 'time-out'}); start "
            f"`dask scheduler`, name the address that it prints, and start `dask worker {where}`"
        ) from None
    with client, client.get_executor(pure=False) as executor:  # type: ignore[no-untyped-call]
        try:
            yield executor
        except (KilledWorker, CancelledError) as error:
            why = type(error).__name__
            raise ConfigError(
                f"{named}: the cluster gave up the work ({why}); look into its workers' log, or "
                "leave --engine out"
            ) from None

"""Processes of this machine: `--engine local[:N]`."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainperf.core.engines.base import Engine
from trainperf.core.errors import ConfigError
from trainperf.core.machine.limits import cpu_count


@contextmanager
def open_engine(where: str) -> Iterator[Engine | None]:
    """So many processes, by default one per processor; `None`, this process, for one.

    They start with the first task.

    Raises:
        ConfigError: *where* is no number of processes.
    """
    if where and not (where.isascii() and where.isdigit() and int(where)):
        raise ConfigError(f"--engine local:{where}: give a number of processes, as in local:4")
    workers = int(where) if where else cpu_count() or 1
    if workers == 1:
        yield None
        return
    # Loading these takes longer than reading a small file.
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415
    from multiprocessing import get_context  # noqa: PLC0415

    # Forking a process that has threads can leave a lock held for ever.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        try:
            yield Engine(executor=executor, workers=workers)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

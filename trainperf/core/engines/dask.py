"""A Dask cluster: `--engine dask://HOST:PORT`, through `distributed`.

Started with `dask scheduler`, and `dask worker HOST:PORT` on each machine.  The workers need this
version of trainperf, and must reach the files by the names given.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager

from trainperf.core.engines.base import Engine
from trainperf.core.errors import ConfigError


TIMEOUT_S = 10.0
"""So long a scheduler may take to answer, and its first worker to be there."""


@contextmanager
def open_engine(where: str) -> Iterator[Engine]:
    """The workers of the scheduler at *where*.

    Raises:
        ConfigError: `distributed` is not installed, no scheduler answers, it has no worker, or the
            cluster fails while it works.
    """
    named, address = f"--engine dask://{where}", f"tcp://{where}"
    try:
        from distributed import Client, KilledWorker  # noqa: PLC0415 an extra
    except ImportError:
        raise ConfigError(f"{named}: needs `pip install 'trainperf[dask]'`") from None
    try:
        # A client's own time-out does not hold where something listens that never answers.
        asyncio.run(asyncio.wait_for(_greet(address), TIMEOUT_S))
        client = Client(  # type: ignore[no-untyped-call]  # half typed
            address, timeout=TIMEOUT_S, set_as_default=False
        )
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        raise ConfigError(
            f"{named}: no scheduler answers ({error or 'time-out'}); start one with `dask "
            "scheduler`, and name the address that it prints"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=TIMEOUT_S)
        except asyncio.TimeoutError:
            raise ConfigError(
                f"{named}: the scheduler has no worker; start one with `dask worker {where}`"
            ) from None
        workers = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        try:
            with client.get_executor(pure=False) as executor:  # type: ignore[no-untyped-call]
                yield Engine(executor=executor, workers=workers)
        except KilledWorker as error:
            raise ConfigError(
                f"{named}: several workers ended while they did the same work, perhaps for want "
                f"of memory: {error}"
            ) from None
        except CancelledError:
            raise ConfigError(f"{named}: the scheduler has gone") from None


async def _greet(address: str) -> None:
    from distributed.comm.core import connect  # noqa: PLC0415 an extra

    comm = await connect(address, timeout=TIMEOUT_S)  # type: ignore[no-untyped-call]
    comm.abort()

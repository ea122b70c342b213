"""Engines: where work is done when one process is not enough; executors of Python or of others.

A file of the family opens one kind of engine; its name is what stands before `:` in `--engine`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from trainperf.core.engines.base import Engine
from trainperf.core.errors import ConfigError
from trainperf.core.families import load_members


ENGINES = ("local", "dask")
"""Kinds of engines, in the order of help texts."""


@contextmanager
def engine_of(name: str | None, *, large: bool) -> Iterator[Engine | None]:
    """The engine of that name, open; `None` for this process.

    Args:
        name: `local`, `local:4`, `dask://HOST:PORT`; `None` for `local` where the input is large.
        large: Whether it is: else it is read before other processes have started.

    Raises:
        ConfigError: There is no such engine, or it cannot be reached; the remedy is in the message.
    """
    if name is None and not large:
        yield None
        return
    kind, _, where = (name or "local").partition(":")
    if kind not in ENGINES:
        raise ConfigError(f"--engine {name}: give local, local:N or dask://HOST:PORT")
    (open_engine,) = load_members(__name__, (kind,), "open_engine")
    with open_engine(where.removeprefix("//")) as engine:
        yield engine

"""A real Dask cluster: the same results as this machine alone."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.engines import killed_once
from support.planted import planted_steps
from support.traces import write_trace

from trainperf.core.engines import dask, engine_of
from trainperf.core.engines.base import Engine, in_order
from trainperf.core.errors import ConfigError
from trainperf.traces.job_report import report


distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of distributed are its own
]


@contextmanager
def cluster() -> Iterator[Engine]:
    """Two worker processes of 700 MB each."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="700MB",
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=50,
        ) as started,
        engine_of(
            f"dask://{started.scheduler_address.removeprefix('tcp://')}", large=True
        ) as engine,
    ):
        assert engine is not None
        yield engine


def test_a_worker_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    """Dask gives its work to another one."""
    tasks = [(number, str(tmp_path / "killed")) for number in range(40)]

    with cluster() as engine:
        assert list(in_order(engine, killed_once, tasks)) == [number**2 for number in range(40)]


def test_traces_are_the_same_from_dask_as_from_this_process(tmp_path: Path) -> None:
    """Four ranks."""
    for rank in range(4):
        write_trace(tmp_path / f"rank{rank}.json", planted_steps(2), rank=rank, world_size=4)

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as started:
        elsewhere = report([tmp_path], engine=_name(started))

    assert elsewhere == report([tmp_path], engine="local:1")


def _name(started: "distributed.LocalCluster") -> str:
    return f"dask://{started.scheduler_address.removeprefix('tcp://')}"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which something listens that never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_scheduler_that_does_not_answer_is_given_up(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time, with the remedy."""
    monkeypatch.setattr(dask, "TIMEOUT_S", 0.5)

    with (
        pytest.raises(ConfigError, match=r"no scheduler answers.*start one with `dask"),
        engine_of(f"dask://127.0.0.1:{silent_port}", large=False),
    ):
        pass

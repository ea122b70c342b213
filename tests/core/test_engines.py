"""Engines: the same results in the same order, and a remedy where there is none."""

import socket
import sys
from pathlib import Path

import pytest
from support.engines import killed_once, refused, squared
from support.planted import planted_steps
from support.traces import write_trace

from trainperf.core import engines
from trainperf.core.engines import engine_of, mapped
from trainperf.core.errors import ConfigError
from trainperf.traces.job_report import report


TASKS = list(range(40))


@pytest.mark.parametrize(
    ("name", "large", "here"),
    [("local:1", True, True), ("local:2", False, False), (None, False, True)],
)
def test_local_engines_do_the_work(name: str | None, large: bool, here: bool) -> None:  # noqa: FBT001
    """In this process, or in two others; without a name small input stays here."""
    with engine_of(name, large=large) as engine:
        assert (engine is None) == here
        assert mapped(engine, squared, TASKS) == list(map(squared, TASKS))


def test_a_killed_process_costs_time_only(tmp_path: Path) -> None:
    """What it was to do is done here."""
    tasks = [(number, str(tmp_path / "killed")) for number in TASKS]

    with engine_of("local:2", large=True) as engine:
        assert mapped(engine, killed_once, tasks) == list(map(squared, TASKS))


def test_the_first_task_that_failed_is_reported() -> None:
    """As it would be without an engine, though a later one fails sooner."""
    with engine_of("local:2", large=True) as engine, pytest.raises(ConfigError, match=r"^3$"):
        mapped(engine, refused, TASKS)


@pytest.mark.parametrize("name", ["ray://here", "local:0", "local:two", "local:-1"])
def test_a_wrong_name_says_what_is_right(name: str) -> None:
    """Value, rule and remedy."""
    with (
        pytest.raises(ConfigError, match=f"^--engine {name}: give .*local:"),
        engine_of(name, large=False),
    ):
        pass


def test_dask_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no dependency."""
    monkeypatch.setitem(sys.modules, "distributed", None)

    with (
        pytest.raises(ConfigError, match=r"pip install 'trainperf\[dask\]'"),
        engine_of("dask://127.0.0.1:8786", large=False),
    ):
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of distributed are its own
def test_traces_are_the_same_from_dask_as_from_this_process(tmp_path: Path) -> None:
    """Four ranks; a scheduler that has gone is named with what starts one."""
    distributed = pytest.importorskip("distributed")
    for rank in range(4):
        write_trace(tmp_path / f"rank{rank}.json", planted_steps(2), rank=rank, world_size=4)

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as started:
        name = f"dask://{started.scheduler_address.removeprefix('tcp://')}"
        started.wait_for_workers(1, timeout=60)  # a busy machine starts it late
        elsewhere = report([tmp_path], engine=name)

    assert elsewhere == report([tmp_path], engine="local:1")
    with (
        pytest.raises(ConfigError, match=r"answers.*start `dask scheduler`"),
        engine_of(name, large=False),
    ):
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as above
def test_a_scheduler_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else listens there."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "TIMEOUT_S", 0.5)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        name = f"dask://127.0.0.1:{listening.getsockname()[1]}"
        silent = pytest.raises(ConfigError, match=r"answers \(time-out\)")
        with silent, engine_of(name, large=False):
            pass

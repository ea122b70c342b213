"""Engines: the same results in the same order, and a remedy where there is none."""

import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest
from support.engines import Shuffled, killed_once, refused, squared

from trainperf.core.engines import engine_of
from trainperf.core.engines.base import Engine, in_order
from trainperf.core.errors import ConfigError
from trainperf.core.machine.limits import cpu_count


TASKS = list(range(40))


def test_results_come_in_the_order_of_tasks() -> None:
    """Whoever is ready first; and no more are in flight than were asked for."""
    executor = Shuffled(3)

    results = list(in_order(Engine(executor=executor, workers=4), squared, TASKS))

    assert results == list(map(squared, TASKS))
    assert executor.most_in_flight == 10


@pytest.mark.parametrize("name", ["local:1", "local:2"])
def test_local_engines_do_the_work(name: str) -> None:
    """In this process, or in two others."""
    with engine_of(name, large=False) as engine:
        assert (engine is None) == (name == "local:1")
        assert list(in_order(engine, squared, TASKS)) == list(map(squared, TASKS))


def test_local_takes_all_processors_that_this_process_may_use() -> None:
    """One worker for each; nothing starts before there is work."""
    with engine_of("local", large=False) as engine:
        assert (1 if engine is None else engine.workers) == cpu_count()


def test_without_a_name_small_input_stays_in_this_process() -> None:
    """It is read before another one has started."""
    with engine_of(None, large=False) as engine:
        assert engine is None


def test_a_killed_process_costs_time_only(tmp_path: Path) -> None:
    """What it had begun, and what was left, is done here."""
    tasks = [(number, str(tmp_path / "killed")) for number in TASKS]

    with engine_of("local:2", large=True) as engine:
        assert list(in_order(engine, killed_once, tasks)) == list(map(squared, TASKS))


def test_the_first_task_that_failed_is_reported() -> None:
    """As it would be without an engine, though a later one fails sooner."""
    with engine_of("local:2", large=True) as engine, pytest.raises(ConfigError, match=r"^3$"):
        list(in_order(engine, refused, TASKS))


def test_an_executor_that_cannot_start_is_done_without() -> None:
    """As in a script that starts itself anew."""

    class Broken(Shuffled):
        def submit(self, *_: object, **__: object) -> None:  # type: ignore[override]
            raise BrokenExecutor

    results = in_order(Engine(executor=Broken(0), workers=2), squared, TASKS)

    assert list(results) == list(map(squared, TASKS))


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

"""Pytest plugin: the few tests that are tried once more, each with its reason.

Whoever shares the machine only ever adds time.  Every other test runs once: its clock is planted,
or its assertions hold whatever the machine does meanwhile.
"""

import pytest


TRIED_AGAIN = {
    "test_workers_that_are_waited_for_make_batches_all_the_time_at_their_line": (
        "a worker that others keep from its processor is seen to wait"
    ),
    "test_threads_of_torch_in_a_worker_are_counted": (
        "a thread that others keep from its processor does not compute its part"
    ),
    "test_time_in_no_phase_comes_back_with_its_share_and_its_lines": (
        "a thread samples another one: on a machine that others use, samples come late"
    ),
}
"""By the names of their functions."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Retry those, where the package that does so is there."""
    if config.pluginmanager.has_plugin("rerunfailures"):
        for item in items:
            if item.name.partition("[")[0] in TRIED_AGAIN:
                item.add_marker(pytest.mark.flaky(reruns=1))

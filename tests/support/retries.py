"""Pytest plugin that gives tests marked `real_clock` two more tries, and counts those used.

Whoever shares the machine only ever adds time, and passes; a wrong number stays.  Every other test
runs once: its clock is planted, or its assertions hold whatever the machine does meanwhile.
"""

import pytest


MARK = "real_clock"
MOST_RETRIES = 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Retry what reads a real clock."""
    # A machine without our development packages still runs the tests, each once.
    if not config.pluginmanager.has_plugin("rerunfailures"):
        return
    for item in items:
        if item.get_closest_marker(MARK):
            item.add_marker(pytest.mark.flaky(reruns=MOST_RETRIES, reruns_delay=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that needed more than one try."""
    retried = {report.nodeid for report in terminalreporter.stats.get("rerun", ())}
    passed = {report.nodeid for report in terminalreporter.stats.get("passed", ())}
    late = sorted(retried & passed)
    if late:
        terminalreporter.write_line(f"{len(late)} passed only on a retry: {', '.join(late)}")

"""Waits of tests for what another thread or process does."""

from collections.abc import Callable

from trainperf.recording.schedule import comes_true


PATIENCE_S = 30.0
"""On a machine that does much else."""


def until(condition: Callable[[], object], what: str = "it never came") -> None:
    """Wait for something that must come."""
    assert comes_true(condition, int(PATIENCE_S * 1e9)), what

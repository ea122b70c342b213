"""Workers of Dask: memory that is released and needed again is kept while a task works."""

import os
import subprocess
import sys

import pytest

from trainperf.core.engines.kept_memory import TRIM_THRESHOLD, keeping_memory, memory_kept


FAULTS = """
import resource
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from trainperf.core.engines.kept_memory import keeping_memory

def work(times):
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(times):
        np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

with ThreadPoolExecutor(1) as executor:
    for call in (work, keeping_memory, work):
        task = (40,) if call is work else (work, 40)
        print(executor.submit(call, *task).result())
"""
"""Pages that the system makes for 40 arrays of a megabyte, one after the other, in a thread."""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_pages_are_made_once_per_task_and_as_before_afterwards() -> None:
    """Not once per array; and whoever works there next finds the worker's own setting."""
    told = {**os.environ, TRIM_THRESHOLD: "65536"}

    printed = subprocess.run(
        [sys.executable, "-c", FAULTS], env=told, capture_output=True, text=True, check=True
    ).stdout

    returned, kept, returned_again = map(int, printed.split())
    if not returned:
        pytest.skip("malloc is not glibc's")
    assert kept < returned / 4
    assert returned_again > returned / 2


@pytest.mark.parametrize("told", [None, "", "many", str(1 << 30)])
def test_a_process_that_keeps_memory_anyway_is_left_alone(
    told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is made nowhere but where memory is returned soon."""
    if told is None:
        monkeypatch.delenv(TRIM_THRESHOLD, raising=False)
    else:
        monkeypatch.setenv(TRIM_THRESHOLD, told)

    with memory_kept() as kept:
        assert not kept
    assert keeping_memory(abs, -3) == 3

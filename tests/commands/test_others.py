"""How busy other processes keep the machine while trainings run."""

import subprocess
import sys

import pytest

from trainperf.commands._others import EVERY_S, Others, spent_by_others_s, typical
from trainperf.core.machine.limits import busy_s


BURN = "import time\nwhile time.process_time() < 0.5: pass"
"""Half a second of a CPU."""


def test_what_is_neither_ours_nor_of_a_training_counts() -> None:
    """In 4 s all processes used 6 s, a training and its rank 2 s of them: one CPU is others'."""
    now, others_s = [0], [78.0]
    others = Others(lambda: others_s[0], lambda: now[0])
    others.look()
    now[0] = round((EVERY_S - 0.1) * 1e9)
    others.look()
    assert others.cpus == []

    others_s[0] += 6.0 - 2.0
    now[0] = round(4.0 * 1e9)
    others.look()

    assert others.cpus == [pytest.approx(1.0)]
    assert typical([*others.cpus, 0.0, 0.2]) == 0.2


def test_what_our_children_and_theirs_use_is_not_others() -> None:
    """The machine was busy with it, also once it has ended and was waited for."""
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])"
    others_s, all_s = spent_by_others_s(), busy_s()[0]
    subprocess.run([sys.executable, "-c", nested], check=True)
    after_s, all_after_s = spent_by_others_s(), busy_s()[0]

    if others_s is None or after_s is None:
        pytest.skip("the system does not tell")
    # The kernel counts all CPUs in ticks of ten milliseconds.
    assert (all_after_s - all_s) - (after_s - others_s) >= 0.4


def test_where_the_system_does_not_tell_nothing_is_known() -> None:
    """No training ends for that."""
    others = Others(lambda: None)
    others.look()
    others.look()

    assert others.cpus == []
    assert typical(others.cpus) is None

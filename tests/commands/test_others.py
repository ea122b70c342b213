"""How busy other processes keep the machine, from a `/proc` of our own."""

import os
from pathlib import Path

import pytest

from trainperf.commands._others import EVERY_S, Others, typical


TICKS = os.sysconf("SC_CLK_TCK")
TRAINING, RANK, OTHER = 4_000_001, 4_000_002, 4_000_003


def write(root: Path, busy_s: float, used_s: dict[int, float]) -> None:
    """A look at it: what all CPUs did, and each process; the rank is the training's child."""
    root.mkdir(exist_ok=True)
    half = round(busy_s * TICKS) // 2
    (root / "stat").write_text(f"cpu  {half} 0 {half} 999 5 0 0 0 0 0\ncpu0 1 2 3\n")
    for pid, seconds in used_s.items():
        parent = TRAINING if pid == RANK else 1
        ticks = round(seconds * TICKS)
        rest = f"{pid} (a) b) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0"
        (root / str(pid)).mkdir(exist_ok=True)
        (root / str(pid) / "stat").write_text(rest)


def test_what_is_neither_ours_nor_of_a_training_counts(tmp_path: Path) -> None:
    """In 4 s all processes used 6 s, a training and its rank 2 s of them: one CPU is others'."""
    now = [0]
    others = Others([TRAINING], root=tmp_path / "proc", clock_ns=lambda: now[0])
    write(tmp_path / "proc", 100.0, {TRAINING: 10.0, RANK: 5.0, OTHER: 7.0})
    others.look()
    now[0] = round((EVERY_S - 0.1) * 1e9)
    others.look()
    assert others.cpus == []

    write(tmp_path / "proc", 106.0, {TRAINING: 10.5, RANK: 6.5, OTHER: 11.0})
    now[0] = round(4.0 * 1e9)
    others.look()

    assert others.cpus == [pytest.approx(1.0)]
    assert typical([*others.cpus, 0.0, 0.2]) == 0.2


def test_where_the_system_does_not_tell_nothing_is_known(tmp_path: Path) -> None:
    """As on a Mac; no training ends for that."""
    others = Others([TRAINING], root=tmp_path / "nowhere")
    others.look()
    others.look()

    assert others.cpus == []
    assert typical(others.cpus) is None

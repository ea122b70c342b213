"""Rows of numbers that leave the device a group at a time."""

import pytest
import torch

from trainperf.recording.probes import device_ring
from trainperf.recording.probes.device_ring import SLOTS, Ring


CPU = torch.device("cpu")


def write(ring: Ring, step: int, *values: float) -> None:
    """One row of a step."""
    row = ring.row(step, CPU, len(values))
    row[: len(values)] = torch.tensor(values)


SCRIPTS: dict[str, tuple[str, list[object]]] = {
    "each step gets its own rows in order": ("0=1 1=2 1=3 | ! 0? 1? 2?", [[[1]], [[2], [3]], []]),
    "rows are taken once": ("0=1 | ! 0? 0?", [[[1]], []]),
    "nothing is read before its group is resolved": (
        "0=1 | 1=2 | 0? 1? ! 0? 1? ! 0? 1?",
        [[], [], [[1]], [], [], [[2]]],
    ),
    "a step may lie in two groups": ("0=1 | 0=2 | ! ! 0?", [[[1], [2]]]),
    "a group in which nothing was written is one": ("| 7=5 | ! 7? ! 7?", [[], [[5]]]),
    "rows may get wider in the middle of a group": (
        "0=1,2 1=3,4,5 2=6 | 3=7,8 | ! 0? 1? 2? 3? ! 3?",
        [[[1, 2]], [[3, 4, 5]], [[6]], [], [[7, 8]]],
    ),
    "a row is zero before it is written": ("0=7,8,9 | ! 0? 0= | ! 0?", [[[7, 8, 9]], [[0, 0]]]),
}
"""Rows that are written, and what is taken: `|` ends a group, `!` reads the oldest, `0=` is a row
of two that nobody writes, `0?` takes those of step 0."""


@pytest.mark.parametrize("case", SCRIPTS)
def test_what_was_written_comes_a_group_at_a_time(case: str) -> None:
    """To the step that it is of."""
    script, expected = SCRIPTS[case]
    ring, taken = Ring(torch.int64), list[object]()
    for word in script.split():
        if word == "|":
            ring.seal()
        elif word == "!":
            ring.resolve()
        elif word.endswith("="):
            ring.row(int(word[0]), CPU, 2)
        elif word.endswith("?"):
            taken.append(ring.take(int(word[0])))
        else:
            write(ring, int(word[0]), *map(int, word[2:].split(",")))

    assert taken == expected


def test_values_from_another_device_begin_a_buffer_there() -> None:
    """What was written before is read all the same, in its group."""
    ring = Ring(torch.float32)
    write(ring, 0, 1)
    row = ring.row(1, torch.device("cpu", 0))  # not equal to `cpu`, yet readable
    row.fill_(2)
    ring.seal()
    ring.resolve()

    assert [ring.take(step) for step in range(2)] == [[[1]], [[2]]]


def test_a_full_group_begins_another_buffer() -> None:
    """Forty micro-batches a step fill a group long before fifty steps are flushed."""
    ring = Ring(torch.float32)
    for number in range(2 * SLOTS + 3):
        write(ring, number // 40, number + 1)
    ring.seal()
    ring.resolve()

    steps = range(2 * SLOTS // 40 + 1)
    found = [value for step in steps for row in ring.take(step) for value in row]
    assert found == [number + 1 for number in range(2 * SLOTS + 3)]
    assert ring.dropped == 0


def test_a_step_of_which_a_row_was_given_up_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Part of a sum is no sum, and a value that was not kept must not read as zero."""
    monkeypatch.setattr(device_ring, "MOST_BUFFERS", 1)
    ring = Ring(torch.float32)
    for number in range(SLOTS):
        write(ring, number // 100, 1)
    assert ring.row(SLOTS // 100, CPU) is None
    ring.seal()
    ring.resolve()

    assert [len(ring.take(step)) for step in range(3)] == [100, 100, 0]
    assert ring.dropped == 1


def test_buffers_are_used_again() -> None:
    """A run of any length makes as many as are in flight."""
    ring = Ring(torch.float32)
    addresses = set()
    for step in range(50):
        addresses.add(ring.row(step, CPU).data_ptr())
        ring.seal()
        if step % 2:
            ring.resolve()
            ring.resolve()
            ring.take(step), ring.take(step - 1)

    assert len(addresses) <= 3


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_values_come_back_as_they_were(dtype: torch.dtype) -> None:
    """Flags, counts and losses."""
    ring = Ring(dtype)
    row = ring.row(0, CPU)
    row.fill_(1)
    ring.seal()
    ring.resolve()

    assert ring.take(0) == [[1]]

"""Rows of numbers that leave the device a group at a time."""

import pytest
import torch

from trainperf.recording.probes.device_ring import SLOTS, Ring


CPU = torch.device("cpu")


def write(ring: Ring, step: int, *values: float) -> None:
    """One row of a step."""
    row = ring.row(step, CPU, len(values))
    assert row is not None
    row[: len(values)] = torch.tensor(values)


def take(ring: Ring, *steps: int) -> list[list[list[float]]]:
    """The rows of steps."""
    return [ring.take(step) for step in steps]


def test_each_step_gets_its_own_rows_in_order() -> None:
    """Several micro-batches of a step are several rows."""
    ring = Ring(torch.float32)
    write(ring, 0, 1)
    write(ring, 1, 2)
    write(ring, 1, 3)
    ring.seal()
    ring.resolve()

    assert take(ring, 0, 1, 2) == [[[1]], [[2], [3]], []]


def test_rows_are_taken_once() -> None:
    """A step is finished once; nothing is kept for ever."""
    ring = Ring(torch.float32)
    write(ring, 0, 1)
    ring.seal()
    ring.resolve()

    assert take(ring, 0) == [[[1]]]
    assert take(ring, 0) == [[]]


def test_nothing_is_read_before_its_group_is_resolved() -> None:
    """The device may not have written it yet."""
    ring = Ring(torch.float32)
    write(ring, 0, 1)
    ring.seal()
    write(ring, 1, 2)
    ring.seal()
    assert take(ring, 0, 1) == [[], []]

    ring.resolve()
    assert take(ring, 0, 1) == [[[1]], []]

    ring.resolve()
    assert take(ring, 0, 1) == [[], [[2]]]


def test_a_step_may_lie_in_two_groups() -> None:
    """A group is sealed while a step is open: its first rows come with the earlier one."""
    ring = Ring(torch.float32)
    write(ring, 0, 1)
    ring.seal()
    write(ring, 0, 2)
    ring.seal()
    ring.resolve()
    ring.resolve()

    assert take(ring, 0) == [[[1], [2]]]


def test_an_empty_group_is_a_group() -> None:
    """A flush in which this probe wrote nothing still counts as one."""
    ring = Ring(torch.float32)
    ring.seal()
    write(ring, 7, 5)
    ring.seal()
    ring.resolve()
    assert take(ring, 7) == [[]]

    ring.resolve()
    assert take(ring, 7) == [[[5]]]


def test_rows_may_get_wider_in_the_middle_of_a_group() -> None:
    """A batch of more sequences than any before; what was written stays."""
    ring = Ring(torch.int64)
    write(ring, 0, 1, 2)
    write(ring, 1, 3, 4, 5)
    write(ring, 2, 6)
    ring.seal()
    write(ring, 3, 7, 8)
    ring.seal()
    ring.resolve()
    assert take(ring, 0, 1, 2, 3) == [[[1, 2]], [[3, 4, 5]], [[6]], []]

    ring.resolve()
    assert take(ring, 3) == [[[7, 8]]]


def test_a_row_is_zero_before_it_is_written() -> None:
    """A value that was never computed must not read as an old one."""
    ring = Ring(torch.int64)
    write(ring, 0, 7, 8, 9)
    for _ in range(2):
        ring.seal()
        ring.resolve()
        ring.take(0)
        ring.row(0, CPU, 2)
    ring.seal()
    ring.resolve()

    assert take(ring, 0) == [[[0, 0]]]


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


def test_a_step_of_which_a_row_was_given_up_has_none() -> None:
    """Part of a sum is no sum, and a value that was not kept must not read as zero."""
    ring = Ring(torch.float32, most_buffers=1)
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
        row = ring.row(step, CPU)
        assert row is not None
        addresses.add(row.data_ptr())
        ring.seal()
        if step % 2:
            ring.resolve()
            ring.resolve()
            ring.take(step), ring.take(step - 1)

    assert len(addresses) <= 3


def test_values_from_another_device_begin_a_buffer_there() -> None:
    """What was written before is read all the same, in its group."""
    ring = Ring(torch.float32)
    write(ring, 0, 1)
    row = ring.row(1, torch.device("cpu", 0))  # not equal to `cpu`, yet readable
    assert row is not None
    row.fill_(2)
    ring.seal()
    write(ring, 2, 3)
    ring.seal()
    ring.resolve()
    assert take(ring, 0, 1, 2) == [[[1]], [[2]], []]

    ring.resolve()
    assert take(ring, 2) == [[[3]]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_values_come_back_as_they_were(dtype: torch.dtype) -> None:
    """Flags, counts and losses."""
    ring = Ring(dtype)
    row = ring.row(0, CPU)
    assert row is not None
    row.fill_(1)
    ring.seal()
    ring.resolve()

    assert ring.take(0) == [[1]]

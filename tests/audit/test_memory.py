"""What a cache absorbs and what fusing elementwise chains saves, against sums done by hand."""

import pytest

from trainperf.audit.grouping import memory_traffic, survives
from trainperf.audit.operator_call import Access, Call, CallKind, OperatorWork, Site
from trainperf.core.artifacts.audit import Kind, Part


A, B, C, D = 1, 2, 3, 4


def read(storage: int, size: int = 100) -> Access:
    """A whole tensor read."""
    return Access(storage=storage, size_bytes=size, writes=False, whole=True)


def write(storage: int, size: int = 100, *, new: bool = False) -> Access:
    """A whole tensor written."""
    return Access(storage=storage, size_bytes=size, writes=True, whole=True, new=new)


def call(*accesses: Access, kind: Kind = "pointwise", part: Part = "forward") -> Call:
    """An operator call of which only the traffic matters."""
    return Call(
        part=part,
        site=Site(module=None, line=None),
        like=CallKind(
            name="op",
            shapes=(),
            dtypes=(),
            precision="fp32",
            devices=frozenset({"cpu"}),
            work=OperatorWork(kind=kind, flops=0),
        ),
        accesses=accesses,
        host_ns=0,
    )


MOVED = {
    "without a known cache everything moves": ([[read(A), write(B)]], None, [[100, 100]]),
    # In the middle of a fit its tensors are there already.
    "a step that fits in the cache moves nothing": (
        [[read(A), write(B)], [read(B), write(A)]],
        200,
        [[0, 0], [0, 0]],
    ),
    # Each of three tensors pushes out the one that is needed next.
    "what no longer fits is read again and written back": (
        [[read(A)], [write(B)], [read(C)]],
        200,
        [[100], [100], [100]],
    ),
    # Only the last of two writes has to leave for what comes after it.
    "a result that is overwritten in the cache never reaches memory": (
        [[write(B)], [read(B)], [write(B)], [read(A, 150)]],
        150,
        [[0], [0], [100], [100]],
    ),
    # What the cache could hold of it is left out: the floor must not be too high.
    "of a larger tensor the excess is read": (
        [[read(A, 1000)]],
        300,
        [[700]],
    ),
    "of a larger tensor the excess is written": ([[write(A, 1000)]], 300, [[700]]),
}


@pytest.mark.parametrize("case", MOVED.values(), ids=MOVED)
def test_what_a_cache_absorbs_does_not_move(
    case: tuple[list[list[Access]], int | None, list[list[int]]],
) -> None:
    """Bytes of each access of each call."""
    calls, cache_bytes, moved = case

    assert memory_traffic([call(*accesses) for accesses in calls], cache_bytes) == moved


KEPT = {
    # Neither written nor read; the outer operands and the result remain.
    "a temporary between two elementwise calls is fused away": (
        [call(read(A), write(B, new=True)), call(read(B), write(C, new=True))],
        [[True, False], [False, True]],
    ),
    # Only its reading inside the chain is saved.
    "a value that backward needs is written all the same": (
        [
            call(read(A), write(B, new=True)),
            call(read(B), write(C, new=True)),
            call(read(B), write(D, new=True), part="backward"),
        ],
        [[True, True], [False, True], [True, True]],
    ),
    # Its operand and its result pass through memory, and what comes after it reads anew.
    "a contraction ends a chain": (
        [
            call(read(A), write(B, new=True)),
            call(read(B), write(C, new=True), kind="matmul"),
            call(read(A), read(C), write(D, new=True)),
        ],
        [[True, True], [True, True], [True, True, True]],
    ),
    # As one kernel would.
    "an operand that two calls of a chain read is read once": (
        [call(read(A), write(B, new=True)), call(read(A), read(B), write(C, new=True))],
        [[True, False], [False, False, True]],
    ),
    # Updated in place twice in a chain; what stays in memory is written although it was read.
    "optimizer state is read once and written once": (
        [
            call(read(A), write(A), part="optimizer"),
            call(read(A), read(B), write(A), part="optimizer"),
            call(read(A), write(C, new=True), part="optimizer"),
        ],
        [[True, False], [False, True, True], [False, True]],
    ),
    # Fusion is about elementwise chains only.
    "two contractions are never fused": (
        [
            call(read(A), write(B, new=True), kind="matmul"),
            call(read(B), write(C, new=True), kind="matmul"),
        ],
        [[True, True]] * 2,
    ),
}


@pytest.mark.parametrize("case", KEPT.values(), ids=KEPT)
def test_what_fusion_leaves_is_what_others_need(case: tuple[list[Call], list[list[bool]]]) -> None:
    """Which accesses of each call remain."""
    calls, kept = case

    assert survives(calls) == kept

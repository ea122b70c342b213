"""What a cache absorbs and what fusing elementwise chains saves, against sums done by hand."""

from collections.abc import Sequence

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


def kept(calls: Sequence[Call]) -> list[list[bool]]:
    """Which accesses fusion leaves."""
    return survives(calls)


def test_without_a_known_cache_everything_moves() -> None:
    """No guess at what a device might hold."""
    assert memory_traffic([call(read(A), write(B))], None) == [[100, 100]]


def test_a_step_that_fits_in_the_cache_moves_nothing() -> None:
    """In the middle of a fit its tensors are there already."""
    calls = [call(read(A), write(B)), call(read(B), write(A))]

    assert memory_traffic(calls, 200) == [[0, 0], [0, 0]]


def test_what_no_longer_fits_is_read_again_and_written_back() -> None:
    """Each of three tensors pushes out the one that is needed next."""
    calls = [call(read(A)), call(write(B)), call(read(C))]

    assert memory_traffic(calls, 200) == [[100], [100], [100]]


def test_a_result_that_is_overwritten_in_the_cache_never_reaches_memory() -> None:
    """Only the last of two writes has to leave for what comes after it."""
    calls = [call(write(B)), call(read(B)), call(write(B)), call(read(A, 150))]

    assert memory_traffic(calls, 150) == [[0], [0], [100], [100]]


def test_a_tensor_larger_than_the_cache_moves_at_least_its_excess() -> None:
    """What the cache could hold of it is left out: the floor must not be too high."""
    assert memory_traffic([call(read(A, 1000))], 300) == [[700]]
    assert memory_traffic([call(write(A, 1000))], 300) == [[700]]


def test_a_temporary_between_two_elementwise_calls_is_fused_away() -> None:
    """Neither written nor read; the outer operands and the result remain."""
    calls = [call(read(A), write(B, new=True)), call(read(B), write(C, new=True))]

    assert kept(calls) == [[True, False], [False, True]]


def test_a_value_that_backward_needs_is_written_all_the_same() -> None:
    """Only its reading inside the chain is saved."""
    calls = [
        call(read(A), write(B, new=True)),
        call(read(B), write(C, new=True)),
        call(read(B), write(D, new=True), part="backward"),
    ]

    assert kept(calls) == [[True, True], [False, True], [True, True]]


def test_a_contraction_ends_a_chain() -> None:
    """Its operand and its result pass through memory, and what comes after it reads anew."""
    calls = [
        call(read(A), write(B, new=True)),
        call(read(B), write(C, new=True), kind="matmul"),
        call(read(A), read(C), write(D, new=True)),
    ]

    assert kept(calls) == [[True, True], [True, True], [True, True, True]]


def test_an_operand_that_two_calls_of_a_chain_read_is_read_once() -> None:
    """As one kernel would."""
    calls = [call(read(A), write(B, new=True)), call(read(A), read(B), write(C, new=True))]

    assert kept(calls) == [[True, False], [False, False, True]]


def test_optimizer_state_is_read_once_and_written_once() -> None:
    """Updated in place twice in a chain; what stays in memory is written although it was read."""
    calls = [
        call(read(A), write(A), part="optimizer"),
        call(read(A), read(B), write(A), part="optimizer"),
        call(read(A), write(C, new=True), part="optimizer"),
    ]

    assert kept(calls) == [[True, False], [False, True, True], [False, True]]


def test_two_contractions_are_never_fused() -> None:
    """Fusion is about elementwise chains only."""
    calls = [
        call(read(A), write(B, new=True), kind="matmul"),
        call(read(B), write(C, new=True), kind="matmul"),
    ]

    assert kept(calls) == [[True, True]] * 2

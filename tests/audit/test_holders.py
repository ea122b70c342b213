"""Who gathers tensors: found by the collector, named by how it is called and where it is filled."""

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
import torch
from support.frozen import frozen
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from trainperf.audit.allocations import memory_of
from trainperf.audit.attribution import graphs_made
from trainperf.audit.holders import holders
from trainperf.core.artifacts.memory import Holder


__all__ = ["frozen"]


HERE = __file__.rpartition("/")[2]
KIB = 1024

CACHE: list[Tensor] = []


@pytest.fixture(autouse=True)
def _collected() -> None:
    """What earlier tests have left is no news."""
    gc.collect()


def found(name: str, named: frozenset[int] = frozenset(), since: int = 0) -> Holder:
    """The holder of that name."""
    return next(one for one in holders(named, lambda _: None, since) if one.name == name)


def made(number: int) -> Iterator[Tensor]:
    """Tensors of a mebibyte each, so that nothing else in the process is larger."""
    for _ in range(number):
        yield torch.ones(256 * KIB)


class Recorder:
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def see(self, one: Tensor) -> None:
        """Keep it."""
        self.seen.append(one)


def test_an_attribute_is_named_with_its_class_and_the_line_that_fills_it() -> None:
    """Ten tensors of a mebibyte."""
    recorder = Recorder()
    for one in made(10):
        recorder.see(one)

    holder = found("Recorder.seen")

    assert (holder.kind, holder.count, holder.graphs) == ("list", 10, 0)
    assert holder.size_bytes == 10 << 20
    assert HERE in holder.where
    line = int(holder.where.rpartition(":")[2])
    with open(__file__, encoding="utf-8") as source:  # noqa: PTH123 a list of lines
        assert "self.seen.append(one)" in source.readlines()[line - 1]


def test_a_variable_of_a_running_function_is_named() -> None:
    """With the function; the frame keeps no copy of it."""
    history = deque(made(9))
    before = sys.getrefcount(history)

    holder = found("history in test_a_variable_of_a_running_function_is_named()")

    assert (holder.kind, holder.count) == ("deque", 9)
    assert sys.getrefcount(history) == before


def test_a_closure_is_named_by_its_function() -> None:
    """As in a forward hook that appends to a list around it."""
    layer = nn.Linear(4, 256 * KIB)

    def watch() -> None:
        outputs: list[Tensor] = []

        def keep(module: nn.Module, given: object, output: Tensor) -> None:
            outputs.append(output)

        layer.register_forward_hook(keep)

    watch()
    for _ in range(9):
        layer(torch.ones(1, 4))

    holder = found("outputs in keep()")

    assert (holder.count, holder.graphs) == (9, 9)
    assert HERE in holder.where


@pytest.fixture
def _thawed() -> Iterator[None]:
    """What the tests had loaded is the collector's again: this module's names among it."""
    gc.unfreeze()
    yield
    CACHE.clear()
    gc.freeze()


@pytest.mark.usefixtures("_thawed")
def test_a_global_is_named() -> None:
    """By its name alone."""
    CACHE.extend(made(12))

    assert found("CACHE").count == 12


def test_arrays_and_tensors_one_level_deeper_count() -> None:
    """A list of dictionaries, as training loops collect them."""
    logs = [{"loss": torch.ones(256 * KIB), "row": np.ones(128 * KIB)} for _ in range(8)]

    holder = found("logs in test_arrays_and_tensors_one_level_deeper_count()")

    assert holder.count == 16
    assert holder.size_bytes == 16 << 20
    assert len(logs) == 8


def test_a_list_in_a_dictionary_is_found_through_it() -> None:
    """The dictionary is what has a name."""
    recorder = Recorder()
    recorder.metrics = {"loss": list(made(9))}  # type: ignore[attr-defined]

    assert found("Recorder.metrics").count == 9


def test_graphs_of_an_earlier_fit_are_not_this_ones() -> None:
    """By the number that torch gave their nodes."""
    weight = torch.ones(4, requires_grad=True)
    old = [weight * one for one in range(9)]
    since = graphs_made()
    new = [weight * one for one in range(9)]

    name = "test_graphs_of_an_earlier_fit_are_not_this_ones()"
    names = {one.name: one.graphs for one in holders(frozenset(), lambda _: None, since)}

    assert names.get(f"new in {name}") == 9
    assert names.get(f"old in {name}", 0) == 0
    assert len(old) == len(new)


def test_where_something_was_made_is_told_and_what_has_a_name_is_no_news() -> None:
    """The line of the audited step; of parameters, for one, nothing is told."""
    kept = list(made(10))
    line_of = {memory_of(kept[3])[0]: "model.py:12"}.get

    holder = next(one for one in holders(frozenset(), line_of) if "kept" in one.name)
    named = frozenset(memory_of(one)[0] for one in kept)

    assert holder.made_at == "model.py:12"
    assert not any("kept" in one.name for one in holders(named, line_of))


class Lazy(dict[str, object]):
    """Computes what it is asked for."""

    def values(self) -> object:  # type: ignore[override]
        """Never to be asked for."""
        raise AssertionError("its values were computed")


def test_containers_of_other_classes_are_left_alone() -> None:
    """Asking them may load half a library."""
    shelf = [Lazy(one=1) for _ in range(20)]

    assert len(shelf) == 20
    holders(frozenset(), lambda _: None)


def fake() -> Iterator[Tensor]:
    """What a compiler traces with; its sizes may be symbols."""
    symbols = ShapeEnv()
    with FakeTensorMode(shape_env=symbols):
        for _ in range(10):
            yield torch.empty(symbols.create_unbacked_symint())


def wrapped() -> Iterator[Tensor]:
    """What a function under `vmap` sees: the data is another tensor's."""
    inside: list[Tensor] = []

    def squared(rows: Tensor) -> Tensor:
        inside.extend(rows * 2 for _ in range(10))
        return rows * rows

    torch.vmap(squared)(torch.ones(4, 256 * KIB))
    yield from inside


KEPT: dict[str, Callable[[], Iterable[Tensor]]] = {
    "fake": fake,
    "wrapped": wrapped,
    "meta": lambda: [torch.ones(256 * KIB, device="meta") for _ in range(10)],
    # Rows of a batch are no gathering: views of one memory count once.
    "views": lambda: torch.ones(64, 256 * KIB),
}


@pytest.mark.parametrize("kind", KEPT)
def test_tensors_without_a_memory_of_their_own_hold_nothing(kind: str) -> None:
    """However many there are."""
    recorder = Recorder()
    for one in KEPT[kind]():
        recorder.see(one)

    assert len(recorder.seen) >= 10
    assert "Recorder.seen" not in [one.name for one in holders(frozenset(), lambda _: None)]

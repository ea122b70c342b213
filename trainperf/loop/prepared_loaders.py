"""Loaders that a framework has prepared: they copy each batch to the device by themselves.

Accelerate's take their batches from `base_dataloader` and hold one ahead: the copy of a batch comes
first when they are asked for it, then the wait for the next one.  Fabric's copy each as it comes.
What stands between such a loader and the one underneath tells the copy from the wait.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from trainperf.loop.framework_objects import stand_in
from trainperf.recording.process_objects import nothing
from trainperf.recording.run_identity import OF_FABRIC


T = TypeVar("T")

Through = Callable[[Iterator[Any]], Iterator[Any]]
"""What batches go through; `iter`, which gives an iterator as it is, for nothing."""

ACCELERATED = "base_dataloader"
"""Under which name a loader of Accelerate's has the one underneath; Fabric's has `OF_FABRIC`."""


class StandIn(Generic[T]):
    """In place of a loader: everything but iteration is the loader's own.

    Args:
        loader: The user's.
    """

    def __init__(self, loader: Iterable[T]) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # it raises where there is no length

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 whatever the loader has
        if name == "loader":  # while it is copied or unpickled there is none
            raise AttributeError(name)
        return getattr(self.loader, name)


class BracketedBatches(StandIn[object]):
    """A loader that says when a batch is fetched, and when it has come.

    Args:
        loader: The one underneath.
        begins: Called when a batch is fetched.
        ends: Called when it has come, or when there is no other.
        carry: Makes what is handed on in its place.
        through: What the batches go through.
    """

    def __init__(
        self,
        loader: Iterable[object],
        begins: Callable[[], object],
        ends: Callable[[], object],
        carry: Callable[[object], object] | None = None,
        through: Through = iter,
    ) -> None:
        super().__init__(loader)
        self.in_use = False
        """Whether an epoch has begun, or goes on, that takes its batches here."""
        self.begins = begins
        """May be replaced while an epoch goes on, and so may the next two."""
        self.ends, self.carry = ends, carry
        self._through = through

    def __iter__(self) -> Iterator[object]:
        self.in_use = True
        iterator = self._through(iter(self.loader))
        while True:
            self.begins()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.ends()
            yield batch if self.carry is None else self.carry(batch)


@dataclass(slots=True, eq=False, repr=False)
class CarriedBatch:
    """A batch on its way to the device: `to` is what the framework calls, and gives the user's own.

    Args:
        batch: The user's.
        move: The framework's function, which moves it.
        copies: Around that.
    """

    batch: object
    move: Callable[..., object]
    copies: AbstractContextManager[None]

    def to(self, device: torch.device, **options: bool) -> object:
        """The batch itself, moved by the framework."""
        with self.copies:
            return self.move(self.batch, device, **options)


def carried(
    loader: object, copies: AbstractContextManager[None]
) -> Callable[[object], object] | None:
    """What to hand to a prepared loader in place of a batch; `None` if it copies nothing."""
    device = getattr(loader, "device", None)  # a dispatcher has none: it cuts batches up first
    if device is None or torch.device(device).type == "cpu":
        return None
    # Whoever has prepared it has loaded these.
    if _name_under(loader) == ACCELERATED:
        from accelerate.utils import send_to_device  # noqa: PLC0415 see above

        return lambda batch: CarriedBatch(batch, send_to_device, copies)
    from lightning.fabric.utilities.apply_func import move_data_to_device  # noqa: PLC0415 see above

    return lambda batch: CarriedBatch(batch, move_data_to_device, copies)


def batches_of(
    loader: Iterable[Any], copies: AbstractContextManager[None], through: Through
) -> Iterator[Any]:
    """The batches of an epoch, whose copy is bracketed where the loader makes it.

    Args:
        loader: The user's, prepared or not.
        copies: Around each copy.
        through: What they go through.
    """
    name = _name_under(loader)
    carry = carried(loader, copies) if name else None
    if not name or (carry is None and through is iter):
        return through(iter(loader))
    return _prepared(loader, name, carry, through)


def loader_under(loader: object) -> object:
    """The loader that a prepared one takes its batches from; any other as it is."""
    name = _name_under(loader)
    return getattr(loader, name) if name else loader


def holds_ahead(loader: object) -> int:
    """Batches that it has fetched when it hands one on."""
    return int(_name_under(loader) == ACCELERATED)


def _prepared(
    loader: Iterable[Any],
    name: str,
    carry: Callable[[object], object] | None,
    through: Through,
) -> Iterator[Any]:
    batches = BracketedBatches(getattr(loader, name), nothing, nothing, carry, through)
    with ExitStack() as undo:
        stand_in(loader, name, batches, undo)
        yield from loader


def _name_under(loader: object) -> str:
    """Under which name it has the loader that it takes its batches from; empty without one."""
    own = getattr(loader, "__dict__", {})
    return next((name for name in (ACCELERATED, OF_FABRIC) if name in own), "")

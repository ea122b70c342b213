"""Objects of this process that nobody hands to us, and hooks of PyTorch that come and go.

An adapter that the user has not told what is trained looks for it among all objects, which takes
some tens of milliseconds, once as a recording begins.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from torch.utils.hooks import RemovableHandle


T = TypeVar("T")


def living(kind: type[T]) -> Iterator[T]:
    """The objects of a kind, by their real type: a proxy that says it is of it is not."""
    for thing in gc.get_objects():
        if issubclass(type(thing), kind):
            yield thing


def batch_of(args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
    """The batch that a forward was called with."""
    return kwargs or (args[0] if len(args) == 1 else args)


class SwitchedHook:
    """A hook that is put in and taken out every step, in its place of a dictionary.

    To register it anew each time would take three times as long: a handle is made, and two weak
    references.

    Args:
        handle: Of its registration, which put it in.
        hook: What was registered.
    """

    __slots__ = ("_extra", "_hook", "_hooks", "_number")

    def __init__(self, handle: RemovableHandle, hook: Callable[..., object]) -> None:
        self._number = handle.id
        self._hooks = cast("dict[int, Callable[..., object]]", handle.hooks_dict_ref())
        options = [ref() for ref in handle.extra_dict_ref]
        self._extra = [option for option in options if self._number in option]
        self._hook = hook

    def put(self) -> None:
        """Have it called."""
        self._hooks[self._number] = self._hook
        for option in self._extra:
            option[self._number] = True

    def take(self) -> None:
        """Have it called no more."""
        self._hooks.pop(self._number, None)
        for option in self._extra:
            option.pop(self._number, None)

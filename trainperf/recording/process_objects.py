"""Objects of this process that nobody hands to us, and hooks of PyTorch that come and go.

An adapter that the user has not told what is trained looks for it among all objects, which takes
some tens of milliseconds, once as a recording begins.
"""

import gc
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from traceback import walk_stack
from types import CodeType
from typing import cast

import torch
from torch.compiler import is_compiling
from torch.utils.hooks import RemovableHandle

from trainperf.recording.guard import R


def living(kind: type[R]) -> Iterator[R]:
    """The objects of a kind, by their real type: a proxy that says it is of it is not."""
    return (thing for thing in gc.get_objects() if issubclass(type(thing), kind))


def at_fork(**hooks: Callable[[], object]) -> None:
    """Have hooks called from now on, as `os.register_at_fork` does, where this system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


def calls_under_way(*codes: CodeType) -> int:
    """How many calls of functions with one of these codes go on in this thread."""
    stack = walk_stack(sys._getframe())  # noqa: SLF001 documented, and what `inspect` uses
    return sum(frame.f_code in codes for frame, _ in stack)


def last_error() -> BaseException | None:
    """What ended the program, once its traceback was printed; in a session, the last cell that did.

    `None` where nothing has.
    """
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether it runs as compiled code, by `torch.compile` or by its own `compile()`."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None  # noqa: SLF001 what they leave


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

    __slots__ = ("puts", "takes")

    def __init__(self, handle: RemovableHandle, hook: Callable[..., object]) -> None:
        number = handle.id
        hooks = cast("dict[int, Callable[..., object]]", handle.hooks_dict_ref())
        every = [ref() for ref in handle.extra_dict_ref]
        options = [option for option in every if number in option]
        self.puts = (
            partial(hooks.__setitem__, number, hook),
            *(partial(o.__setitem__, number, True) for o in options),
        )
        """All of them are called to have it called: none is code of ours."""
        self.takes = tuple(partial(each.pop, number, None) for each in (hooks, *options))
        """To have it called no more."""


class UntracedHook:
    """A hook that is nothing to a compiler which traces a call of it.

    Compiled code does not call it: what runs there is not heard.  Nor is what copies of a module
    do, which users make and pickle: their hooks are nothing.

    Args:
        act: What it calls; may be another function later, which is no new hook to torch.
    """

    __slots__ = ("act",)

    def __init__(self, act: Callable[..., object]) -> None:
        self.act = act

    def __call__(self, *given: object) -> None:
        """Call it, outside of graphs."""
        if not is_compiling():
            self.act(*given)

    def __reduce__(self) -> tuple[type["UntracedHook"], tuple[Callable[..., None]]]:
        return UntracedHook, (nothing,)


def nothing(*_: object) -> None:
    """Does nothing, whatever it is told."""


def hear_gradient(tensor: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
    """As `tensor.register_hook(hook)`, for half of what that takes: nobody gets a handle."""
    node = tensor.grad_fn
    if type(tensor) is not torch.Tensor or node is None or tensor._backward_hooks is not None:  # noqa: SLF001 see below
        tensor.register_hook(hook)  # type: ignore[no-untyped-call]
        return
    # What `register_hook` does; whoever calls that later finds the same dictionary.  Torch's own
    # handles are numbered from 0.
    tensor._backward_hooks = OrderedDict(((-1, hook),))  # noqa: SLF001 see above
    node._register_hook_dict(tensor)  # noqa: SLF001 see above

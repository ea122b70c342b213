"""Cost of the hooks that a recording consists of where nobody brackets anything for us.

In the first steps of a fit each of our functions is timed in its place.  What PyTorch itself takes
to come to them is found there too, after a step, when the caches hold what the loop has left in
them: a module of ours is called with hooks and without, in turns.  In a row it takes half as long.
Not counted: what our code pushes out of the caches.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.modules.module import _has_any_global_hook
from typing_extensions import ParamSpec

from trainperf.core.machine.clocks import HostClock
from trainperf.recording.bracket_cost import COUNTED, STEPS, BracketCost
from trainperf.recording.guard import Guard
from trainperf.recording.process_objects import (
    SwitchedHook,
    UntracedHook,
    hear_gradient,
    nothing,
)
from trainperf.recording.recorder import Draft


P = ParamSpec("P")
R = TypeVar("R")

_PRICED = STEPS - COUNTED
"""Steps after which the hooks are priced: those before the ones that count."""


class HookCost(BracketCost):
    """Times the functions that hooks call, until it has seen enough steps.

    Args:
        clock: Nanoseconds.
        guard: Of the price.
        price: Tells what PyTorch takes for the hooks of one forward.
    """

    part = "price of hooks"

    def __init__(self, clock: HostClock, guard: Guard, price: "HookPrice") -> None:
        super().__init__(clock)
        self._price = price
        self._price_ns = 0
        self._look = guard.hook(self.part, price.look)
        self._number = 0

    def forward(self) -> None:
        """Another forward, with its hooks."""
        self.spent_ns += self._price_ns

    def hook(self, function: Callable[P, R]) -> Callable[P, R]:
        """One that begins a forward, timed; what PyTorch takes to come to it is counted too."""

        def call(*given: P.args, **named: P.kwargs) -> R:
            self.forward()
            return function(*given, **named)

        return self.timed(call)

    def untimed(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, whose time is not ours although it is called by one that is timed."""
        return self.timed(function, -1)

    def step_over(self, draft: Draft, *, traced: bool = False) -> float | None:
        """As for brackets; looks at what hooks cost, unless a trace would show it."""
        switch_ns = super().step_over(draft, traced=traced)
        self._number += 1
        if self._number <= _PRICED:
            begun = self.clock()
            if not traced:
                self._look()
            if self._number == _PRICED:
                self._price_ns = self._price.ns
            self.without(begun)
        return switch_ns


class _Doubling(nn.Module):
    """Has no parameter: nothing random is drawn for it."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice as much."""
        return x * 2


class HookPrice:
    """What PyTorch takes for the hooks of one forward, ours not included.

    Args:
        clock: Nanoseconds.
        backward: Whether backward is heard too, by a hook on what the module returns.
        hooks: Of the module: each is put in for every other call.
    """

    def __init__(
        self, clock: HostClock, module: nn.Module, hooks: Sequence[SwitchedHook], *, backward: bool
    ) -> None:
        self._clock = clock
        self.module = module
        """That is called."""
        self._hooks = hooks
        self._backward = backward
        self._updates = (_no_update, _no_update)
        """As the two hooks of all optimizers, until they come to what is timed in its place."""
        self._inside_ns = 0
        self._bare_ns: int | None = None
        """What the last call took, if it was without hooks."""
        self._differences_ns: list[int] = []
        """To the call before: a host changes its speed for seconds at a time."""

    @classmethod
    def of_call(cls, clock: HostClock) -> "HookPrice":
        """Of a hook that is given the arguments with their names before a forward."""
        module = _Doubling()
        hook = UntracedHook(nothing)
        handle = module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
        return cls(clock, module, [SwitchedHook(handle, hook)], backward=False)

    @classmethod
    def of_passes(cls, clock: HostClock) -> "HookPrice":
        """Of one before a forward, one after it, two of backward and two of the update."""
        module = _Doubling()
        price = cls(clock, module, [], backward=True)
        queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 as `OutsideLoop` does

        def first_gradient(_: Tensor) -> None:
            queue(nothing)

        def returned(module: object, args: object, kwargs: object, output: Tensor) -> None:
            del module, args, kwargs
            begun = clock()
            hear_gradient(output, first_gradient)
            price._inside_ns = clock() - begun

        begins, ends = UntracedHook(nothing), UntracedHook(returned)
        before = module.register_forward_pre_hook(begins)
        after = module.register_forward_hook(ends, with_kwargs=True)
        price._hooks = SwitchedHook(before, begins), SwitchedHook(after, ends)
        return price

    @property
    def ns(self) -> int:
        """Nanoseconds; 0 where somebody else's hooks are common to all modules."""
        return max(0, round(median(self._differences_ns))) if self._differences_ns else 0

    def look(self) -> None:
        """Call the module once: with hooks, if it was without them the last time."""
        if _has_any_global_hook():  # type: ignore[no-untyped-call]
            return  # they would hear of the call
        hooked = self._bare_ns is not None
        with ExitStack() as undo, torch.enable_grad():
            x = torch.ones(1, device="cpu", requires_grad=True)
            for hook in self._hooks:
                hook.take()
                if hooked:
                    hook.put()
                    undo.callback(hook.take)
            self._inside_ns = 0
            begun = self._clock()
            y = self.module(x)
            if self._backward:
                y.backward()
                if hooked:
                    for update in self._updates:
                        update(None, (), {})
            took_ns = self._clock() - begun - self._inside_ns
        if self._bare_ns is None:
            self._bare_ns = took_ns
        else:
            self._differences_ns.append(took_ns - self._bare_ns)
            self._bare_ns = None


def _no_update(optimizer: object, args: object, kwargs: object) -> None:
    del optimizer, args, kwargs
    is_compiling()

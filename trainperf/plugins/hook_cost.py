"""Cost of the hooks that a recording from outside consists of.

In the first steps of a fit each of our functions is timed in its place.  What PyTorch itself takes
to come to them is timed before, in a row: a module that is called with hooks and without, and a
backward likewise.  Not counted: our two hooks of all optimizers, some 2 µs a step, and what our
code pushes out of the caches.
"""

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from typing_extensions import Self

from trainperf.core.machine.clocks import HostClock
from trainperf.recording.bracket_cost import BracketCost
from trainperf.recording.guard import Guard
from trainperf.recording.process_objects import SwitchedHook, hear_gradient


_PAIRS, _CALLS, _FIRST = 40, 4, 8
"""Pairs of so many calls, of which the first are to get to know the code."""


class HookCost(BracketCost):
    """Times the functions that hooks call, until it has seen enough steps.

    Args:
        clock: Nanoseconds.
        price_ns: What PyTorch itself takes for the hooks of one forward and backward.
    """

    def __init__(self, clock: HostClock, price_ns: float) -> None:
        super().__init__(clock)
        self._price_ns = round(price_ns)

    @classmethod
    def priced(cls, guard: Guard, clock: HostClock) -> Self:
        """One that knows PyTorch's price, as it is on this machine now."""
        return cls(clock, guard.run("price of hooks", lambda: hook_price_ns(clock)) or 0.0)

    def forward(self) -> None:
        """Another forward, with its hooks."""
        self.spent_ns += self._price_ns

    def timed(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function, timed."""
        clock = self.clock

        def call(*given: object) -> None:
            begun = clock()
            function(*given)
            self.spent_ns += clock() - begun

        return call


class _Doubling(nn.Module):
    """Has no parameter: nothing random is drawn for it."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice as much."""
        return x * 2


def hook_price_ns(clock: HostClock) -> float:
    """Nanoseconds that PyTorch takes for the hooks of one forward and backward, ours not included.

    0 where somebody else's hooks are common to all modules: they would hear of the calls.
    """
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return 0.0
    inside_ns = 0
    module = _Doubling()

    def nothing(*_: object) -> None:
        pass

    queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 as `OutsidePasses` does

    def first_gradient(_: Tensor) -> None:
        queue(nothing)

    def returned(module: object, args: object, kwargs: object, output: Tensor) -> None:
        nonlocal inside_ns
        del module, args, kwargs
        begun = clock()
        hear_gradient(output, first_gradient)
        inside_ns += clock() - begun

    before = module.register_forward_pre_hook(nothing)
    after = module.register_forward_hook(returned, with_kwargs=True)
    hooks = (SwitchedHook(before, nothing), SwitchedHook(after, returned))
    differences = []
    with torch.enable_grad():
        x = torch.ones(1, device="cpu", requires_grad=True)
        for _ in range(_PAIRS):
            for hook in hooks:
                hook.take()
            bare_ns = _calls_ns(clock, module, x)
            for hook in hooks:
                hook.put()
            inside_ns = 0
            hooked_ns = _calls_ns(clock, module, x)
            differences.append((hooked_ns - inside_ns - bare_ns) / _CALLS)
    return max(0.0, median(differences[_FIRST:]))


def _calls_ns(clock: HostClock, module: nn.Module, x: Tensor) -> int:
    begun = clock()
    for _ in range(_CALLS):
        module(x).backward()
    x.grad = None
    return clock() - begun

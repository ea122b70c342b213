"""Cost of the hooks that a recording consists of where nobody brackets anything for us.

In the first steps of a fit each of our functions is timed in its place.  What PyTorch itself takes
to come to them is found there too, after a step, when the caches hold what the loop has left in
them: a module of ours is called with hooks and without, in turns.  In a row it takes half as long.
Not counted: what our code pushes out of the caches.
"""

from collections.abc import Callable
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.modules import module as modules
from typing_extensions import ParamSpec

from trainperf.core.machine.clocks import HostClock
from trainperf.recording.bracket_cost import COUNTED, STEPS, BracketCost
from trainperf.recording.guard import Guard
from trainperf.recording.process_objects import (
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

    def forward(self) -> None:
        """Another forward, with its hooks."""
        self.spent_ns += self._price_ns

    def hook(self, function: Callable[P, R]) -> Callable[P, R]:
        """One that begins a forward, timed; what PyTorch takes to come to it is counted too."""

        def call(*given: P.args, **named: P.kwargs) -> R:
            self.forward()
            return function(*given, **named)

        return self.timed(call)

    def step_over(self, draft: Draft, *, traced: bool = False) -> float | None:
        """As for brackets; looks at what hooks cost, unless a trace would show it."""
        switch_ns = super().step_over(draft, traced=traced)
        if len(self._steps) < _PRICED:
            begun = self.clock()
            if not traced:
                self._look()
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
        passes: Whether backward and the update are heard too, by hooks before and after a forward,
            two of backward and two of the update; else one hook is given the arguments with their
            names before a forward.
    """

    def __init__(self, clock: HostClock, *, passes: bool) -> None:
        self._clock, self._passes = clock, passes
        self.bare, self.hooked = _Doubling(), _Doubling()
        """Called in turns."""
        begins = UntracedHook(nothing)
        if passes:
            self.hooked.register_forward_pre_hook(begins)
            returned = UntracedHook(self._returned)
            self.hooked.register_forward_hook(returned, with_kwargs=True)
        else:
            self.hooked.register_forward_pre_hook(begins, prepend=True, with_kwargs=True)
        self._inside_ns = 0
        """Of the call, what is timed in its place."""
        self._taken_ns: list[int] = []
        """By each call, the first without hooks."""

    @property
    def ns(self) -> int:
        """Nanoseconds; 0 where somebody else's hooks are common to all modules."""
        # To the call before: a host changes its speed for seconds at a time.
        pairs = zip(self._taken_ns[::2], self._taken_ns[1::2], strict=False)
        return max(0, round(median([hooked - bare for bare, hooked in pairs] or [0])))

    def look(self) -> None:
        """Call a module once: with hooks, if it was without them the last time."""
        if _common_hooks():
            return  # they would hear of the call
        hooked = len(self._taken_ns) % 2 == 1
        with torch.enable_grad():
            x = torch.ones(1, device="cpu", requires_grad=True)
            self._inside_ns = 0
            begun = self._clock()
            y = (self.hooked if hooked else self.bare)(x)
            if self._passes:
                y.backward()
                for _ in range(2 * hooked):  # as the two hooks of all optimizers
                    _update(None, (), {})
            self._taken_ns.append(self._clock() - begun - self._inside_ns)

    def _returned(self, *given: Any) -> None:  # noqa: ANN401 the output is the last one
        begun = self._clock()
        hear_gradient(given[-1], _first_gradient)
        self._inside_ns = self._clock() - begun


def _common_hooks() -> bool:
    """Whether somebody hears of every module; torch 2.6 has no function that tells."""
    return bool(
        modules._global_forward_pre_hooks  # noqa: SLF001 torch tells it nowhere else
        or modules._global_forward_hooks  # noqa: SLF001 same
        or modules._global_backward_pre_hooks  # noqa: SLF001 same
        or modules._global_backward_hooks  # noqa: SLF001 same
    )


def _first_gradient(_: Tensor) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(nothing)  # noqa: SLF001 as `OutsideLoop` does


def _update(*_: object) -> None:
    """As far as what is timed in its place."""
    is_compiling()

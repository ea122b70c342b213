"""Cost of what a recording runs in every step, timed in the loop that it stands in.

A bracket in a running loop, whose work fills the caches in between, takes several times what it
takes in a row.  So in the first steps of a fit each of our functions is timed in its place.  What
PyTorch itself takes to come to hooks is found there too, after a step: a module of ours is called
with hooks and without, in turns.  Not counted: what our code pushes out of the caches.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules

from trainperf.core.machine.clocks import HostClock
from trainperf.recording.guard import P, R
from trainperf.recording.process_objects import UntracedHook, hear_gradient, nothing
from trainperf.recording.recorder import Draft
from trainperf.recording.timeline import DirectBracket


STEPS = 40
"""Steps in which it is timed."""
COUNTED = 20
"""The last of them, once the interpreter has come to know the code; hooks are priced before."""


_COMMON = ("forward_pre", "forward", "backward_pre", "backward")
"""Hooks of all modules."""


class StepCost:
    """Times what is called in every step, until it has seen `STEPS` steps.

    Args:
        clock: Nanoseconds.
        price: What PyTorch takes for the hooks of a forward, where hooks are what calls us.
    """

    part = "price of hooks"

    def __init__(self, clock: HostClock, price: "HookPrice | None" = None) -> None:
        self._clock, self._price = clock, price
        self._spent_ns = 0
        """Since the last step ended."""
        self._before: Draft | None = None
        self._steps: list[tuple[int, int]] = []

    def micro_batch_over(self, begun_ns: int | None, draft: Draft | None) -> float | None:
        """A forward had its hooks; what has passed inside one of ours is counted elsewhere.

        Args:
            begun_ns: When that began; `None` if none of ours was called.
            draft: The step, if it is complete.

        Returns:
            Nanoseconds of a switch as the recorder counts them, once enough steps were timed.
        """
        if self._price is not None:
            inside_ns = 0 if begun_ns is None else self._clock() - begun_ns
            self._spent_ns += self._price.ns - inside_ns
        if draft is None:
            return None
        before, self._before = self._before, draft
        spent_ns, self._spent_ns = self._spent_ns, 0
        if before is None:
            return None
        self._steps.append((spent_ns, before.switches))
        if len(self._steps) < STEPS:
            return None
        usual = self._steps[-COUNTED:]
        return median(spent for spent, _ in usual) / max(1, median(number for _, number in usual))

    def look(self) -> None:
        """Find what hooks cost now, unless the steps that count have begun."""
        if self._price is not None and len(self._steps) < STEPS - COUNTED:
            begun_ns = self._clock()
            self._price.look()
            self._spent_ns -= self._clock() - begun_ns  # it is nobody's

    def bracket(self, inner: AbstractContextManager[None]) -> AbstractContextManager[None]:
        """The context manager, timed."""
        return DirectBracket(self.timed(inner.__enter__), self.timed(inner.__exit__))

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, whose time is counted."""
        clock = self._clock

        def call(*given: P.args, **named: P.kwargs) -> R:
            begun = clock()
            try:
                return function(*given, **named)
            finally:
                self._spent_ns += clock() - begun

        return call


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
        self.bare, self.hooked = nn.ReLU(), nn.ReLU()
        """Called in turns.  Has no parameter: nothing random is drawn for it."""
        self._heard = UntracedHook(nothing)
        self.hooked.register_forward_pre_hook(
            self._heard, prepend=not passes, with_kwargs=not passes
        )
        if passes:
            self.hooked.register_forward_hook(UntracedHook(self._returned), with_kwargs=True)
        self.ns = 0
        """Nanoseconds; 0 where somebody else's hooks are common to all modules."""
        self._inside_ns = 0
        """Of the call, what is timed in its place."""
        self._taken_ns: list[int] = []
        """By each call, the first without hooks."""

    def look(self) -> None:
        """Call a module once: with hooks, if it was without them the last time."""
        # They would hear of the call; torch 2.6 has no function that tells of them.
        if any(getattr(modules, f"_global_{hooks}_hooks") for hooks in _COMMON):
            return
        hooked = len(self._taken_ns) % 2 == 1
        with torch.enable_grad():
            x = torch.ones(1, device="cpu", requires_grad=True)
            self._inside_ns = 0
            begun = self._clock()
            y = (self.hooked if hooked else self.bare)(x)
            if self._passes:
                y.backward()
                for _ in range(2 * hooked):  # as the two hooks of all optimizers
                    self._heard(None, (), {})
            self._taken_ns.append(self._clock() - begun - self._inside_ns)
        # To the call before: a host changes its speed for seconds at a time.
        pairs = zip(self._taken_ns[::2], self._taken_ns[1::2], strict=False)
        self.ns = max(0, round(median([with_them - bare for bare, with_them in pairs] or [0])))

    def _returned(self, *given: Any) -> None:  # noqa: ANN401 the output is the last one
        begun = self._clock()
        hear_gradient(given[-1], _first_gradient)
        self._inside_ns = self._clock() - begun


def _first_gradient(_: Tensor) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(nothing)  # noqa: SLF001 as `OutsideLoop` does

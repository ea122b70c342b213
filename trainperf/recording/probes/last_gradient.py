"""The moment at which the last gradient of a DDP module is ready, told by a few of its parameters.

Which parameter's gradient comes last is learnt by hooks on all of them, in one backward; then only
the parameters that were last are hooked.  It changes when layers are frozen, left out, or used in
another order, which is noticed in one of three ways:

* no hook runs: the parameter took no part, and another one is learnt;
* a hook runs, and the autograd graph goes on for longer than after the last gradient: looked at in
  the 64th backward, whose end the engine itself announces, and then after twice as many each time
  as long as nothing has changed, up to 512;
* neither: after a thousand backwards it is learnt again, and if that brings nothing new, after two
  thousand more, and then every four thousand.

A module is *absent* from a backward that does not reach it: of several modules one may train while
another waits.  It reduces nothing then.  Once a backward was silent, the first gradient of a branch
tells a parameter that took no part from a module that took none.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from trainperf.audit.attribution import Shield


RELEARN_FIRST, RELEARN_EVERY = 1000, 4000
"""Passes after which the last parameter is looked for again, and at most between two such ones."""

CHECK_FIRST, CHECK_EVERY = 64, 512
"""Passes to the first in which the end of the graph is looked at, and at most between two."""

MOST_KEPT = 4
"""Parameters that are hooked because each was last at some time: branches may take turns."""

_FIRST_LEARNT = 2
"""DDP rebuilds its buckets after the first backward, so the order is learnt on the second."""

_SLACK_NS = 50_000
"""By how much the end of the graph may be later than it was known to be."""


NOT_HEARD = -1
"""In the place of a moment: no last gradient was heard of."""


class LastGradient:
    """Last gradients of one DDP module, on the clock *now_ns*.

    Args:
        module: The wrapper; its communication hook is left alone.
        now_ns: The host's clock.
        shield: Wraps every hook that torch is given, and in which something can fail.
        mark: Called at each moment that may be the last; the last call counts.
    """

    def __init__(
        self,
        module: DistributedDataParallel,
        now_ns: Callable[[], int],
        shield: Shield,
        mark: Callable[[], object] | None,
    ) -> None:
        self.module = module
        self.ready_ns = NOT_HEARD
        """When the last gradient was ready in the backward that runs or has just run."""
        self.left = 0
        """Passes after which nothing is due; whoever counts one down need not call `heard`."""
        self._passes = self._given = self._quick = 0
        self._now_ns = now_ns
        self._shield = shield
        self._mark = mark
        self._handles: list[RemovableHandle] = []
        self._learns_from: list[Parameter] = []
        """Parameters with a hook of `_learn`."""
        self._branches: list[tuple[Parameter, Parameter]] = []
        """First and last of each, as far as they take turns."""
        self._first: Parameter | None = None
        self._last: Parameter | None = None
        self._learns = self._checks = self._in_doubt = False
        self._watches_presence, self._present_in = False, NOT_HEARD
        self._learn_at, self._patience = _FIRST_LEARNT, 1
        self._check_at = self._check_after = CHECK_FIRST
        self._learn_after = RELEARN_FIRST
        self._last_before: Parameter | None = None
        self._graph_end_ns = self._rest_ns = 0
        self._arrived = self._arrives()

    @property
    def reduces(self) -> bool:
        """Whether the backward of the last forward reduces: not under `no_sync`.

        What forward has prepared: a `no_sync()` around backward alone changes nothing.
        """
        return bool(self.module.require_forward_param_sync)

    @property
    def quick(self) -> int:
        """Passes that were counted down so far."""
        return self._quick + self._given - self.left

    def heard(self, ready_ns: int) -> None:
        """A backward has ended whose last gradient was ready at *ready_ns*."""
        self._count()
        self._passes += 1
        if self._checks:
            self._check_after = min(2 * self._check_after, CHECK_EVERY)
            if self._graph_end_ns - ready_ns > 2 * self._rest_ns + _SLACK_NS:
                self._relearn_soon()  # more was computed after it than after the last gradient
            self._check_at = self._passes + self._check_after
        self._plan()

    def not_heard(self) -> bool:
        """Nothing was heard in a backward that may have reduced.

        Returns whether it did, or may have: without its last gradient it has no tail.
        """
        self._count()
        present = self._present_in == self._passes or not self._watches_presence
        self._passes += 1
        if self._learns:
            present = self._learnt()
        elif self._branches:
            self._watches_presence = True
            self._relearn_soon()
        self._plan()
        return present

    @property
    def learnt(self) -> bool:
        """Whether the pass that has just ended was one with a hook on every parameter."""
        return self._learn_at == self._passes + self._learn_after

    def give_up(self) -> None:
        """Nothing of this works any more: no further pass is counted down."""
        self._count()

    def detach(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self._learns_from:
            # Else torch goes on to look into an empty dictionary in every backward, 0.7 µs each.
            if not parameter._backward_hooks:  # noqa: SLF001 there is no public way
                parameter._backward_hooks = None  # noqa: SLF001 as before the first hook
        self._learns_from.clear()

    # -- between two passes --------------------------------------------------------------------

    def _plan(self) -> None:
        """Prepare the next pass, and say how many follow in which nothing is due."""
        following = self._passes + 1
        if following >= self._learn_at and not self._learns:
            self._learn()
        self._checks = following >= self._check_at
        due = min(self._learn_at, self._check_at) - 1
        self.left = self._given = max(0, due - following)

    def _count(self) -> None:
        """Add the passes that were counted down."""
        quick = self._given - self.left
        self.left = self._given = 0
        self._passes += quick
        self._quick += quick

    def _learn(self) -> None:
        """Hook every parameter until some of them were heard: an absent module costs nothing."""
        ignored = getattr(self.module, "parameters_to_ignore", ())
        parameters = [
            parameter
            for name, parameter in self.module.module.named_parameters()
            if parameter.requires_grad and name not in ignored
        ]
        if not parameters:
            return  # all frozen, for now
        if not self._in_doubt:  # a long while without: what was last before need not be kept
            self._branches, self._patience = [], 1
        self.detach()
        self._learns, self._in_doubt = True, False
        self._last_before, self._first, self._last = self._last, None, None
        # Not a hook for after accumulation as below: what that leaves behind cannot be cleared.
        learns_of = self._shield(self._learns_of)
        self._learns_from = parameters
        self._handles += [
            parameter.register_hook(partial(learns_of, parameter)) for parameter in parameters
        ]

    def _learnt(self) -> bool:
        first, last = self._first, self._last
        if first is None or last is None:
            return False
        self._learns = False
        if last is self._last_before:
            self._learn_after = min(2 * self._learn_after, RELEARN_EVERY)
        else:
            self._learn_after, self._check_after = RELEARN_FIRST, CHECK_FIRST
            self._check_at = self._passes + CHECK_FIRST
        self._learn_at = self._passes + self._learn_after
        self.detach()
        others = [branch for branch in self._branches if branch[1] is not last]
        self._branches = [*others, (first, last)][-MOST_KEPT:]
        self._hook((last for _, last in self._branches), self._arrived)
        if self._watches_presence:
            firsts = {id(first): first for first, _ in self._branches}
            self._hook(firsts.values(), self._shield(self._takes_part))
        return True

    def _relearn_soon(self) -> None:
        """Ever later, if in vain."""
        self._in_doubt, self._check_after = True, CHECK_FIRST
        if self._learn_at > self._passes + self._patience:
            self._learn_at = self._passes + self._patience
            self._patience = min(4 * self._patience, RELEARN_FIRST)

    def _hook(self, parameters: Iterable[Parameter], hook: Callable[[Parameter], None]) -> None:
        self._handles += [
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            for parameter in parameters
            if parameter.requires_grad  # not frozen since
        ]

    # -- hooks ---------------------------------------------------------------------------------

    def _arrives(self) -> Callable[[Parameter], None]:
        """The hook for the gradient that was last; DDP's own comes after.  Runs every pass.

        Without a mark it does next to nothing, in which nothing can fail, and whether DDP reduces
        is asked at the end of backward.
        """
        now_ns, ended = self._now_ns, self._shield(self._asks_for_end)

        def arrived(_parameter: Parameter) -> None:
            self.ready_ns = now_ns()
            if self._checks:
                ended()

        return arrived if self._mark is None else self._shield(self._arrives_on_device)

    def _arrives_on_device(self, _parameter: Parameter) -> None:
        if self.reduces and self._mark is not None:
            self.ready_ns = self._now_ns()
            self._mark()
            if self._checks:
                self._asks_for_end()

    def _asks_for_end(self) -> None:
        _at_end_of_graph(self._graph_ended)

    def _learns_of(self, parameter: Parameter, _gradient: torch.Tensor) -> None:
        if not self.reduces:
            return
        if self._first is None:
            self._first = parameter
            self._asks_for_end()
        self._last = parameter  # no mark: hundreds of them would fill the pool of events
        self._rest_ns = self._now_ns()

    def _takes_part(self, _parameter: Parameter) -> None:
        self._present_in = self._passes + self._given - self.left

    def _graph_ended(self) -> None:
        self._graph_end_ns = self._now_ns()
        if self._learns:
            self._rest_ns = self._graph_end_ns - self._rest_ns


def _at_end_of_graph(act: Callable[[], None]) -> None:
    """Call *act* when the running backward has computed everything, before DDP waits.

    The engine calls in the order of asking, and DDP asks once its last gradient is there.
    """
    torch.autograd.Variable._execution_engine.queue_callback(act)  # noqa: SLF001 no public name

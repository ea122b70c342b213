"""Recording of a plain loop from outside: the phases that hooks of PyTorch can tell, coarsely.

A step is one update of the optimizer.  What lies between an update and the next forward is counted
as data wait, unless Python tells when a `DataLoader` is asked (see `outside_waits`).  Forward goes
from the call of a trained module to the first gradient, so that a loss computed outside is part of
it; where the module returns its loss, to its return.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer

from trainperf.core.launch_environment import TrialsOver
from trainperf.core.loop_kind import OUTSIDE
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.steps.records import FINISHED
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.monitor import device_of, no_device_copy
from trainperf.loop.options import FitOptions
from trainperf.plugins import outside_objects
from trainperf.plugins.outside_facts import OutsideProbe
from trainperf.plugins.outside_loader import hear_loaders
from trainperf.plugins.outside_modules import ThreadHook, TrainedModules
from trainperf.plugins.outside_moves import FETCH, FIRST_GRADIENT, FORWARD, MOVES, UPDATE
from trainperf.plugins.outside_waits import BatchWaits
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.process_objects import UntracedHook, batch_of, hear_gradient, nothing
from trainperf.recording.step_cost import HookPrice


_SLOTS = {event: move.slot for event, move in MOVES.items()}
_OTHER = MOVES[UPDATE].next_slot

# As DDP does: there is no public way.
_queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 see above

_WAIT, _FORWARD, _BACKWARD, _BETWEEN, _UPDATE, _APART = range(6)
"""Where a loop stands.

* `_WAIT`: a step waits for its first forward.
* `_FORWARD`: it goes on, or has returned; backward follows.
* `_BACKWARD`: it goes on.
* `_BETWEEN`: it is over; an update follows, or another micro-batch is waited for.
* `_UPDATE`: it goes on.
* `_APART`: an evaluation is over, or an update that ends no step; what comes next is no wait.
"""
_WAITS = (_WAIT, _BETWEEN)


class OutsideLoop:
    """One fit, from the end of its first update on.

    Args:
        optimizer: Whose update it was.
        updates: Hooks that are called before and after every update.
        over: Called once the fit was ended by an update that is not of it, with its optimizer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        updates: tuple[ThreadHook, ThreadHook],
        over: Callable[[Optimizer], object],
    ) -> None:
        fit = self.fit = Fit(FitOptions())
        self.recorder = fit.recorder
        self._optimizers = [optimizer]
        """In the order in which they were met."""
        self._closer = optimizer
        """Whose update ends a step."""
        self._formed = False
        """Whether the first one came round again, so that all are known."""
        self._stranger: Optimizer | None = None
        """Whose update was the last one, unless it is one of them."""
        self._over = over
        self._state = _WAIT
        self._depth = 0
        """Calls of `step` inside each other."""
        self._evaluated_in = -2
        """The last step in which something was evaluated."""
        self._batch: object = None
        """What the forward was called with that no micro-batch was told of yet."""
        self._loss: object = None
        self.waits = BatchWaits(fit)
        self._modules = TrainedModules(fit.undo)
        self._gradient = UntracedHook(nothing)
        self._loaders = ThreadHook(), ThreadHook()
        self._hooks: dict[UntracedHook, Callable[..., None]] = {
            updates[0]: self._update_begins,
            updates[1]: self._update_ends,
            self._modules.called: self._called,
            self._modules.returned: self._returned,
            self._gradient: self._backward_begins,
            self._loaders[0]: self.waits.begins,
            self._loaders[1]: self.waits.ends,
        }
        fit.reason_at_exit = FINISHED
        for hook in self._hooks:
            fit.undo.callback(setattr, hook, "act", nothing)
        fit.start(self._facts, self._listen)
        self._starts = Monitor.starts
        """How many fits have begun: a later one knows more."""

    # -- the start ----------------------------------------------------------------------------

    def _facts(self) -> FitFacts:
        modules = self._modules.add(self._optimizers)
        module = modules[0] if len(modules) == 1 else nn.ModuleList(modules)
        first = next(iter(modules), None)
        device = device_of(None, module)
        return FitFacts(
            objects=FitObjects(
                device=device,
                module=module,
                optimizers=self._optimizers,
                schedulers=outside_objects.schedulers_of(self._optimizers),
                scaler=outside_objects.scaler_of(self._optimizers[0]),
            ),
            base="runs",
            kind=OUTSIDE,
            loader=outside_objects.loader_in_use(),
            config=outside_objects.fabric_precision(first),
            probes=(OutsideProbe(first, device.type, self.waits),),
            reasons=no_device_copy(device),
            coarse=self.waits.coarse,
            takes_batches=False,
        )

    def _listen(self) -> None:
        self._modules.listen()
        # Only now: hooks are timed as they are called, so brackets inside them are not.
        self.fit.time(self._hear, HookPrice(monotonic_ns, passes=True))
        hear_loaders(*self._loaders, self.fit.undo)
        self.waits.begin_step()

    def _hear(self) -> None:
        """Have hooks call what cannot hurt the training, timed as long as that is not settled."""
        fit, self._rest = self.fit, self.fit.phases.rest
        for hook, function in self._hooks.items():
            hook.act = fit.timed(fit.guard.hook(Fit.hooks, function))
        # DDP waits for its buckets in a callback of its own, which is queued later than ours.
        backward_ends = fit.guard.hook(Fit.hooks, self._backward_ends)
        self._at_end = partial(_queue, fit.timed(backward_ends))

    # -- passes -------------------------------------------------------------------------------

    def _called(self, module: nn.Module, *_: object) -> None:
        """A module is called."""
        if self._state == _BACKWARD or not self._modules.await_return(module):
            return
        if self._state == _FORWARD:  # another one, before backward
            self._rest(_SLOTS[FORWARD])
            return
        if not torch.is_grad_enabled() or (self._modules.modes and not module.training):
            if self._state in _WAITS:
                self._evaluates()
            return
        if self._state in _WAITS:
            self.waits.end()
        if self._batch is not None:
            self._micro_batch_over()
        self._state = _FORWARD
        if self.recorder.slot == _SLOTS[FETCH]:  # then the rest below has nothing to settle
            self.fit.phases.fetch_ends()
        self._rest(_SLOTS[FORWARD])
        self.fit.begin_batch()

    def _evaluates(self) -> None:
        """Between two steps it is a validation; in each step it is part of the training."""
        if self.recorder.index > self._evaluated_in + 1:
            self.waits.validate()
        else:
            self.waits.end()
            self.recorder.rest(_OTHER)
        self._evaluated_in, self._state = self.recorder.index, _APART

    def _returned(
        self, _: object, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """Of a forward: backward begins with the first gradient of what was returned.

        The first single number of three values at most is the loss; what goes on from its return
        until backward is the loop's own code.
        """
        for take in self._modules.takes:
            take()
        self._modules.listen()
        if self._state != _FORWARD:
            return
        self._batch = batch_of(args, kwargs) if self._batch is None else self._batch
        for head in reversed(_heads(output)):
            if isinstance(head, torch.Tensor):
                if head.requires_grad:
                    hear_gradient(head, self._gradient)
                if head.numel() == 1:
                    self._loss = head.detach()
                    if head.requires_grad:
                        self._rest(_OTHER)

    def _backward_begins(self, *_: object) -> None:
        """A gradient of what was returned is there."""
        if self._state == _FORWARD:
            self._state = _BACKWARD
            self._modules.pause()  # checkpointed layers are called once more
            self._rest(_SLOTS[FIRST_GRADIENT])
            _queue(self._at_end)

    def _backward_ends(self) -> None:
        """Autograd is done, and so is what a parallel wrapper does then."""
        self._modules.listen()
        if self._state == _BACKWARD:
            self._state = _BETWEEN
            self.waits.before = None
            self._rest(_OTHER)
            self.fit.phases.mark(Mark.FETCH_BEGINS)

    # -- updates ------------------------------------------------------------------------------

    def _update_begins(self, optimizer: Optimizer, *_: object) -> None:
        """`optimizer.step()` is called."""
        if self._state == _UPDATE:  # a subclass calls the `step` of its base
            self._depth += 1
            return
        self._modules.listen()
        state, self._state, self._depth = self._state, _UPDATE, 1
        if optimizer not in self._optimizers:
            return
        self._formed = self._formed or optimizer is self._optimizers[0]
        if state == _WAIT:  # nothing was called since then, and nothing tells what the time was for
            self.waits.end(_OTHER)
        self.fit.attempt(optimizer)
        self._rest(_SLOTS[UPDATE])

    def _update_ends(self, optimizer: Optimizer, *_: object) -> None:
        """It has returned: a step is over, unless other optimizers follow."""
        self._depth -= 1
        if self._depth:
            return
        self._state = _APART
        if (
            self._stranger is not None
            or Monitor.starts != self._starts
            or optimizer not in self._optimizers
        ) and not self._takes_turns(optimizer):
            return
        self._rest(_OTHER)
        if optimizer is not self._closer:
            self._batch = self._loss = None
            return
        self._modules.pause()  # what hooks cost is looked at without ours
        self._tell(complete=True)
        self._modules.listen()
        self._state = _WAIT
        if self.fit.tried:
            raise TrialsOver

    def _takes_turns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer belongs to this loop, as another may from now on."""
        if Monitor.starts != self._starts or optimizer is self._stranger:
            self.fit.end()  # another fit has begun, or another loop
            self._over(optimizer)
            return False
        joins, self._stranger = self._stranger, None
        if optimizer not in self._optimizers:
            if self._formed:
                self._stranger = optimizer
                return False
            joins = self._closer = optimizer
        if joins is not None:
            self._optimizers.append(joins)
            self._modules.add([joins])
            if self.fit.chosen.scaler is not None:
                self.fit.chosen.scaler.adopt(joins)
        return True

    # -- inside -------------------------------------------------------------------------------

    def _micro_batch_over(self) -> None:
        """Another one follows in this step, unless the scaler has skipped the update."""
        scaled, first = self.fit.chosen.scaler is not None, self._optimizers[0]
        skipped = scaled and all(p.grad is None for p in outside_objects.updated_by([first]))
        if skipped:
            self.fit.attempt(first)
        self._tell(complete=skipped)

    def _tell(self, *, complete: bool) -> None:
        """Forward and backward are over, and with *complete* the step."""
        self.fit.micro_batch(self._batch, self._loss, complete=complete, begun=monotonic_ns())
        self._batch = self._loss = None
        if complete:
            self.waits.begin_step()


def _heads(output: object) -> Sequence[object]:
    """What a module returns: of several values the first three."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    return output[:3] if isinstance(output, (tuple, list)) else (output,)

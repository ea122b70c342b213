"""Forward and backward of a loop that nobody has prepared, heard through PyTorch's hooks.

Forward goes from the call of a trained module to the first gradient, so that a loss computed
outside is part of it; where the module returns its loss, to its return.  A hook common to all
modules waits for that call alone: inside a forward it is gone, so layers cost nothing and no
compiled code has it; models keep no hook that could be saved, copied or scripted with them.  A
compiled model, of which PyTorch would warn, has its own.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import get_ident
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from trainperf.recording.process_objects import (
    SwitchedHook,
    UntracedHook,
    batch_of,
    hear_gradient,
    nothing,
)


class PassListener(Protocol):
    """Is told of the passes."""

    forward_ends: Callable[[], object]
    """The model has returned its loss."""
    forward_goes_on: Callable[[], object]
    """Another trained module is called before backward."""
    backward_begins: Callable[[], object]
    """The first gradient."""

    def forward_begins(self) -> None:
        """A forward that is trained."""

    def evaluates(self) -> None:
        """A forward that is not trained begins."""

    def backward_ends(self) -> None:
        """Autograd is done, and so is what a parallel wrapper does then."""


class OutsidePasses:
    """The passes of the modules that are trained.

    Args:
        listener: Who is told.
        guarded: Makes of a function one that cannot hurt the training.
    """

    def __init__(
        self,
        listener: PassListener,
        guarded: Callable[[Callable[..., None]], Callable[..., None]],
    ) -> None:
        self.forwards = self.backwards = 0
        """How many there were."""
        self.batch: object = None
        """What the last forward was called with."""
        self.loss: object = None
        """What it returned, if that is a single number; read where it is on the host."""
        self.reads = False
        """Whether a loss on the host is there, because no device is still to write it."""
        self._listener = listener
        self._thread = get_ident()
        self._trained: set[int] = set()
        self._returns: dict[int, tuple[nn.Module, SwitchedHook]] = {}
        """By the identity of a module that was called: waits for its return."""
        self._returning: SwitchedHook | None = None
        self._permanent: list[RemovableHandle] = []
        self._modes = True
        self.forwarding = self.backwarding = False
        """Which pass goes on; a forward does until backward."""
        self._complete = False
        """Whether the loss is there, so that what goes on until backward is no forward."""
        # As torch's own parallel wrappers do: there is no public way.
        self._queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 see above
        self._call, self._return = UntracedHook(self._called), UntracedHook(self._returned)
        self._begins = UntracedHook(self._backward_begins)
        switched = SwitchedHook(register_module_forward_pre_hook(self._call), self._call)
        self._no_call = switched.take
        self.listen: Callable[[], object] = switched.put
        """Has us wait for the next call of a trained module; does nothing where modules are
        hooked each by itself."""
        self._no_call()
        self.renew(guarded)

    def attach(self, outermost: Collection[nn.Module], parameters: Iterable[object]) -> None:
        """Listen to modules, and to those inside them with one of *parameters*."""
        # A model that is trained in evaluation mode says nothing by its mode.
        self._modes = self._modes and all(module.training for module in outermost)
        updated = {id(parameter) for parameter in parameters}
        inside = [module for root in outermost for module in root.modules()]
        compiled = [module for module in outermost if hasattr(module, "_orig_mod")]
        in_place = any(module._compiled_call_impl is not None for module in inside)  # noqa: SLF001 a hook would be compiled
        if compiled or in_place:
            self.listen = nothing
            self._no_call()
        self._trained |= {
            id(module) for module in inside if any(id(p) in updated for p in module.parameters())
        }
        self._trained |= {id(module) for module in outermost}
        self._permanent += [module.register_forward_pre_hook(self._call) for module in compiled]
        self.listen()

    def renew(self, guarded: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
        """From now on the hooks call other functions."""
        self._call.act, self._return.act = guarded(self._called), guarded(self._returned)
        self._begins.act, self._ends = guarded(self._backward_begins), guarded(self._backward_ends)
        # DDP waits for its buckets in a callback of its own, which is queued later than ours.
        several = dist.is_available() and dist.is_initialized()
        self._at_end = self._queue_end if several else self._ends

    def detach(self) -> None:
        """Leave no hook behind."""
        self.listen = nothing
        self._no_call()
        if self._returning is not None:
            self._returning.take()
        self._returns.clear()
        for handle in self._permanent:
            handle.remove()
        self._permanent.clear()

    def pause(self) -> None:
        """Hear of no call until `listen` is called."""
        self._no_call()

    def end(self) -> None:
        """Passes are over, whatever was heard of them."""
        if self.forwarding or self.backwarding:
            self.forwarding = self._complete = False
            self._backward_ends()

    def _called(self, module: nn.Module, args: object) -> None:
        del args
        # A model may have been compiled since: what is called then is another module around it.
        inside = module._modules  # noqa: SLF001 to ask a module for what it has not is slow
        called = inside["_orig_mod"] if "_orig_mod" in inside else module  # noqa: SIM401 scripted ones have no `get`
        if self._trained.isdisjoint((id(module), id(called))):
            return
        if self.backwarding or get_ident() != self._thread:
            return
        self._no_call()
        entry = self._returns.get(id(module))
        if entry is None or self._returning is not None:
            self._await_return(module)
        else:
            self._returning = entry[1]
            for put in self._returning.puts:
                put()
        if self.forwarding:
            if self._complete:
                self._complete = False
                self._listener.forward_goes_on()
            return
        if not torch.is_grad_enabled() or (self._modes and not module.training):
            self._listener.evaluates()
            return
        self.forwarding = True
        self.forwards += 1
        self._listener.forward_begins()  # it takes what the last one left
        self.batch = self.loss = None

    def _await_return(self, module: nn.Module) -> None:
        """For the first time, or after a call that has raised."""
        if self._returning is not None:
            self._returning.take()
        entry = self._returns.get(id(module))
        if entry is None:
            handle = module.register_forward_hook(self._return, with_kwargs=True)
            entry = self._returns[id(module)] = module, SwitchedHook(handle, self._return)
        self._returning = entry[1]
        self._returning.put()

    def _returned(
        self, module: object, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """The first gradient of what is returned is where backward begins."""
        del module
        if self._returning is not None:
            for take in self._returning.takes:
                take()
            self._returning = None
        self.listen()
        if not self.forwarding:
            return
        if self.batch is None:
            self.batch = batch_of(args, kwargs)
        loss = self._loss_of(output)
        if loss is None:
            return
        # A number is had for less than another tensor of it.
        there = self.reads and loss.is_cpu and not loss.ndim
        self.loss = loss.tolist() if there else loss.detach()
        if loss.requires_grad:
            self._complete = True
            self._listener.forward_ends()

    def _loss_of(self, output: object) -> torch.Tensor | None:
        """The first single number that was returned; all that was is heard in backward."""
        loss = None
        for head in (output,) if isinstance(output, torch.Tensor) else _heads(output):
            if isinstance(head, torch.Tensor):
                if loss is None and head.numel() == 1:
                    loss = head
                if head.requires_grad:
                    hear_gradient(head, self._begins)
        return loss

    def _backward_begins(self, gradient: object) -> None:
        del gradient
        if not self.forwarding:
            return
        self.forwarding, self.backwarding = False, True
        self._complete = False
        self._no_call()  # checkpointed layers are called once more
        self.backwards += 1
        self._listener.backward_begins()
        self._queue(self._at_end)

    def _queue_end(self) -> None:
        self._queue(self._ends)

    def _backward_ends(self) -> None:
        if self.backwarding:
            self.backwarding = False
            self._listener.backward_ends()
        self.listen()


def _heads(output: object) -> tuple[object, ...]:
    """What a module returns: of several values the first three."""
    if type(output) is dict or isinstance(output, Mapping):  # an abstract class is slow to ask
        return tuple(output.values())[:3]
    return tuple(output[:3]) if isinstance(output, (tuple, list)) else ()

"""Modules that are trained, heard as they are called and as they return, whoever wrote the loop.

A hook common to all modules waits for the call of a trained one alone: inside a forward it is gone,
so layers cost nothing and no compiled code has it.  The called module has a hook until it returns:
models keep none that could be saved, copied or scripted with them.  A compiled model, of which
PyTorch would warn, has its own.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from threading import get_ident

from torch import nn
from torch.compiler import is_compiling
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer

from trainperf.plugins.outside_objects import updated_by
from trainperf.recording.process_objects import SwitchedHook, UntracedHook, living, nothing


class ThreadHook(UntracedHook):
    """An `UntracedHook` that hears one thread alone, by default the one that has made it."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        super().__init__(nothing)
        self.thread = get_ident()

    def __call__(self, *given: object) -> None:
        """Call it, outside of graphs."""
        if not is_compiling() and get_ident() == self.thread:
            self.act(*given)


class TrainedModules:
    """Those of a loop.

    Args:
        undo: Is to leave no hook behind.
    """

    def __init__(self, undo: ExitStack) -> None:
        self.called, self.returned = ThreadHook(), ThreadHook()
        """Hears of a call, and of its return with arguments by name."""
        self.modes = True
        """Whether a module tells by its mode that it is evaluated: one may be trained in that."""
        self.takes: Sequence[Callable[[], object]] = ()
        """All of them are called to hear of no return any more."""
        self._undo = undo
        self._parts: set[int] = set()
        self._returns: dict[int, tuple[nn.Module, SwitchedHook]] = {}
        """By the identity of a module that was called."""
        switched = SwitchedHook(register_module_forward_pre_hook(self.called), self.called)
        (self.pause,) = switched.takes
        """Has us hear of no call."""
        self.listen: Callable[[], object] = switched.puts[0]
        """Has us wait for the next call; does nothing where modules are hooked each by itself."""
        self.pause()
        undo.callback(self._leave)

    def add(self, optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        """Hear of what they update from the next `listen` on.

        Of all modules with a parameter that is updated; where none has (an optimizer with copies
        of its own), of those with one that is trained.

        Returns:
            The outermost of them, wrappers such as DDP included.
        """
        updated = {id(parameter) for parameter in updated_by(optimizers)}
        modules = list(living(nn.Module))
        trained = [m for m in modules if any(id(p) in updated for p in m.parameters())] or [
            m for m in modules if any(p.requires_grad for p in m.parameters())
        ]
        inside = {id(child) for module in modules for child in module.children()}
        outermost = [module for module in trained if id(module) not in inside]
        self._parts |= {id(module) for module in trained}
        self.modes = self.modes and all(module.training for module in outermost)
        compiled = [module for module in outermost if hasattr(module, "_orig_mod")]
        for module in compiled:
            self._undo.callback(module.register_forward_pre_hook(self.called).remove)
        if compiled or any(
            part._compiled_call_impl is not None  # noqa: SLF001 a hook would be compiled
            for module in outermost
            for part in module.modules()
        ):
            self.listen = nothing
            self.pause()
        return outermost

    def await_return(self, module: nn.Module) -> bool:
        """Hear of a module's return in place of calls, if it is trained; whether it is."""
        # A model may have been compiled since: what is called then is another module around it.
        inside = module._modules  # noqa: SLF001 to ask a module for what it has not is slow
        part = inside["_orig_mod"] if "_orig_mod" in inside else module  # noqa: SIM401 scripted ones have no `get`
        if id(part) not in self._parts:
            return False
        self.pause()
        for take in self.takes:  # the last one may have raised
            take()
        if id(module) not in self._returns:
            handle = module.register_forward_hook(self.returned, with_kwargs=True)
            self._returns[id(module)] = module, SwitchedHook(handle, self.returned)
        _, hook = self._returns[id(module)]
        for put in hook.puts:
            put()
        self.takes = hook.takes
        return True

    def _leave(self) -> None:
        self.listen = nothing
        self.pause()
        for take in self.takes:
            take()

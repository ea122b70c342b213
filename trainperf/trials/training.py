"""Training as trials see it: what they may touch; each adapter fills in what is its own.

Its process was started for the trials, and ends with them: nothing of it is kept.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainperf.core.loop_kind import PLAIN, LoopKind
from trainperf.trials.agreement import Agreement
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.state import Stateful
from trainperf.trials.trial import Trial


IN_HALF = "it computes in half precision already"


class Training:
    """One training under trial.

    Args:
        module: That is trained.
        optimizers: That step it.
        device: Where it is.
        source: Its batches; `None` where they cannot be taken over.
        micro_batches: Batches of a step.
        others: Schedulers and scalers, whose state is put back too.
    """

    kind: LoopKind = PLAIN
    """How advice is worded."""
    autocast_line = 'with torch.autocast("{device}", torch.bfloat16): loss = …'
    """How to keep autocast."""
    logs_every: tuple[object, str] | None = None
    """Whose attribute of which name holds the steps between two points in the loggers; `None` where
    the loop has no such setting."""
    logs_values = False
    """Whether the step hands values to the loop by calls of `self.log`."""
    loggers: Sequence[Trial] = ()
    """Each silences one logger of the loop, whose name it has."""
    callbacks: Sequence[Trial] = ()
    """Each silences one callback of the user's, whose name it has."""

    def __init__(
        self,
        module: nn.Module,
        optimizers: Sequence[Optimizer],
        device: torch.device,
        source: BatchSource | None = None,
        micro_batches: int = 1,
        others: Sequence[Stateful] = (),
    ) -> None:
        self.module = module
        self.optimizers = list(optimizers)
        self.device = device
        self.batches = source or BatchSource()
        """What the loop is handed; empty where they cannot be taken over."""
        self.no_batches = "" if source else "its batches cannot be taken over"
        """Why batches cannot be taken over; empty if they can."""
        self.micro_batches = micro_batches
        self.others = list(others)
        self.data_parallel = module if isinstance(module, DistributedDataParallel) else None
        """What reduces the gradients over the ranks; `None` without DDP."""
        self.agreement = Agreement.of_job()
        """By which every rank decides alike."""
        self.distributed = self.agreement.ranks > 1
        """Whether more than one rank trains."""
        self.steps_ahead = math.ceil(self.batches.ahead / micro_batches)
        """Steps whose batches the loop holds already when something is switched."""
        first = next(module.parameters(), None)
        self.computes_in_half = first is not None and first.dtype in (torch.float16, torch.bfloat16)
        """Whether forward is in half precision already, by autocast or by its parameters."""
        self._autocast = ExitStack()
        self._around_forward, self._before_update = ExitStack(), ExitStack()
        """What removes the hooks that are set."""

    # -- what adapters add to or override -------------------------------------------------------

    def step_ended(self) -> None:
        """A step was closed, and another may begin.  Runs every step."""

    def end(self) -> None:
        """End the process: what follows would save what the trials have trained.

        No other rank waits for this one any longer.
        """
        self.agreement.leave()
        self.batches.end()

    def set_autocast(self, dtype: torch.dtype | None) -> None:
        """Compute forward under autocast from the next step on; `None` ends that.

        Here: the forward of the watched module.  A loss outside of it stays as it was.
        """
        self._around_forward.close()
        if dtype is None:
            return
        context = torch.autocast(self.device.type, dtype)

        # Not traced: the module itself may be compiled, and dynamo cannot leave the context.
        @torch.compiler.disable  # type: ignore[untyped-decorator] # as torch declares it
        def enter(*_: object) -> None:
            self._autocast.enter_context(context)

        @torch.compiler.disable  # type: ignore[untyped-decorator] # as torch declares it
        def leave(*_: object) -> None:
            self._autocast.close()

        several = isinstance(self.module, nn.ModuleList)
        for module in self.module.children() if several else [self.module]:
            for hook in (
                module.register_forward_pre_hook(enter),
                module.register_forward_hook(leave, always_call=True),
            ):
                self._around_forward.callback(hook.remove)

    def mute_update(self, *, mute: bool) -> None:
        """Leave the optimizer nothing to update: gradients are dropped just before."""
        self._before_update.close()
        for optimizer in self.optimizers if mute else ():
            hook = optimizer.register_step_pre_hook(drop_gradients)
            self._before_update.callback(hook.remove)

    def set_values_interval(self, steps: int) -> None:
        """Have the step's calls of `self.log` do something in every so many steps; 0 is none."""

    def parts_to_compile(self) -> list[nn.Module]:
        """Parts whose `compile()` makes the model a compiled one.

        The module itself, or each of several.  Where a framework calls another method of it than
        `forward`, under our hooks, which tell forward from the rest, its outermost layers.
        """
        module = self.module
        if self.kind.own:
            return list(module) if isinstance(module, nn.ModuleList) else [module]
        return outermost_layers(
            module.module if isinstance(module, DistributedDataParallel) else module
        )


def outermost_layers(module: nn.Module) -> list[nn.Module]:
    """The outermost parts of it that compute with parameters; not containers, losses or metrics."""
    layers = []
    for child in module.children():
        if next(child.parameters(), None) is None:
            continue
        is_container = type(child).forward is nn.Module.forward
        layers += outermost_layers(child) if is_container else [child]
    return layers


def drop_gradients(optimizer: Optimizer, *_: object) -> None:
    """Leave it nothing to update, as a hook before its step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None

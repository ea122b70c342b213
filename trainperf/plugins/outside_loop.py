"""Recording of a plain loop from outside: the phases that hooks of PyTorch can tell, coarsely.

A step is one update of the optimizer.  What lies between an update and the next forward is counted
as data wait, unless Python tells when a `DataLoader` is asked (see `outside_loader`).
"""

from collections.abc import Callable, Sequence

import torch
from torch.optim import Optimizer

from trainperf.core.loop_kind import OUTSIDE
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import FIRST_GAP
from trainperf.core.steps.records import FINISHED
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.monitor import device_of, no_device_copy
from trainperf.loop.options import FitOptions
from trainperf.plugins import outside_objects
from trainperf.plugins.fabric_setup import PRECISIONS
from trainperf.plugins.outside_facts import OutsideProbe, notes
from trainperf.plugins.outside_moves import (
    FETCH,
    FIRST_GRADIENT,
    FORWARD,
    MOVES,
    UPDATE,
)
from trainperf.plugins.outside_passes import OutsidePasses
from trainperf.plugins.outside_trials import OutsideTraining
from trainperf.plugins.outside_waits import BatchWaits
from trainperf.recording.hook_cost import HookCost, HookPrice
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.timeline import leaving_to, switch_to
from trainperf.trials.batch_source import TrialsOver


_DATA_WAIT, _FORWARD = MOVES[FETCH].slot, MOVES[FORWARD].slot
_OTHER = int(MOVES[UPDATE].next_phase)


class OutsideLoop:
    """One fit, from the end of its first update on.

    Args:
        optimizer: Whose update it was.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.fit = Fit(FitOptions())
        self.recorder = self.fit.recorder
        self.optimizers = [optimizer]
        """In the order of their first updates."""
        self._closer = id(optimizer)
        """The optimizer whose update ends a step."""
        self._formed = False
        """Whether the first optimizer came round again, so that all are known."""
        fit, guard = self.fit, self.fit.guard
        self._watched = False
        """Whether there is anything to be told around backward but its time."""
        self._make_switches()
        self.cost: HookCost | None = HookCost(
            monotonic_ns, guard, HookPrice(monotonic_ns, passes=True)
        )
        """Times what runs every step, until it is clear what that costs."""
        self.passes = OutsidePasses(self, self._guarded)
        self.waits = BatchWaits(self.recorder, fit.phases)
        self._objects = FitObjects(device=torch.device("cpu"))
        self._pending = self._updated = False
        self._tried = False
        """Whether the process ends, which was started for trials."""
        self._evaluated_in = -2
        """The last step in which something was evaluated."""
        self.update_begins = guard.hook(Fit.hooks, self._update_begins)
        self.update_ends = guard.hook(Fit.hooks, self._update_ends)
        fit.reason_at_exit = FINISHED
        fit.undo.callback(self._unhook)
        self.records = fit.start(self._facts)
        """Whether it could be started."""
        if self.records:
            guard.run(Fit.hooks, self._listen)

    def _make_switches(self) -> None:
        """What moves from phase to phase.  Run every step."""
        self._to_forward = switch_to(self.recorder, MOVES[FORWARD].phase)
        self._to_backward = switch_to(self.recorder, MOVES[FIRST_GRADIENT].phase)
        self._to_optimizer = switch_to(self.recorder, MOVES[UPDATE].phase)
        self._to_other = switch_to(self.recorder, MOVES[UPDATE].next_phase)
        self._fetched = leaving_to(self.recorder, MOVES[FORWARD].phase)
        self.forward_ends: Callable[[], object] = self._to_other
        """What goes on until backward is the loop's own code."""
        self.forward_goes_on: Callable[[], object] = self._to_forward
        """Of another module."""
        self.backward_begins: Callable[[], object] = self._to_backward
        """The loss is there."""

    # -- updates ------------------------------------------------------------------------------

    def join(self, optimizer: Optimizer) -> None:
        """Another optimizer of this loop."""
        self.optimizers.append(optimizer)
        self._attach([optimizer], outside_objects.trained_modules([optimizer]))
        if not self._formed:
            self._closer = id(optimizer)

    @property
    def forms(self) -> bool:
        """Whether another optimizer may still belong to it."""
        return not self._formed

    def _update_begins(self, optimizer: Optimizer) -> None:
        """`optimizer.step()` of a member is called."""
        if optimizer is self.optimizers[0]:
            self._formed = True
        if not self.records:
            return
        recorder = self.recorder
        if self.passes.forwarding or self.passes.backwarding:
            self.passes.end()
        waits = self.waits
        waits.micro_batch = False
        waits.settle()
        slot = recorder.slot
        if self._watched and slot == _FORWARD:  # no gradient of it was seen
            self.fit.phases.mark(Mark.FORWARD_ENDS)
        if waits.step:  # nothing was called since then, and nothing tells what the time was for
            waits.end(_OTHER)
        else:
            self._leave_gap()
        scaler = self.fit.chosen.scaler
        if scaler is not None:
            scaler.attempt(optimizer)
        self._to_optimizer()

    def _update_ends(self, optimizer: Optimizer) -> None:
        """It has returned."""
        if not self.records:
            return
        self._to_other()
        if id(optimizer) == self._closer:
            self._step_ends()
        else:
            self._updated = True

    # -- passes -------------------------------------------------------------------------------

    def forward_begins(self) -> None:
        """The batch is there."""
        recorder = self.recorder
        if not self.records or recorder.draft is None:
            return
        waits = self.waits
        if waits.micro_batch:
            waits.end()
        if self._pending and not self._updated:
            self._micro_batch_over()
        self._pending = True
        if self.cost is not None:
            self.cost.forward()
        if waits.step:
            waits.end()
        else:
            waits.settle()
        if recorder.slot == _DATA_WAIT:
            self._fetched()
        else:
            self._leave_gap()
            self._to_forward()
        if self.fit.audit is not None:
            self.fit.begin_batch()

    def _leave_gap(self) -> None:
        """Training goes on, where it had stopped."""
        if self.recorder.slot >= FIRST_GAP:
            self.recorder.rest(_OTHER)

    def evaluates(self) -> None:
        """Between two steps it is a validation; in each step it is part of the training."""
        waits = self.waits
        if not self.records or not (waits.step or waits.micro_batch):
            return
        step = self.recorder.index
        if step > self._evaluated_in + 1:
            waits.validate()
        else:
            waits.end()
            self.recorder.rest(_OTHER)
        self._evaluated_in = step

    def _backward_begins(self) -> None:
        self.fit.phases.mark(Mark.FORWARD_ENDS)
        self._to_backward()

    def _fetch_ends(self) -> None:
        self.fit.phases.fetch_ends()
        self._to_forward()

    def backward_ends(self) -> None:
        """An update follows, or another micro-batch."""
        if self._watched:
            self.fit.phases.mark(Mark.BACKWARD_ENDS)
            self.fit.phases.tail_ends()
            self.fit.phases.mark(Mark.FETCH_BEGINS)
        self.waits.micro_batch = True
        self._to_other()

    # -- inside -------------------------------------------------------------------------------

    def _facts(self) -> FitFacts:
        modules = outside_objects.trained_modules(self.optimizers)
        module = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
        device = device_of(None, module)
        self._objects = FitObjects(
            device=device,
            module=module,
            optimizers=self.optimizers,
            schedulers=outside_objects.schedulers_of(self.optimizers),
            scaler=outside_objects.scaler_of(self.optimizers[0]),
        )
        precision = PRECISIONS.get(modules[0])
        return FitFacts(
            objects=self._objects,
            base="runs",
            kind=OUTSIDE,
            loader=outside_objects.loader_in_use(),
            config={} if precision is None else {"precision": precision},
            probes=(OutsideProbe(modules[0], device.type, self.waits),),
            notes=lambda: notes(self.waits, forwards=self.passes.forwards),
            reasons=no_device_copy(device),
            coarse=self.waits.coarse,
            training=lambda _: OutsideTraining(self._objects, module, self._end_trials),
        )

    def _listen(self) -> None:
        modules = outside_objects.trained_modules(self.optimizers)
        self._watched = self.fit.phases.watches_backward
        if self._watched:
            self.backward_begins, self._fetched = self._backward_begins, self._fetch_ends
        self.passes.reads = self.fit.chosen.clock is None
        self._attach(self.optimizers, modules)
        self.waits.brackets = self.fit.phases
        # Only now: hooks are timed as they are called, so brackets inside them are not.
        self.fit.cost, self.fit.on_settled = self.cost, self._untime
        self.waits.listen(self._guarded)
        self.waits.begin_step()

    def _attach(self, optimizers: Sequence[Optimizer], modules: Sequence[torch.nn.Module]) -> None:
        self.passes.attach(modules, outside_objects.updated_by(optimizers))

    def _micro_batch_over(self) -> None:
        """Another one follows in this step, unless the scaler has skipped the update."""
        skipped = self._update_skipped()
        if skipped and self.fit.chosen.scaler is not None:
            self.fit.chosen.scaler.attempt(self.optimizers[0])
        self._tell(complete=skipped)
        if skipped:
            self.waits.begin_step(waited=True)

    def _update_skipped(self) -> bool:
        """Whether the gradients are gone although nothing was updated: an overflow."""
        if self._objects.scaler is None:
            return False
        groups = self.optimizers[0].param_groups
        return all(parameter.grad is None for group in groups for parameter in group["params"])

    def _step_ends(self) -> None:
        self._tell(complete=True)
        if self.cost is not None:
            self.passes.pause()
            self.fit.settle_cost()
            self.passes.listen()
        self.waits.begin_step()
        if self._tried:
            raise TrialsOver

    def _end_trials(self) -> None:
        self._tried = True

    def _tell(self, *, complete: bool) -> None:
        batch, loss = self.passes.batch, self.passes.loss
        self.passes.batch = self.passes.loss = None
        self._pending = self._updated = False
        begun = monotonic_ns()
        self.fit.micro_batch(batch, loss, complete=complete, begun=begun)
        if self.cost is not None:  # which counts itself
            self.cost.without(begun)

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """One that cannot hurt the training, timed as long as hooks are."""
        guarded = self.fit.guard.hook(Fit.hooks, function)
        return guarded if self.cost is None else self.cost.timed(guarded)

    def _untime(self) -> None:
        """Time hooks no more: it is clear what they cost."""
        self.cost = None
        self.passes.renew(self._guarded)
        self.waits.listen(self._guarded)

    def _unhook(self) -> None:
        self.passes.detach()
        self.waits.leave()

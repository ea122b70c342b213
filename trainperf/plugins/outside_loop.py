"""Recording of a plain loop from outside: the phases that hooks of PyTorch can tell, coarsely.

A step is one update of the optimizer.  What lies between an update and the next forward is counted
as data wait, unless Python tells when a `DataLoader` is asked (see `outside_loader`).
"""

import atexit
import os
import sys
from collections.abc import Callable, Sequence

import torch
from torch.optim import Optimizer

from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.loop_kind import OUTSIDE
from trainperf.core.machine.clocks import monotonic_ns, wall_clock_anchor
from trainperf.core.phases import FIRST_GAP, Phase
from trainperf.core.places import storage
from trainperf.core.steps.records import FINISHED, Scalar, ended_by
from trainperf.loop.finish import finish_rank
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.loop.start import LoopFacts, LoopOptions, StartedFit, device_of, start
from trainperf.plugins import outside_objects
from trainperf.plugins.fabric_setup import PRECISIONS
from trainperf.plugins.outside_facts import OutsideProbe, notes
from trainperf.plugins.outside_passes import OutsidePasses
from trainperf.plugins.outside_trials import offered, trial_options
from trainperf.plugins.outside_waits import BatchWaits
from trainperf.recording.extensions import Extensions
from trainperf.recording.hook_cost import HookCost, HookPrice
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import FitObjects, ProbeSet
from trainperf.recording.timeline import leaving_to, switch_to
from trainperf.recording.upload import Upload
from trainperf.trials.batch_source import TrialsOver


_DATA_WAIT, _FORWARD = int(Phase.DATA_WAIT), int(Phase.FORWARD)
_OTHER = int(Phase.OTHER)


class OutsideLoop:
    """One fit, from the end of its first update on.

    Args:
        options: The command's.
        optimizer: Whose update it was.
    """

    part = "start of the fit"
    hooks = "hooks from outside"

    def __init__(self, options: LaunchOptions, optimizer: Optimizer) -> None:
        self.monitor = Monitor()
        self.recorder = self.monitor.recorder
        self.optimizers = [optimizer]
        """In the order of their first updates."""
        self._closer = id(optimizer)
        """The optimizer whose update ends a step."""
        self._formed = False
        """Whether the first optimizer came round again, so that all are known."""
        self._launch = options
        self._fit: StartedFit | None = None
        guard = self.monitor.guard
        self._brackets = PhaseContexts(self.recorder, guard, ProbeSet())
        self._watched = False
        """Whether there is anything to be told around backward but its time."""
        self._make_switches()
        price = HookPrice.of_passes(monotonic_ns)
        self.cost: HookCost | None = HookCost(monotonic_ns, guard, price)
        """Times what runs every step, until it is clear what that costs."""
        self.passes = OutsidePasses(self, self._guarded)
        self.waits = BatchWaits(self.recorder, self._brackets)
        self._objects = FitObjects(device=torch.device("cpu"))
        self._pending = self._updated = False
        self._tried = False
        """Whether the process ends, which was started for trials."""
        self._evaluated_in = -2
        """The last step in which something was evaluated."""
        self._pid = os.getpid()
        self.update_begins = guard.hook(self.hooks, self._update_begins)
        self.update_ends = guard.hook(self.hooks, self._update_ends)
        guard.when_faulty(self.hooks, self._give_up)
        self._fit = guard.run(self.part, self._start)
        atexit.register(self._at_exit)
        if self._fit is not None:
            self.waits.begin_step()

    def _make_switches(self) -> None:
        """What moves from phase to phase.  Run every step."""
        self._to_forward = switch_to(self.recorder, Phase.FORWARD)
        self._to_backward = switch_to(self.recorder, Phase.BACKWARD)
        self._to_optimizer = switch_to(self.recorder, Phase.OPTIMIZER)
        self._to_other = switch_to(self.recorder, Phase.OTHER)
        self._fetched = leaving_to(self.recorder, Phase.FORWARD)
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
        if self._fit is None:
            return
        recorder = self.recorder
        if self.passes.forwarding or self.passes.backwarding:
            self.passes.end()
        waits = self.waits
        waits.micro_batch = False
        waits.settle()
        slot = recorder.slot
        if self._watched and slot == _FORWARD:  # no gradient of it was seen
            self._brackets.mark(Mark.FORWARD_ENDS)
        if waits.step:  # nothing was called since then, and nothing tells what the time was for
            waits.end(_OTHER)
        else:
            self._leave_gap()
        scaler = self._fit.chosen.scaler
        if scaler is not None:
            scaler.attempt(optimizer)
        self._to_optimizer()

    def _update_ends(self, optimizer: Optimizer) -> None:
        """It has returned."""
        if self._fit is None:
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
        if self._fit is None or recorder.draft is None:
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
        if self._fit.audit is not None:
            self._fit.audit.begin_batch()

    def _leave_gap(self) -> None:
        """Training goes on, where it had stopped."""
        if self.recorder.slot >= FIRST_GAP:
            self.recorder.rest(_OTHER)

    def evaluates(self) -> None:
        """Between two steps it is a validation; in each step it is part of the training."""
        waits = self.waits
        if self._fit is None or not (waits.step or waits.micro_batch):
            return
        step = self.recorder.index
        if step > self._evaluated_in + 1:
            waits.validate()
        else:
            waits.end()
            self.recorder.rest(_OTHER)
        self._evaluated_in = step

    def _backward_begins(self) -> None:
        self._brackets.mark(Mark.FORWARD_ENDS)
        self._to_backward()

    def _fetch_ends(self) -> None:
        self._brackets.fetch_ends()
        self._to_forward()

    def backward_ends(self) -> None:
        """An update follows, or another micro-batch."""
        if self._watched:
            self._brackets.mark(Mark.BACKWARD_ENDS)
            self._brackets.tail_ends()
            self._brackets.mark(Mark.FETCH_BEGINS)
        self.waits.micro_batch = True
        self._to_other()

    # -- the end ------------------------------------------------------------------------------

    def finish(self, reason: str = FINISHED) -> None:
        """Close the files, write the summary, print the report on rank 0.  Safe to call twice."""
        atexit.unregister(self._at_exit)
        if self.monitor.finished:
            return
        self.monitor.guard.last(self.hooks, self._unhook)
        self.monitor.finish(reason)
        fit = self._fit
        if fit is None:
            return
        finish_rank(
            self.monitor.guard,
            fit.run if fit.rank == 0 else None,
            ranks=self._objects.world_size,
            reason=reason,
            aloud=True,
            writer=None,
        )
        if fit.upload is not None:
            self.monitor.guard.run(Upload.part, fit.upload.end)

    @property
    def records(self) -> bool:
        """Whether it could be started."""
        return self._fit is not None

    # -- inside -------------------------------------------------------------------------------

    def _start(self) -> StartedFit:
        modules = outside_objects.trained_modules(self.optimizers)
        module = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
        loader = outside_objects.loader_in_use()
        device = device_of(None, module)
        self._objects = FitObjects(
            device=device,
            module=module,
            optimizers=self.optimizers,
            schedulers=outside_objects.schedulers_of(self.optimizers),
            scaler=outside_objects.scaler_of(self.optimizers[0]),
        )
        probe = OutsideProbe(modules[0], device.type, self.waits)
        options = LoopOptions(
            base=storage(self._launch.dirpath or "runs"),
            writer=None,
            log_every=50,
            aloud=True,
            lines=True,
            started_at=wall_clock_anchor(),
            extensions=Extensions(probes=(probe,)),
            audit=self._launch.audit_plan,
            loader_anatomy=self._launch.loader_anatomy,
            trials=trial_options(self._launch),
        )
        config: dict[str, Scalar] = {"loop": OUTSIDE.name}
        if modules[0] in PRECISIONS:
            config["precision"] = PRECISIONS[modules[0]]
        training = offered(module, self._end_trials)
        coarse = self.waits.coarse
        facts = LoopFacts(config=config, software={}, training=training, coarse=coarse)
        fit = start(self.monitor, self._objects, options, loader, self._notes, facts)
        self._brackets = PhaseContexts(self.recorder, self.monitor.guard, fit.chosen)
        self._watched = self._brackets.watches_backward
        if self._watched:
            self.backward_begins, self._fetched = self._backward_begins, self._fetch_ends
        self.passes.reads = fit.chosen.clock is None
        self.waits.brackets = self._brackets
        self._attach(self.optimizers, modules)
        self.waits.listen(self._guarded)
        return fit

    def _attach(self, optimizers: Sequence[Optimizer], modules: Sequence[torch.nn.Module]) -> None:
        self.passes.attach(modules, outside_objects.updated_by(optimizers))

    def _micro_batch_over(self) -> None:
        """Another one follows in this step, unless the scaler has skipped the update."""
        skipped = self._update_skipped()
        if skipped and self._fit is not None and self._fit.chosen.scaler is not None:
            self._fit.chosen.scaler.attempt(self.optimizers[0])
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
            self._settle_hooks(self.cost)
        self.waits.begin_step()
        if self._tried:
            raise TrialsOver

    def _end_trials(self) -> None:
        self._tried = True

    def _tell(self, *, complete: bool) -> None:
        fit = self._fit
        if fit is None:
            return
        if fit.audit is not None:
            fit.audit.pause()
        batch, loss = self.passes.batch, self.passes.loss
        self.passes.batch = self.passes.loss = None
        self._pending = self._updated = False
        begun = monotonic_ns()
        self.monitor.micro_batch(batch, loss, complete=complete, begun=begun)
        if self.cost is not None:  # which counts itself
            self.cost.without(begun)
        if fit.audit is not None:
            fit.audit.settle()

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """One that cannot hurt the training, timed as long as hooks are."""
        guarded = self.monitor.guard.hook(self.hooks, function)
        return guarded if self.cost is None else self.cost.timed(guarded)

    def _settle_hooks(self, cost: HookCost) -> None:
        """Time hooks no more once it is clear what they cost."""
        draft = self.recorder.draft
        if draft is None:
            return
        self.passes.pause()
        switch_ns = cost.step_over(draft, traced=self.recorder.listener is not None)
        self.passes.listen()
        if switch_ns is not None:
            self.cost, self.monitor.switch_ns = None, switch_ns
            self.passes.renew(self._guarded)
            self.waits.listen(self._guarded)

    def _give_up(self) -> None:
        """After a fault of ours no step is measured any more: a part of one would be no step."""
        self._unhook()
        self.recorder.abandon()

    def _unhook(self) -> None:
        self.passes.detach()
        self.waits.leave()

    def _notes(self) -> dict[str, str]:
        return notes(self.waits, forwards=self.passes.forwards)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child has inherited us
            # An error that nobody caught is kept in `sys`.
            self.finish(ended_by(getattr(sys, "last_type", None)))

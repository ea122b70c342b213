"""Attribution of operator calls to a part of the step, a module and a line of the user's code.

Backward is attributed through its graph: each node has the sequence number of the forward call that
made it, and is assigned to the same place.  All of it uses torch's own hooks.
"""

import math
import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from typing_extensions import Self

from trainperf.audit.gradients import Gradients, NeedlessGradients
from trainperf.audit.operator_call import Site
from trainperf.audit.stack_frames import (
    Owner,
    caller_of,
    frames,
    in_closure,
    in_update,
    line_of,
)
from trainperf.core.artifacts.audit import Part


_TORCHMETRICS = f"{os.sep}torchmetrics{os.sep}"
"""Lightning keeps what it logs in a metric of its own, made with that package."""

UPDATE_NS = 250_000_000
"""Processor time for an update where none is left."""

# As DDP does: there is no public way.
_queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 see above


Hook = Callable[..., None]
"""A function that torch will call by itself."""

Shield = Callable[[Hook], Hook]
"""Wraps one; under a guard it never raises."""


def as_it_is(function: Hook) -> Hook:
    """No guard: who audits a step by hand sees our faults."""
    return function


class Attribution:
    """Follows modules, the autograd graph and updates while it is entered.

    PyTorch goes through its hooks around an update while it calls them: one that is taken away
    meanwhile raises in the user's training.  Amid an update they fall silent only, until `release`.

    Args:
        root: Module that the others are named from; by default the outermost one that is called.
        shield: Wraps what torch calls, so that a fault of ours ends the audit only.
        updated: Called with the optimizer of each update that has been made.
        gradients: Told of each backward and update.
    """

    def __init__(
        self,
        root: nn.Module | None,
        shield: Shield,
        updated: Callable[[Optimizer], None],
        gradients: Gradients,
    ) -> None:
        self._root, self._shield, self._updated_too = root, shield, updated
        self._names: dict[int, tuple[str, nn.Module]] = {}
        """By identity: a metric of torchmetrics is a module whose hash changes with its state."""
        self._models: Counter[str] = Counter()
        """Class of a model to how many there are."""
        self._running: list[tuple[nn.Module, dict[str, int]]] = []
        """Each with the `passes` inside of it."""
        self._passes: Counter[str] = Counter()
        """Path of a module to how often it was called."""
        self._gradients = gradients
        self._backwards: set[int] = set()
        """Runs of autograd's engine, by number."""
        self._backward_line: str | None = None
        """That called the last one, where it was to make the first gradient."""
        self._updating = 0
        self._sites: dict[int, Site] = {}
        """Sequence number of a graph node to the call that made it."""
        self._nodes = 0
        """How many nodes there were at the last call of a forward."""
        self._hooks = ExitStack()
        self._update_hooks = ExitStack()
        self._entered = False
        self.left_ns = math.inf
        """Processor time that looking at operators may still take.

        Not wall time: on a busy machine an audit is slower, and so is everything.
        """

    def __enter__(self) -> Self:
        if self._root is not None and id(self._root) not in self._names:
            self._learn(self._root)
        self.release()
        shield, hooks, of_updates = self._shield, self._hooks, self._update_hooks
        for stack, handle in (
            (hooks, register_module_forward_pre_hook(shield(self._enter_module))),
            (hooks, register_module_forward_hook(shield(self._leave_module), always_call=True)),
            (of_updates, register_optimizer_step_pre_hook(shield(self._update))),
            (of_updates, register_optimizer_step_post_hook(shield(self._updated))),
        ):
            stack.callback(handle.remove)
        self._nodes, self._entered = graphs_made(), True
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.close()
        self._gradients.pause()
        self._updating, self._entered = 0, False
        if not in_update():
            self.release()

    def release(self) -> None:
        """Leave no hook behind; call it outside of any update."""
        self._update_hooks.close()

    def here(self) -> tuple[Part, Site, int | None]:
        """Part and place of the operator call that is being dispatched, and its graph node.

        The sequence number of that which it has made, or in backward of that which runs.
        """
        task = torch._C._current_graph_task_id()  # noqa: SLF001 no public name
        in_backward = task != -1
        if in_backward and task not in self._backwards:
            self._backwards.add(task)
            _queue(self._shield(self._backward_ended))
        computing = torch.is_grad_enabled()
        if in_backward and not computing:
            return "backward", *self._origin()
        owners, site = _stack(beyond_user=in_backward)
        if in_backward and not (self._running or "checkpoint" in owners):
            return "backward", *self._origin()
        if self._running:
            module, _ = self._running[-1]
            # A parametrization puts a class of torch's in front of the module's own.
            packages = (kind.__module__ for kind in type(module).__mro__)
            package = next(each for each in packages if not each.endswith(".parametrize"))
            own = package.startswith("torch.nn.")
            composed = own and next(module.children(), None) is not None
            name, _ = self._names[id(module)]
            site = replace(site, module=name, in_torch=own, composed=composed)
        if "backward" in owners and not in_backward:  # the first gradient, of ones
            self._backward_line = site.called_at or site.line
            return "backward", site, None
        updates = "update" in owners or bool(self._updating)
        part: Part = "recompute" if in_backward else "forward"
        if updates and not computing and not in_backward and not in_closure():
            part = "optimizer"
        # The node of this call was made just before: its number is the last one given out.
        nodes, before = graphs_made(), self._nodes
        self._sites.setdefault(nodes - 1, site)
        self._nodes = nodes
        return part, site, nodes - 1 if nodes != before else None

    def lets_pass(self) -> bool:
        """Whether the operator that is being dispatched is not looked at, as no time is left.

        An update comes after all else, and is looked at for a while even then.
        """
        if self.left_ns >= 0:
            return False
        updates = self._updating and not torch.is_grad_enabled()
        in_backward = torch._C._current_graph_task_id() != -1  # noqa: SLF001 no public name
        return not updates or in_backward or self.left_ns < -UPDATE_NS or in_closure()

    @property
    def passes(self) -> dict[str, int]:
        """Path of each running module, the outer ones first, to the number of its present call."""
        return self._running[-1][1] if self._running else {}

    def _origin(self) -> tuple[Site, int | None]:
        """Of the forward call that made the running node, else of the call of backward."""
        node = torch._C._current_autograd_node()  # noqa: SLF001 no public name
        number = None if node is None else node._sequence_nr()  # noqa: SLF001 same
        site = None if number is None else self._sites.get(number)
        return site or _stack(beyond_user=False)[1], number

    def _learn(self, root: nn.Module) -> None:
        kept = getattr(root, "_orig_mod", root)  # what torch.compile wraps
        name, number = type(kept).__name__, 1
        if next(kept.parameters(), None) is not None:  # a loss may be made anew for each batch
            self._models[name] = number = self._models[name] + 1
        prefix = name if number == 1 else f"{name}-{number}"
        for path, module in root.named_modules(prefix=prefix):
            self._names.setdefault(id(module), (path.replace("._orig_mod", ""), module))

    def _enter_module(self, module: nn.Module, *_: object) -> None:
        if id(module) not in self._names:
            self._learn(module)
        name = self._names[id(module)][0]
        self._passes[name] += 1
        self._running.append((module, {**self.passes, name: self._passes[name]}))

    def _leave_module(self, module: nn.Module, *_: object) -> None:
        # An exception may have skipped modules inside this one.
        while self._running and self._running.pop()[0] is not module:
            pass

    def needless(self) -> NeedlessGradients:
        """Gradients that no update has read, and modules that have no others."""
        weights = {
            path: {id(p) for p in module.parameters() if p.requires_grad}
            for path, module in self._names.values()
        }
        return self._gradients.needless(weights)

    def _backward_ended(self) -> None:
        # There is no frame where a thread of the device's comes last.
        _, site = _stack(beyond_user=False)
        line = site.called_at or site.line or self._backward_line or "an unknown line"
        own = (p for _, module in self._names.values() for p in module.parameters(recurse=False))
        self._gradients.backward_ended(own, line)
        self._backward_line = None

    def _update(self, optimizer: Optimizer, *_: object) -> None:
        if self._entered:
            self._updating += 1
            self._gradients.update(optimizer)

    def _updated(self, optimizer: Optimizer, *_: object) -> None:
        if self._entered:
            self._updating = max(0, self._updating - 1)  # entered amid the update, in its closure
            self._gradients.update(optimizer)
            self._updated_too(optimizer)


def graphs_made() -> int:
    """How many nodes of graphs this thread has made: the number of the next one."""
    return int(torch._C._autograd._get_sequence_nr())  # noqa: SLF001 no public name


def _stack(*, beyond_user: bool) -> tuple[set[Owner], Site]:
    """Owners of torch's frames inside the user's, and the place of the user's innermost frame.

    Beyond that frame only checkpointing is looked for.
    """
    owners: set[Owner] = set()
    users: FrameType | None = None
    innermost = True
    for owner, frame in frames():
        outside = owner == "logging" and users is None
        own = innermost and owner in ("backward", "update")
        if owner == "checkpoint" or outside or own:
            owners.add(owner)
        innermost = innermost and owner not in ("user", "framework", "logging")
        keeps_logs = "logging" in owners and _TORCHMETRICS in frame.f_code.co_filename
        if owner == "user" and users is None and not keeps_logs:
            users = frame
        if users is not None and not beyond_user:
            break
    line, around = (None, None) if users is None else (line_of(users), caller_of(users))
    return owners, Site(module=None, line=line, called_at=around, logs="logging" in owners)

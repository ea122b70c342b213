"""Audit of one real training step: it runs once, eagerly, and every operator is recorded."""

import math
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import nn
from typing_extensions import Self

from trainperf.audit.allocations import Storages, gradients
from trainperf.audit.attribution import Attribution, Shield, as_it_is
from trainperf.audit.chip_benchmark import cache_bytes, computing, device_name
from trainperf.audit.data_flow import unread
from trainperf.audit.dispatch_mode import AuditMode
from trainperf.audit.gradients import Gradients, NeedlessGradients
from trainperf.audit.grouping import rows_of
from trainperf.audit.nested import fields_of
from trainperf.audit.operator_call import Call
from trainperf.audit.traffic import storage_key
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.machine.clocks import monotonic_ns


def audit_step(step: Callable[[], object], *, model: nn.Module | None = None) -> StepAudit:
    """Run *step* once and say what each of its operators computed and moved.

    It does what it would have done, slower: parameters are updated if it updates them.  Compiled
    functions run uncompiled.

    Args:
        step: Forward, backward and update of one step, without arguments.
        model: Module that the others are named from; by default the outermost one that runs.
    """
    audit = Audit(model)
    with audit:
        step()
    return audit.result()


class Audit:
    """An audit between `__enter__` and `__exit__`, for loops that cannot hand over their step.

    Args:
        model: Module that the others are named from; by default the outermost one that runs.
        shield: Wraps what torch calls, so that a fault of ours ends the audit only.
        most_ns: Processor time for looking at operators: then those of forward and backward are
            let pass; `None` for no limit.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        shield: Shield = as_it_is,
        *,
        most_ns: int | None = None,
    ) -> None:
        calls: list[Call] = []
        self.storages = Storages(calls)
        """The memory that was taken meanwhile."""
        gradients = Gradients(calls, self.storages)
        self._where = Attribution(model, shield, self.storages.updated, gradients)
        self._where.left_ns = math.inf if most_ns is None else most_ns
        self._mode = AuditMode(calls, self._where, self.storages, shield)
        self._model = model
        self._entered = ExitStack()
        self._start_ns = self._wall_ns = 0
        self._calls_before = 0
        """Of batches that were trained before the present one."""
        self.batches: list[dict[str, int]] = []
        """Of each that was looked at to its end: fields that no operator has read, with bytes."""
        self._batch_bytes = 0

    def __enter__(self) -> Self:
        self._start_ns = monotonic_ns()
        # A compiled graph has no operators to see; torch's own switch leads around it.  Where the
        # compiler was not loaded nothing is compiled, and loading it takes seconds.
        if "torch._dynamo" in sys.modules:
            self._entered.enter_context(torch.compiler.set_stance("force_eager"))
        self._entered.enter_context(warnings.catch_warnings())
        # Torch warns that our hooks hear a compiled module twice: as itself and as its wrapper.
        warnings.filterwarnings("ignore", message="Using `torch.compile\\(module\\)` when")
        self._entered.enter_context(self._where)
        if self._model is not None:
            self.storages.follow(gradients(self._model))
        self._entered.enter_context(self._mode)
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.close()
        self._wall_ns += monotonic_ns() - self._start_ns

    def batch_trained(self, batch: object) -> None:
        """A batch was trained by all calls since the one before it; after `__exit__`.

        Tensors of other classes than torch's own are left out: operators are seen to read what is
        inside of them.
        """
        every, before = self._mode.calls, self._calls_before
        calls = every[before:]
        if self._where.left_ns < 0:  # amid it, or before it began: what is whole is the update
            every[before:] = [call for call in calls if call.part == "optimizer"]
        else:
            fields = fields_of(batch)
            dense = {path: each for path, each in fields if each.layout is torch.strided}
            self._batch_bytes = sum(tensor.nbytes for tensor in dense.values())
            plain = {
                path: storage_key(tensor)
                for path, tensor in dense.items()
                if type(tensor) is torch.Tensor and tensor.nbytes
            }
            self.batches.append({path: dense[path].nbytes for path in unread(calls, plain)})
        self._calls_before = len(every)

    @property
    def stopped(self) -> bool:
        """Whether it has let operators pass, and has seen no batch to its end."""
        return self._where.left_ns < 0 and not self.batches

    def release(self) -> None:
        """Leave no hook behind, where `__exit__` came amid an update; call it outside of any."""
        self._where.release()

    def result(self, *, step: int | None = None, micro_batches: int = 1) -> StepAudit:
        """What was seen; after `__exit__`.

        Batches for which no time was left are taken to be as the others on average; which gradients
        nobody reads is not told then, as these were made at moments that nobody saw.
        """
        calls, needless, times = self._mode.calls, self._where.needless(), 1.0
        if self._where.left_ns < 0 and self.batches:
            times = micro_batches / len(self.batches)
            needless = NeedlessGradients((), {}, {}, {})
        device = computing(kind for call in calls for kind in call.like.devices)
        parameters = () if self._model is None else self._model.parameters()
        on_it = (each.device for each in parameters if each.device.type == device)
        place = next(on_it, torch.device(device))
        cache = cache_bytes(place)
        uncounted = {call.like.name for call in calls if not call.like.work.counted}
        return StepAudit(
            step=step,
            micro_batches=micro_batches,
            device=device,
            device_index=place.index,
            device_name=device_name(place),
            cache_bytes=cache,
            operators=tuple(rows_of(calls, device, cache, needless, times)),
            uncounted=tuple(sorted(uncounted)),
            audited_s=self._wall_ns / 1e9,
            batch_bytes=self._batch_bytes,
            unread={
                path: size
                for path, size in (self.batches or [{}])[-1].items()
                if all(path in each for each in self.batches)
            },
        )

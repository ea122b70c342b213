"""Feeds overflows: which attempted optimizer updates the GradScaler threw away.

Public hooks only, and no host sync.  An *attempt* is announced by the loop; during a fused
optimizer's `step()` the scaler leaves `optimizer.found_inf` on it, which is copied on the device;
any other optimizer's `step()` simply does not run when the scaler skips.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch.optim import Optimizer

from trainperf.core.machine.clocks import TimingEvent
from trainperf.core.phases import Tag
from trainperf.recording.probes.base import RingProbe, add
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.recorder import Draft


class ScalerProbe(RingProbe):
    """Attempts and overflows of every optimizer under one `torch.amp.GradScaler`."""

    name = "scaler"
    facts: ClassVar[tuple[str, ...]] = ("attempts", "overflows", "loss_scale")

    def __init__(
        self, scaler: torch.amp.GradScaler, optimizers: Sequence[Optimizer], device: torch.device
    ) -> None:
        super().__init__(Ring(torch.bool))
        self._scaler = scaler
        self._device = device
        self._optimizers = list(optimizers)
        self._ids = set[int]()
        self._scales = Ring(torch.float32)
        self._pending: set[int] = set()
        self._attempted = False

    def begin(self) -> None:
        """Hook every optimizer's step."""
        self._unit = torch.ones((), device=self._device)
        for optimizer in self._optimizers:
            self.adopt(optimizer)

    def adopt(self, optimizer: Optimizer) -> None:
        """Hook one that the scaler may step."""
        self._ids.add(id(optimizer))
        steps = self.shield(partial(self._stepping, id(optimizer)))
        self.undo.callback(optimizer.register_step_pre_hook(steps).remove)

    def attempt(self, optimizer: object) -> None:
        """The loop is about to ask the scaler to step *optimizer* with fresh gradients."""
        draft = self.recorder.draft
        if draft is None:
            return
        key = id(optimizer)
        if key not in self._ids:  # something that stands for an optimizer
            key = id(getattr(optimizer, "optimizer", optimizer))
        add(draft, "attempts", 1)
        add(draft, "overflows", int(key in self._pending))
        self._attempted = True
        self._pending.add(key)

    def withdraw(self) -> None:
        """No update was due after all: what was announced and not made is no attempt."""
        if self._pending:
            add(self.recorder.draft, "attempts", -len(self._pending))
            self._pending.clear()

    def close(self, draft: Draft) -> None:
        """An attempt whose `step()` was never called was skipped.  Runs every step."""
        if self._pending:
            add(draft, "overflows", len(self._pending))
            self._pending.clear()

    def seal(self) -> Sequence[TimingEvent]:
        """End the group, and read the scale: `scale(1)` is computed where the scale lives."""
        if self._attempted and self._scaler.is_enabled():
            # After the last step none is open, and the scale it left is worth knowing.
            row = self._scales.row(self.recorder.index, self._device)
            if row is not None:
                row.copy_(self._scaler.scale(self._unit), non_blocking=True)
        return [*super().seal(), *self._scales.seal()]

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Fused optimizers: fill in what their kernels found."""
        super().resolve(drafts)
        self._scales.resolve()
        for draft in drafts:
            if scales := self._scales.take(draft.index):
                draft.facts["loss_scale"] = scales[-1][0]
            if draft.facts["overflows"]:
                draft.tags |= Tag.OVERFLOW

    def fill(self, draft: Draft, rows: list[list[float]]) -> None:
        """Updates that were thrown away."""
        add(draft, "overflows", sum(bool(row[0]) for row in rows))

    def _stepping(self, key: int, optimizer: Optimizer, args: object, kwargs: object) -> None:
        draft = self.recorder.draft
        if key not in self._pending or draft is None:
            return
        self._pending.discard(key)
        flag = getattr(optimizer, "found_inf", None)
        if isinstance(flag, torch.Tensor):
            row = self.ring.row(draft.index, flag.device)
            if row is not None:
                torch.gt(flag.reshape(1), 0, out=row)  # a kernel, no allocation, no sync

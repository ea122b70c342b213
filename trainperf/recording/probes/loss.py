"""Feeds the loss: copied on the device, read when the device has passed it."""

import math
from collections.abc import Sequence
from typing import ClassVar, cast

import torch

from trainperf.core.formatting.units import plural
from trainperf.recording.device_clock import DeviceQueue
from trainperf.recording.probes.base import Batch, RingProbe
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.recorder import Draft


class LossProbe(RingProbe):
    """The last micro-batch's loss of each step.

    *scale* undoes a division that the loop has already applied (gradient accumulation); `None`
    undoes one by the micro-batches of the step.  A loss on the host is read there and then: keeping
    fifty of them takes fresh memory in every step, which costs a short step five times as much.
    With a *device* beside the host it may still be on its way, and is read with its group.  One on
    a device is copied there.
    """

    name = "loss"
    facts: ClassVar[tuple[str, ...]] = ("loss",)

    def __init__(self, *, scale: float | None = 1.0, device: DeviceQueue | None = None) -> None:
        super().__init__(Ring(torch.float32))
        self._scales = [(0, scale)]
        self._device = device
        self._on_host: dict[int, float | torch.Tensor | None] = {}
        """By step: what was read, or will be."""
        self._not_finite = 0
        """Steps whose loss is NaN or infinite."""
        self._first_not_finite: int | None = None
        self._since: int | None = None
        """First of the steps that ended the fit so far without a finite loss between them."""

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Read or copy the loss.  Runs every micro-batch; no sync."""
        draft = self.recorder.draft
        if draft is None:
            return
        value = loss.get("loss") if isinstance(loss, dict) else loss
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            if not value.is_cpu:
                row = self.ring.row(draft.index, value.device)
                if row is not None:
                    value = value.detach()
                    row.copy_(value.reshape(1) if value.ndim > 1 else value, non_blocking=True)
                self._on_host.pop(draft.index, None)
                return
            if self._device is None:
                value = _number(value) if value.ndim else cast("float", value.tolist())
            else:  # what a graph that is captured will write is no loss of this step
                value = None if self._device.is_capturing() else value.detach()
        elif not isinstance(value, float):
            return
        self._on_host[draft.index] = value

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Hand each step the loss that was copied, or read, for it."""
        super().resolve(drafts)
        for draft in drafts:
            value = self._on_host.pop(draft.index, None)
            if value is not None:
                self._fill(draft, _number(value) if isinstance(value, torch.Tensor) else value)

    def fill(self, draft: Draft, rows: list[list[float]]) -> None:
        """The last micro-batch's holds."""
        self._fill(draft, rows[-1][0])

    def _fill(self, draft: Draft, loss: float) -> None:
        while len(self._scales) > 1 and self._scales[1][0] <= draft.index:
            self._scales.pop(0)
        scale = self._scales[0][1]
        if scale is None and not draft.complete:
            return  # nobody knows by how many it was divided
        if not math.isfinite(loss):
            self._not_finite += 1
            first, since = self._first_not_finite, self._since
            self._first_not_finite = draft.index if first is None else first
            self._since = draft.index if since is None else since
            return
        self._since = None
        # Seven digits are all a float32 has.
        draft.facts["loss"] = float(f"{loss * (scale or draft.micro_batches):.7g}")

    def rescale(self, scale: float, since: int) -> None:
        """From step *since* on the loop divides the loss by something else."""
        self._scales.append((since, scale))

    def notes(self) -> dict[str, str]:
        """A loss that is no number has no value, but while it lasts it must be known.

        E.g. `not finite since step 81 (19 steps)`.
        """
        if self._since is None:
            return {}
        steps = plural(self._not_finite, "step")
        if self._first_not_finite == self._since:
            return {"loss": f"not finite since step {self._since} ({steps})"}
        return {
            "loss": f"not finite in {steps}, first in step {self._first_not_finite} and in every "
            f"step since {self._since}"
        }


def _number(value: torch.Tensor) -> float:
    """Of a tensor of one element on the host."""
    return float(value.reshape(-1).tolist()[0] if value.ndim else cast("float", value.tolist()))

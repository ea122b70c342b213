"""Feeds the loss: copied on the device, read when the device has passed it."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from trainperf.core.formatting.units import plural
from trainperf.recording.probes.base import Batch, RingProbe
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.recorder import Draft, Recorder


class LossProbe(RingProbe):
    """The last micro-batch's loss of each step.

    *scale* undoes a division that the loop has already applied (gradient accumulation), *divided*
    one by the micro-batches of the step.  A loss on the host is read there and then: keeping fifty
    of them takes fresh memory in every step, which costs a short step five times as much.  With an
    *asynchronous* device it may still be on its way, and is kept until the device has passed.  One
    on a device is copied there.
    """

    name = "loss"
    facts: ClassVar[tuple[str, ...]] = ("loss",)

    def __init__(
        self, *, scale: float = 1.0, divided: bool = False, asynchronous: bool = False
    ) -> None:
        super().__init__(Ring(torch.float32))
        self._scales = [(0, scale)]
        self._divided = divided
        self._not_finite = _NotFinite()
        self._read: dict[int, float] = {}
        self._asynchronous = asynchronous
        self._on_its_way: dict[int, torch.Tensor] = {}

    def attach(self, recorder: Recorder) -> None:
        """Begin to feed *recorder*."""
        super().attach(recorder)
        self._column = recorder.column("loss")
        self._step = -1
        self._row: torch.Tensor | None = None

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Read or copy the loss.  Runs every micro-batch; no sync."""
        draft = self.recorder.draft
        if draft is None:
            return
        if type(loss) is float:  # the loop has read it already
            self._read[draft.index] = loss
            return
        value = loss.get("loss") if isinstance(loss, dict) else loss
        if isinstance(value, torch.Tensor):
            if self._asynchronous or not value.is_cpu:
                self._later(draft, value.detach())
            else:
                number: object = value.tolist()
                if type(number) is list:
                    number = value.reshape(-1).tolist()[0] if value.numel() == 1 else None
                if isinstance(number, float | int):
                    self._read[draft.index] = number
        elif isinstance(value, float):
            self._read[draft.index] = value

    def _later(self, draft: Draft, value: torch.Tensor) -> None:
        """Have the value ready when the device has come here."""
        if value.numel() != 1:
            return
        if value.is_cpu:
            self._on_its_way[draft.index] = value
            return
        if value.ndim > 1:
            value = value.reshape(1)
        if self._step != draft.index or self._row is None:
            self._row = self.ring.row(draft.index, value.device)
            self._step = draft.index
        if self._row is not None:
            self._row.copy_(value, non_blocking=True)

    def seal(self) -> None:
        """End the group: a later micro-batch of the open step needs a row of the next one."""
        super().seal()
        self._row = None

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Hand each step the loss that was copied, or read, for it."""
        super().resolve(drafts)
        for draft in drafts:
            kept = self._on_its_way.pop(draft.index, None)
            if kept is not None:
                self._fill(draft, kept.reshape(-1).tolist()[0])
            value = self._read.pop(draft.index, None)
            if value is not None:
                self._fill(draft, value)

    def fill(self, draft: Draft, rows: list[list[float]]) -> None:
        """The last micro-batch's holds."""
        self._fill(draft, rows[-1][0])

    def _fill(self, draft: Draft, loss: float) -> None:
        if self._divided and not draft.complete:
            return  # nobody knows by how many
        if not math.isfinite(loss):
            self._not_finite.count(draft.index)
            return
        self._not_finite.since = None
        while len(self._scales) > 1 and self._scales[1][0] <= draft.index:
            self._scales.pop(0)
        scale = draft.micro_batches if self._divided else self._scales[0][1]
        # Seven digits are all a float32 has.
        draft.facts[self._column] = float(f"{loss * scale:.7g}")

    def rescale(self, scale: float, since: int) -> None:
        """From step *since* on the loop divides the loss by something else."""
        self._scales.append((since, scale))

    def notes(self) -> dict[str, str]:
        """A loss that is no number has no value, but while it lasts it must be known."""
        note = self._not_finite.note()
        return {"loss": note} if note else {}


class _NotFinite:
    """The steps whose loss is NaN or infinite: the first, how many, and since when all are."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._steps = 0
        self.since: int | None = None
        """First of the steps that ended the fit so far without a finite loss between them."""

    def count(self, step: int) -> None:
        """One more."""
        self._steps += 1
        self._first = step if self._first is None else self._first
        self.since = step if self.since is None else self.since

    def note(self) -> str:
        """While it lasts, e.g. `not finite since step 81 (19 steps)`; else empty."""
        if self.since is None:
            return ""
        if self._first == self.since:
            return f"not finite since step {self.since} ({plural(self._steps, 'step')})"
        return (
            f"not finite in {plural(self._steps, 'step')}, first in step {self._first} and in "
            f"every step since {self.since}"
        )

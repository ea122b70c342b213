"""Feeds tokens: how many the mask keeps, how many there are, how long the sequences are."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Batch, RingProbe, add
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.recorder import Draft, Recorder


MaskFunction = Callable[[object], torch.Tensor]
"""From a batch to a mask of shape `(batch, tokens)`: true or 1 where a token counts."""

IGNORE_INDEX = -100
"""Label that the usual loss functions leave out."""

NO_MASK = (
    "the batch has no attention_mask of shape (batch, tokens) and no labels: pass "
    "tokens=lambda batch: mask"
)
DISTINCT = 512
"""Sequence lengths that are counted one by one; of more, bins are counted."""
BIN = 16
"""Width of such a bin, in tokens."""


def demand_mask(tokens: MaskFunction | None) -> None:
    """Refuse what cannot give a mask.

    Raises:
        ConfigError: *tokens* is no function.
    """
    if tokens is not None and not callable(tokens):
        raise ConfigError(
            f"tokens={tokens!r}: must be a function from a batch to a mask; try "
            "tokens=lambda batch: batch['mask']"
        )


class TokensProbe(RingProbe):
    """Effective and padded tokens of every step, this rank.

    The mask is `attention_mask`, else `labels != -100`, else what *mask* returns.  A mask on the
    CPU is summed at once; one on a device is summed there, row by row, and read later.
    """

    name = "tokens"
    facts: ClassVar[tuple[str, ...]] = ("tokens_effective", "tokens_padded")
    _host: ClassVar[str] = "cpu"
    """Type of the device whose memory can be read at once."""

    def __init__(self, mask: MaskFunction | None = None) -> None:
        super().__init__(Ring(torch.int64))
        self._user_mask = mask
        self._note = ""
        self._decided = False
        self._length: int | None = None
        self._kept: torch.Tensor | None = None
        self.lengths: dict[int, int] = {}
        """Effective length in tokens, or the upper edge of a bin of them, to its sequences."""
        self._width = 1

    def attach(self, recorder: Recorder) -> None:
        """Begin to feed *recorder*."""
        super().attach(recorder)
        self._effective = recorder.column("tokens_effective")
        self._padded = recorder.column("tokens_padded")
        self._waiting: list[npt.NDArray[np.int64]] = []

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Sum the batch's mask.  Runs every micro-batch; no sync."""
        draft = self.recorder.draft
        mask = self._mask(batch)
        if mask is None or draft is None:
            return
        marks, ignored = mask
        add(draft, self._padded, marks.numel())
        if marks.device.type == self._host:
            lengths = np.count_nonzero(_on_host(marks) != ignored, axis=-1)
            add(draft, self._effective, int(lengths.sum()))
            self._waiting.append(lengths)
            return
        row = self.ring.row(draft.index, marks.device, marks.shape[0])
        if row is not None:
            kept = torch.ne(marks, ignored, out=self._room(marks))
            torch.sum(kept, dim=-1, dtype=torch.int64, out=row[: marks.shape[0]])

    def seal(self) -> None:
        """End the group; also the moment to count sequence lengths, off the hot path."""
        super().seal()
        if self._waiting:
            self._count(np.concatenate(self._waiting))
            self._waiting.clear()

    def fill(self, draft: Draft, rows: list[list[float]]) -> None:
        """Sum the step's lengths: a row is a micro-batch."""
        lengths = np.array([length for row in rows for length in row], dtype=np.int64)
        add(draft, self._effective, int(lengths.sum()))
        self._count(lengths)

    def reasons(self) -> dict[str, str]:
        """Why there are no tokens, if none were found."""
        if self._decided:
            return {}
        return dict.fromkeys(self.facts, NO_MASK)

    def notes(self) -> dict[str, str]:
        """Which mask was used."""
        return {"tokens": self._note} if self._note else {}

    def config(self) -> dict[str, Scalar]:
        """Tokens of a sequence in the first batch, padding included, as far as seen."""
        return {} if self._length is None else {"sequence_length": self._length}

    def _mask(self, batch: Batch) -> tuple[torch.Tensor, int] | None:
        """A tensor of shape (sequences, tokens), and the value that means *does not count*."""
        if self._user_mask is not None:
            return self._using(self._user_mask(batch), 0, "the user's mask function")
        if isinstance(batch, torch.Tensor) or not isinstance(batch, Mapping):
            return None  # told apart at once; asking an abstract class takes a while
        mask = batch.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            return self._using(mask, 0, "attention_mask")
        labels = batch.get("labels")
        if isinstance(labels, torch.Tensor) and labels.ndim == 2:
            return self._using(labels, IGNORE_INDEX, f"labels != {IGNORE_INDEX}")
        if self._length is None:
            self._length = _last(batch.get("input_ids"))
        return None

    def _using(self, marks: torch.Tensor, ignored: int, note: str) -> tuple[torch.Tensor, int]:
        if not self._decided:
            self._decided, self._note = True, note
            self._length = self._length or _last(marks)
        if marks.ndim == 2:
            return marks, ignored
        last = marks.shape[-1] if marks.ndim else 1
        return marks.reshape(-1, last), ignored

    def _room(self, marks: torch.Tensor) -> torch.Tensor:
        """Device memory for the comparison, made once and again only when a batch is larger."""
        number = marks.numel()
        if self._kept is None or self._kept.numel() < number or self._kept.device != marks.device:
            self._kept = torch.empty(number, dtype=torch.bool, device=marks.device)
        return self._kept[:number].view(marks.shape)

    def _count(self, lengths: npt.NDArray[np.int64]) -> None:
        edges, counts = np.unique(-(-lengths // self._width) * self._width, return_counts=True)
        for edge, count in zip(edges.tolist(), counts.tolist(), strict=True):
            self.lengths[edge] = self.lengths.get(edge, 0) + count
        if self._width < BIN and len(self.lengths) > DISTINCT:
            self._width, exact, self.lengths = BIN, self.lengths, {}
            for length, count in exact.items():
                edge = -(-length // BIN) * BIN
                self.lengths[edge] = self.lengths.get(edge, 0) + count


def _last(tokens: object) -> int | None:
    """Length of the last dimension of a tensor of sequences."""
    return tokens.shape[-1] if isinstance(tokens, torch.Tensor) and tokens.ndim > 1 else None


def _on_host(marks: torch.Tensor) -> npt.NDArray[np.generic]:
    """The tensor as numpy sees it, which knows no bfloat16."""
    marks = marks.detach()
    return (marks.float() if marks.dtype is torch.bfloat16 else marks).numpy()

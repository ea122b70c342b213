"""Feeds tokens: how many the mask keeps, how many there are, how long the sequences are."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import TimingEvent
from trainperf.core.steps.records import EXACT_LENGTHS, LENGTH_BIN
from trainperf.recording.probes.base import Batch, RingProbe, add
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.probes.packed_rows import is_packed
from trainperf.recording.recorder import Draft


_Mask = tuple[Draft, torch.Tensor, int, int]
"""A step, its mask, the value that means *does not count*, and the mask's version."""

MaskFunction = Callable[[object], torch.Tensor]
"""From a batch to a mask of shape `(batch, tokens)`: true or 1 where a token counts."""

IGNORE_INDEX = -100
"""Label that the usual loss functions leave out."""

NO_MASK = (
    "the batch has no attention_mask of shape (batch, tokens) and no labels: pass "
    "tokens=lambda batch: mask"
)
TARGETS = (
    "the batch has no attention_mask of shape (batch, tokens), and its labels leave out tokens "
    "before others that count: those are no targets, and no padding either; pass "
    "tokens=lambda batch: mask"
)
WINDOW = 64
"""Masks on the host that are kept and summed in a row, at the latest as their group is sealed."""
_MOST_HELD = 1 << 20
"""Tokens of the masks that are kept, were each as large as the last one."""
_FIRST = 16
"""Masks that tell whether each has memory of its own."""

_LOOKED_INTO = 8
"""Batches that may say that their rows are packed: one of few sequences may have a row for each."""


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

    The mask is `attention_mask`, else `labels != -100`, else what *mask* returns.  Labels that
    leave out a token before another one that counts, as those of a masked language model or of an
    answer after its prompt, say what is learned and not what is padding: they are no mask, which is
    seen where they are on the host, and not of batches on a device.  A mask on the
    CPU is summed with those of the next steps; one on a device is summed there, row by row, and
    read later.
    """

    name = "tokens"
    facts: ClassVar[tuple[str, ...]] = ("tokens_effective", "tokens_padded")
    _reads_host: ClassVar[bool] = True
    """Whether the host's memory is read there and then."""

    def __init__(self, mask: MaskFunction | None = None) -> None:
        super().__init__(Ring(torch.int64))
        self._user_mask = mask
        self._targets: bool | None = None
        """Whether labels say what is learned, by the first ones on the host."""
        self._to_look_into = _LOOKED_INTO
        self.longest_tokens = 0
        """Tokens if every batch were as wide as its longest sequence."""
        self._kept: torch.Tensor | None = None
        self._waiting: list[_Mask] = []
        self._first: list[_Mask] | None = []
        """The first masks, kept to see whether each has memory of its own; `None` after that."""
        self._apart = False
        """Whether each has: then one can be summed later, because nothing is written over it."""
        self.lengths: Counter[int] = Counter()
        """Effective length in tokens, or the upper edge of a bin of them, to its sequences."""
        self._width = 1

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Keep or sum the batch's mask.  Runs every micro-batch; no sync."""
        draft = self.recorder.draft
        plain = self._user_mask is None and isinstance(batch, torch.Tensor | list | tuple)
        mask = None if plain or draft is None else self._mask(batch)
        if mask is None or draft is None:
            return
        marks, ignored, note = mask
        if self._to_look_into:
            self._learn(batch, marks, ignored, note)
        if not (marks.is_cpu and self._reads_host):
            self._sum_there(draft, marks, ignored)
        elif marks.is_inference():  # whose changes nobody counts
            self._add_mask((draft, marks, ignored, 0))
        else:
            # Some are summed in a row: after a real step, whose work has filled the caches, the sum
            # of one takes 60 to 180 µs, and that of sixteen some 400, most of it for fetching code.
            self._waiting.append((draft, marks, ignored, marks._version))  # noqa: SLF001 torch's only count of changes
            held = len(self._waiting)
            if not self._apart or held >= WINDOW or held * marks.numel() >= _MOST_HELD:
                self._sum()

    def seal(self) -> Sequence[TimingEvent]:
        """End the group: its masks are summed."""
        self._sum()
        return super().seal()

    def fill(self, draft: Draft, rows: list[list[float]]) -> None:
        """Sum the step's lengths: a row is a micro-batch."""
        for row in rows:
            self._add(draft, [int(length) for length in row])

    def reasons(self) -> dict[str, str]:
        """Why there are no tokens, if none were found."""
        if self.noted:
            return {}
        return dict.fromkeys(self.facts, TARGETS if self._targets else NO_MASK)

    def _mask(self, batch: Batch) -> tuple[torch.Tensor, int, str] | None:
        """A tensor of a number for each token, the one that means *does not count*, and a note."""
        if self._user_mask is not None:
            marks = None
            try:
                marks = self._user_mask(batch)
            finally:
                if marks is None:  # it raised, which switches us off: what was counted stands
                    self._sum()
            if marks.ndim != 2:
                marks = marks.reshape(-1, marks.shape[-1] if marks.ndim else 1)
            return marks, 0, "the user's mask function"
        # Told apart at once where that is possible: asking an abstract class takes a while.
        if type(batch) is not dict and not isinstance(batch, Mapping):
            return None
        mask = batch.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            return mask, 0, "attention_mask"
        labels = batch.get("labels")
        if isinstance(labels, torch.Tensor) and labels.ndim == 2 and not self._are_targets(labels):
            return labels, IGNORE_INDEX, f"labels != {IGNORE_INDEX}"
        if "sequence_length" not in self.learned:
            self._measure(batch.get("input_ids"))
        return None

    def _learn(self, batch: Batch, marks: torch.Tensor, ignored: int, note: str) -> None:
        """What the first batches are like, and which mask is used."""
        self._to_look_into -= 1
        self.noted.setdefault("tokens", note)
        self._measure(marks)
        if isinstance(batch, Mapping) and is_packed(
            batch, marks if ignored == 0 else marks != ignored
        ):
            self.learned["packed_rows"], self._to_look_into = True, 0

    def _measure(self, tokens: object) -> None:
        """Tokens of a row, of the first batch that tells."""
        if isinstance(tokens, torch.Tensor) and tokens.ndim > 1:
            self.learned.setdefault("sequence_length", tokens.shape[-1])

    def _are_targets(self, labels: torch.Tensor) -> bool:
        if self._targets is None and labels.is_cpu and self._reads_host:
            counts = labels != IGNORE_INDEX
            self._targets = bool((counts[:, 1:] & ~counts[:, :-1]).any())
        return bool(self._targets)

    def _sum_there(self, draft: Draft, marks: torch.Tensor, ignored: int) -> None:
        """Have it summed on its device."""
        add(draft, "tokens_padded", marks.numel())
        row = self.ring.row(draft.index, marks.device, marks.shape[0])
        if row is not None:
            counts = torch.ne(marks, ignored, out=self._room(marks))
            torch.sum(counts, dim=-1, dtype=torch.int64, out=row[: marks.shape[0]])

    def _sum(self) -> None:
        """Add what waits to its steps."""
        waiting, self._waiting = self._waiting, []
        # One that was written to since is not counted: nobody knows what it was.
        sound = [mask for mask in waiting if mask[1]._version == mask[3]]  # noqa: SLF001 as above
        for mask in sound:
            self._add_mask(mask)
        if self._first is not None:
            self._first += waiting
            if len(self._first) < _FIRST:
                return
            waiting, sound, self._first, self._apart = self._first, self._first, None, True
        addresses = {marks.data_ptr() for _, marks, *_ in waiting}  # of tensors that are alive
        self._apart = self._apart and len(sound) == len(waiting) == len(addresses)

    def _add_mask(self, mask: _Mask) -> None:
        draft, marks, ignored, _ = mask
        add(draft, "tokens_padded", marks.numel())
        # Row by row: a sum along an axis takes longer than it does to count them.
        self._add(draft, [int(np.count_nonzero(row)) for row in _on_host(marks) != ignored])

    def _add(self, draft: Draft, lengths: list[int]) -> None:
        """Add the sequences of a micro-batch to its step."""
        add(draft, "tokens_effective", sum(lengths))
        self.longest_tokens += max(lengths, default=0) * len(lengths)
        self.lengths.update(-(-length // self._width) * self._width for length in lengths)
        if self._width < LENGTH_BIN and len(self.lengths) > EXACT_LENGTHS:
            self._width, exact, self.lengths = LENGTH_BIN, self.lengths, Counter()
            for length, count in exact.items():
                self.lengths[-(-length // LENGTH_BIN) * LENGTH_BIN] += count

    def _room(self, marks: torch.Tensor) -> torch.Tensor:
        """Device memory for the comparison, made once and again only when a batch is larger."""
        number = marks.numel()
        if self._kept is None or self._kept.numel() < number or self._kept.device != marks.device:
            with torch.inference_mode(mode=False):  # it is written to outside of it, too
                self._kept = torch.empty(number, dtype=torch.bool, device=marks.device)
        return self._kept[:number].view(marks.shape)


def _on_host(marks: torch.Tensor) -> npt.NDArray[np.generic]:
    """The tensor as numpy sees it, which knows no bfloat16."""
    if marks.requires_grad:
        marks = marks.detach()
    return (marks.float() if marks.dtype is torch.bfloat16 else marks).numpy()

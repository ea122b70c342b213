"""Record files: what one rank wrote during one attempt, streamed part by part.

A part is lines, or packed (`core.steps.segment`); of a packed one those stretches are read that are
wanted, and of the others the sums are known.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from trainperf.core.places import AnyPath
from trainperf.core.run_directory import is_packed, packed_part
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema
from trainperf.core.steps.codec import Entry, decode_entry, decode_steps
from trainperf.core.steps.records import GapRecord, RunInfo, Totals
from trainperf.core.steps.segment import SegmentIndex, read_index
from trainperf.core.steps.stretches import STRETCH, Stretches


_CHUNK_BYTES = 1 << 20
_LEAST_CHUNK_BYTES = 1 << 15
_LONGEST_LINE = 16 << 20
"""Far above any valid line: a longer one is damage and must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Lines that are damaged and were skipped."""

    lines: int


@dataclass(frozen=True, slots=True)
class Unread:
    """Stretches whose steps are not read, because others stand for them."""

    stretches: Stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSteps:
    """Which steps of a file are read, by their numbers in it."""

    first: int = 0
    last: int | None = None
    """Both ends are in it."""
    stretches: frozenset[int] | None = None
    """Numbers of the stretches that are read where they can be told apart; `None` for all."""
    begun: int = 0
    """Steps of earlier attempts, where some of these are not read."""

    @property
    def is_window(self) -> bool:
        """Whether there may be steps before or after it."""
        return self.first > 0 or self.last is not None

    def steps(self, block: StepBlock) -> StepBlock:
        """Those of a block."""
        if not self.is_window:
            return block
        inside = block.index >= self.first
        if self.last is not None:
            inside &= block.index <= self.last
        return block if inside.all() else block.select(inside)

    def has_gap(self, gap: GapRecord) -> bool:
        """Whether a gap is after one of them; one before the first step is before step 0."""
        after = gap.after_step >= (self.first or -1)
        return after and (self.last is None or gap.after_step <= self.last)

    def split(self, stretches: Stretches) -> tuple[Stretches, Stretches]:
        """The stretches to read, and those of which the sums are enough."""
        inside = stretches["last"] >= self.first
        whole = stretches["first"] >= self.first
        if self.last is not None:
            inside &= stretches["first"] <= self.last
            whole &= stretches["last"] <= self.last
        if self.stretches is None:
            return stretches.select(inside), stretches.select(np.zeros(len(stretches), bool))
        numbers = (stretches["first"] // STRETCH).astype(int)
        wanted = np.isin(numbers, list(self.stretches)) | ~whole
        return stretches.select(inside & wanted), stretches.select(inside & ~wanted)


EVERY_STEP = ReadSteps()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """What one rank wrote during one attempt."""

    path: AnyPath
    """The file, or its first part."""
    rank: int
    attempt: int
    info: RunInfo
    later_parts: tuple[AnyPath, ...] = ()
    """Further parts, in order."""
    size_bytes: int = 0
    """Of all parts, when the run was opened."""
    modified_s: float = 0.0
    """When it was last written to until then, seconds since 1970 by the storage's clock."""
    indexes: Mapping[AnyPath, SegmentIndex] = field(default_factory=dict)
    """Of its packed parts."""
    chosen: ReadSteps = EVERY_STEP

    def entries(self, most: int = BLOCK_STEPS) -> Iterator[StepBlock | Entry | Damaged | Unread]:
        """The file's contents; steps in blocks of *most*, in order, up to the last whole line.

        Other entries may come before steps that were written earlier; their fields place them.
        """
        chosen = self.chosen
        window = _WindowTotals(chosen) if chosen.is_window else None
        for entry in self._all(most):
            if isinstance(entry, StepBlock):
                yield from _chosen(chosen.steps(entry), window)
            elif window is None:
                yield entry
            elif isinstance(entry, Totals):
                window.add(entry)
            elif not isinstance(entry, GapRecord) or chosen.has_gap(entry):
                yield entry
        if window is not None and (totals := window.totals()):
            yield totals

    def stretches(self) -> Stretches | None:
        """Those of its packed parts, in order; `None` without one."""
        return Stretches.joined([index.stretches for index in self.indexes.values()])

    def _all(self, most: int) -> Iterator[StepBlock | Entry | Damaged | Unread]:
        header = 1
        for packed, parts in groupby(self._present(), lambda part: is_packed(part.name)):
            if packed:
                for part in parts:
                    yield from self._packed(part, most)
            else:
                yield from self._written(parts, most, header)
            header = 0

    def _present(self) -> Iterator[AnyPath]:
        """The parts; one that was packed since the run was opened is where it is now."""
        for part in (self.path, *self.later_parts):
            gone = isinstance(part, Path) and not part.exists() and packed_part(part).exists()
            yield packed_part(part) if gone else part

    def _written(
        self, parts: Iterable[AnyPath], most: int, header: int
    ) -> Iterator[StepBlock | Entry | Damaged]:
        """What the lines of some parts hold."""
        schema = StepSchema(self.info.columns, self.info.device)
        pending: list[bytes] = []
        # A million steps are a million lines: they are separated by the list, not one by one.
        chunk_bytes = max(_LEAST_CHUNK_BYTES, _CHUNK_BYTES * most // BLOCK_STEPS)
        for lines in whole_lines(parts, chunk_bytes):
            steps = [line for line in lines[header:] if line[:1] == b"["]
            if len(steps) < len(lines) - header:
                others = [line for line in lines[header:] if line[:1] != b"["]
                yield from (decode_entry(line) or Damaged(1) for line in others)
            header = 0
            pending += steps
            while len(pending) >= most:
                yield from decoded(schema, pending[:most])
                del pending[:most]
        yield from decoded(schema, pending)

    def _packed(self, part: AnyPath, most: int) -> Iterator[StepBlock | Entry | Damaged | Unread]:
        """What a packed part holds."""
        with part.open("rb") as file:
            index = self.indexes.get(part) or read_index(file)
            wanted, others = self.chosen.split(index.stretches)
            if len(others):
                yield Unread(others)
            pending: list[StepBlock] = []
            try:
                for line in index.others(file):
                    yield decode_entry(line) or Damaged(1)
                for block in index.blocks(file, wanted):
                    if sum(map(len, pending)) + len(block) > most and pending:
                        yield StepBlock.joined(pending)
                        pending = []
                    pending.append(block)
            except ValueError:
                yield Damaged(int(wanted["steps"].sum()) or 1)
            if pending:
                yield StepBlock.joined(pending)


class _WindowTotals:
    """What cumulative facts grew by in a window: the last of them less the last before it."""

    def __init__(self, chosen: ReadSteps) -> None:
        self._chosen = chosen
        self._before = self._last = Totals(at_step=-1)
        self._behind: Totals | None = None
        """The first one behind the window."""

    def add(self, totals: Totals) -> None:
        """Take the next."""
        if totals.at_step < self._chosen.first:
            self._before = totals
        elif self._chosen.last is None or totals.at_step <= self._chosen.last:
            self._last = totals
        elif self._behind is None:
            self._behind = totals

    def learned(self) -> Totals:
        """What was learned by now of how the loop works, without what grows: a step has none."""
        latest = self._before if self._last.at_step < 0 else self._last
        return Totals(at_step=-1, config=latest.config)

    def totals(self) -> Totals | None:
        """`None` where there is none; without one in the window, what is no count of the nearest.

        What was learned of the run, e.g. that its log has means, holds in all of it.
        """
        before, last = self._before, self._last
        if last.at_step < 0:
            near = before if before.at_step >= 0 else self._behind
            if near is None:
                return None
            return Totals(
                at_step=near.at_step, notes=near.notes, reasons=near.reasons, config=near.config
            )
        return Totals(
            at_step=last.at_step,
            actions_ns=_less(last.actions_ns, before.actions_ns),
            threads_ns=_less(last.threads_ns, before.threads_ns),
            sequence_lengths=_less(last.sequence_lengths, before.sequence_lengths),
            longest_tokens=last.longest_tokens - before.longest_tokens,
            faults=last.faults,
            dropped=_less(last.dropped, before.dropped),
            notes=last.notes,
            reasons=last.reasons,
            config=last.config,
            contention=_less(last.contention, before.contention),
        )


def _chosen(block: StepBlock, window: _WindowTotals | None) -> Iterator[StepBlock | Totals]:
    """Steps to be read, after what is known of their loop."""
    if len(block):
        if window is not None:
            yield window.learned()
        yield block


def _less(last: Mapping, before: Mapping) -> dict:  # type: ignore[type-arg]
    return {key: more for key in last if (more := last[key] - before.get(key, 0))}


def decoded(schema: StepSchema, lines: list[bytes]) -> Iterator[StepBlock | Damaged]:
    """The steps of whole lines, and how many lines are damaged."""
    block, damaged = decode_steps(schema, lines)
    if len(block):
        yield block
    if damaged:
        yield Damaged(damaged)


def whole_lines(parts: Iterable[AnyPath], chunk_bytes: int = _CHUNK_BYTES) -> Iterator[list[bytes]]:
    """Complete lines, some at a time; the rest is still being written or was cut off."""
    rest = b""
    for part in parts:
        with part.open("rb") as file:
            while chunk := file.read(chunk_bytes):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                if len(rest) > _LONGEST_LINE:
                    rest = b"?"
                if lines:
                    yield lines

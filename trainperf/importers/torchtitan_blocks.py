"""Steps of torchtitan's log, many at once: the lines of a block as columns.

Nearly all lines are written alike.  So the key of a line is looked for where those of other lines
were, names are told apart by sums over machine words, and only numbers that are read become
objects.  A step with a line that is anything else, e.g. a pause or a damaged line, is left to the
reader of single lines.

Example: the seven words of `"log_type_name": "optim_end", "event_name": null, "value":…` have one
sum in all such lines, which says that the line is the end of a span of the optimizer.
"""

import io
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import Phase
from trainperf.importers.base import MS, floats


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]
_Words = npt.NDArray[np.uint64]

KEY = b'"log_type_name": "'
OF_SPAN = b'", "event_name": null, "value": '
"""Between the name of a span and its value."""
OF_TOKENS = b'", "event_name": "local_valid_tokens", "value": '
TIME = b'"time_us": '
_OF_METRIC = b'", "event_name": "'
_OF_EVENT = b', "log_type": "event", '
"""Between the time of a span and its key."""
_TIME_DIGITS = 16
"""Of microseconds since 1970, from 2001 to 2286."""

FETCH, OPTIMIZER, COLLECT, GARBAGE, STEP, TOKENS, PASS, START = range(1, 9)
PHASES_OF = {FETCH: Phase.DATA_WAIT, OPTIMIZER: Phase.OPTIMIZER, COLLECT: Phase.LOOP}
_UNREAD, _SINGLY = 0, 9
"""Lines that are passed over, and those whose step must be read line by line."""
_KINDS = {
    b"fetching_batch_end": (FETCH, OF_SPAN),
    b"optim_end": (OPTIMIZER, OF_SPAN),
    b"collect_dist_metrics_end": (COLLECT, OF_SPAN),
    b"gc_collect_end": (GARBAGE, OF_SPAN),
    b"step_end": (STEP, OF_SPAN),
    b"metric_value": (TOKENS, OF_TOKENS),
    b"fwd_bwd_end": (PASS, b""),
    b"step_start": (START, b""),
}
"""Name to its kind, and what is between it and the value where that is read."""

_BLOCK_BYTES = 2 << 20
_WORD = 8
_HEAD_BYTES = 7 * _WORD
"""Of key and name: a word more would reach into the number behind the shortest name."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, so that each word of a head changes its sum."""
_POWERS = 10 ** np.arange(_TIME_DIGITS - 1, -1, -1)
_HEADS = 4096
"""Kept at most: lines that go on otherwise would have one each."""
_NUMBER_BYTES = 24
"""Of the longest number and the comma behind it."""
_REACH = 256
"""Bytes behind the last line that may be looked at."""
_CERTAIN = 1 - 1e-6
"""Share of a step below which its phases need not be cut, however they are rounded."""
_LARGEST_MS = 1e12
"""Nanoseconds of longer spans have no room in a machine word."""
_NAME_WORD = np.frombuffer(KEY, np.uint8)[_WORD : 2 * _WORD].view("<u8")[0]
_NAME_BYTES = np.zeros(_SINGLY + 1, np.int64)
for _name, (_kind, _) in _KINDS.items():
    _NAME_BYTES[_kind] = len(_name)
_NAME = re.compile(rb'"log_type_name": ?"([^"]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanSteps:
    """Steps of which every line is as expected, one behind the other."""

    end_us: Ints
    """Time of day."""
    whole_ns: Ints
    spent_ns: dict[int, Floats]
    """Kind of a span to how long each step was in it."""
    tokens: Floats
    lines: dict[int, Ints]
    """Kind to how many lines of it each step has."""

    def part(self, begin: int, end: int) -> "TitanSteps":
        """Those from place *begin* to before *end*."""
        return TitanSteps(
            end_us=self.end_us[begin:end],
            whole_ns=self.whole_ns[begin:end],
            spent_ns={kind: ns[begin:end] for kind, ns in self.spent_ns.items()},
            tokens=self.tokens[begin:end],
            lines={kind: numbers[begin:end] for kind, numbers in self.lines.items()},
        )


@dataclass(frozen=True, slots=True)
class TitanStretch:
    """Some lines behind the ones before, until the next stretch is asked for."""

    text: memoryview
    steps: TitanSteps | None = None
    """What they say, where nothing else is in them."""

    def lines(self) -> Iterator[bytes]:
        """The lines as they are."""
        return io.BytesIO(self.text)


def stretches(path: Path, names: Collection[bytes]) -> Iterator[TitanStretch]:
    """A file from its begin to its end.

    Args:
        path: The file.
        names: Of the lines that are read at all.
    """
    heads = _Heads(names)
    # Words are looked at behind the last line too.
    buffer = bytearray(_BLOCK_BYTES + _REACH)
    view = memoryview(buffer)
    with path.open("rb") as file:
        while size := file.readinto(view[:_BLOCK_BYTES]):
            block = _Block(buffer, buffer.rfind(b"\n", 0, size) + 1, heads)
            yield from block.stretches()
            file.seek(block.used - size, io.SEEK_CUR)
            if not block.used:  # the last line is cut, or one is longer than a block
                yield TitanStretch(memoryview(file.readline()))


class _Heads:
    """Where the keys of lines are, and what the heads that begin there say."""

    def __init__(self, names: Collection[bytes]) -> None:
        self._names = names
        self._offsets: list[int] = []
        """From the begin of a line, the most frequent first."""
        self._kinds: dict[int, int] = {}

    def keys(self, buffer: bytearray, words: _Words, begins: Ints, ends: Ints) -> Ints:
        """Place of the key of each line; -1 for a line without."""
        keys = np.full(len(begins), -1)
        left = np.arange(len(begins))
        hits: Counter[int] = Counter()
        for offset in self._offsets:
            places = begins[left] + offset
            words_at = words[np.minimum(places + _WORD, len(words) - 1)]
            has_name = (words_at == _NAME_WORD) & (places + len(KEY) <= ends[left])
            keys[left[has_name]] = places[has_name]
            hits[offset] = int(np.count_nonzero(has_name))
            left = left[~has_name]
            if not len(left):
                break
        for line in left.tolist():
            begin = int(begins[line])
            place = buffer.rfind(KEY, begin, int(ends[line]))
            keys[line] = place
            hits[place - begin] += place >= 0
        self._offsets = [offset for offset, number in hits.most_common() if number]
        # One that was cut may run into a whole line, whose key is the last.
        has_key = keys >= 0
        shortest = (ends - begins)[has_key].min(initial=_BLOCK_BYTES)
        for line in np.flatnonzero(has_key & (ends - keys >= shortest)).tolist():
            keys[line] = buffer.rfind(KEY, int(begins[line]), int(ends[line]))
        return keys

    def kinds(self, buffer: bytearray, words: _Words, keys: Ints) -> Ints:
        """What the lines with *keys* are."""
        sums = np.zeros(len(keys), np.uint64)
        for offset in range(0, _HEAD_BYTES, _WORD):
            sums *= _FACTOR
            sums ^= words[keys + offset]
        kinds, strange = self._looked_up(sums)
        if len(strange):
            if len(self._kinds) > _HEADS:
                self._kinds.clear()
                strange = np.arange(len(keys))
            for place in strange.tolist():
                key = int(keys[place])
                self._kinds[int(sums[place])] = self._kind(bytes(buffer[key : key + _HEAD_BYTES]))
            kinds, _ = self._looked_up(sums)
        return kinds

    def _looked_up(self, sums: _Words) -> tuple[Ints, Ints]:
        """The kinds of heads, and places of those that are new."""
        order = sorted(self._kinds)
        if not order:
            return np.zeros(len(sums), np.int64), np.arange(len(sums))
        kept = np.array(order, np.uint64)
        places = np.minimum(np.searchsorted(kept, sums), len(order) - 1)
        kinds = np.array([self._kinds[each] for each in order])[places]
        return kinds, np.flatnonzero(kept[places] != sums)

    def _kind(self, head: bytes) -> int:
        name, quote, _ = head[len(KEY) :].partition(b'"')
        if not head.startswith(KEY) or not quote:
            return _SINGLY
        if name not in self._names:
            return _UNREAD
        kind, between = _KINDS.get(name, (_SINGLY, b""))
        behind = head[len(KEY) + len(name) :]
        if between.startswith(behind) or behind.startswith(between):
            return kind
        # A value of another name.
        return _UNREAD if kind == TOKENS and behind.startswith(_OF_METRIC) else _SINGLY


class _Block:
    """Whole lines of a file: *text* up to *end*."""

    def __init__(self, text: bytearray, end: int, heads: _Heads) -> None:
        self._text, self._end = text, end
        self._words: _Words = np.ndarray((len(text) - _WORD + 1,), "<u8", text, 0, (1,))
        self._chars = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(self._chars[:end] == ord("\n"))
        begins = np.concatenate(([0], ends[:-1] + 1))[: len(ends)]
        keys = heads.keys(text, self._words, begins, ends)
        kinds = np.zeros(len(ends), np.int64)
        has_key = np.flatnonzero(keys >= 0)
        kinds[has_key] = heads.kinds(text, self._words, keys[has_key])
        for line in np.flatnonzero(keys < 0).tolist():
            if _NAME.search(text, int(begins[line]), int(ends[line])):
                kinds[line] = _SINGLY
        step_ends = np.flatnonzero(kinds == STEP)
        self._steps = len(step_ends)
        self._bounds = [0, *(ends[step_ends] + 1).tolist()]
        """Where steps begin and end."""
        self.used = self._bounds[-1] if self._steps else end
        """Bytes of the stretches; the rest is a step that goes on."""
        read = np.flatnonzero(kinds[: step_ends[-1] + 1 if self._steps else 0])
        self._kinds, self._keys, self._ends = kinds[read], keys[read], ends[read]
        self._of_step = np.cumsum(self._kinds == STEP) - (self._kinds == STEP)

    def stretches(self) -> Iterator[TitanStretch]:
        """The steps that end in it: many at once, or such as must be read line by line."""
        if not self._steps:
            if self._end:
                yield TitanStretch(memoryview(self._text)[: self._end])
            return
        plain, steps = self._read()
        turns = np.flatnonzero(plain[1:] != plain[:-1]) + 1
        for begin, end in pairwise([0, *turns.tolist(), self._steps]):
            text = memoryview(self._text)[self._bounds[begin] : self._bounds[end]]
            yield TitanStretch(text, steps.part(begin, end) if plain[begin] else None)

    def _read(self) -> tuple[_Flags, TitanSteps]:
        """Which steps are as expected, and what they say if so."""
        kinds, of_step, number = self._kinds, self._of_step, self._steps
        values, fine = self._values()
        ends = np.flatnonzero(kinds == STEP)
        begins = np.concatenate(([0], ends[:-1] + 1))
        end_us, stamped = self._times_us(self._keys[ends])
        of = {kind: np.flatnonzero(kinds == kind) for kind in range(FETCH, START + 1)}
        lines = {kind: np.bincount(of_step[each], minlength=number) for kind, each in of.items()}
        spent_ns = {
            kind: np.bincount(of_step[of[kind]], values[of[kind]] * MS, number).astype(np.float64)
            for kind in (*PHASES_OF, GARBAGE)
        }
        tokens = np.zeros(number)
        tokens[of_step[of[TOKENS]]] = values[of[TOKENS]]
        whole_ns = np.rint(values[ends] * MS).astype(np.int64)
        plain: _Flags = (
            stamped
            & (kinds[begins] == START)
            & (lines[START] == 1)
            & (lines[OPTIMIZER] > 0)
            & (np.bincount(of_step[~fine], minlength=number) == 0)
            & (sum(spent_ns[kind] for kind in PHASES_OF) < whole_ns * _CERTAIN)
        )
        return plain, TitanSteps(
            end_us=end_us, whole_ns=whole_ns, spent_ns=spent_ns, tokens=tokens, lines=lines
        )

    def _values(self) -> tuple[Floats, _Flags]:
        """The value of each line that has to have one, and which lines are as expected."""
        kinds = self._kinds
        behind = self._keys + len(KEY) + _NAME_BYTES[kinds]
        fine = (kinds != _SINGLY) & (self._chars[self._ends - 1] == ord("}"))
        values = np.zeros(len(kinds))
        of_spans = (kinds >= FETCH) & (kinds <= STEP)
        for between, of_these in ((OF_SPAN, of_spans), (OF_TOKENS, kinds == TOKENS)):
            places = np.flatnonzero(of_these)
            fine[places] &= self._at(behind[places], between)
            values[places] = self._numbers(behind[places] + len(between))
        fine &= (values >= 0) & (values < _LARGEST_MS)
        values[~fine] = 0.0
        return values, fine

    def _at(self, places: Ints, text: bytes) -> _Flags:
        """Whether a text is at each place."""
        of_text: _Words = np.ndarray((len(text) - _WORD + 1,), "<u8", text, 0, (1,))
        offsets = [*range(0, len(text) - _WORD, _WORD), len(text) - _WORD]
        same = np.ones(len(places), np.bool_)
        for offset in offsets:
            same &= self._words[places + offset] == of_text[offset]
        return same

    def _cells(self, places: Ints, width: int) -> npt.NDArray[np.uint8]:
        """So many bytes from each place on."""
        windows = np.ndarray((len(self._text) - width + 1, width), np.uint8, self._text, 0, (1, 1))
        cells: npt.NDArray[np.uint8] = windows[places]
        return cells

    def _numbers(self, places: Ints) -> Floats:
        """The number from each place to the next comma; NaN where that is none."""
        cells = self._cells(places, _NUMBER_BYTES)
        comma = cells == ord(",")
        cells[np.logical_or.accumulate(comma, axis=1)] = 0
        numbers = floats(cells.view(f"S{_NUMBER_BYTES}").ravel().tolist())
        return np.where(comma.any(axis=1), numbers, np.nan)

    def _times_us(self, keys: Ints) -> tuple[Ints, _Flags]:
        """The time before each key, and whether it is written as always."""
        behind = keys - len(_OF_EVENT)
        begins = behind - _TIME_DIGITS
        digits = self._cells(begins, _TIME_DIGITS) - np.uint8(ord("0"))
        fine = self._at(behind, _OF_EVENT) & self._at(begins - len(TIME), TIME)
        fine &= (digits < 10).all(axis=1)
        return digits @ _POWERS, fine

r"""Iterations of Megatron-LM's log that are alike but for their numbers, many at once.

What a log has of an iteration, its line and the tables behind it, is nearly always the same text
with other numbers.  Of one such text a pattern is made, which reads the next ones; an iteration
that it does not match, e.g. for a pause behind it, is left to the reader of single lines.

Example: of ` iteration  7/ 9 | elapsed time per iteration (ms): 60.7 | lm loss: 2.5E+00 |` the
pattern is ` iteration +(\d+)/ +NUMBER \| elapsed time … +(NUMBER) \| lm loss: +(NUMBER) \|`.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import PHASES as ALL_PHASES
from trainperf.core.phases import Phase
from trainperf.importers.base import MS, floats
from trainperf.importers.megatron_lines import (
    ELAPSED,
    GAPS,
    ITERATION,
    LOSS,
    MARK,
    PHASES,
    SAMPLES,
    SCALE,
    SKIPPED,
    STAMP,
    STAMPED,
    SYNC,
    TIMERS,
    MegatronLine,
    in_table,
    is_read,
    line_of,
    loss_place,
    value_of,
)


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Moments = npt.NDArray[np.datetime64]
_Column = TypeVar("_Column", Floats, Moments)
Row = tuple[bytes, ...]
"""The numbers of an iteration, in the order of `Form.names`."""

_CERTAIN = 1 - 1e-6
"""Share of a step below which its phases need not be cut, however they are rounded."""
_BLOCK_BYTES = 1 << 20
_FORMS = 4
"""Patterns kept at most: a log in which every iteration is another text is read line by line."""

_NUMBER = re.compile(rb"(?<![\w.+-])-?\d+\.?\d*(?:E[+-]\d+)?(?![\w.])")
_WHOLE, _POSITIVE, _ANY = rb"\d+", rb"\d+\.?\d*", rb"-?\d+\.?\d*(?:E[+-]\d+)?"
_FIELDS = {ITERATION: _WHOLE, ELAPSED: _POSITIVE, SAMPLES: _WHOLE, LOSS: _ANY, SCALE: _ANY}
_FIELDS |= {SKIPPED: _WHOLE, STAMP: rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?"}
"""What stands before a number that is read of the line, and how it is written."""
_TIMED = {*(name for name, _ in PHASES), SYNC}


@dataclass(frozen=True, slots=True)
class Form:
    """How the lines of an iteration are written."""

    pattern: re.Pattern[bytes]
    names: tuple[bytes, ...]
    """What is read of them."""
    exact: bool
    """As in `MegatronLine`."""


@dataclass(frozen=True, slots=True)
class MegatronStretch:
    """Lines behind the ones before; those of iterations that are alike, or of any kind."""

    text: bytes
    bounds: Sequence[int]
    """Where its iterations begin, and where the last one ends."""
    form: Form | None = None
    rows: Sequence[Row] = ()

    def lines(self, begin: int, end: int) -> Iterator[bytes]:
        """The lines of the iterations from place *begin* to before *end*."""
        return io.BytesIO(self.text[self.bounds[begin] : self.bounds[end]])

    def iterations(self) -> "Iterations":
        """What the lines of iterations that are alike say."""
        names = () if self.form is None else self.form.names
        columns = dict(zip(names, zip(*self.rows, strict=True), strict=True))
        stamps = columns.pop(STAMP, None)
        numbers = {name: np.array(floats(texts)) for name, texts in columns.items()}
        return Iterations(
            iteration=numbers.pop(ITERATION).astype(np.int64),
            elapsed_ns=numbers.pop(ELAPSED) * MS,
            samples=numbers.pop(SAMPLES, None),
            loss=numbers.pop(LOSS, None),
            scale=numbers.pop(SCALE, None),
            skipped=numbers.pop(SKIPPED, None),
            timers_ns={name: ms * MS for name, ms in numbers.items()},
            stamps=None if stamps is None else _moments(stamps),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """Iterations that are alike, as columns; `None` for what their lines do not have."""

    iteration: Ints
    elapsed_ns: Floats
    samples: Floats | None
    """All so far."""
    loss: Floats | None
    scale: Floats | None
    skipped: Floats | None
    timers_ns: Mapping[bytes, Floats]
    stamps: Moments | None

    def part(self, begin: int, end: int) -> "Iterations":
        """Those from place *begin* to before *end*."""

        def cut(column: _Column | None) -> _Column | None:
            return None if column is None else column[begin:end]

        return Iterations(
            iteration=self.iteration[begin:end],
            elapsed_ns=self.elapsed_ns[begin:end],
            samples=cut(self.samples),
            loss=cut(self.loss),
            scale=cut(self.scale),
            skipped=cut(self.skipped),
            timers_ns={name: ns[begin:end] for name, ns in self.timers_ns.items()},
            stamps=cut(self.stamps),
        )

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """From which to before which place each only goes on from the one before, or does not."""
        named_ns = sum(self._timed().values(), np.zeros(len(self.iteration)))
        alike = (np.diff(self.iteration, prepend=-1) == 1) & (named_ns < self.elapsed_ns * _CERTAIN)
        alike[0] = False
        if self.samples is not None:
            alike &= np.diff(self.samples, prepend=0) >= 0
        for column in (self.loss, self.scale):
            if column is not None:
                alike &= np.isfinite(column)
        turns = np.flatnonzero(alike[1:] != alike[:-1]) + 1
        for begin, end in pairwise([0, *turns.tolist(), len(alike)]):
            yield begin, end, bool(alike[begin])

    def phases_ns(self) -> tuple[Ints, set[Phase]]:
        """Phases of each as a row, and which of them have timers."""
        timed = self._timed()
        host_ns = np.zeros((len(self.iteration), len(ALL_PHASES)))
        for phase, ns in timed.items():
            host_ns[:, phase] = np.rint(ns)
        host_ns[:, Phase.OTHER] = np.rint(self.elapsed_ns) - host_ns.sum(axis=1)
        return host_ns.astype(np.int64), set(timed)

    def _timed(self) -> dict[Phase, Floats]:
        timed = {phase: self.timers_ns[name] for name, phase in PHASES if name in self.timers_ns}
        if Phase.FORWARD in timed:
            # The generator runs inside of it.
            inside = timed.get(Phase.DATA_WAIT, 0.0)
            timed[Phase.FORWARD] = np.maximum(0.0, timed[Phase.FORWARD] - inside)
        return timed

    def facts(self, sequence_length: object) -> dict[str, Sequence[float | None]]:
        """Facts of all but the first, as record files have them."""
        facts: dict[str, Sequence[float | None]] = {}
        if (sync_ns := self.timers_ns.get(SYNC)) is not None:
            facts["tail_ns"] = np.rint(sync_ns[1:]).astype(np.int64).tolist()
        if self.samples is not None:
            since = np.diff(self.samples)
            facts["samples"] = since.tolist()
            if isinstance(sequence_length, int):
                facts["tokens_padded"] = (since * sequence_length).tolist()
        if self.loss is not None:
            facts["loss"] = self.loss[1:].tolist()
        if self.scale is not None and (scaled := self.scale[1:] != 1.0).any():
            facts["loss_scale"] = _where(scaled, self.scale[1:].tolist())
            if self.skipped is not None:
                facts["attempts"] = _where(scaled, [1] * len(scaled))
                facts["overflows"] = _where(scaled, self.skipped[1:].astype(np.int64).tolist())
        return facts


def stretches(path: Path) -> Iterator[MegatronStretch]:
    """A file from its begin to its end."""
    forms = _Forms()
    with path.open("rb") as file:
        while text := file.read(_BLOCK_BYTES):
            begins = _begins(text)
            end = len(text)
            if end == _BLOCK_BYTES:
                # What belongs to the last iteration goes on in the next block.
                while len(begins) > 1 and not _is_iteration(text, begins[-1]):
                    begins.pop()
                end = begins.pop() if len(begins) > 1 else text.rfind(b"\n") + 1
            file.seek(end - len(text), io.SEEK_CUR)
            if end:
                yield from _stretches(text, [*begins, end], forms)
            else:
                line = file.readline()
                yield MegatronStretch(line, (0, len(line)))


def _begins(text: bytes) -> list[int]:
    """Where lines with a time begin."""
    begins: list[int] = []
    at = text.find(MARK)
    while at >= 0:
        begins.append(text.rfind(b"\n", 0, at) + 1)
        at = text.find(MARK, at + len(MARK))
    return sorted(set(begins))


def _stretches(text: bytes, bounds: Sequence[int], forms: "_Forms") -> Iterator[MegatronStretch]:
    """Neighbours of one form together."""
    if bounds[0]:
        yield MegatronStretch(text, (0, bounds[0]))
    matched: list[tuple[int, Form | None, Row]] = []
    for start, end in pairwise(bounds):
        form, row = forms.match(text, start, end)
        if form is None and matched and not _is_iteration(text, start):
            # Tables behind a damaged line are taken for those of the iteration before.
            matched[-1] = (matched[-1][0], None, ())
        else:
            matched.append((start, form, row))
    begins = [*(begin for begin, _, _ in matched), bounds[-1]]
    turns = [
        place for place, pair in enumerate(pairwise(matched), 1) if pair[0][1] is not pair[1][1]
    ]
    for first, last in pairwise([0, *turns, len(matched)]):
        rows = [row for _, _, row in matched[first:last]]
        yield MegatronStretch(
            text, begins[first : last + 1], matched[first][1] if rows else None, rows
        )


def _is_iteration(text: bytes, begin: int) -> bool:
    line = text[begin : text.find(b"\n", begin) + 1 or len(text)]
    return not in_table(line) and line_of(line) is not None


class _Forms:
    """The forms of iterations that a log has, the latest first."""

    def __init__(self) -> None:
        self._forms: list[Form] = []

    def match(self, text: bytes, begin: int, end: int) -> tuple[Form | None, Row]:
        """The form of an iteration, and its numbers."""
        for place, form in enumerate(self._forms):
            if (match := form.pattern.fullmatch(text, begin, end)) is not None:
                if place:
                    self._forms.insert(0, self._forms.pop(place))
                return form, match.groups()
        if len(self._forms) < _FORMS and (new := _form_of(text[begin:end])) is not None:
            self._forms.append(new)
        return None, ()


def _form_of(text: bytes) -> Form | None:
    """The form of an iteration; `None` where more is to be read of it than numbers."""
    end = text.find(b"\n") + 1
    head, tables = text[:end], text[end:]
    line = line_of(head)
    if line is None or ELAPSED not in head or in_table(head) or line.text[:1] != b"|":
        return None
    if any(is_read(other) and not in_table(other) for other in io.BytesIO(tables)):
        return None
    fields = _fields_of_line(head, line)
    for timer in TIMERS.finditer(tables):
        place = end + timer.start(2)
        if timer[1] in GAPS or timer[1] in fields.values():
            return None
        if timer[1] in _TIMED:
            fields[place] = timer[1]
    return _written(text, end, fields, line)


def _fields_of_line(head: bytes, line: MegatronLine) -> dict[int, bytes]:
    """Where the numbers begin that are read of a line, and what they are."""
    bar = len(head) - len(line.text)
    loss_at = loss_place(line.text)
    fields = {} if loss_at is None else {bar + loss_at: LOSS}
    for name in (ITERATION, ELAPSED):
        fields[_behind(head, head.find(name) + len(name))] = name
    for name in (SAMPLES, SCALE, SKIPPED):
        if value_of(line.text, name):
            fields[_behind(head, head.find(name, bar) + len(name))] = name
    return fields


def _behind(text: bytes, at: int) -> int:
    return len(text) - len(text[at:].lstrip(b" "))


def _written(text: bytes, end: int, fields: Mapping[int, bytes], line: MegatronLine) -> Form | None:
    """The form with the *fields*; the first line of the text ends at *end*."""
    names: list[bytes] = []
    parts: list[bytes] = []
    at = 0
    tokens = [(number.start(), number.end(), b"") for number in _NUMBER.finditer(text)]
    if line.stamp is not None and (stamp := STAMPED.search(text, 0, text.find(ITERATION))):
        begin, behind = stamp.start(1), stamp.end(2 if line.exact else 1)
        tokens = [token for token in tokens if not begin <= token[0] < behind]
        tokens = sorted([*tokens, (begin, behind, STAMP)])
    for begin, behind, name in tokens:
        before = text[at:begin]
        # Numbers of a line stand in columns as wide as the longest.
        blank = begin < end and before.endswith(b" ")
        parts.append(re.escape(before.rstrip(b" ")) + b" +" if blank else re.escape(before))
        named = name or fields.get(begin)
        if named is None:
            parts.append(_ANY if begin < end else _POSITIVE)
        else:
            names.append(named)
            parts.append(b"(" + _FIELDS.get(named, _POSITIVE) + b")")
        at = behind
    pattern = re.compile(b"".join(parts) + re.escape(text[at:]))
    whole = set(fields.values()) <= set(names) and pattern.fullmatch(text) is not None
    return Form(pattern, tuple(names), line.exact) if whole else None


def _moments(stamps: Sequence[bytes]) -> Moments:
    return np.array([stamp.decode() for stamp in stamps], "datetime64[us]")


def _where(flags: npt.NDArray[np.bool_], values: Sequence[float]) -> list[float | None]:
    return [value if flag else None for flag, value in zip(flags.tolist(), values, strict=True)]

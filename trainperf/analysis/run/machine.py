"""Series of the machine beside a run: the sampled files of its hosts, as columns over time."""

import gzip
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.tail import LineTail, by_number
from trainperf.analysis.run.window import start_time
from trainperf.core.artifacts.machine import (
    MACHINE_VERSION,
    MachineEnd,
    MachineHeader,
    Neighbour,
    device_column,
)
from trainperf.core.places import AnyPath, ListedFile, listed
from trainperf.core.run_directory import is_packed, machine_of, packed_part, part_number
from trainperf.core.steps.block import Column


_ROWS = 8192
"""Samples that are decoded together."""

_LATEST = 600
"""Samples of a host that are held of a run that is followed."""
_LATEST_BYTES = 1 << 17

_ENTRIES = msgspec.json.Decoder(MachineHeader | Neighbour | MachineEnd)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeries:
    """One host during one attempt."""

    header: MachineHeader
    attempt: int
    """Place of the attempt in the run."""
    at_ns: Column
    """Of each sample, since the start of the fit on the run's lowest rank."""
    values: npt.NDArray[np.float32]
    """A row per sample, in the order of the header's columns, without the first."""
    neighbours: tuple[Neighbour, ...] = ()
    end: MachineEnd | None = None

    def __len__(self) -> int:
        return len(self.at_ns)

    def column(self, name: str) -> Column:
        """Values of a column, NaN where one is missing."""
        if name not in self.header.columns:
            return np.full(len(self), np.nan)
        place = self.header.columns.index(name) - 1
        return self.values[:, place].astype(np.float64)

    def device(self, device: int, name: str) -> Column:
        """Values of a device's column."""
        return self.column(device_column(device, name))

    @property
    def span_s(self) -> float:
        """From the first sample to the last."""
        return float(self.at_ns[-1] - self.at_ns[0]) / 1e9 if len(self) else 0.0


def read_machines(run: Run) -> tuple[list[MachineSeries], list[str]]:
    """The series of all hosts and attempts, and what is wrong with files that cannot be read."""
    series: dict[tuple[int, int], MachineSeries] = {}
    problems: list[str] = []
    for place, files in enumerate(run.attempts):
        anchor = start_time(files[0].info.started_at)
        parents = dict.fromkeys(file.path.parent for file in files)
        begun = {file.rank: file.info.started_at for file in files}
        for rank, parts in _files(parents, files[0].attempt):
            started = start_time(begun.get(rank, ""))
            apart_s = (started - anchor).total_seconds() if started and anchor else 0.0
            if (place, rank) in series:
                continue  # a merged run has a copy next to it
            try:
                read = _series(_lines(parts), place, apart_s)
            except (OSError, msgspec.DecodeError, ValueError) as error:
                problems.append(f"{parts[0].name}: cannot be read ({error})")
                continue
            if read is not None and len(read):
                series[place, rank] = read
    return list(series.values()), problems


def _files(
    parents: Sequence[AnyPath] | dict[AnyPath, None], attempt: int
) -> Iterator[tuple[int, list[AnyPath]]]:
    """First rank of each host, and its file's parts in order."""
    for parent in parents:
        parts: dict[int, list[AnyPath]] = {}
        for file in listed(parent):
            writer = None if file.is_dir else machine_of(file.path.name)
            if writer is not None and writer[1] == attempt:
                parts.setdefault(writer[0], []).append(file.path)
        for rank, paths in sorted(parts.items()):
            # Where a part is there in both forms, the packed one is whole.
            paths.sort(key=lambda path: is_packed(path.name))
            of_number = {part_number(path.name): path for path in paths}
            yield rank, [of_number[number] for number in sorted(of_number)]


class MachineTails:
    """The latest samples of all hosts, from files that are written to.

    Args:
        files: Record files of the attempt that is followed.
    """

    def __init__(self, files: Sequence[RecordFile]) -> None:
        self._anchor = start_time(files[0].info.started_at)
        self._begun = {file.rank: start_time(file.info.started_at) for file in files}
        self._attempt = files[0].attempt
        self._tails: dict[int, LineTail] = {}
        self._headers: dict[int, bytes] = {}
        self._lines: dict[int, deque[bytes]] = {}

    def look(self, content: Sequence[ListedFile]) -> None:
        """Read what was appended to those files that are listed.

        Raises:
            OSError: One cannot be read.
        """
        files: dict[int, list[ListedFile]] = {}
        for file in content:
            writer = None if file.is_dir else machine_of(file.path.name)
            if writer is not None and writer[1] == self._attempt:
                files.setdefault(writer[0], []).append(file)
        for rank, listing in files.items():
            listing.sort(key=lambda file: is_packed(file.path.name))
            parts = by_number(listing)
            if rank not in self._headers:
                with _opened(parts[min(parts)].path) as first:
                    header, end, _ = first.read(1 << 16).partition(b"\n")
                if not end:
                    continue
                self._headers[rank], self._lines[rank] = header, deque(maxlen=_LATEST)
                self._tails[rank] = LineTail(parts, _LATEST_BYTES)
            while (lines := self._tails[rank].read(parts)) is not None:
                # Of a part that was packed meanwhile the last samples are not shown.
                self._lines[rank] += (
                    line
                    for line in (lines if isinstance(lines, list) else ())
                    if line and line != self._headers[rank]
                )

    def series(self) -> list[MachineSeries]:
        """What there is of each host, without a host whose file is damaged."""
        series = []
        for rank, lines in self._lines.items():
            started = self._begun.get(rank)
            apart_s = (started - self._anchor).total_seconds() if started and self._anchor else 0.0
            with suppress(msgspec.DecodeError, ValueError):
                read = _series([[self._headers[rank], *lines]], 0, apart_s)
                if read is not None and len(read):
                    series.append(read)
        return series


def _series(
    chunks: Iterable[Sequence[bytes]], attempt: int, apart_s: float
) -> MachineSeries | None:
    """The series in these lines; `None` where nothing was written yet.

    Raises:
        ValueError: It is not such a file, or of another version.
    """
    header, end = None, None
    neighbours: list[Neighbour] = []
    blocks: list[npt.NDArray[np.float64]] = []
    for lines in chunks:
        for entry in (_ENTRIES.decode(line) for line in lines if line[:1] != b"["):
            if isinstance(entry, Neighbour):
                neighbours.append(entry)
            elif isinstance(entry, MachineEnd):
                end = entry
            else:
                header = entry
        rows = [line for line in lines if line[:1] == b"["]
        if rows and header is not None:
            blocks.append(_block(rows, len(header.columns)))
    if header is None:
        return None
    if header.schema != MACHINE_VERSION:
        raise ValueError(f"version {header.schema}; this trainperf reads {MACHINE_VERSION}")
    matrix = np.concatenate(blocks) if blocks else np.empty((0, len(header.columns)))
    return MachineSeries(
        header=header,
        attempt=attempt,
        at_ns=matrix[:, 0] + apart_s * 1e9,
        values=matrix[:, 1:].astype(np.float32),
        neighbours=tuple(
            msgspec.structs.replace(each, at_ns=each.at_ns + round(apart_s * 1e9))
            for each in neighbours
        ),
        end=end,
    )


def _block(rows: Sequence[bytes], width: int) -> npt.NDArray[np.float64]:
    """Raises `ValueError` where a line has another number of columns, or is damaged."""
    # Half the time of a decoder that makes a number of Python's of each: a week has 600,000 lines.
    text = b",".join(rows).translate(None, b"[]").replace(b"null", b"nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the number of cells tells
        cells: npt.NDArray[np.float64] = np.fromstring(text, sep=",")
    if cells.size != len(rows) * width:
        raise ValueError("a line has another number of columns than the header, or is damaged")
    return cells.reshape(len(rows), width)


@contextmanager
def _opened(part: AnyPath) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Its content, packed or not: a part that is written to may be packed at any moment.

    Raises:
        OSError: It cannot be read.
    """
    with ExitStack() as closed:
        try:
            file = closed.enter_context(part.open("rb"))
        except FileNotFoundError:
            part = packed_part(part)
            file = closed.enter_context(part.open("rb"))
        yield closed.enter_context(gzip.open(file)) if is_packed(part.name) else file


def _lines(parts: Sequence[AnyPath]) -> Iterator[list[bytes]]:
    """Whole lines, some thousands at a time; the last one may be being written."""
    pending: list[bytes] = []
    rest = b""
    for part in parts:
        with _opened(part) as file:
            while chunk := file.read(1 << 20):
                *whole, rest = (rest + chunk).split(b"\n")
                pending += filter(None, whole)
                if len(pending) >= _ROWS:
                    yield pending
                    pending = []
    if pending:
        yield pending

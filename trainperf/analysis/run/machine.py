"""Series of the machine beside a run: the sampled files of its hosts, as columns over time."""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.parts import Parts, by_writer, contents
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.window import start_time
from trainperf.core.artifacts.machine import (
    MACHINE_VERSION,
    MachineEnd,
    MachineHeader,
    Neighbour,
    device_column,
)
from trainperf.core.places import AnyPath, listed
from trainperf.core.run_directory import machine_of
from trainperf.core.steps.block import Column
from trainperf.core.steps.codec import matrix_of


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


def read_machines(run: Run, most_bytes: int | None = None) -> tuple[list[MachineSeries], list[str]]:
    """The series of all hosts and attempts, and what is wrong with files that cannot be read.

    Of each file about *most_bytes* are read, from its end; `None` for all.
    """
    series: dict[tuple[int, int], MachineSeries] = {}
    problems: list[str] = []
    for place, files in enumerate(run.attempts):
        for parent in dict.fromkeys(file.path.parent for file in files):
            for (rank, attempt), parts in sorted(by_writer(listed(parent), machine_of).items()):
                # A merged run has a copy next to it.
                if attempt != files[0].attempt or (place, rank) in series:
                    continue
                try:
                    read = _series(_lines(parts, most_bytes), place, _apart_s(files, rank))
                except (OSError, msgspec.DecodeError, ValueError) as error:
                    problems.append(f"{parts[0].path.name}: cannot be read ({error})")
                    continue
                if read is not None and len(read):
                    series[place, rank] = read
    return list(series.values()), problems


def _apart_s(files: Sequence[RecordFile], rank: int) -> float:
    """By how much the fit of a rank began later than that of the lowest one."""
    begun = {file.rank: start_time(file.info.started_at) for file in files}
    started, anchor = begun.get(rank), begun[files[0].rank]
    return (started - anchor).total_seconds() if started and anchor else 0.0


def _lines(parts: Parts, most_bytes: int | None) -> Iterator[list[bytes]]:
    """The header, and the lines after it or the last of them.

    Raises:
        OSError: A part cannot be read.
    """
    if most_bytes is not None and sum(part.size_bytes for part in parts) > most_bytes:
        yield next(_unpacked(contents(parts[:1], header=False)), [])[:1]
    yield from _unpacked(contents(parts, most_bytes, header=False))


def _unpacked(pieces: Iterable[list[bytes] | AnyPath]) -> Iterator[list[bytes]]:
    for content in pieces:
        if isinstance(content, list):
            yield content
        else:
            with content.open("rb") as packed, gzip.open(packed) as file:
                yield file.read().splitlines()


def _series(
    chunks: Iterable[Sequence[bytes]], attempt: int, apart_s: float
) -> MachineSeries | None:
    """The series in these lines; `None` where nothing was written yet.

    Raises:
        ValueError: It is not such a file, or of another version.
    """
    header: MachineHeader | None = None
    others: list[MachineHeader | Neighbour | MachineEnd] = []
    blocks: list[npt.NDArray[np.float64]] = []
    for lines in chunks:
        others += [_ENTRIES.decode(line) for line in lines if line[:1] not in (b"[", b"")]
        header = next((entry for entry in others if isinstance(entry, MachineHeader)), None)
        rows = [line for line in lines if line[:1] == b"["]
        if rows and header is not None:
            block = matrix_of(rows, len(header.columns))
            if block is None:
                raise ValueError("a line is damaged, or has other columns than the header")
            blocks.append(block)
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
            for each in others
            if isinstance(each, Neighbour)
        ),
        end=next((entry for entry in others if isinstance(entry, MachineEnd)), None),
    )

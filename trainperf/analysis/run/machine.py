"""Series of the machine beside a run: the sampled files of its hosts, as columns over time."""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.parts import Parts, by_writer, contents
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.window import start_time
from trainperf.core.arrays import Column
from trainperf.core.artifacts.machine import (
    MACHINE_VERSION,
    MachineEnd,
    MachineHeader,
    Neighbour,
    device_column,
)
from trainperf.core.paths import listed
from trainperf.core.run_directory import rank_and_attempt
from trainperf.core.steps.codec import matrix_of


_HEADER = msgspec.json.Decoder(MachineHeader)
_ENTRIES = msgspec.json.Decoder(MachineHeader | Neighbour | MachineEnd)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeries:
    """One host, one attempt after the other."""

    header: MachineHeader
    """Of the latest attempt."""
    at_ns: Column
    """Of each sample, since the start of the fit on the run's lowest rank, and of its attempt
    (`attempt_ns`)."""
    since_ns: Column
    """From when on each sample speaks: from the one before it in its attempt."""
    values: npt.NDArray[np.float32]
    """A row per sample, in the order of the header's columns, without the first."""
    neighbours: tuple[Neighbour, ...] = ()

    def __len__(self) -> int:
        return len(self.at_ns)

    def column(self, name: str) -> Column:
        """Values of a column, NaN where one is missing.

        Besides those of the file: `others_cpus`, CPUs that were busy, and not with this training.
        """
        if name == "others_cpus":
            return np.maximum(self.column("cpu_busy") - self.column("cpu_own"), 0.0)
        if name not in self.header.columns:
            return np.full(len(self), np.nan)
        return self.values[:, self.header.columns.index(name) - 1].astype(np.float64)

    def device(self, device: int, name: str) -> Column:
        """Values of a device's column."""
        return self.column(device_column(device, name))

    def place_of(self, moments_ns: Column) -> npt.NDArray[np.int64]:
        """The sample that speaks of each moment; -1 where none does."""
        place = np.searchsorted(self.at_ns, moments_ns).clip(max=len(self) - 1)
        sampled = (self.since_ns[place] < moments_ns) & (moments_ns <= self.at_ns[place])
        return np.where(sampled, place, -1)

    def select(self, chosen: npt.NDArray[np.bool_]) -> "MachineSeries":
        """The samples for which *chosen* is true."""
        columns = {name: getattr(self, name)[chosen] for name in ("at_ns", "since_ns", "values")}
        return replace(self, **columns)


def attempt_ns(place: int) -> int:
    """When the attempt at this place in the run begins: each has three years to itself."""
    return place * 10**17


def read_machines(run: Run, most_bytes: int | None = None) -> tuple[list[MachineSeries], list[str]]:
    """The series of all hosts, and what is wrong with files that cannot be read.

    Of each file about *most_bytes* are read, from its end; `None` for all.
    """
    hosts: dict[tuple[str, int], list[MachineSeries]] = {}
    problems: list[str] = []
    for place, files in enumerate(run.attempts):
        path = files[0].path
        there = by_writer(listed(path.parent), partial(rank_and_attempt, kind="machine"))
        # Attempts of runs that were joined are numbered anew; the names of their files are not.
        _, written = rank_and_attempt(path.name) or (0, files[0].attempt)
        for rank in sorted(rank for rank, attempt in there if attempt == written):
            parts = there[rank, written]
            try:
                begins_ns = attempt_ns(place) + round(1e9 * _apart_s(files, rank))
                read = _series(parts, most_bytes, begins_ns)
                if read is not None and len(read):
                    hosts.setdefault((read.header.host, read.header.rank), []).append(read)
            except (OSError, msgspec.DecodeError, ValueError) as error:
                problems.append(f"{parts[0].path.name}: cannot be read ({error})")
    return list(map(_joined, hosts.values())), problems


def _joined(attempts: Sequence[MachineSeries]) -> MachineSeries:
    """The attempts of a host, each with the columns of the latest."""
    names = attempts[-1].header.columns[1:]
    values = [np.stack([each.column(name) for name in names], axis=1) for each in attempts]
    return replace(
        attempts[-1],
        at_ns=np.concatenate([each.at_ns for each in attempts]),
        since_ns=np.concatenate([each.since_ns for each in attempts]),
        values=np.concatenate(values).astype(np.float32),
        neighbours=tuple(neighbour for each in attempts for neighbour in each.neighbours),
    )


def _apart_s(files: Sequence[RecordFile], rank: int) -> float:
    """By how much the fit of a rank began later than that of the lowest one."""
    begun = {file.rank: start_time(file.info.started_at) for file in files}
    started, anchor = begun.get(rank), begun[files[0].rank]
    return (started - anchor).total_seconds() if started and anchor else 0.0


def _lines(parts: Parts, most_bytes: int | None = None) -> Iterator[list[bytes]]:
    """The lines, some at a time: all, or about so many bytes of them from the end.

    Raises:
        OSError: A part cannot be read.
    """
    return (
        piece if isinstance(piece, list) else gzip.decompress(piece.read_bytes()).splitlines()
        for piece in contents(parts, most_bytes, header=False)
    )


def _series(parts: Parts, most_bytes: int | None, begins_ns: int) -> MachineSeries | None:
    """The series in a file, of an attempt that begins then; `None` without a line.

    Raises:
        OSError: A part cannot be read.
        ValueError: It is not such a file, or of another version.
    """
    # A part may end amid a line.
    first = next(filter(None, _lines(parts)), None)
    if first is None:
        return None
    header = _HEADER.decode(first[0])
    if header.schema != MACHINE_VERSION:
        raise ValueError(f"version {header.schema}; this trainperf reads {MACHINE_VERSION}")
    others: list[MachineHeader | Neighbour | MachineEnd] = []
    blocks: list[npt.NDArray[np.float64]] = []
    for lines in _lines(parts, most_bytes):
        others += [_ENTRIES.decode(line) for line in lines if line[:1] not in (b"[", b"")]
        rows = [line for line in lines if line[:1] == b"["]
        block = matrix_of(rows, len(header.columns))
        if block is None:
            raise ValueError("a line is damaged, or has other columns than the header")
        blocks.append(block)
    matrix = np.concatenate(blocks)
    at_ns = matrix[:, 0] + begins_ns
    apart_ns = np.diff(at_ns)
    usual_ns = float(np.median(apart_ns)) if len(apart_ns) else 0.0
    return MachineSeries(
        header=header,
        at_ns=at_ns,
        # The first one speaks for as long as any other.
        since_ns=at_ns - np.append(usual_ns, apart_ns),
        values=matrix[:, 1:].astype(np.float32),
        neighbours=tuple(
            msgspec.structs.replace(each, at_ns=each.at_ns + begins_ns)
            for each in others
            if isinstance(each, Neighbour)
        ),
    )

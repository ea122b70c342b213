"""The collectives of a trace: their kinds, times and data."""

import re
from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Integers, Places
from trainperf.traces.event_table import NONE, Codes, EventTable, Kind
from trainperf.traces.metrics.device import DeviceUse, DeviceWork
from trainperf.traces.metrics.spans import StepSpans, by_text, named, nest, present


OTHER = "other"
ALL_REDUCE = "all_reduce"

_KINDS = (
    ("all_to_all", re.compile(r"all_?to_?all(v|_base|_single)?|alltoall", re.IGNORECASE)),
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all_gather", re.compile(r"all_?gather", re.IGNORECASE)),
    (ALL_REDUCE, re.compile(r"all_?reduce|cross_device_reduce|multimem_all_reduce", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast", re.IGNORECASE)),
    ("barrier", re.compile(r"barrier", re.IGNORECASE)),
    ("send_recv", re.compile(r"send_?recv|\b(i?send|i?recv)\b|batch_isend_irecv", re.IGNORECASE)),
    ("gather", re.compile(r"(?<![a-z])gather", re.IGNORECASE)),
    ("scatter", re.compile(r"(?<![a-z])scatter", re.IGNORECASE)),
    ("reduce", re.compile(r"(?<![a-z])_?reduce", re.IGNORECASE)),
)
"""First match wins: `all_reduce` is in no other name, `reduce` is in several."""

_ITEM_BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2,
    "bfloat16": 2, "long": 8, "int64": 8, "int": 4, "int32": 4, "short": 2, "char": 1,
    "int8": 1, "byte": 1, "uint8": 1, "bool": 1, "complexfloat": 8, "complexdouble": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Bytes of an element, by the profiler's names of types in lower case."""

_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc):")
_ANY_HOST = re.compile(r"(nccl|gloo|mpi|ucc):|record_param_comms|c10d::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """The collectives in order of start: device kernels, and what the host ran itself."""

    kind: list[str]
    start: Integers
    end: Integers
    step: Codes
    """Position of the step that began it; `NONE` outside all."""
    group: list[str]
    """Its process group; empty where the trace does not say."""
    bytes: Integers
    """What each rank put in or got out, whichever is more; `NONE` where not given."""
    launched_ns: Integers
    """When the host asked for it; its start where that is not known."""
    members: Integers
    """Ranks that take part; `NONE` where not given."""
    work: Places
    """Position among the device's work; `NONE` for one of the host."""

    def __len__(self) -> int:
        return len(self.kind)


def collectives_of(table: EventTable, steps: StepSpans, device: DeviceWork) -> Collectives:
    """The communication kernels; without any, what the host did itself (gloo)."""
    work = np.flatnonzero(device.used_for(DeviceUse.COMMUNICATION))
    rows, launch, step = device.row[work], device.launch[work], device.step[work]
    above = _above(table, launch)
    if not len(work):
        rows, above = named(table, _HOST_COLLECTIVE, Kind.ANNOTATION, Kind.CPU_OP), []
        work = launch = np.full(len(rows), NONE, np.intp)
        step = steps.holding(table.start_ns[rows])
    start = table.start_ns[rows]
    kind = _kinds_of(table, rows, above)
    group = _texts(table, _first(table.group, rows, above))
    members = _members(table, group)
    return Collectives(
        kind=kind,
        start=start,
        end=table.end_ns[rows],
        step=step,
        group=group,
        bytes=_bytes(table, rows, above, kind, members),
        launched_ns=np.where(launch == NONE, start, table.start_ns[launch]),
        members=members,
        work=work,
    )


def kind_of(name: str) -> str:
    """The kind of collective that a kernel, a range or an argument names; `other` if none."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), OTHER)


def _above(table: EventTable, launch: Places) -> list[Places]:
    """Rows of the ranges around each launch that are about communication, innermost first."""
    ranges = nest(table, named(table, _ANY_HOST, Kind.ANNOTATION, Kind.CPU_OP))
    levels = ranges.ancestors(ranges.around(table, launch))
    return [np.where(level == NONE, NONE, ranges.rows[level]) for level in levels]


def _first(column: Integers | Codes, rows: Places, above: list[Places]) -> Integers:
    """The kernel's own value; else that of the innermost range above its launch that has one."""
    values = column[rows].astype(np.int64)
    for level in above:
        missing = (values == NONE) & (level != NONE)
        values[missing] = column[level[missing]]
    return values


def _texts(table: EventTable, codes: Integers | Codes) -> list[str]:
    return ["" if code == NONE else table.texts[code] for code in codes.tolist()]


def _kinds_of(table: EventTable, rows: Places, above: list[Places]) -> list[str]:
    """By the event's argument; its name; the device's range around it; the host's ranges.

    A name that says `SendRecv` may stand for an all-to-all, so it counts only if nothing else does.
    """
    own = _kinds(table.names, table.name[rows])
    kinds = _kinds(table.texts, table.collective[rows])
    _fill(kinds, own)
    _fill(kinds, _device_ranges(table, rows))
    for level in above:
        at = np.flatnonzero(level != NONE)
        for texts, codes in ((table.texts, table.collective), (table.names, table.name)):
            above_kinds = np.full(len(rows), _OTHER)
            above_kinds[at] = _kinds(texts, codes[level[at]])
            _fill(kinds, above_kinds)
    kinds = np.where(kinds == _OTHER, own, kinds)
    return [_NAMES[kind] for kind in kinds.tolist()]


_NAMES = (*(kind for kind, _ in _KINDS), OTHER)
_OTHER = _NAMES.index(OTHER)
_VAGUE = (_OTHER, _NAMES.index("send_recv"))


def _fill(kinds: Places, others: Places) -> None:
    """Take what is said where nothing was, and it is not vague."""
    takes = np.isin(kinds, _VAGUE) & ~np.isin(others, _VAGUE)
    kinds[takes] = others[takes]


def _kinds(texts: list[str], codes: Codes) -> Places:
    """Index in `_NAMES` of the kind that each text says; each text is looked at once."""
    return by_text(texts, codes, lambda text: _NAMES.index(kind_of(text)), _OTHER)


def _device_ranges(table: EventTable, rows: Places) -> Places:
    """The kind that the device's copy of a range says, on the stream of each row."""
    out = np.full(len(rows), _OTHER, np.intp)
    ranges = named(table, _ANY_HOST, Kind.DEVICE_ANNOTATION)
    for stream in present(table.thread[ranges]):
        mine = ranges[table.thread[ranges] == stream]
        place = np.flatnonzero(table.thread[rows] == stream)
        at = table.start_ns[rows[place]]
        last = np.searchsorted(table.start_ns[mine], at, side="right") - 1
        inside = (last >= 0) & (table.end_ns[mine[last]] > at)
        out[place[inside]] = _kinds(table.names, table.name[mine[last[inside]]])
    return out


def _members(table: EventTable, group: list[str]) -> Integers:
    """Ranks in each one's process group; `NONE` where the trace does not say."""
    groups = {name: len(ranks) for name, ranks in table.info.process_groups.items()}
    whole = table.info.world_size or NONE
    return np.array([groups.get(name, whole) for name in group], np.int64)


def _bytes(
    table: EventTable, rows: Places, above: list[Places], kind: list[str], members: Integers
) -> Integers:
    """A gather's data is as many times what one rank puts in as ranks take part."""
    elements, dtype = (_first(column, rows, above) for column in (table.elements, table.dtype))
    widths = np.array([_ITEM_BYTES.get(text.lower(), 0) for text in _texts(table, dtype)], np.int64)
    factor = np.where(np.array([name == "all_gather" for name in kind], bool), members, 1)
    is_known = (elements >= 0) & (widths > 0) & (factor > 0)
    return np.where(is_known, elements * widths * factor, NONE)

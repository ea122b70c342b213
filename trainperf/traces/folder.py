"""What do the traces of all ranks say together?  Finds them, reads them, sets them side by side."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainperf.errors import TraceError
from trainperf.traces.analysis import summed_up, take_apart
from trainperf.traces.answer import answer
from trainperf.traces.findings import findings
from trainperf.traces.reader import read
from trainperf.traces.results import RankTrace, TraceReport
from trainperf.traces.straggler import RankCollectives, rank_collectives, stragglers
from trainperf.units import plural


PROCESSES = 2
LARGE_BYTES = 4 << 20
"""Files that are together smaller than this are read sooner than a second process starts."""

_SUFFIXES = (".json", ".json.gz")
_NOT_TRACES = (".analysis.json", "summary.json")
_OURS = re.compile(r"rank\d+-(?P<capture>step\d+-\d+steps(-\d+)?)\.trace\.json(\.gz)?")
_THEIRS = re.compile(r"(?P<worker>.+)\.(?P<time>\d{10,})(\.pt)?\.trace\.json(\.gz)?")
"""As torch's own handler for TensorBoard names them: one worker writes one file per capture."""

_RANK = re.compile(r"(?:^|[^a-z])rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_MOST_RANKS = 1 << 20
"""A job of more is not believed, and none has to be counted."""

NAMED = 8
"""Ranks or files that are named in a sentence; of more it says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How each trace is to be analysed."""

    lanes: bool = True
    """Whether to make the lanes for drawing."""
    hta: bool = False
    """Whether to add the figures by HTA's definitions."""


def report(paths: Sequence[Path], wanted: Wanted | None = None) -> TraceReport:
    """Analyse traces: files, or directories with one per rank.

    Of a directory that holds several captures, the last one.

    Raises:
        TraceError: nothing of a named file, or of a whole directory, can be used.
        OSError: a file cannot be read.
    """
    files, said = _files([Path(path) for path in paths])
    found, unusable = _analysed(files, wanted or Wanted())
    said += unusable
    found.sort(key=lambda one: (one.trace.rank is None, one.trace.rank or 0, one.trace.file))
    by_rank, doubled = _by_rank(found)
    late, unlike = stragglers(by_rank)
    ranks = tuple(one.trace for one in found)
    warnings = (*said, *doubled, *_missing(ranks), *unlike, *_of_ranks(ranks))
    out = TraceReport(ranks=ranks, stragglers=late, warnings=warnings)
    out = msgspec.structs.replace(out, findings=findings(out))
    return msgspec.structs.replace(out, answer=answer(out))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Analysed:
    """What one process hands back of a file."""

    trace: RankTrace
    collectives: RankCollectives


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One file to analyse."""

    path: Path
    demanded: bool
    """Whether somebody named it: then it must be a trace."""


def _files(paths: Sequence[Path]) -> tuple[list[_Job], list[str]]:
    """The files to read, and what is said about those that are not."""
    jobs, said = [], []
    for path in paths:
        if not path.is_dir():
            jobs.append(_Job(path=path, demanded=True))
            continue
        inside = _inside(path)
        if not inside:
            raise TraceError(f"{path}: no trace in this directory (*.json, *.json.gz)")
        captures = _captures(inside)
        if len(captures) > 1:
            others = _some([name for name, _ in captures[:-1]])
            said.append(
                f"{path.name}: {len(captures)} captures, of which this is the last "
                f"({captures[-1][0]}); the others: {others}"
            )
        jobs += [_Job(path=one, demanded=False) for one in captures[-1][1]]
    unique = {job.path.resolve(): job for job in jobs}
    return list(unique.values()), said


def _inside(directory: Path) -> list[Path]:
    """The trace files of a directory, or of the directory `traces` of a run."""
    traces = directory / "traces"
    where = traces if traces.is_dir() else directory
    return sorted(
        path
        for path in where.iterdir()
        if path.name.endswith(_SUFFIXES)
        and not path.name.endswith(_NOT_TRACES)
        and not path.name.startswith(".")
        and path.is_file()
    )


def _captures(files: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """The files by capture, in order of time: by their names, which say steps or times."""
    groups: dict[str, list[Path]] = defaultdict(list)
    workers: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for path in files:
        if ours := _OURS.fullmatch(path.name):
            groups[ours["capture"]].append(path)
        elif theirs := _THEIRS.fullmatch(path.name):
            workers[theirs["worker"]].append((int(theirs["time"]), path))
        else:
            groups[""].append(path)
    for times in workers.values():
        # The clocks of workers differ; the order of each one's captures does not.
        for place, (_, path) in enumerate(sorted(times), start=1):
            groups[f"{place:09d}"].append(path)
    return [(_label(key), groups[key]) for key in sorted(groups)]


def _label(key: str) -> str:
    if not key:
        return "the files without a number"
    return f"capture {int(key)}" if key.isdecimal() else key


def _analysed(jobs: Sequence[_Job], wanted: Wanted) -> tuple[list[_Analysed], list[str]]:
    size = sum(job.path.stat().st_size for job in jobs if job.path.exists())
    results: list[_Analysed | str] | None = None
    if len(jobs) > 1 and size >= LARGE_BYTES:
        jobs = sorted(jobs, key=lambda job: -job.path.stat().st_size if job.path.exists() else 0)
        results = _in_processes(jobs, wanted)
    return _kept(jobs, results or [_try(job, wanted) for job in jobs])


def _in_processes(jobs: Sequence[_Job], wanted: Wanted) -> "list[_Analysed | str] | None":
    """The results; `None` if the processes do not work, as in a script that starts itself anew."""
    # Loading these takes longer than reading a small trace.
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415
    from multiprocessing import get_context  # noqa: PLC0415

    try:
        with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
            return list(pool.map(_try, jobs, [wanted] * len(jobs)))
    except BrokenProcessPool:
        return None


def _try(job: _Job, wanted: Wanted) -> "_Analysed | str":
    """The analysis; in a directory, what is wrong with a file that is no trace."""
    try:
        return _one(job.path, wanted)
    except TraceError as error:
        if job.demanded:
            raise
        return str(error)


def _kept(
    jobs: Sequence[_Job], results: Sequence["_Analysed | str"]
) -> tuple[list[_Analysed], list[str]]:
    found = [one for one in results if isinstance(one, _Analysed)]
    wrong = [one for one in results if isinstance(one, str)]
    if not found:
        said = f": {wrong[0]}" if wrong else ""
        raise TraceError(f"{jobs[0].path.parent}: no usable trace in this directory{said}")
    return found, [f"left out: {one}" for one in wrong]


def _one(path: Path, wanted: Wanted) -> _Analysed:
    table = read(path)
    parts = take_apart(table)
    trace = summed_up(parts, path.name, lanes=wanted.lanes)
    named = _RANK.search(path.name)
    if trace.rank is None and named:
        trace = msgspec.structs.replace(trace, rank=int(named[1]))
    if wanted.hta:
        from trainperf.traces.hta import hta_breakdown  # noqa: PLC0415 seldom asked for

        found = hta_breakdown(table)
        said = () if found else ("HTA has no figures for a trace without a device",)
        trace = msgspec.structs.replace(trace, hta=found, warnings=(*trace.warnings, *said))
    compared = rank_collectives(table, parts.steps, parts.host, parts.collectives)
    return _Analysed(trace=trace, collectives=compared)


def _by_rank(found: Sequence[_Analysed]) -> tuple[dict[int, RankCollectives], list[str]]:
    """The ranks to compare; of two traces of one rank the first, which is said."""
    by_rank: dict[int, RankCollectives] = {}
    files: dict[int, list[str]] = defaultdict(list)
    for one in found:
        rank = one.trace.rank
        if rank is not None:
            by_rank.setdefault(rank, one.collectives)
            files[rank].append(one.trace.file)
    said = [
        f"{len(names)} traces say they are of rank {rank}: {_some(names)}; ranks are compared "
        "with the first of them"
        for rank, names in files.items()
        if len(names) > 1
    ]
    unknown = sum(one.trace.rank is None for one in found)
    if unknown and len(found) > 1:
        said.append(f"{plural(unknown, 'trace')} without a rank: not compared with the others")
    return by_rank, said


def _missing(ranks: Sequence[RankTrace]) -> list[str]:
    present = {one.rank for one in ranks if one.rank is not None}
    sizes = {one.world_size for one in ranks if one.world_size is not None}
    said = []
    if len(sizes) > 1:
        said.append(f"the traces are of jobs of different size: {_some(sorted(map(str, sizes)))}")
    size = max(sizes, default=1)
    missing = size - len(present & set(range(min(size, _MOST_RANKS))))
    if missing > 0 and present:
        first = [str(rank) for rank in range(len(present) + NAMED) if rank not in present][:NAMED]
        named = ", ".join(first[:missing])
        more = f" and {missing - NAMED:,} more" if missing > NAMED else ""
        said.append(
            f"{len(present)} of {size:,} ranks read, without {named}{more}: who is waited for may "
            "be one of those"
        )
    return said


def _of_ranks(ranks: Sequence[RankTrace]) -> list[str]:
    """What each trace must say, with its file where there are several; the same thing once."""
    said: Mapping[str, list[str]] = defaultdict(list)
    for one in ranks:
        for warning in one.warnings:
            said[warning].append(one.file)
    if len(ranks) == 1:
        return list(said)
    return [f"{_some(files)}: {warning}" for warning, files in said.items()]


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")

"""The traces of a job together: found, read where they are many by an engine, and compared.

Other processes start before this one loads numpy and all that stands on it, so that all load at
the same time; this is why the analysis is imported where it is used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from trainperf.core.engines import engine_of, mapped
from trainperf.core.errors import TraceError
from trainperf.core.formatting.units import plural
from trainperf.core.groups import grouped
from trainperf.core.paths import AnyPath, listed, path_of
from trainperf.core.run_directory import ANALYSIS_SUFFIX, SUMMARY, TRACES, CaptureName, capture_of
from trainperf.traces.answer import answer
from trainperf.traces.jobs import jobs
from trainperf.traces.results import (
    AnalysisOptions,
    RankAnalysis,
    RankCollectives,
    RankTrace,
    TraceReport,
)
from trainperf.traces.thresholds import THRESHOLDS


_SUFFIXES = (".json", ".json.gz")
_NOT_TRACES = (ANALYSIS_SUFFIX, SUMMARY)
_THEIRS = re.compile(r"(?P<worker>.+)\.(?P<time>\d{10,})(\.pt)?\.trace\.json(\.gz)?")
"""As torch's own handler for TensorBoard names them: one worker writes one file per capture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One file to analyse."""

    path: AnyPath
    demanded: bool
    """Whether somebody named it: then it must be a trace."""


def trace_files(
    paths: Sequence[AnyPath], steps: tuple[int | None, int | None] = (None, None)
) -> tuple[list[TraceFile], list[str]]:
    """The files to read, and what is said about those that are not.

    Args:
        paths: Files, and directories, of which the last capture is read.
        steps: The first and the last step that a capture in a directory may begin with.

    Raises:
        TraceError: a directory holds none.
    """
    jobs, notes = [], []
    for path in paths:
        if not path.is_dir():
            jobs.append(TraceFile(path=path, demanded=True))
            continue
        every = _inside(path)
        if not every:
            raise TraceError(f"{path}: no trace in this directory (*.json, *.json.gz)")
        inside = [file for file in every if _begins_within(file.name, *steps)]
        if not inside:
            others = some([name for name, _ in _captures(every)])
            raise TraceError(f"{path}: no capture begins with these steps; there are {others}")
        captures = _captures(inside)
        if len(captures) > 1:
            others = some([name for name, _ in captures[:-1]])
            notes.append(
                f"{path.name}: {len(captures)} captures, of which this is the last "
                f"({captures[-1][0]}); the others: {others}"
            )
        jobs += [TraceFile(path=file, demanded=False) for file in captures[-1][1]]
    unique = {job.path.resolve(): job for job in jobs}
    return list(unique.values()), notes


def _begins_within(name: str, first: int | None, last: int | None) -> bool:
    capture = CaptureName.parse(name)
    step = -1 if capture is None else capture.first_step
    within = (first or 0) <= step and (last is None or step <= last)
    return within or (first is None and last is None)


def _inside(directory: AnyPath) -> list[AnyPath]:
    """The trace files of a directory, or of the directory `traces` of a run."""
    traces = directory / TRACES
    where = traces if traces.is_dir() else directory
    return [
        file.path
        for file in listed(where)
        if file.path.name.endswith(_SUFFIXES)
        and not file.path.name.endswith(_NOT_TRACES)
        and not file.path.name.startswith(".")
        and not file.is_dir
    ]


def _captures(files: Sequence[AnyPath]) -> list[tuple[str, list[AnyPath]]]:
    """The files by capture, in order of time: by their names, which say steps or times."""
    theirs = [match for path in files if (match := _THEIRS.fullmatch(path.name))]
    workers = grouped((match["worker"], (int(match["time"]), match[0])) for match in theirs)
    # The clocks of workers differ; the order of each one's captures does not.
    keys = {
        name: f"{place:09d}"
        for times in workers.values()
        for place, (_, name) in enumerate(sorted(times), start=1)
    }
    groups = grouped((capture_of(path.name) or keys.get(path.name, ""), path) for path in files)
    return [(_label(key), groups[key]) for key in sorted(groups)]


def _label(key: str) -> str:
    if not key:
        return "the files without a number"
    return f"capture {int(key)}" if key.isdecimal() else key


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    named = THRESHOLDS.named
    more = len(names) - named
    return ", ".join(names[:named]) + (f" and {more} more" if more > 0 else "")


LARGE_BYTES = 4 << 20
"""Files that are together smaller than this are read sooner than another process starts."""

Outcome = RankAnalysis | str
"""The analysis of a file, or what is wrong with it."""


def report(
    paths: Sequence[AnyPath | str],
    options: AnalysisOptions | None = None,
    engine: str | None = None,
) -> TraceReport:
    """Analyse the traces of one job: files, or directories with one per rank.

    Of a directory that holds several captures, the last one.  That they are of one job is not
    asked here: see `reports`.  The *engine* is that of `engine_of`: by default all processors
    where the files are large.

    Raises:
        TraceError: nothing of a named file, or of a whole directory, can be used.
        OSError: a file cannot be read.
    """
    return _together(*_analyses(paths, options, engine))


def reports(
    paths: Sequence[AnyPath | str],
    options: AnalysisOptions | None = None,
    engine: str | None = None,
) -> tuple[TraceReport, ...]:
    """As `report`, for each of the jobs that left the traces: unrelated ones have no common mean.

    Raises:
        TraceError: nothing of a named file, or of a whole directory, can be used.
        OSError: a file cannot be read.
    """
    analyses, notes = _analyses(paths, options, engine)
    groups = jobs(analyses)
    if len(groups) > 1:
        number = f"{plural(len(analyses), 'trace')} of {len(groups)} unrelated jobs"
        notes = [f"{number}: each job has a report of its own", *notes]
    return tuple(_together(group, [] if place else notes) for place, group in enumerate(groups))


def _analyses(
    paths: Sequence[AnyPath | str], options: AnalysisOptions | None, engine: str | None
) -> tuple[list[RankAnalysis], list[str]]:
    """What can be used of the traces, and what must be known of the rest."""
    options = options or AnalysisOptions()
    files, notes = trace_files([path_of(path) for path in paths], options.steps)
    outcomes = _outcomes(files, options, engine)
    analyses = [outcome for outcome in outcomes if isinstance(outcome, RankAnalysis)]
    problems = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if not analyses:
        why = f": {problems[0]}" if problems else ""
        raise TraceError(f"{files[0].path.parent}: no usable trace in this directory{why}")
    return analyses, [*notes, *(f"skipped: {problem}" for problem in problems)]


def _together(analyses: Sequence[RankAnalysis], notes: Sequence[str]) -> TraceReport:
    """All ranks in order, what only shows between them, and what must be known of each."""
    from trainperf.traces.stragglers import stragglers  # noqa: PLC0415 loads numpy: see above

    ordered = sorted(
        analyses, key=lambda each: (each.trace.rank is None, each.trace.rank or 0, each.trace.file)
    )
    by_rank, ambiguous = _by_rank(ordered)
    late, unlike = stragglers(by_rank)
    ranks = tuple(each.trace for each in ordered)
    warnings = (*notes, *ambiguous, *_missing(ranks), *unlike, *_of_ranks(ranks))
    out = TraceReport(ranks=ranks, stragglers=late, warnings=warnings)
    return msgspec.structs.replace(out, answer=answer(out))


def _outcomes(
    files: Sequence[TraceFile], options: AnalysisOptions, engine: str | None
) -> list[Outcome]:
    """What each of the files gives, the largest read first: the last one to end is a small one."""
    size = {file: file.path.stat().st_size if file.path.exists() else 0 for file in files}
    ordered = sorted(files, key=lambda file: -size[file])
    large = len(files) > 1 and sum(size.values()) >= LARGE_BYTES
    with engine_of(engine, large=large) as opened:
        outcomes = mapped(opened, partial(_outcome, options), ordered)
        by_file = dict(zip(ordered, outcomes, strict=True))
    return [by_file[file] for file in files]


def _outcome(options: AnalysisOptions, file: TraceFile) -> Outcome:
    """The analysis; of a file that nobody named and that is no trace, what is wrong with it."""
    from trainperf.traces.rank_report import analyse_file  # noqa: PLC0415 loads numpy: see above

    try:
        return analyse_file(file.path, options)
    except TraceError as error:
        if file.demanded:
            raise
        return str(error)


def _by_rank(analyses: Sequence[RankAnalysis]) -> tuple[dict[int, RankCollectives], list[str]]:
    """The ranks to compare, of two traces of one rank the first; and notes about such traces."""
    named = ((each.trace.rank, each) for each in analyses if each.trace.rank is not None)
    by_rank = grouped(named)
    notes = [
        f"{len(claim)} traces claim rank {rank}: {some([each.trace.file for each in claim])}; "
        "ranks are compared with the first of them"
        for rank, claim in by_rank.items()
        if len(claim) > 1
    ]
    unknown = sum(each.trace.rank is None for each in analyses)
    if unknown and len(analyses) > 1:
        notes.append(f"{plural(unknown, 'trace')} without a rank: not compared with the others")
    return {rank: claim[0].collectives for rank, claim in by_rank.items()}, notes


def _missing(ranks: Sequence[RankTrace]) -> list[str]:
    present = {trace.rank for trace in ranks if trace.rank is not None}
    sizes = {trace.world_size for trace in ranks if trace.world_size is not None}
    notes = []
    if len(sizes) > 1:
        notes.append(f"the traces are of jobs of different size: {some(sorted(map(str, sizes)))}")
    size, named = max(sizes, default=1), THRESHOLDS.named
    missing = size - sum(0 <= rank < size for rank in present)
    if missing > 0 and present:
        first = [str(rank) for rank in range(len(present) + named) if rank not in present][:named]
        more = f" and {missing - named:,} more" if missing > named else ""
        notes.append(
            f"{len(present)} of {size:,} ranks read, without {', '.join(first[:missing])}{more}: "
            "the straggler may be one of those"
        )
    return notes


def _of_ranks(ranks: Sequence[RankTrace]) -> list[str]:
    """The warnings of each trace, with its file where there are several; the same thing once."""
    files = grouped((warning, trace.file) for trace in ranks for warning in trace.warnings)
    if len(ranks) == 1:
        return list(files)
    return [f"{some(names)}: {warning}" for warning, names in files.items()]

"""The data of the tab's routes: JSON about runs below a log directory.

No TensorBoard and no HTTP here.  A run is read again only when its files changed; what was
answered is kept until then.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.run_facts import SILENT_S
from trainperf.comparison.compare import compare
from trainperf.core.artifacts.trials import Trials
from trainperf.core.errors import RunError
from trainperf.core.formatting.html.markup import Markup
from trainperf.core.loop_kind import LOOPS
from trainperf.core.machine.processes import has_died
from trainperf.core.run_directory import rank_and_attempt
from trainperf.reports.capture.document import capture_document
from trainperf.reports.charts.columns import Groups, SeriesFold
from trainperf.reports.charts.machine import MachineTracks
from trainperf.reports.comparison_page import Pair, pair_document, read
from trainperf.reports.layout.document import Chart
from trainperf.reports.layout.html import as_html
from trainperf.reports.run.page import (
    MOST_GROUPS,
    MOST_RANKS,
    PageData,
    load_page_data,
    page_document,
)
from trainperf.tensorboard.captures import Captures, picture
from trainperf.tensorboard.runs import FoundRun, Stamp, find_runs, stamp
from trainperf.traces.results import TraceReport


_REST = 20
"""Times as long as reading took, before it is done again: at most 5 % of one core."""

_MOST_ANSWERS = 16
MOST_RUNS = 8
"""That are remembered, those that were looked at last."""

READER = "trainperf-read-ahead"
"""Name of the thread that reads a run before somebody asks for it."""


class NotFoundError(RunError):
    """What was asked for is not there (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Which part of a run is looked at."""

    rank: int | None = None
    """Whose phases; the mean over ranks by default."""
    first: int | None = None
    last: int | None = None
    """Steps, both ends included."""


ATTACH = [{"name": loop.title, "value": loop.attach} for loop in LOOPS]
"""How each kind of loop is measured: the lines to add."""


@dataclass(slots=True)
class _Remembered:
    """What is remembered of a run."""

    run: Run
    page: PageData
    captures: Captures
    version: tuple[Stamp, ...]
    rest_until_s: float = 0.0
    answers: dict[object, bytes] = field(default_factory=dict)


class Store:
    """The runs below the log directories.  Safe to ask from several threads; all answers are JSON.

    Args:
        roots: Log directories.
        now_s: Seconds since 1970: tells a running fit from one that was killed.
    """

    def __init__(self, roots: Sequence[Path], now_s: Callable[[], float]) -> None:
        self._roots = tuple(roots)
        self._now_s = now_s
        self._lock = threading.Lock()
        self._cache: dict[str, _Remembered] = {}
        self._prepared = False

    def any(self) -> bool:
        """Whether there is a run."""
        return bool(find_runs(self._roots))

    def prepare(self) -> None:
        """Begin to read the run that was written last, the one a page shows first; once."""
        if not self._prepared:
            self._prepared = True
            threading.Thread(target=self._read_ahead, name=READER, daemon=True).start()

    def runs(self) -> bytes:
        """`{"runs": [{"id", "name"}, …], "where", "attach"}`: all runs, the last written first.

        *where* are the log directories, *attach* is how to have a run, for where there is none.
        """
        runs = [{"id": run.id, "name": run.name} for run in find_runs(self._roots).values()]
        where = [str(root) for root in self._roots]
        return msgspec.json.encode({"runs": runs, "where": where, "attach": ATTACH})

    def run(self, run_id: str, view: View) -> bytes:
        """`{"html", "ranks", "captures"}`: all that the page shows but the captures' contents.

        Raises:
            RunError: With the sentence to show.
        """
        with self._lock:
            return self._kept(self._current(run_id), view, lambda cached: _viewed(cached, view))

    def compare(self, before_id: str, after_id: str) -> bytes:
        """`{"html": …}`: the comparison of two runs, as `trainperf compare` makes it."""
        with self._lock:
            before, after = self._current(before_id), self._current(after_id)
            key = (before_id, before.version)
            return self._kept(after, key, lambda cached: _compared(before, cached))

    def capture(self, run_id: str, key: str) -> bytes:
        """`{"html": …}`: an analysis, with a picture of each rank."""
        report = self._report(run_id, key)
        ranks = [
            Chart(Markup(f'<div data-place="{place}">{picture(rank, None, None)}</div>'))
            for place, rank in enumerate(report.ranks[:MOST_RANKS])
        ]
        _, *parts = capture_document(report, MOST_RANKS)
        return _fragment(as_html([*parts[:1], *ranks, *parts[1:]]))

    def picture(
        self, run_id: str, key: str, place: int, window: tuple[float | None, float | None]
    ) -> bytes:
        """`{"html": …}`: the picture of one rank of an analysis in a window of time."""
        ranks = self._report(run_id, key).ranks
        if not 0 <= place < len(ranks):
            raise NotFoundError(f"rank {place}: the analysis has {len(ranks)}")
        return _fragment(picture(ranks[place], *window))

    def trace(self, run_id: str, file: str) -> Path:
        """Where an original trace is."""
        captures = Captures.of(self._find(run_id).path)
        if file not in captures.traces:
            raise NotFoundError(f"{file}: no such trace in this run")
        return captures.folder / file

    def _read_ahead(self) -> None:
        for run_id in [*find_runs(self._roots)][:1]:
            # Whoever asks for it is told what is wrong with it.
            with contextlib.suppress(RunError, OSError):
                self.run(run_id, View())

    def _report(self, run_id: str, key: str) -> TraceReport:
        captures = Captures.of(self._find(run_id).path)
        if key not in captures.analyses:
            raise NotFoundError(f"{key}: no such analysis in this run")
        report = captures.report(key)
        if isinstance(report, str):
            raise RunError(report)
        return report

    def _find(self, run_id: str) -> FoundRun:
        run = find_runs(self._roots).get(run_id)
        if run is None:
            raise NotFoundError(f"{run_id}: no such run below the log directory")
        return run

    def _kept(
        self, cached: _Remembered, key: object, answer: Callable[[_Remembered], bytes]
    ) -> bytes:
        """What was answered, or is by now: then the run is left alone for a while."""
        if key not in cached.answers:
            begun_s = self._now_s()
            cached.answers[key] = answer(cached)
            for old in list(cached.answers)[:-_MOST_ANSWERS]:
                del cached.answers[old]
            self._rest(cached, begun_s)
        return cached.answers[key]

    def _rest(self, cached: _Remembered, begun_s: float) -> None:
        now_s = self._now_s()
        cached.rest_until_s = max(cached.rest_until_s, now_s + _REST * (now_s - begun_s))

    def _current(self, run_id: str) -> _Remembered:
        """A run as it is now, read again if it changed and was not read just before."""
        path, now_s = self._find(run_id).path, self._now_s()
        cached = self._cache.pop(run_id, None)
        if cached is None or now_s >= cached.rest_until_s:
            captures = Captures.of(path)
            version = _version(path, captures)
            if cached is None or version != cached.version or _may_be_dead(cached, now_s):
                run = Run.open(path)
                page = load_page_data(run, now_s=now_s)
                cached = _Remembered(run, page, captures, version)
                self._rest(cached, now_s)
        # The one asked for last is the last to be forgotten.
        self._cache[run_id] = cached
        for old in list(self._cache)[:-MOST_RUNS]:
            del self._cache[old]
        return cached


def _version(directory: Path, captures: Captures) -> tuple[Stamp, ...]:
    """Changes when a file of the run does."""
    records = [
        path
        for path in sorted(directory.iterdir())
        if rank_and_attempt(path.name) or path.name == Trials.file
    ]
    traces = [(file, 0, size, 0) for file, size in captures.traces.items()]
    return (str(directory), 0, 0, 0), *map(stamp, records), *captures.analyses.values(), *traces


def _may_be_dead(cached: _Remembered, now_s: float) -> bool:
    """Whether a run may have died since: nothing changes on disk when one does."""
    summary = cached.page.summary
    if summary.run.state != "running":
        return False
    silent = now_s - cached.run.last_write_s() > SILENT_S
    listed = {end.rank for end in summary.run.ended_otherwise}
    others = (file for file in cached.run.attempts[-1] if file.rank not in listed)
    died = (has_died(file.info.process) for file in others)
    return any(silent if gone is None else gone for gone in died)


def _viewed(cached: _Remembered, view: View) -> bytes:
    page, ranks = cached.page, cached.page.summary.run.ranks
    lead = ranks.index(view.rank) if view.rank in ranks else None
    groups = page.groups if view == View() else _groups(cached.run, lead, view)
    html = as_html(page_document(PageData(summary=page.summary, captures=None, groups=groups)))
    content = {"html": str(html), "ranks": ranks, "captures": cached.captures.listed()}
    return msgspec.json.encode(content)


def _compared(before: _Remembered, after: _Remembered) -> bytes:
    old, new = read([[before.run], [after.run]])
    comparison = compare(old, new)
    document = pair_document(Pair(comparison=comparison, before=old, after=new))
    return _fragment(as_html(document))


def _groups(run: Run, lead: int | None, view: View) -> Groups:
    replay = Replay(run)
    beside = MachineTracks(replay).columns
    first = max(0, view.first or 0)
    fold = SeriesFold(lead, first=first, last=view.last, most=MOST_GROUPS, beside=beside)
    for blocks in replay.blocks():
        fold.observe(JobBlock.of(blocks))
    return fold.groups


def _fragment(html: Markup) -> bytes:
    return msgspec.json.encode({"html": str(html)})

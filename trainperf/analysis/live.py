"""A run while it is written: its summary so far and that of the latest minute, look after look.

Both are made as `trainperf.analysis.summarize` makes that of a report, of the end of the run.
"""

from dataclasses import dataclass, replace

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.parts import EDGE_BYTES
from trainperf.analysis.run.record_file import EVERY_STEP, ReadSteps, RecordFile, end_of, held
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import diagnosed, read_steps, summary_of
from trainperf.analysis.summary.run_folds import RunFolds
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.folder import Documents, read_documents
from trainperf.core.findings import LIMITS
from trainperf.core.places import AnyPath, listed
from trainperf.core.run_directory import machine_of, rank_and_attempt
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema
from trainperf.traces.capture_files import CaptureReport, read_all


MOST_BYTES = 4 << 20
"""Of all record files together, that are read in a look: the end of each, as it is on the disk."""

LATEST_S = 60.0
"""The latest steps are those of a minute, and twice as many at least as a diagnosis needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAttempts:
    """The attempts before the one that is followed; what they cost is in the report."""

    number: int
    steps: int
    """Of all of them."""
    reason: str
    """How the last of them ended, as in `EndMark`; empty where it ended without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLook:
    """What a look at a run shows."""

    whole: Summary
    """Of all steps that are held: of a long run those of its end."""
    latest: Summary | None
    """Of the latest minute; `None` before the first step."""
    step_times_s: tuple[float, ...]
    """Mean steps of consecutive pieces, on the lowest rank, over the steps that are held."""
    first_step: int
    """The first of these steps, which begin when the warm-up is over."""
    last_step: int
    """The last of them."""
    silent_s: float
    """Since the run was last written to."""
    earlier: EarlierAttempts
    """Before the one that is shown."""


class LiveRun:
    """A run that is looked at again and again: the end of its latest attempt.

    Args:
        path: The run directory, or one above it.
        most_bytes: How much of it is read.

    Raises:
        OSError: It cannot be read.
        RunError: There is no run.
    """

    def __init__(self, path: AnyPath, most_bytes: int = MOST_BYTES) -> None:
        self._path = Run.open(path).path
        self._most_bytes = most_bytes
        self._stamp: object = None

    def look(self, now_s: float) -> LiveLook:
        """Read the run as it is by now, and sum up.

        Args:
            now_s: Seconds since 1970.

        Raises:
            OSError: It cannot be read.
            RunError: It is no run any more.
        """
        run = Run.open(self._path)
        *before, latest = run.attempts
        ended = end_of(before[-1][0]).mark if before else None
        each = max(EDGE_BYTES, self._most_bytes // len(latest))
        run = replace(run, attempts=(tuple(replace(file, begun=0) for file in latest),))
        end = _in_memory(run, each)
        if next(Replay(end).blocks(), None) is None:  # a rank is far behind the others
            end = _as_far_as_all(run, end)
        documents, captures = self._beside()
        # The machines are joined with the latest steps alone.
        folds = RunFolds(Replay(end, machine_bytes=0), documents, captures)
        whole = _summary(folds, now_s)
        levels = folds.levels.levels(0, None)
        minute, latest_minute = latest_of(end), None
        if minute is not None:
            replay = Replay(minute, machine_bytes=EDGE_BYTES)
            # Its traces are those of the whole run.
            documents = replace(documents, lines=None, problems={})
            latest_minute = _summary(RunFolds(replay, documents, ()), now_s)
        return LiveLook(
            whole=whole,
            latest=latest_minute,
            step_times_s=tuple(levels.walls_s.tolist()),
            first_step=int(levels["first"][0]) if len(levels) else 0,
            last_step=int(levels["last"][-1]) if len(levels) else 0,
            silent_s=max(0.0, now_s - run.last_write_s()),
            earlier=EarlierAttempts(
                number=len(before),
                steps=latest[0].begun,
                reason=ended.reason if ended else "",
            ),
        )

    def _beside(self) -> tuple[Documents, tuple[CaptureReport, ...]]:
        """What is in the directory but records and machines, read anew where it changed."""
        stamp = [
            (file.path.name, 0 if file.is_dir else file.size_bytes, file.modified_s)
            for file in listed(self._path)
            if not file.path.name.startswith(".")
            and not machine_of(file.path.name)
            and not rank_and_attempt(file.path.name)
        ]
        if stamp != self._stamp:
            self._stamp = stamp
            self._documents = read_documents(self._path), tuple(read_all(self._path))
        return self._documents


def _in_memory(run: Run, most_bytes: int | None) -> Run:
    """The end of the one attempt of a run."""
    (files,) = run.attempts
    ends = tuple(held(replace(file, chosen=EVERY_STEP), most_bytes) for file in files)
    first = ends[0].chosen.first
    window = f"from step {first:,.0f} on" if first else ""
    return replace(run, attempts=(ends,), window=window)


def _as_far_as_all(run: Run, ends: Run) -> Run:
    """The latest steps up to the last one of the rank that is furthest behind, in memory."""
    (files,) = run.attempts
    lasts = [_held_steps(file).index.max(initial=-1.0) for file in ends.attempts[0]]
    last = min(lasts)
    chosen = ReadSteps(first=max(0.0, last - BLOCK_STEPS), last=last)
    window = f"steps {chosen.first:,.0f} to {last:,.0f}"
    common = tuple(held(replace(file, chosen=chosen)) for file in files)
    return replace(run, attempts=(common,), window=window)


def latest_of(run: Run) -> Run | None:
    """The latest minute of the one attempt of a run that is held; `None` before the first step."""
    (files,) = run.attempts
    blocks = [_held_steps(file) for file in files]
    last = min((float(block.index[-1]) if len(block) else -1.0 for block in blocks), default=-1.0)
    common = [block.select(block.index <= last) for block in blocks]
    if not all(map(len, common)):
        return None
    first = max(map(_latest_from, common))
    chosen = ReadSteps(first=first, last=last)
    return replace(
        run,
        attempts=(tuple(replace(file, chosen=chosen) for file in files),),
        window=f"steps {first:,.0f} to {last:,.0f}",
        warnings=(),
    )


def _held_steps(file: RecordFile) -> StepBlock:
    blocks = [content for content in file.entries() if isinstance(content, StepBlock)]
    return StepBlock.joined(blocks) if blocks else StepBlock.from_rows(StepSchema(), [])


def _latest_from(block: StepBlock) -> float:
    """The first of the steps of so long a time, and of so many at least."""
    late = block.start_ns >= block.start_ns[-1] - LATEST_S * 1e9
    return float(block.index[min(int(late.argmax()), max(0, len(block) - 2 * LIMITS.steps))])


def _summary(folds: RunFolds, now_s: float) -> Summary:
    read_steps(folds)
    return diagnosed(folds, summary_of(folds, now_s=now_s), folds.documents).summary

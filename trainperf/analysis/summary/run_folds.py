"""Folds of a whole run: everything that is computed from its steps, fed in one pass over them."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.lateness import LatenessFold
from trainperf.analysis.summary.long_term import LevelsFold
from trainperf.analysis.summary.machine import MachineFold
from trainperf.analysis.summary.run_facts import completed_info, diverged
from trainperf.analysis.summary.waits import COLLECTIVES
from trainperf.core.artifacts.folder import Documents
from trainperf.core.loop_kind import LIGHTNING, loop_of
from trainperf.core.readings import ALLREDUCE_SKEW_S, LOSS
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS
from trainperf.meters.fold import NO_STEADY_STATE, Fold, Reading, readings
from trainperf.meters.lead_steps import LeadSteps
from trainperf.meters.own import across
from trainperf.meters.utilisation import utilisation
from trainperf.traces.capture_files import CaptureReport


StepObserver = Callable[[JobBlock], None]
"""Called with the steps of a run, in the same pass that makes its summary."""


class RunFolds:
    """Everything that is computed from the steps of a run, fed in one pass over them.

    Args:
        replay: The pass; one that can be gone on with, as of a run that is being written, may be
            read again and again.
        documents: Of the run.
        captures: What its traces say.
    """

    def __init__(
        self, replay: Replay, documents: Documents, captures: Sequence[CaptureReport]
    ) -> None:
        self.run = run = replay.run
        self.documents, self.traced = documents, tuple(captures)
        self.replay = replay
        self.meters = [Fold(METERS) for _ in run.ranks]
        self.lateness = LatenessFold(
            run.ranks,
            # Lightning makes its ranks wait for each other before every fetch.
            loop_waits=loop_of(run.info.config) is LIGHTNING,
            tail=any("tail_ns" in each.info.columns for files in run.attempts for each in files),
        )
        self.steps = LeadSteps()
        self.excluded: Counter[str] = Counter()
        """Tag to the steps that are excluded for it; with several, it is the first of them."""
        self.levels = LevelsFold(len(run.ranks))
        self.machine = MachineFold(replay)

    def read(self, observers: Sequence[StepObserver] = ()) -> None:
        """Pass over all steps; the replay's journals are complete afterwards."""
        first = self.replay.journals[self.run.ranks[0]]
        for blocks in self.replay.blocks():
            for fold, block in zip(self.meters, blocks, strict=True):
                fold.observe(block)
            # What the first rank's file has told of them by now.
            self.lateness.observe(blocks, first.totals.config.get(COLLECTIVES))
            job = JobBlock.of(blocks)
            self.excluded.update(job.first.excluded())
            self.steps.observe(job.first)
            for observe in (self.levels.observe, self.machine.observe, *observers):
                observe(job)

    @property
    def longest(self) -> Fold:
        """The meters of the rank with the most steps."""
        return max(self.meters, key=lambda fold: fold.steps)

    def readings(self) -> dict[str, Reading]:
        """All readings, those of the user's own meters included."""
        info = completed_info(self.run.info, self.replay.journals[self.run.ranks[0]])
        ours = readings(self.meters, info)
        ours[ALLREDUCE_SKEW_S] = _skew(self.lateness, info, self.longest)
        since = diverged(self.replay)
        return {
            **ours,
            **_own_readings(self.replay, taken=ours),
            **({LOSS: Reading(value=None, unit="1", reason=since)} if since else {}),
            **utilisation(self.steps, self.documents),
        }


def _skew(lateness: LatenessFold, info: RunInfo, fold: Fold) -> Reading:
    """Median over steady steps of the largest skew at the all-reduce, seconds."""
    skew = lateness.skew()
    if skew is not None:
        low, high = skew.interval() or (None, None)
        return Reading(value=skew.value(), unit="s", n=skew.n, low=low, high=high)
    reasons = (
        "" if info.world_size > 1 else "one rank: no other rank to wait for",
        info.reasons.get("tail_ns", ""),
        "" if fold.steady_steps else NO_STEADY_STATE,
        "not measured: needs the all-reduce tail of at least two ranks",
    )
    return Reading(value=None, unit="s", reason=next(filter(None, reasons)))


def _own_readings(replay: Replay, taken: Collection[str]) -> dict[str, Reading]:
    """Readings of the user's own meters in the latest attempt, written by the training itself."""
    of_ranks = [journal.totals.readings for journal in replay.journals.values()]
    names = dict.fromkeys(name for readings in of_ranks for name in readings)
    return {
        name: across([readings.get(name) for readings in of_ranks])
        for name in names
        if name not in taken
    }

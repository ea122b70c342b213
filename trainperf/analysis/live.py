"""A run while it is written: its summary so far and that of the latest minute, look after look.

Both are made as `trainperf.analysis.summarize` makes that of a report, from steps that are read
once.
"""

from dataclasses import dataclass, replace

from trainperf.analysis.run.following import MOST_BYTES, EarlierAttempts, FollowedRun
from trainperf.analysis.summarize import diagnosed, summary_of
from trainperf.analysis.summary.ranks import FEW_RANKS
from trainperf.analysis.summary.run_folds import RunFolds
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.folder import read_documents
from trainperf.core.places import AnyPath
from trainperf.traces.capture_files import read_all


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLook:
    """What a look at a run shows."""

    whole: Summary
    """Of all steps that were read: of a long run those of its end."""
    latest: Summary | None
    """Of the latest minute; `None` before the first step."""
    step_times_s: tuple[float, ...]
    """Mean steps of consecutive pieces, on the lowest rank, over the steps that were read."""
    first_step: int
    """The first of these steps, which begin when the warm-up is over."""
    last_step: int
    """The last of them."""
    silent_s: float
    """Since the run was last written to."""
    earlier: EarlierAttempts
    """Before the one that is shown."""


class LiveRun:
    """A run that is looked at again and again.

    Args:
        path: The run directory, or one above it.
        most_bytes: How much of what is there already is read.

    Raises:
        OSError: It cannot be read.
        RunError: There is no run.
    """

    def __init__(self, path: AnyPath, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._most_bytes = path, most_bytes
        self._begin()

    def _begin(self) -> None:
        self.followed = FollowedRun(self._path, self._most_bytes)
        self._stamp = self.followed.documents
        self._folds = RunFolds(
            self.followed,
            read_documents(self.followed.run.path),
            tuple(read_all(self.followed.run.path)),
        )

    def look(self, now_s: float) -> LiveLook:
        """Read what was appended, and sum up.

        A directory that has other files than before, as after a restart, is read anew.

        Args:
            now_s: Seconds since 1970.

        Raises:
            OSError: It cannot be read.
            RunError: It is no run any more.
        """
        if not self.followed.look():
            self._begin()
        folds, followed = self._folds, self.followed
        if followed.documents != self._stamp:
            self._stamp = followed.documents
            folds.documents = read_documents(followed.run.path)
            folds.traced = tuple(read_all(followed.run.path))
        folds.read(())
        folds.run = followed.run
        whole = diagnosed(folds, summary_of(folds, now_s=now_s), folds.documents).summary
        levels = folds.levels.levels(0, None)
        return LiveLook(
            whole=whole,
            latest=self._latest(now_s),
            step_times_s=tuple(levels.walls_s.tolist()),
            first_step=int(levels["first"][0]) if len(levels) else 0,
            last_step=int(levels["last"][-1]) if len(levels) else 0,
            silent_s=max(0.0, now_s - followed.run.last_write_s()),
            earlier=followed.earlier,
        )

    def _latest(self, now_s: float) -> Summary | None:
        """The report of the latest minute; traces are those of the whole run."""
        replay = self.followed.latest()
        if replay is None:
            return None
        documents = replace(self._folds.documents, lines=None, problems={})
        folds = RunFolds(replay, documents, ())
        if len(replay.run.ranks) > FEW_RANKS:
            folds.read_apart((), None)
        else:
            folds.read(())
        return diagnosed(folds, summary_of(folds, now_s=now_s), documents).summary

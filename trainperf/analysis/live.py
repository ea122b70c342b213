"""A run while it is written: its summary so far and that of the latest minute, look after look.

Both are made as `trainperf.analysis.summarize` makes that of a report, of the end of the run.
"""

from dataclasses import dataclass, replace

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import FEW_RANKS
from trainperf.analysis.run.parts import EDGE_BYTES
from trainperf.analysis.run.record_file import STEP_BYTES, end_of, held
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.folder import Documents
from trainperf.core.findings import LIMITS
from trainperf.core.paths import AnyPath, storage_errors
from trainperf.core.steps.block import StepBlock
from trainperf.core.window import RunWindow


MOST_BYTES = 4 << 20
"""Of all record files together, that are read in a look: the end of each, as it is on the disk;
but `EDGE_BYTES` of each at least."""

LATEST_S = 60.0
"""The latest steps are those of a minute, and as many as a diagnosis needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLook:
    """What a look at a run shows."""

    whole: Summary
    """Of all steps that are held: of a long run those of its end."""
    latest: Summary | None
    """Of the latest minute; `None` before the first step."""
    silent_s: float
    """Since the run was last written to."""
    attempts_before: int
    """Before the one that is shown; what they cost is in the report."""
    steps_before: int
    """Of all of them."""
    ended_before: str
    """How the last of them ended, as in `EndMark`; empty where it ended without a word."""


@storage_errors()
def look_at(path: AnyPath, now_s: float, most_bytes: int = MOST_BYTES) -> LiveLook:
    """Read the end of a run's latest attempt as it is by now, and sum up.

    Args:
        path: The run directory; of one above it the newest run is looked at.
        now_s: Seconds since 1970.
        most_bytes: How much of it is read.

    Raises:
        OSError: It cannot be read.
        RunError: There is no run, or no more.
    """
    run = Run.open(path)
    *before, latest = run.attempts
    ended = end_of(before[-1][0]).mark if before else None
    reached = [end_of(file).step for file in latest]
    # Ranks flush, or are uploaded, at different times: the steps of all are further back.
    behind = (max(reached) - min(reached)) * STEP_BYTES
    each = max(EDGE_BYTES, most_bytes // len(latest)) + min(behind, most_bytes // FEW_RANKS)
    # Lines and audits are numbered by the attempt's own steps.
    files = tuple(held(replace(file, begun=0), each) for file in latest)
    window = f"from step {files[0].first:,.0f} on" if files[0].first else ""
    end = replace(run, attempts=(files,), window=window)
    # The machines are joined with the latest steps alone.
    whole = examine(end, now_s=now_s, replay=Replay(end, machine_bytes=0))
    minute = _minute(end, whole.documents, now_s) if whole.run.steps else None
    return LiveLook(
        whole=whole.summary,
        latest=minute,
        silent_s=max(0.0, now_s - run.last_write_s()),
        attempts_before=len(before),
        steps_before=latest[0].begun,
        ended_before=ended.reason if ended else "",
    )


def _minute(run: Run, documents: Documents, now_s: float) -> Summary:
    """The latest minute of the one attempt of a run that is held, by its lowest rank."""
    lead = run.attempts[0][0]
    steps = StepBlock.joined([each for each in lead.entries() if isinstance(each, StepBlock)])
    late = steps.start_ns >= steps.start_ns[-1] - LATEST_S * 1e9
    first = int(steps.index[min(int(late.argmax()), max(0, len(steps) - LIMITS.steps))])
    latest = replace(run, warnings=()).within(RunWindow(first=first))
    # Its lines and traces, and what is wrong with its files, are those of the whole run.
    return examine(
        latest,
        now_s=now_s,
        replay=Replay(latest, machine_bytes=EDGE_BYTES),
        documents=replace(documents, lines=None, problems={}),
        captures=(),
    ).summary

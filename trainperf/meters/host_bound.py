"""Host-bound fraction: the share of steps in which the device waited for the host."""

from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, MeterEntry


def _caught_up(block: StepBlock, fact: str) -> Ratio | None:
    """Steps without an earlier mark ahead over steps."""
    rows = block.having(fact)
    return (
        None
        if rows is None
        else Ratio(float((rows.values(fact) == 0).sum()), float(len(rows)), len(rows))
    )


METERS = (
    MeterEntry(
        name="host_bound_fraction",
        unit="1",
        about="""Share of steady steps at whose end of backward the device had caught up with the
        host.

        It has when it reached every earlier mark.  The last of them is the end of forward: where
        even that lies ahead, the device is at least a backward behind, though something drains it
        once a step (a progress-bar metric, a GradScaler, a broadcast).  Where it has caught up it
        waits for launches, Python or syncs, and a faster kernel gains nothing.  Asynchronous
        devices only.

        Wrong where: something drains the device once a step for another reason, e.g. `.item()` at
        its end.
        To confirm: `trainperf trace`: idle time because launches come late.
        """,
        measure=Measure.DATA_WAIT,
        better="lower",
        needs=("lead_backward",),
        statistic=_caught_up,
    ),
)

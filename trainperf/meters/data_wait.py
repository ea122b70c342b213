"""Data-wait fraction: how much of the step the loop spent waiting for input."""

from trainperf.core.phases import Phase
from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, MeterEntry, Scope, share_of_wall


def _waited(block: StepBlock) -> Ratio:
    """Waited nanoseconds over wall nanoseconds."""
    return Ratio(block.total_ns(Phase.DATA_WAIT), block.total_wall_ns, len(block))


def _stalled(block: StepBlock, fact: str) -> Ratio | None:
    """Stalled nanoseconds over wall nanoseconds, of the steps whose stall is known."""
    return _waited(block) if block.schema.synchronous else share_of_wall(block, fact)


METERS = (
    MeterEntry(
        name="data_wait_fraction",
        unit="1",
        about="""Share of step wall time in which the host was blocked in the loader, on the host
        clock.

        A quotient of sums over steady steps.  It is not the share the *device* lost: a loader
        hidden behind queued device work costs nothing; see `data_stall_fraction`.

        Wrong where: a device still has work queued while the host waits; or the loop was recorded
        from outside: then it is everything between an update and the next forward.
        To confirm: `data_stall_fraction`; `trainperf try --only free_loader SCRIPT`.
        """,
        measure=Measure.DATA_WAIT,
        better="lower",
        statistic=_waited,
    ),
    MeterEntry(
        name="data_wait_all_fraction",
        unit="1",
        about="""The data-wait fraction over every step of the fit, warm-up and epoch starts
        included.

        Logged next to `data_wait_fraction` because worker restarts at epoch starts hide otherwise.

        Wrong where: the fit is short: warm-up and epoch starts then count for much.
        To confirm: `data_wait_fraction`; the finding `epoch_start`.
        """,
        measure=Measure.DATA_WAIT,
        better="lower",
        scope=Scope.ALL,
        statistic=_waited,
    ),
    MeterEntry(
        name="data_stall_fraction",
        unit="1",
        about="""Share of step wall time in which the device had nothing to do because of the
        loader.

        On an asynchronous device: device time between an event recorded just before the fetch and
        one just after it, about zero while work is queued.  On a CPU equal to the data-wait
        fraction.

        Wrong where: another stream works meanwhile: the events are on the compute stream.
        To confirm: `trainperf trace`: idle time because of the loader.
        """,
        measure=Measure.DATA_WAIT,
        better="lower",
        needs=("data_stall_ns",),
        statistic=_stalled,
    ),
)

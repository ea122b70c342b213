"""A user's own meter, probe and sink, with truth planted in the batches."""

from collections.abc import Sequence
from typing import ClassVar

from support.memory_sink import MemorySink

from trainperf.core.phases import Phase
from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import Row
from trainperf.meters import Meter, Scope
from trainperf.meters.base import mean
from trainperf.recording.probes.base import Probe


class Lines(Meter):
    """Mean number of lines in a batch: stands on a fact that only `LineProbe` feeds."""

    name = "lines_of_batch"
    unit = "1"
    title = "lines per batch"
    better = "higher"
    scope = Scope.ALL
    needs = ("lines",)

    def observe(self, block: StepBlock) -> Ratio | None:
        """Lines over steps."""
        return mean(block, "lines")


class ForwardShare(Meter):
    """Share of the step spent in forward: stands on what every run knows."""

    name = "forward_fraction"
    unit = "1"
    scope = Scope.ALL

    def observe(self, block: StepBlock) -> Ratio | None:
        """Forward over wall."""
        return Ratio(block.total_ns(Phase.FORWARD), block.total_wall_ns, len(block))


class LineProbe(Probe):
    """Feeds the number of lines in a batch, which is planted under `lines`."""

    name = "line counter"
    facts: ClassVar[tuple[str, ...]] = ("lines",)

    def micro_batch(self, batch: object, loss: object) -> None:
        """Read what was planted."""
        if self.recorder.draft is not None and isinstance(batch, dict):
            self.recorder.draft.facts["lines"] = float(batch["lines"])


class BrokenMeter(Lines):
    """Fails at its first block."""

    name = "broken_meter"
    title = "broken"

    def observe(self, block: StepBlock) -> Ratio | None:
        """As a mistake of the user's would."""
        raise ZeroDivisionError("planted")


class BrokenSink(MemorySink):
    """Fails at its first step."""

    name = "broken sink"

    def rows(self, rows: Sequence[Row]) -> None:
        """As a server that is gone would."""
        raise ConnectionError("planted")


class BrokenProbe(LineProbe):
    """Fails at its first batch."""

    name = "broken probe"

    def micro_batch(self, batch: object, loss: object) -> None:
        """As a mistake of the user's would."""
        raise LookupError("planted")

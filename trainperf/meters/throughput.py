"""Throughput: useful tokens, padded tokens, samples and optimizer steps per second."""

from trainperf.core.stats.reductions import Ratio, SharedRate
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, Meter, per_second


class _PerSecond(Meter):
    """An amount of a step's batches over wall time."""

    unit = "1/s"
    measure = Measure.TOKENS
    statistic = staticmethod(per_second)


class EffectiveTokens(_PerSecond):
    """Tokens the mask keeps, summed over ranks, over the slowest rank's wall time; steady steps.

    Padding is not counted, which is why this number compares across batch shapes.  The report
    prints which mask was used: `attention_mask`, else `labels != ignore_index`, else the user's.

    Wrong where: the mask is not the one of the loss: `run.notes` names it.
    To confirm: count the labels that the loss does not ignore in one batch.
    """

    name = "effective_tokens_per_s"
    better = "higher"
    needs = ("tokens_effective",)


class PaddedTokens(_PerSecond):
    """All tokens, padding included, over ranks and the slowest rank's wall time; steady steps.

    Grows when batches are padded more; do not optimise it.

    Wrong where: it is taken for progress: padding more makes it grow.
    To confirm: `effective_tokens_per_s`.
    """

    name = "padded_tokens_per_s"
    needs = ("tokens_padded",)


class Padding(Meter):
    """1 − Σ mask / Σ numel over steady steps and ranks: the share of tokens that is padding.

    Wrong where: rows are packed, several sequences in one, and the mask marks all of them.
    To confirm: print a batch's mask.
    """

    name = "padding_fraction"
    unit = "1"
    measure = Measure.TOKENS
    better = "lower"
    needs = ("tokens_effective", "tokens_padded")

    def observe(self, block: StepBlock) -> Ratio | None:
        """Masked-out tokens over all tokens."""
        rows = block.having("tokens_effective", "tokens_padded")
        if rows is None:
            return None
        every = rows.total("tokens_padded")
        return Ratio(every - rows.total("tokens_effective"), every, len(rows))


class Samples(_PerSecond):
    """Leading dimension of the batches, over ranks and the slowest rank's wall time; steady.

    Wrong where: the first dimension of a batch is not its samples.
    To confirm: the loader's `batch_size` × steps per second.
    """

    name = "samples_per_s"
    better = "higher"
    needs = ("samples",)


class OptimizerSteps(Meter):
    """Steps per second of wall time, steady steps; on several ranks the slowest rank's.

    Wrong where: batch or accumulation differ between two runs.
    To confirm: `samples_per_s` or `effective_tokens_per_s`.
    """

    name = "optimizer_steps_per_s"
    unit = "1/s"
    measure = Measure.STEP_TIME
    better = "higher"

    def observe(self, block: StepBlock) -> SharedRate | None:
        """Steps over wall seconds."""
        return SharedRate(float(len(block)), block.total_wall_ns / 1e9, len(block))


METERS = (
    EffectiveTokens(),
    PaddedTokens(),
    Padding(),
    Samples(),
    OptimizerSteps(),
)

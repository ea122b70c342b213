"""Throughput: useful tokens, padded tokens, samples and optimizer steps per second."""

from trainperf.core.stats.reductions import Ratio, SharedRate
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, MeterEntry, per_second


def _padding(block: StepBlock, effective: str, padded: str) -> Ratio | None:
    """Masked-out tokens over all tokens."""
    rows = block.having(effective, padded)
    if rows is None:
        return None
    every = rows.total(padded)
    return Ratio(every - rows.total(effective), every, len(rows))


def _steps(block: StepBlock) -> SharedRate:
    """Steps over wall seconds."""
    return SharedRate(float(len(block)), block.total_wall_ns / 1e9, len(block))


METERS = (
    MeterEntry(
        name="effective_tokens_per_s",
        unit="1/s",
        about="""Tokens the mask keeps, summed over ranks, over the slowest rank's wall time; steady
        steps.

        Padding is not counted, which is why this number compares across batch shapes.  The report
        prints which mask was used: `attention_mask`, else `labels != ignore_index`, else the
        user's.

        Wrong where: the mask is not the one of the loss: `run.notes` names it.
        To confirm: count the labels that the loss does not ignore in one batch.
        """,
        measure=Measure.TOKENS,
        better="higher",
        needs=("tokens_effective",),
        statistic=per_second,
    ),
    MeterEntry(
        name="padded_tokens_per_s",
        unit="1/s",
        about="""All tokens, padding included, over ranks and the slowest rank's wall time; steady
        steps.

        Grows when batches are padded more; do not optimise it.

        Wrong where: it is taken for progress: padding more makes it grow.
        To confirm: `effective_tokens_per_s`.
        """,
        measure=Measure.TOKENS,
        needs=("tokens_padded",),
        statistic=per_second,
    ),
    MeterEntry(
        name="padding_fraction",
        unit="1",
        about="""1 − Σ mask / Σ numel over steady steps and ranks: the share of tokens that is
        padding.

        Wrong where: rows are packed, several sequences in one, and the mask marks all of them.
        To confirm: print a batch's mask.
        """,
        measure=Measure.TOKENS,
        better="lower",
        needs=("tokens_effective", "tokens_padded"),
        statistic=_padding,
    ),
    MeterEntry(
        name="samples_per_s",
        unit="1/s",
        about="""Leading dimension of the batches, over ranks and the slowest rank's wall time;
        steady.

        Wrong where: the first dimension of a batch is not its samples.
        To confirm: the loader's `batch_size` × steps per second.
        """,
        measure=Measure.TOKENS,
        better="higher",
        needs=("samples",),
        statistic=per_second,
    ),
    MeterEntry(
        name="optimizer_steps_per_s",
        unit="1/s",
        about="""Steps per second of wall time, steady steps; on several ranks the slowest rank's.

        Wrong where: batch or accumulation differ between two runs.
        To confirm: `samples_per_s` or `effective_tokens_per_s`.
        """,
        measure=Measure.STEP_TIME,
        better="higher",
        statistic=_steps,
    ),
)

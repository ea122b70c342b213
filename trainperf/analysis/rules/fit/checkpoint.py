"""Rule about time spent saving checkpoints."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches
from trainperf.analysis.rules.fit.base import PauseRemedy, gap_finding, less_often
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.loop_kind import HUGGING_FACE, LIGHTNING
from trainperf.core.phases import Gap
from trainperf.core.readings import STEP_S


SAMPLED = Gap.CHECKPOINT


@leaves_cold_caches
def checkpoint(evidence: Evidence) -> Finding | None:
    """The fit stands still for checkpoints.

    The bound is the whole of it: rarer ones save a part, asynchronous ones nearly all.

    Wrong where: the disk was slow for another reason, or the real fit saves more rarely.
    To confirm: `trainperf compare` with a run without checkpoints, by the fit clock.
    """
    summary = evidence.summary
    return gap_finding(summary, Gap.CHECKPOINT, 0.10, _remedy(summary))


def _remedy(summary: Summary) -> PauseRemedy:
    number = summary.gaps.get(Gap.CHECKPOINT.label, 0)
    steps = max(1, round(summary.run.steps / number)) if number else 1
    every = f"every_n_train_steps={steps * less_often(summary, Gap.CHECKPOINT):,}"
    lightning = summary.run.loop is LIGHTNING
    rarer = f"ModelCheckpoint({every.replace(',', '_')})" if lightning else f"save with {every}"
    if summary.run.loop is HUGGING_FACE:
        rarer = f"TrainingArguments(save_steps={every.partition('=')[2].replace(',', '_')})"
    step_s, spent_s = summary.value(STEP_S), summary.ledger_s.get(Gap.CHECKPOINT.label, 0.0)
    # A pause as long as twenty steps is worth writing in the background.
    if not number or not step_s or spent_s / number < 20 * step_s:
        return PauseRemedy(advice="Checkpoint less often", action=rarer)
    plugin = "Trainer(plugins=[AsyncCheckpointIO()])"
    background = plugin if lightning else "torch.distributed.checkpoint.async_save(…)"
    return PauseRemedy(
        advice="Write checkpoints in the background",
        action=f"{background}, or {rarer}",
        effort="hours",
    )

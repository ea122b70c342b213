"""Rule about time spent saving checkpoints."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches
from trainperf.analysis.rules.fit.base import PauseRemedy, gap_finding, spaced
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
    every, _ = spaced(summary, Gap.CHECKPOINT)
    lightning = summary.run.loop is LIGHTNING
    rarer = f"save every {every:,} steps"
    if lightning:
        rarer = f"ModelCheckpoint(every_n_train_steps={every:_})"
    step_s, spent_s = summary.value(STEP_S), summary.ledger_s.get(Gap.CHECKPOINT.label, 0.0)
    if summary.run.loop is HUGGING_FACE:
        # Its Trainer has no option that saves in the background.
        strategy = 'save_strategy="steps", ' if _by_epoch(summary) else ""
        rarer = f"TrainingArguments({strategy}save_steps={every:_})"
        return PauseRemedy(advice="Checkpoint less often", action=rarer)
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


def _by_epoch(summary: Summary) -> bool:
    """Whether a Trainer of Hugging Face saves at the end of each epoch, and ignores `save_steps`.

    Where it does so by steps a number of them is enough.
    """
    return str(summary.run.config.get("save_strategy")) == "epoch"

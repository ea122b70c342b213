"""Rule about time spent saving checkpoints."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.fit.base import PauseRemedy, gap_finding, less_often
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.loop_kind import LIGHTNING
from trainperf.core.phases import Gap
from trainperf.core.readings import STEP_S


WORTH = 0.10
"""Share of the fit."""

LONG_STEPS = 20
"""A pause as long as so many steps is worth writing in the background."""


def checkpoint(evidence: Evidence) -> Finding | None:
    """The fit stands still for checkpoints.

    The bound is the whole of it: rarer ones save a part, asynchronous ones nearly all.
    """
    summary = evidence.summary
    return gap_finding(summary, Gap.CHECKPOINT, WORTH, _remedy(summary))


def _remedy(summary: Summary) -> PauseRemedy:
    number = summary.gaps.get(Gap.CHECKPOINT.label, 0)
    steps = max(1, round(summary.run.steps / number)) if number else 1
    every = f"every_n_train_steps={steps * less_often(summary, Gap.CHECKPOINT):,}"
    lightning = summary.run.loop is LIGHTNING
    rarer = f"ModelCheckpoint({every.replace(',', '_')})" if lightning else f"save with {every}"
    if not _long(summary, number):
        return PauseRemedy(advice="Checkpoint less often", action=rarer)
    return PauseRemedy(
        advice="Write checkpoints in the background",
        action=f"{_background(lightning=lightning)}, or {rarer}",
        effort="hours",
    )


def _background(*, lightning: bool) -> str:
    if lightning:
        return "Trainer(plugins=[AsyncCheckpointIO()])"
    return "torch.distributed.checkpoint.async_save(…)"


def _long(summary: Summary, number: int) -> bool:
    step_s = summary.value(STEP_S)
    if not number or not step_s:
        return False
    return summary.ledger_s[Gap.CHECKPOINT.label] / number >= LONG_STEPS * step_s

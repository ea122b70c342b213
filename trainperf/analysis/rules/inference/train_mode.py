"""Rule about a model that answers requests in train mode."""

from trainperf.analysis.rules.base import Evidence
from trainperf.core.findings import Finding


def train_mode(evidence: Evidence) -> Finding | None:
    """An inference loop's model was not put into eval mode, and its answers depend on that.

    Dropout drops, and batch norm follows the batch and moves its running statistics.  It is wrong
    before it is slow: so no gain is promised.

    Wrong where: dropout is wanted in answers, as for Monte Carlo dropout.
    To confirm: the same request twice, next to other requests: both answers are equal in eval mode.
    """
    summary = evidence.summary
    kinds = summary.run.config.get("train_mode")
    if summary.run.loop.trains or not kinds:
        return None
    return Finding(
        id="train_mode",
        title="the model answers in train mode: the same request gets other answers",
        advice="Put the model into eval mode",
        evidence=(
            f"in train mode: {kinds}",
            *(("the answers depend on random numbers",) if _drawn(evidence) else ()),
        ),
        action="model.eval() before the first request",
        severity="high",
        urgent=True,
        confirm="this finding is gone; trainperf.smoke.assert_inference(model, request) passes",
    )


def _drawn(evidence: Evidence) -> bool:
    return evidence.summary.run.config.get("answers_drawn") is True

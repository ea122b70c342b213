"""Rule about answers that depend on random numbers although the model is in eval mode."""

from trainperf.analysis.rules.base import Evidence
from trainperf.core.findings import Finding


def dropout_left_on(evidence: Evidence) -> Finding | None:
    """A model in eval mode draws random numbers for its answers: `eval()` does not reach it.

    `F.dropout(x)` drops by default, and attention drops by `dropout_p`, whatever the mode is.

    Wrong where: the model samples on purpose, as a generator of text or images does.
    To confirm: the same request twice: the answers differ.
    """
    config = evidence.summary.run.config
    silent = evidence.summary.run.loop.trains or config.get("train_mode")
    if silent or config.get("answers_drawn") is not True:
        return None
    part = str(config.get("answers_drawn_in") or "")
    return Finding(
        id="dropout_left_on",
        title="answers depend on random numbers in eval mode"
        + (f", drawn in {part}" if part else ""),
        advice="Tell dropout the mode",
        evidence=("the random generator moved in a forward, and no module is in train mode",),
        action="F.dropout(x, p, training=self.training), "
        "dropout_p=self.p if self.training else 0.0 in attention, or nn.Dropout",
        confidence="medium",
        severity="high",
        urgent=True,
        where=str(config.get("answers_drawn_at") or ""),
        confirm="this finding is gone; trainperf.smoke.assert_inference(model, request) passes",
    )

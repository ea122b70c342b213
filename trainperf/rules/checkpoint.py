"""Do checkpoints take a notable part of the fit?"""

from trainperf.evidence import Evidence
from trainperf.phases import Gap
from trainperf.results import Finding
from trainperf.rules.base import LIMITS
from trainperf.rules.fit_gaps import gap_finding


def checkpoint(evidence: Evidence) -> Finding | None:
    """The fit stands still for checkpoints."""
    summary = evidence.summary
    return gap_finding(
        summary,
        Gap.CHECKPOINT,
        LIMITS.checkpoint,
        advice="Checkpoint less often",
        action="ModelCheckpoint(every_n_train_steps=…) less often, or save asynchronously",
    )

"""Does validation take a notable part of the fit?"""

from trainperf.evidence import Evidence
from trainperf.phases import Gap
from trainperf.results import Finding
from trainperf.rules.base import LIMITS
from trainperf.rules.fit_gaps import gap_finding


def validation(evidence: Evidence) -> Finding | None:
    """The fit stands still for validation."""
    summary = evidence.summary
    return gap_finding(
        summary,
        Gap.VALIDATION,
        LIMITS.validation,
        advice="Validate less",
        action="Trainer(val_check_interval=…) less often, or limit_val_batches=…",
    )

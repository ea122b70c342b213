"""Rule about time spent in validation."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches, setting
from trainperf.analysis.rules.fit.base import PauseRemedy, gap_finding, less_often
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.loop_kind import HUGGING_FACE, LIGHTNING
from trainperf.core.phases import Gap


SAMPLED = Gap.VALIDATION


@leaves_cold_caches
def validation(evidence: Evidence) -> Finding | None:
    """The fit stands still for validation.

    The bound is the whole of it: validating less often, or on fewer batches, saves a part.

    Wrong where: the fit that was measured is shorter than the real one, and validates as often.
    To confirm: `trainperf compare` with a run that validates less often, by the fit clock.
    """
    summary = evidence.summary
    remedy = PauseRemedy(advice="Validate less", action=_action(summary))
    return gap_finding(summary, Gap.VALIDATION, 0.20, remedy)


def _action(summary: Summary) -> str:
    fewer, config = less_often(summary, Gap.VALIDATION), summary.run.config
    if summary.run.loop is HUGGING_FACE and str(config.get("eval_strategy")) == "steps":
        return f"TrainingArguments(eval_steps={_evaluated_every(summary) * fewer:_.0f})"
    if summary.run.loop is not LIGHTNING:
        return f"validate {fewer} × less often, or on fewer batches"
    every = config.get("val_check_interval")
    # As an int it counts batches, as a float it is a part of the epoch.
    if isinstance(every, int) and not isinstance(every, bool):
        interval = f"val_check_interval={every * fewer}"
    elif isinstance(every, float) and every < 1:
        interval = f"val_check_interval={min(1.0, every * fewer):.2}"
    else:
        epochs = setting(summary, "check_val_every_n_epoch") or 1
        interval = f"check_val_every_n_epoch={epochs * fewer:.0f}"
    return f"Trainer({interval}), or limit_val_batches={1 / fewer:.2g}"


def _evaluated_every(summary: Summary) -> float:
    """Steps between two evaluations."""
    return summary.run.steps / max(1, summary.gaps.get(Gap.VALIDATION.label, 0))

"""Rule about time spent in validation."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches, setting
from trainperf.analysis.rules.fit.base import PauseRemedy, gap_finding, less_often, spaced
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
        every, shorter = spaced(summary, Gap.VALIDATION)
        rows = f", on 1/{shorter} of its rows" if shorter > 1 else ""
        return f"TrainingArguments(eval_steps={every:_}){rows}"
    if summary.run.loop is not LIGHTNING:
        return f"validate {fewer} × less often, on fewer batches, or in larger ones"
    return f"Trainer({_interval(summary, fewer)}), or limit_val_batches={1 / fewer:.2g}"


def _interval(summary: Summary, fewer: int) -> str:
    """Lightning's own options; it refuses an interval of batches that is longer than the epoch."""
    config = summary.run.config
    every, epochs = config.get("val_check_interval"), config.get("check_val_every_n_epoch", 1)
    # As an int it counts batches, as a float it is a part of the epoch.
    if isinstance(every, int) and not isinstance(every, bool):
        batches = _epoch_batches(summary)
        if epochs is None or batches is None or every * fewer <= batches:
            return f"val_check_interval={every * fewer}"
        return f"{_epochs(summary, every * fewer / batches)}, val_check_interval=1.0"
    if isinstance(every, float) and every < 1:
        if every * fewer <= 1:
            return f"val_check_interval={every * fewer:.2}"
        return f"{_epochs(summary, every * fewer)}, val_check_interval=1.0"
    return _epochs(summary, (setting(summary, "check_val_every_n_epoch") or 1) * fewer)


def _epochs(summary: Summary, number: float) -> str:
    """Every so many epochs, and at least once in the fit."""
    most = setting(summary, "max_epochs") or 0
    number = round(min(number, most)) if most > 0 else round(number)
    return f"check_val_every_n_epoch={max(1, number)}"


def _epoch_batches(summary: Summary) -> float | None:
    """Of each rank; `None` where it is not known."""
    samples, size = setting(summary, "dataset_samples"), setting(summary, "batch_size")
    return samples / size / summary.run.world_size if samples and size else None

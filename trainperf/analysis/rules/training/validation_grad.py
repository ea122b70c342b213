"""Rule about validation with autograd on."""

from trainperf.analysis.rules.base import Evidence, gap_fraction
from trainperf.core.findings import Finding, amdahl
from trainperf.core.formatting.units import share
from trainperf.core.phases import Gap


def validation_grad(evidence: Evidence) -> Finding | None:
    """Autograd was on when the model was validated.

    The bound is all of validation: what the graph costs in it was not measured.

    Wrong where: gradients are wanted in validation, as for adversarial metrics.
    To confirm: `torch.is_grad_enabled()` in the validation step.
    """
    summary = evidence.summary
    spent = gap_fraction(summary, Gap.VALIDATION.label)
    if summary.run.config.get("validation_grad") is not True or not spent:
        return None
    return Finding(
        id="validation_grad",
        title="validation runs with autograd on and keeps activations for nothing",
        advice="Validate under torch.no_grad()",
        evidence=(f"validation takes {share(spent)} of the fit, a part of it for the graph",),
        action="with torch.no_grad(): around the validation loop, or @torch.no_grad() on it",
        fraction=spent,
        scope="fit",
        gain_upper_bound=amdahl(spent),
        confidence="medium",
        severity="medium",
        confirm="trainperf compare BEFORE AFTER: validation is shorter, and the memory peak lower",
    )

"""Half precision by autocast, where the training has full precision."""

import torch

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


RULES = ("matmul_precision",)


def autocast(training: Training) -> list[Trial]:
    """bf16 on every device that has it; fp16 is not tried, for it needs a GradScaler."""
    if training.computes_in_half:
        return [cannot("autocast_bf16", "it computes in half precision already", rules=RULES)]
    if not accelerator_of(training.device).has_bf16:
        why = "this GPU has no bf16, and fp16 needs a GradScaler, which no switch brings"
        return [cannot("autocast_bf16", why, rules=RULES)]
    return [
        Trial(
            "autocast_bf16",
            on=lambda: training.set_autocast(torch.bfloat16),
            off=lambda: training.set_autocast(None),
            title="AMP in bf16",
            apply=training.autocast_line,
            rules=RULES,
            group="precision",
        )
    ]

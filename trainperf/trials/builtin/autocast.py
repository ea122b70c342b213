"""Half precision by autocast, where the training has full precision."""

from functools import partial

import torch

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import IN_HALF, Training
from trainperf.trials.trial import Trial


def autocast(training: Training) -> list[Trial]:
    """bf16 on every device that has it; fp16 is not tried, for it needs a GradScaler."""
    without = "this GPU has no bf16, and fp16 needs a GradScaler, which no switch brings"
    return [
        Trial(
            "autocast_bf16",
            on=partial(training.set_autocast, torch.bfloat16),
            off=partial(training.set_autocast, None),
            title="AMP in bf16",
            apply=training.autocast_line.format(device=training.device.type),
            group="precision",
            unavailable={
                IN_HALF: training.computes_in_half,
                without: not accelerator_of(training.device).features().bf16,
            },
        )
    ]

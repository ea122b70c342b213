"""Products of fp32 matrices in a shorter format: TF32 on a GPU, bf16 on a CPU that has it."""

from functools import partial

import torch

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import IN_HALF, Training
from trainperf.trials.trial import Trial


TITLES = {
    "high": "TF32 products",
    "medium": "products as oneDNN computes them when bf16 is allowed",
}


def matmul_precision(training: Training) -> list[Trial]:
    """`high` where there is TF32; on a CPU `medium`: oneDNN has nothing shorter there."""
    on_host = training.device.type == "cpu"
    wanted = "medium" if on_host else "high"
    accelerator, precision = accelerator_of(training.device), _precision()
    has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001 torch tells it nowhere else
    return [
        Trial(
            "matmul_precision",
            on=partial(torch.set_float32_matmul_precision, wanted),
            # It is tried only from there.
            off=partial(torch.set_float32_matmul_precision, "highest"),
            title=TITLES[wanted],
            apply=f'torch.set_float32_matmul_precision("{wanted}")',
            where="before the training",
            group="precision",
            unavailable={
                IN_HALF: training.computes_in_half,
                "torch.backends sets the precision of products already": precision is None,
                f'float32_matmul_precision is "{precision}" already': precision != "highest",
                "this CPU has no bf16": on_host and not has_bf16,
                f"{accelerator.name()} has no TF32": not (on_host or accelerator.features().tf32),
            },
        )
    ]


def _precision() -> str | None:
    """`None` where only the newer settings were made, which the older one cannot be read then."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None

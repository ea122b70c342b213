"""Products of fp32 matrices in a shorter format: TF32 on a GPU, bf16 on a CPU that has it."""

from typing import Any

import torch

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, RULES = "matmul_precision", ("matmul_precision",)
TITLES = {
    "high": "TF32 products",
    "medium": "products as oneDNN computes them when bf16 is allowed",
}


def matmul_precision(training: Training) -> list[Trial]:
    """`high` where there is TF32; on a CPU `medium`: oneDNN has nothing shorter there."""
    why = _why_not(training)
    if why:
        return [cannot(ID, why, title="shorter products", rules=RULES)]
    wanted = "medium" if training.device.type == "cpu" else "high"
    before, backends = torch.get_float32_matmul_precision(), _backends()

    def off() -> None:
        torch.set_float32_matmul_precision(before)
        for backend, precision in backends:  # setting the one above has set these as well
            backend.fp32_precision = precision

    return [
        Trial(
            ID,
            on=lambda: torch.set_float32_matmul_precision(wanted),
            off=off,
            title=TITLES[wanted],
            apply=f'torch.set_float32_matmul_precision("{wanted}")',
            where="before the training",
            rules=RULES,
            group="precision",
        )
    ]


def _why_not(training: Training) -> str:
    if training.computes_in_half:
        return "it computes in half precision already"
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # raised where only the newer settings were made
        return "torch.backends sets the precision of products already"
    if precision != "highest":
        return f'float32_matmul_precision is "{precision}" already'
    if training.device.type == "cpu":
        return "" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "this CPU has no bf16"  # noqa: SLF001 torch tells it nowhere else
    accelerator = accelerator_of(training.device)
    return "" if accelerator.has_tf32 else f"{accelerator.name()} has no TF32"


def _backends() -> list[tuple[Any, str]]:
    """Newer settings that the older one sets as well, with their values; none before torch 2.9."""
    onednn = getattr(torch.backends.mkldnn, "matmul", None)
    backends: list[Any] = [torch.backends.cuda.matmul, onednn]
    return [(each, each.fp32_precision) for each in backends if hasattr(each, "fp32_precision")]

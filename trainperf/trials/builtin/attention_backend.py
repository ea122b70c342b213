"""Fused attention by cuDNN, before the kernels that torch takes first."""

from contextlib import ExitStack

from torch.nn.attention import SDPBackend, sdpa_kernel

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


ORDER = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
LEAST = (9, 0)
"""Compute capability from which its kernels are often faster: Hopper."""


def attention_backend(training: Training) -> list[Trial]:
    """Of `scaled_dot_product_attention`; a model without it is as fast as before."""
    accelerator, entered = accelerator_of(training.device), ExitStack()
    in_full = "its kernels take half precision, and it computes in full"
    return [
        Trial(
            "attention_cudnn",
            on=lambda: entered.enter_context(sdpa_kernel(ORDER, set_priority=True)),
            off=entered.close,
            title="fused attention by cuDNN",
            apply=(
                "with torch.nn.attention.sdpa_kernel([SDPBackend.CUDNN_ATTENTION, "
                "SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True): …"
            ),
            where="around forward",
            unavailable={
                f"no cuDNN on {accelerator.name()}": not accelerator.features().cudnn,
                "this GPU is older than Hopper": accelerator.features().capability < LEAST,
                in_full: not training.computes_in_half,
            },
        )
    ]

"""Fused attention by cuDNN, before the kernels that torch takes first."""

from contextlib import ExitStack

from torch.nn.attention import SDPBackend, sdpa_kernel

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE, RULES = "attention_cudnn", "fused attention by cuDNN", ("attention",)
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
    accelerator = accelerator_of(training.device)
    if not accelerator.has_cudnn:
        return [cannot(ID, f"no cuDNN on {accelerator.name()}", title=TITLE)]
    if accelerator.capability < LEAST:
        return [cannot(ID, "this GPU is older than Hopper", title=TITLE, rules=RULES)]
    if not training.computes_in_half:
        why = "its kernels take half precision, and it computes in full"
        return [cannot(ID, why, title=TITLE, rules=RULES)]
    order = KernelOrder()
    return [
        Trial(
            ID,
            on=order.cudnn_first,
            off=order.put_back,
            title=TITLE,
            apply=(
                "with torch.nn.attention.sdpa_kernel([SDPBackend.CUDNN_ATTENTION, "
                "SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True): …"
            ),
            where="around forward",
            rules=RULES,
        )
    ]


class KernelOrder:
    """Kernels that attention may take, and which it takes first; of the whole process."""

    def __init__(self) -> None:
        self._entered = ExitStack()

    def cudnn_first(self) -> None:
        """All of them may be taken."""
        self._entered.enter_context(sdpa_kernel(ORDER, set_priority=True))

    def put_back(self) -> None:
        """What was set before."""
        self._entered.close()

"""Requirements of the stages: one that this machine cannot run is skipped, with the reason."""

import importlib.util
from dataclasses import dataclass

import torch

from recipes.cases.processor import compiler
from recipes.gpt2.stages import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties that stages depend on."""

    cuda: bool
    """Whether the model is trained on a CUDA device."""
    capability: tuple[int, int] = (0, 0)
    """Of that device: 8.0 is Ampere."""
    bf16: bool = True
    """Whether a CPU has instructions for bf16, or does not say."""
    compiler: str = ""
    """What `torch.compile` builds kernels with; empty if there is none."""


def this_machine(accelerator: str) -> Machine:
    """The machine this process runs on.

    Args:
        accelerator: As Lightning's Trainer takes it.
    """
    cuda = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    if cuda:
        triton = "triton" if importlib.util.find_spec("triton") else ""
        return Machine(cuda=True, capability=torch.cuda.get_device_capability(), compiler=triton)
    return Machine(cuda=False, compiler=compiler(), bf16=_has_bf16())


def unsupported(before: Settings, after: Settings, machine: Machine) -> str:
    """Why *after* cannot be tried on this machine; empty if it can."""
    if after == before:
        return "nothing changes: the settings kept last already include it"
    checks = (_tensor_cores, _batch, _compiler)
    return next(filter(None, (check(before, after, machine) for check in checks)), "")


def _tensor_cores(before: Settings, after: Settings, machine: Machine) -> str:
    del before
    if after.precision == "16-mixed" and not machine.cuda:
        return "Lightning supports fp16 with a GradScaler on GPUs only"
    if after.tf32 and not machine.cuda:
        return "TF32 is a format of NVIDIA's tensor cores: not available on a CPU"
    if after.precision == "bf16-mixed" and not (machine.cuda or machine.bf16):
        return "this CPU has no instructions for bf16: it would convert to fp32 and back"
    ampere = after.tf32 or (after.precision == "bf16-mixed" and machine.cuda)
    return (
        "it needs compute capability 8.0 or higher"
        if ampere and machine.capability < (8, 0)
        else ""
    )


def _batch(before: Settings, after: Settings, machine: Machine) -> str:
    del machine
    more = after.checkpointing and not before.checkpointing
    if more and after.accumulation == before.accumulation:
        return "the micro-batch is already the whole update: none is larger"
    return ""


def _compiler(before: Settings, after: Settings, machine: Machine) -> str:
    del before
    if after.compiled == "reduce-overhead" and not machine.cuda:
        return "CUDA graphs need CUDA"
    if after.compiled and not machine.compiler:
        needed = "triton" if machine.cuda else "a C++ compiler (g++)"
        return f"torch.compile needs {needed}, which is not installed"
    return ""


def _has_bf16() -> bool:
    # Newer than the oldest torch that the recipe runs with.
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    bf16 = [supported for name, supported in capabilities.items() if "bf16" in name]
    return any(bf16) or not bf16

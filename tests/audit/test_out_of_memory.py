"""Out of memory: what asked for how much, read off real exceptions and the words of others."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainperf.audit.out_of_memory import out_of_memory
from trainperf.core.artifacts.memory import OutOfMemory


HUGE = 2**46
"""Elements: more than an address can name, so that nothing is allocated."""


class Greedy(nn.Module):
    """Asks for everything."""

    def forward(self, rows: Tensor) -> Tensor:
        """Rows as often as nothing can hold."""
        return rows.repeat(HUGE, 1)


class Backward(torch.autograd.Function):
    """Asks for everything in its backward."""

    @staticmethod
    def forward(ctx: object, rows: Tensor) -> Tensor:
        """Nothing."""
        return rows.clone()

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        """Everything."""
        return torch.empty(HUGE)


class Hoarder(torch.optim.SGD):
    """Keeps everything."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Asks for it."""
        torch.empty(HUGE)


def caught(act: Callable[[], object]) -> OutOfMemory:
    """What is said about the exception that it raises."""
    with pytest.raises((RuntimeError, MemoryError)) as info:
        act()
    return out_of_memory(info.value)


def line_of(said: OutOfMemory) -> str:
    """The line of this file that was blamed."""
    file, _, number = said.where.rpartition(":")
    with open(file, encoding="utf-8") as source:  # noqa: PTH123 a list of lines
        return source.readlines()[int(number) - 1].strip()


def weight() -> Tensor:
    """Something to train."""
    return torch.ones(1, requires_grad=True)


@pytest.mark.parametrize(
    ("act", "during", "requested_bytes", "line"),
    [
        (
            lambda: Greedy()(torch.ones(1, 2)),
            "forward",
            HUGE * 2 * 4,
            "return rows.repeat(HUGE, 1)",
        ),
        # Whoever called it.
        (
            lambda: Backward.apply(weight()).sum().backward(),
            "backward",
            HUGE * 4,
            "return torch.empty(HUGE)",
        ),
        # Also one of the user's own class.
        (lambda: Hoarder([weight()], 0.1).step(), "optimizer", HUGE * 4, "torch.empty(HUGE)"),
        # Frameworks run the whole step in the optimizer's closure.
        (
            lambda: torch.optim.SGD([weight()], 0.1).step(lambda: Greedy()(torch.ones(1, 2))),
            "forward",
            HUGE * 2 * 4,
            "return rows.repeat(HUGE, 1)",
        ),
        # NumPy's request, in its own units.
        (lambda: np.empty(2**50), "elsewhere", 2**53, "(lambda: np.empty(2**50)"),
    ],
)
def test_what_asked_for_how_much_is_told(
    act: Callable[[], object], during: str, requested_bytes: int, line: str
) -> None:
    """By the frames of the exception: to the byte, with the line."""
    said = caught(act)

    assert (said.during, said.requested_bytes) == (during, requested_bytes)
    assert line_of(said).startswith(line)
    assert not said.workspace


@pytest.mark.parametrize(
    ("text", "requested", "workspace"),
    [
        (
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a capacity of 39.39 GiB",
            20 << 20,
            False,
        ),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None, True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None, True),
    ],
)
def test_the_words_of_cuda_are_understood(
    text: str,
    requested: int | None,
    workspace: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """A tensor that did not fit, and libraries that had no room to work in."""
    said = out_of_memory(RuntimeError(text))

    assert (said.requested_bytes, said.workspace) == (requested, workspace)


@pytest.mark.parametrize(
    "error", [None, ValueError("out of memory"), RuntimeError("shapes differ"), KeyboardInterrupt()]
)
def test_other_endings_are_about_something_else(error: BaseException | None) -> None:
    """A word alone does not make it."""
    assert out_of_memory(error) is None

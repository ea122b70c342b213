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
    said = out_of_memory(info.value)
    assert said is not None
    return said


def line_of(said: OutOfMemory) -> str:
    """The line of this file that was blamed."""
    file, _, number = said.where.rpartition(":")
    with open(file, encoding="utf-8") as source:  # noqa: PTH123 a list of lines
        return source.readlines()[int(number) - 1].strip()


def test_a_forward_that_runs_out() -> None:
    """With the request to the byte, and the line."""
    said = caught(lambda: Greedy()(torch.ones(1, 2)))

    assert said.during == "forward"
    assert said.requested_bytes == HUGE * 2 * 4
    assert line_of(said) == "return rows.repeat(HUGE, 1)"
    assert not said.workspace


def test_a_backward_that_runs_out() -> None:
    """Whoever called it."""
    rows = torch.ones(3, requires_grad=True)

    said = caught(lambda: Backward.apply(rows).sum().backward())

    assert said.during == "backward"
    assert said.requested_bytes == HUGE * 4


def test_an_update_that_runs_out() -> None:
    """Also one of the user's own class."""
    said = caught(Hoarder([torch.ones(1, requires_grad=True)], 0.1).step)

    assert said.during == "optimizer"
    assert line_of(said) == "torch.empty(HUGE)"


def test_a_forward_inside_of_an_update_is_a_forward() -> None:
    """Frameworks run the whole step in the optimizer's closure."""
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)

    said = caught(lambda: optimizer.step(lambda: Greedy()(torch.ones(1, 2))))

    assert said.during == "forward"


def test_an_array_that_does_not_fit() -> None:
    """Numpy's request, in its own units."""
    said = caught(lambda: np.empty(2**50))

    assert said.during == "elsewhere"
    assert said.requested_bytes == 2**53


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

    assert said is not None
    assert (said.requested_bytes, said.workspace) == (requested, workspace)


@pytest.mark.parametrize(
    "error", [None, ValueError("out of memory"), RuntimeError("shapes differ"), KeyboardInterrupt()]
)
def test_other_endings_are_about_something_else(error: BaseException | None) -> None:
    """A word alone does not make it."""
    assert out_of_memory(error) is None

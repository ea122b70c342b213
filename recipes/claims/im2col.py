"""Convolution as a matrix product of copied patches (im2col) against direct convolution."""

import torch
from torch import Tensor
from torch.nn import functional

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import exact, paired
from recipes.cases.reports import BENCHMARK, benchmark_lines
from recipes.cases.verdicts import verdict
from recipes.claims.bench import ClaimBench
from recipes.claims.published import IM2COL
from trainperf.benchmark import benchmark_step


KERNEL = 3

WHY_NOT = (
    "on a CPU the library convolves directly, and copies no pixel; im2col beats only the loop over "
    "the weights, from operators"
)


def im2col(bench: ClaimBench) -> Case:
    """The library's convolution, im2col with a product, and a loop over the weights."""
    side, channels = bench.pick(12, 64), bench.pick(4, 16)
    x = bench.random(4, channels, side, side)
    weight = bench.random(2 * channels, channels, KERNEL, KERNEL)

    def conv2d(images: Tensor) -> Tensor:
        return functional.conv2d(images, weight)

    def direct_step(images: Tensor) -> Tensor:
        return direct(images, weight)

    versions = {
        "torch.nn.functional.conv2d": conv2d,
        "im2col and product": lambda images: lowered(images, weight),
        "direct, from operators": direct_step,
    }
    rows = paired(versions, x, seconds=bench.seconds)
    patches = functional.unfold(x, KERNEL)
    copied = MeasuredRow(what="bytes of the patches", value=_size(patches), unit="B")
    return Case(
        name="im2col",
        claim="im2col and a matrix product beat direct convolution, although most pixels are "
        "copied nine times.",
        before=benchmark_lines(benchmark_step(conv2d, x, warmup=1, repeat=7)),
        before_note=BENCHMARK,
        change=("- torch.nn.functional.conv2d(x, weight)", "+ weight.flatten(1) @ unfold(x, 3)"),
        measured=(*rows, copied, exact("bytes of the images", _size(x), copied)),
        published=IM2COL,
        **verdict(rows[1], "faster", why=WHY_NOT if bench.device == "cpu" else ""),
    )


def direct(x: Tensor, weight: Tensor) -> Tensor:
    """A weight at a time: multiply the shifted image, add it up."""
    outputs, channels = weight.shape[:2]
    side = x.shape[-1] - KERNEL + 1
    result = x.new_zeros(x.shape[0], outputs, side, side)
    for channel in range(channels):
        for row in range(KERNEL):
            for column in range(KERNEL):
                shifted = x[:, channel, None, row : row + side, column : column + side]
                result.addcmul_(shifted, weight[None, :, channel, row, column, None, None])
    return result


def lowered(x: Tensor, weight: Tensor) -> Tensor:
    """Patches as columns of a matrix, and one product."""
    side = x.shape[-1] - KERNEL + 1
    columns = torch.matmul(weight.flatten(1), functional.unfold(x, KERNEL))
    return columns.view(x.shape[0], weight.shape[0], side, side)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

"""Padding the dimensions of a matrix product: a vocabulary of 50,304 instead of 50,257."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from recipes.cases.case import Case
from recipes.cases.measuring import paired
from recipes.cases.reports import benchmark_lines
from recipes.cases.verdicts import verdict
from recipes.claims.bench import ClaimBench
from recipes.claims.published import PADDED_MATMUL
from trainperf.benchmark import benchmark_step


TOLERANCE = 0.05
"""Of the largest value: bf16 has three digits, and sums of two sizes are ordered differently."""

ODD, TILE = 50_257, 64
WHY_NOT = "a CPU has no tensor cores, whose tiles an odd size leaves part empty"


def padded_matmul(bench: ClaimBench) -> Case:
    """The last product of GPT-2 at both sizes; the columns that are compared are the same."""
    dtype = torch.bfloat16 if bench.device == "cuda" else torch.float32
    odd = bench.pick(1001, ODD)
    weight = bench.random(bench.pick(32, 256), odd).to(dtype)
    wider = pad(weight, (0, -odd % TILE))
    x = bench.random(bench.pick(32, 256), weight.shape[0]).to(dtype)

    def narrow_step(rows: Tensor) -> Tensor:
        return (rows @ weight)[:8, :8]

    def padded_step(rows: Tensor) -> Tensor:
        return (rows @ wider)[:8, :8]

    versions = {f"{odd:,} columns": narrow_step, f"{wider.shape[1]:,} columns": padded_step}
    rows = paired(versions, x, seconds=3 * bench.seconds, tolerance=TOLERANCE)
    return Case(
        name="padded_matmul",
        claim="Padding a matrix product to a multiple of 64 makes it faster, although it then "
        "computes more.",
        before=benchmark_lines(benchmark_step(narrow_step, x, warmup=2, repeat=7)),
        before_note="no finding is about this; `trainperf.benchmark` decides:",
        change=("- vocab_size = 50257", "+ vocab_size = 50304"),
        measured=rows,
        published=PADDED_MATMUL,
        **verdict(rows[1], "faster", why=WHY_NOT if bench.device == "cpu" else ""),
    )

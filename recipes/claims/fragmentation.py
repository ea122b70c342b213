"""Fragmentation and its remedies: the same allocations under three settings of CUDA's allocator.

python -m recipes.claims.fragmentation    the allocations, in a process of their own; prints JSON
"""

import json
import os
import random
import subprocess
import sys

import torch

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import exact
from recipes.cases.verdicts import needs_cuda, verdict
from recipes.claims.bench import ClaimBench
from recipes.claims.published import FRAGMENTATION


VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
SETTINGS = {
    "default": "",
    "max_split_size_mb:128": "max_split_size_mb:128",
    "expandable_segments:True": "expandable_segments:True",
}
NOTE = "the finding `fragmentation` is about this, in a training; these are allocations alone."

MIB = 1 << 20
PATIENCE_S = 90.0


def fragmentation(bench: ClaimBench) -> Case:
    """Memory that is reserved after batches of unlike sizes."""
    claim = "Segments that grow (`expandable_segments`) reserve less memory for the same tensors."
    if bench.device == "cpu":
        why = "the settings are those of CUDA's caching allocator"
        return Case(
            name="fragmentation",
            claim=claim,
            before_note=NOTE,
            published=FRAGMENTATION,
            **needs_cuda(why),
        )
    peaks = {name: _peaks(setting, bench) for name, setting in SETTINGS.items()}
    first = _row("reserved, default", peaks["default"]["reserved"])
    others = [
        exact(f"reserved, {name}", peaks[name]["reserved"], first)
        for name in SETTINGS
        if peaks[name] is not peaks["default"]
    ]
    return Case(
        name="fragmentation",
        claim=claim,
        before_note=NOTE,
        change=(f"+ {VARIABLE}=expandable_segments:True python train.py",),
        measured=(first, *others, _row("allocated, default", peaks["default"]["allocated"])),
        published=FRAGMENTATION,
        **verdict(others[-1], "faster", why="the holes were as large as what was asked for next"),
    )


def _row(what: str, value: float) -> MeasuredRow:
    return MeasuredRow(what=what, value=value, unit="B")


def _peaks(setting: str, bench: ClaimBench) -> dict[str, int]:
    """Peaks of a process that runs under a setting, which is read once, at its start."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if setting:
        environment[VARIABLE] = setting
    done = subprocess.run(  # noqa: S603 - this file
        [sys.executable, "-m", "recipes.claims.fragmentation", str(bench.pick(64, 2048))],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    peaks: dict[str, int] = json.loads(done.stdout)
    return peaks


def main(most_mib: int) -> None:
    """Batches of unlike sizes, each with a tensor that outlives it; prints the peaks in bytes."""
    sizes = random.Random(0)  # noqa: S311 - sizes, not a secret
    kept: list[torch.Tensor] = []
    for _ in range(400):
        batch = [
            torch.empty(sizes.randint(1, most_mib // 8) * MIB, dtype=torch.uint8, device="cuda")
            for _ in range(8)
        ]
        kept.append(torch.empty(sizes.randint(1, 16) * MIB, dtype=torch.uint8, device="cuda"))
        del batch, kept[: max(0, len(kept) - 40)]
    print(
        json.dumps(
            {
                "reserved": torch.cuda.max_memory_reserved(),
                "allocated": torch.cuda.max_memory_allocated(),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))

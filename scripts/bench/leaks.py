"""Bench of the leak rule: real leaks and warm-ups that look like one, each a fit of 35 s.

    python -m scripts.bench.leaks [--seeds 5] [--json FILE]

Reading a heap with many free chunks takes milliseconds, so a fit of 35 s would have a handful of
samples.  Here sampling may take 3 % of the time, which gives as many as a fit of 15 minutes has.

Four kinds take place at once, each in a process of its own; seeds follow each other.  The steps of
all but the first are mostly sleep, so that one core is enough.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scripts.bench.harness import arguments, installed, machine_line, table, write_json
from trainperf.analysis.diagnosis.detectors.memory import leak
from trainperf.analysis.diagnosis.of_run import account_of
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.readings import MEMORY_SLOPE_BYTES_PER_STEP
from trainperf.loop import LoopMonitor
from trainperf.recording.probes.memory import ResidentMemoryProbe


FIT_S, LEAST_STEPS = 35.0, 1_800
"""A fit lasts at least so long; 20 kB a step come to 32 MiB in 1,700 steps."""
WIDTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One fit and what the rule says of it."""

    kind: str
    seed: int
    steps: int
    slope: float | None
    low: float | None
    high: float | None
    samples: int
    planted: bool
    claimed: bool

    @property
    def right(self) -> bool:
        """Whether a leak was claimed where there is one, and only there."""
        return self.planted == self.claimed


Step = Callable[[nn.Module, Tensor, np.random.Generator, list[object]], Tensor]
"""Forward of one step; what it puts into the list stays."""

MANY_SHAPES = "bf16, many shapes"


def many_shapes(
    model: nn.Module, batch: Tensor, rng: np.random.Generator, kept: list[object]
) -> Tensor:
    """In bf16: oneDNN keeps primitives for each length."""
    del rng, kept
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss: Tensor = model(batch).float().square().mean()
    return loss


def allocator(
    model: nn.Module, batch: Tensor, rng: np.random.Generator, kept: list[object]
) -> Tensor:
    """A buffer of 4,000 arrays of all sizes fills up for a quarter of the fit, and turns over."""
    for _ in range(8):
        kept.append(np.ones(int(rng.integers(100, 10_000))))
        if len(kept) > 4_000:
            kept.pop(int(rng.integers(len(kept))))
    return idle(model, batch)


def leaks(size_bytes: int) -> Step:
    """A step that keeps so much."""

    def step(
        model: nn.Module, batch: Tensor, rng: np.random.Generator, kept: list[object]
    ) -> Tensor:
        del rng
        kept.append(np.ones(size_bytes // 8))
        return idle(model, batch)

    return step


def idle(model: nn.Module, batch: Tensor) -> Tensor:
    """A small forward, most of it sleep."""
    time.sleep(0.012)
    loss: Tensor = model(batch).square().mean()
    return loss


KINDS: dict[str, tuple[Step, bool]] = {
    MANY_SHAPES: (many_shapes, False),
    "allocator warm-up": (allocator, False),
    "leak of 1 MB a step": (leaks(1_000_000), True),
    "leak of 20 kB a step": (leaks(20_000), True),
}
"""What a step does, and whether it leaks."""


def fit(kind: str, seed: int, fit_s: float, least_steps: int = LEAST_STEPS) -> Planted:
    """One fit, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng, kept = np.random.default_rng(seed), list[object]()
    model: nn.Module = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    step, planted = KINDS[kind]
    ResidentMemoryProbe.share = 0.03

    def batches() -> Iterator[Tensor]:
        ends, steps = time.perf_counter() + fit_s, 0
        while time.perf_counter() < ends or steps < least_steps:
            steps += 1
            length = int(rng.integers(192, 320)) if kind == MANY_SHAPES else 16
            yield torch.randn(2, length, WIDTH)

    with tempfile.TemporaryDirectory() as out:
        monitor = LoopMonitor(Path(out), report=False).watch(model, optimizer)
        with monitor:
            for batch in monitor.batches(batches()):
                with monitor.phase("forward"):
                    loss = step(model, batch, rng, kept)
                with monitor.phase("backward"):
                    loss.backward()  # type: ignore[no-untyped-call]
                with monitor.phase("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss.detach())
        facts = examine(Run.open(Path(out)))
    slope = facts.summary.readings[MEMORY_SLOPE_BYTES_PER_STEP]
    return Planted(
        kind=kind,
        seed=seed,
        steps=facts.run.steps,
        slope=slope.value,
        low=slope.low,
        high=slope.high,
        samples=slope.n,
        planted=planted,
        claimed=leak(account_of(facts), facts) is not None,
    )


def main() -> None:
    """Run all, print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=FIT_S, help="of a fit")
    parser.add_argument("--child", default="", help="run one fit of this kind and print it")
    parser.add_argument("--seed", type=int, default=0, help="of that fit")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asdict(fit(options.child, options.seed, options.seconds))))
        return
    fits: list[Planted] = []
    for seed in range(options.seeds):
        fits += _at_once(seed, options.seconds)
        print(shown(fits[-len(KINDS) :]), flush=True)
    right = f"{sum(each.right for each in fits)} of {len(fits)} told apart"
    print(f"\n{shown(fits)}\n\n{right}; {machine_line()}")
    write_json(options.json, {"right": right, "fits": [asdict(each) for each in fits]})


def _at_once(seed: int, seconds: float) -> list[Planted]:
    base = [sys.executable, "-m", "scripts.bench.leaks", "--seed", str(seed)]
    children = [
        subprocess.Popen(
            [*base, "--seconds", str(seconds), "--child", kind],
            stdout=subprocess.PIPE,
            text=True,
            env=installed(),
        )
        for kind in KINDS
    ]
    ended = [child.communicate()[0] for child in children]
    return [Planted(**json.loads(output.splitlines()[-1])) for output in ended]


def shown(fits: list[Planted]) -> str:
    """The fits as a table."""
    head = ["kind", "seed", "steps", "samples", "bytes per step", "95 % interval", "leak?", ""]
    return table(head, [_cells(each) for each in fits])


def _cells(each: Planted) -> list[str]:
    interval = (
        "" if each.low is None or each.high is None else f"{each.low:,.0f} to {each.high:,.0f}"
    )
    return [
        each.kind,
        str(each.seed),
        f"{each.steps:,}",
        str(each.samples),
        "" if each.slope is None else f"{each.slope:,.0f}",
        interval,
        "yes" if each.claimed else "no",
        "" if each.right else "WRONG",
    ]


if __name__ == "__main__":
    main()

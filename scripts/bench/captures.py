"""Bench of captures: the recipe's tiny GPT-2 under `ScheduledProfiler`, option by option.

    python -m scripts.bench.captures [--cycles 11] [--json FILE]

One step in eight warms up, three are traced, four are ordinary; CPU time of the training thread is
read at every batch start, with one thread.  The last row is a boundary at which nothing is due.
"""

import gzip
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import lightning as L  # noqa: N812 - the name Lightning's own documentation uses
import torch

from recipes.gpt2.model import GPT2
from recipes.gpt2.stages import PRESETS, Settings
from recipes.gpt2.text import DocumentSpan, find_documents, training_order
from recipes.gpt2.train import loader
from scripts.bench.harness import PairedEstimate, arguments, estimate, publish, quiet, spread
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.lightning import ScheduledProfiler
from trainperf.recording.guard import Guard
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile
from trainperf.recording.profiling.profiler_probe import ProfilerProbe
from trainperf.recording.recorder import Recorder


WAIT, WARMUP, ACTIVE = 4, 1, 3
CYCLE = WAIT + WARMUP + ACTIVE

Profiler = Callable[..., ScheduledProfiler]
OPTIONS: dict[str, Profiler] = {
    "defaults": ScheduledProfiler,
    "record_shapes": partial(ScheduledProfiler, record_shapes=True),
    "profile_memory": partial(ScheduledProfiler, profile_memory=True),
    "with_stack": partial(ScheduledProfiler, with_stack=True),
    "all three": partial(
        ScheduledProfiler, record_shapes=True, profile_memory=True, with_stack=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCost:
    """One set of options."""

    name: str
    plain_ms: float
    """CPU time of an ordinary step."""
    traced: PairedEstimate
    """CPU time of a traced step over that."""
    begin_ms: float
    """CPU time of beginning to trace: the gap before the first traced step."""
    write_ms: float
    """CPU time of stopping, exporting and packing: the gap after the last."""
    packed_kb: float
    plain_kb: float


class Cpu(L.Callback):
    """CPU time of the training thread at every batch start, in milliseconds."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def on_train_batch_start(self, *_: object) -> None:
        """Read it."""
        self.at.append(time.thread_time_ns() / 1e6)


def measure(name: str, profiler: Profiler, order: list[DocumentSpan], scratch: Path) -> CaptureCost:
    """Train once with these options."""
    attached = profiler(
        wait=WAIT,
        warmup=WARMUP,
        active=ACTIVE,
        repeat=0,
        max_traces=1000,
        on_demand=False,
        analyse=False,
    )
    cpu = Cpu()
    preset, settings = PRESETS["tiny"], Settings(accumulation=1)
    L.seed_everything(1, verbose=False)
    with quiet():
        L.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            default_root_dir=scratch,
            callbacks=[attached, cpu],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(GPT2(preset, settings), loader(preset, settings, order))
    return _row(name, cpu.at, sorted(scratch.glob("trainperf/traces/*.gz")))


def _row(name: str, at_ms: Sequence[float], traces: Sequence[Path]) -> CaptureCost:
    """From batch start to batch start: tracing begins after the warm-up step, ends after three."""
    spent = [after - before for before, after in itertools.pairwise(at_ms)]
    cycles = [spent[i : i + CYCLE] for i in range(CYCLE, len(spent) - CYCLE + 1, CYCLE)]
    plain = median(ms for cycle in cycles for ms in cycle[1:WAIT])
    traced = [median(cycle[WAIT + WARMUP : -1]) for cycle in cycles]
    return CaptureCost(
        name=name,
        plain_ms=plain,
        traced=estimate([ms / median(c[1:WAIT]) for ms, c in zip(traced, cycles, strict=True)]),
        begin_ms=median(cycle[WAIT] for cycle in cycles) - plain,
        write_ms=median(cycle[-1] for cycle in cycles) - median(traced),
        packed_kb=median(path.stat().st_size for path in traces) / 1e3,
        plain_kb=median(len(gzip.decompress(path.read_bytes())) for path in traces) / 1e3,
    )


def idle_ns(scratch: Path, *, rounds: int = 200, steps: int = 1000) -> float:
    """Median cost of a step boundary at which neither plan, person nor step wants a capture."""
    recorder = Recorder(monotonic_ns)
    profile = ScheduledProfile(skip_first=10**9)
    place = CaptureRank(run=scratch, rank=0, world_size=1, device="cpu")
    probe = ProfilerProbe(profile, place, scratch, Guard())
    probe.attach(recorder)
    recorder.boundary()
    draft = recorder.draft
    assert draft is not None  # noqa: S101 the boundary has opened it
    costs = []
    for _ in range(rounds):
        begun = time.thread_time_ns()
        for _ in range(steps):
            probe.close(draft)
        costs.append((time.thread_time_ns() - begun) / steps)
    return median(costs)


def _cells(row: CaptureCost) -> list[str]:
    times = [f"{row.begin_ms:.0f} ms", f"{row.write_ms:.0f} ms"]
    sizes = [f"{row.packed_kb:.0f} kB", f"{row.plain_kb / 1e3:.1f} MB"]
    return [row.name, *spread(row.traced, ".2f"), *times, *sizes]


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--cycles", type=int, default=11)
    given = parser.parse_args()
    torch.set_num_threads(1)
    preset = PRESETS["tiny"]
    places = find_documents(None, preset)
    order = training_order(places, preset, CYCLE * (given.cycles + 1) + 1, 1)
    rows: list[CaptureCost] = []
    for name, profiler in OPTIONS.items():
        with tempfile.TemporaryDirectory() as scratch:
            rows.append(measure(name, profiler, order, Path(scratch)))
    with tempfile.TemporaryDirectory() as scratch:
        boundary_ns = idle_ns(Path(scratch))
    head = ["options", "× an ordinary step", "95 % interval", "begin", "write", "file", "JSON"]
    figures = {"idle_boundary_ns": boundary_ns, "rows": [asdict(row) for row in rows]}
    publish(given.json, head, [_cells(row) for row in rows], figures)
    print(f"GPT-2 tiny, {ACTIVE} steps a trace, {given.cycles} traces a row")
    print(f"an ordinary step takes {median(row.plain_ms for row in rows):.0f} ms of CPU")
    print(f"a step boundary at which nothing is due: {boundary_ns:.0f} ns")


if __name__ == "__main__":
    main()

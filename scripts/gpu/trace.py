"""Trace of the GPT-2 step, and its agreement with the always-on figures.

    python -m scripts.gpu.trace --size small|toy --device cuda|cpu --json FILE --trace FILE

A plain loop trains with the monitor attached and three steps captured.  The trace is trimmed until
it is small enough to be kept next to the figures, and what is kept is what is analysed.
"""

import argparse
import gzip
import json
import tempfile
from pathlib import Path

import msgspec

from scripts.bench.harness import write_json
from scripts.gpu.model import SIZES, VARIANTS, Size, Step
from scripts.gpu.trim import trimmed
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.loop import LoopMonitor
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.reports.capture.document import capture_document
from trainperf.reports.layout.text import as_text
from trainperf.traces.job_report import report
from trainperf.traces.results import AnalysisOptions


WARM_UP, ACTIVE = 2, 3
STEPS = {"small": 80, "toy": 16}
"""A third of them before the capture, which is no part of any statistic."""


def train(size: Size, steps: int, device: str, folder: Path) -> Path:
    """Train some steps with everything measured, three of them traced; the run directory."""
    step = Step(size, VARIANTS[-1], device)
    profile = ScheduledProfile(
        skip_first=steps // 3,
        wait=0,
        warmup=WARM_UP,
        active=ACTIVE,
        on_demand=False,
        analyse=False,
    )
    with LoopMonitor(folder, report=False, profile=profile) as monitor:
        monitor.watch(step.model, step.optimizer, device=device)
        for batch in monitor.batches([step.batch] * steps):
            with monitor.phase("h2d"):
                tokens = batch.to(device, non_blocking=True)
            with monitor.phase("forward"):
                loss = step.loss(tokens)
            with monitor.phase("backward"):
                loss.backward()  # type: ignore[no-untyped-call]
            with monitor.phase("optimizer"):
                step.update()
            monitor.end_step(loss)
    run = monitor.run
    if run is None:
        raise RuntimeError("the fit left no run directory; see the warning above")
    return run


def main() -> None:
    """Train, trim, analyse, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, required=True, help="the figures")
    parser.add_argument("--trace", type=Path, required=True, help="the trimmed trace, .json.gz")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = train(SIZES[given.size], STEPS[given.size], given.device, Path(scratch))
        summary = summarize(Run.open(run))
        written = {
            "readings": msgspec.to_builtins(summary.readings),
            "steps": summary.run.steps,
            "faults": summary.run.faults,
            "warnings": list(summary.warnings),
        }
        write_json(given.json, written)
        (recorded,) = (run / "traces").glob("*.json.gz")
        whole = json.loads(gzip.decompress(recorded.read_bytes()))
    given.trace.write_bytes(trimmed(whole))
    analysis = report([given.trace], AnalysisOptions(lanes=False))
    figures = {
        "bytes": given.trace.stat().st_size,
        "events": len(whole["traceEvents"]),
        "report": msgspec.to_builtins(analysis),
    }
    write_json(given.json, {**written, "trace": figures})
    print(as_text(capture_document(analysis)))


if __name__ == "__main__":
    main()

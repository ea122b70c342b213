"""Runs for the doctor: written to disk as a training process would, read back, and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.doctor import CHECKS, Case, Outcome, examined
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.comparison.loss_parity import compare_losses, curve_of
from trainperf.core.artifacts import Document, write_document
from trainperf.core.run_directory import ANALYSIS_SUFFIX
from trainperf.core.steps.records import Scalar, StepRecord
from trainperf.traces.capture_files import CaptureFacts, CaptureReport, write
from trainperf.traces.results import RankTrace, TraceStep, TraceTotals


HEALTHY_MS: Mapping[str, float] = {
    "data_wait": 0.5,
    "h2d": 0.2,
    "forward": 15.0,
    "backward": 30.0,
    "optimizer": 4.0,
}
"""Nearly fifty milliseconds, nearly all of it work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One run as it is on disk."""

    device: str = "cpu"
    phases_ms: Mapping[str, float] = field(default_factory=lambda: HEALTHY_MS)
    facts: Mapping[str, int | float | None] = field(default_factory=dict)
    steps: Sequence[StepRecord] | None = None
    """In place of equal ones."""
    number: int = 200
    config: Mapping[str, Scalar] = field(default_factory=dict)
    hardware: Mapping[str, Scalar] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    documents: Sequence[Document] = ()
    capture: CaptureReport | None = None
    end: str | None = "finished"

    def write(self, path: Path) -> Run:
        """Make the directory."""
        steps = self.steps
        if steps is None:
            steps = make_steps(self.number, facts=self.facts, **self.phases_ms)
        info = make_info(
            device=self.device, config=self.config, hardware=self.hardware, reasons=self.reasons
        )
        made = make_run_dir(path, [RankSpec(steps=steps, info=info, end=self.end)])
        for document in self.documents:
            write_document(document, made)
        if self.capture is not None:
            (made / "traces").mkdir()
            write(self.capture, made / "traces" / f"rank0-step100-3steps{ANALYSIS_SUFFIX}")
        return Run.open(made)

    def evidence(self, path: Path) -> Facts:
        """What it shows."""
        return examine(self.write(path))


def checked(name: str, path: Path, planted: Planted, baseline: Planted | None = None) -> Outcome:
    """What one check says of a run, and of it beside a baseline."""
    run = planted.write(path / "run" / "trainperf")
    case = Case(facts=examine(run))
    if baseline is not None:
        before = baseline.write(path / "baseline" / "trainperf")
        parity = compare_losses([curve_of(run)], [curve_of(before)])
        case = Case(facts=case.facts, baseline=examine(before), parity=parity)
    return {check.id: check for check in examined(case).checks}[name]


def make_capture(
    totals: TraceTotals, *, on_device: bool = True, steps_s: Sequence[float] = ()
) -> CaptureReport:
    """A trace of three steps from the hundredth on, of which the totals or all times are known."""
    steps = tuple(
        TraceStep(step=100 + place, step_s=step_s, gpu_busy_s=0.01 if on_device else None)
        for place, step_s in enumerate(steps_s or (totals.step_s,))
    )
    rank = RankTrace(file="rank0-step100-3steps.trace.json.gz", totals=totals, steps=steps)
    return CaptureReport(
        ranks=(rank,),
        answer="What the planted trace says.",
        capture=CaptureFacts(first_step=100, first_index=100, complete_steps=3),
    )


NAMES = tuple(check.id for check in CHECKS)

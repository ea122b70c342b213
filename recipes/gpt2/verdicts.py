"""Verdict on a change: its runs compared with those of the settings kept last."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from recipes.gpt2.outcomes import Measured, StageOutcome
from recipes.gpt2.stages import Settings, Stage
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.compare import Method, compare
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.results import Comparison
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.stats.sequential import Looks
from trainperf.reports.comparison import speed


def baseline(stage: Stage, settings: Settings, run: str, out: Path) -> StageOutcome:
    """Outcome of the first stage, which all others are compared with."""
    runs = [read_run(Run.open(out / run))]
    return StageOutcome(
        stage=stage.name,
        change=stage.change,
        status="baseline",
        why="the reference for all other stages",
        settings=settings,
        cumulative=1.0,
        measured=measured(runs, out / run, None),
        runs=(run,),
    )


def with_verdict(tried: StageOutcome, kept: float | None, out: Path, looks: Looks) -> StageOutcome:
    """*tried*, completed by what its runs and those of the settings kept last have measured.

    Args:
        tried: With the runs of both sides so far.
        kept: Product of the gains before it.
        out: Folder of the walkthrough.
        looks: The plan, with one look after each pair.
    """
    before, after = (
        [read_run(Run.open(out / run)) for run in side] for side in (tried.before, tried.runs)
    )
    comparison = compare(before, after, Method(looks=looks))
    is_kept, why = decision(comparison)
    gain = comparison.speedup
    factor = gain.value if is_kept and gain is not None else 1.0
    return msgspec.structs.replace(
        tried,
        status="kept" if is_kept else "rejected",
        why=why,
        verdict=comparison.verdict,
        speedup=gain,
        cumulative=None if kept is None else kept * factor,
        noise=None if comparison.noise is None else comparison.noise.relative,
        parity=comparison.parity,
        measured=measured(after, out / tried.runs[0], comparison),
        notes=tuple(notes(after[0].summary, tried.settings)),
    )


def decision(comparison: Comparison) -> tuple[bool, str]:
    """Whether to keep a change, and why: the whole interval is faster and the loss matches."""
    gain, parity = comparison.speedup, comparison.parity
    if gain is None:
        return False, f"not comparable: {comparison.reason}"
    if comparison.verdict == "loss differs":
        return False, f"loss differs, so speed does not count ({speed(gain)}): {parity.why}"
    if comparison.verdict != "faster":
        return False, f"{comparison.verdict}: {speed(gain)}"
    if parity.verdict != "same":
        return False, f"faster, {speed(gain)}, but the loss was not shown to be equal: {parity.why}"
    return True, f"faster, {speed(gain)}, and the loss is equal: {parity.why}"


def measured(after: Sequence[ComparedRun], first: Path, comparison: Comparison | None) -> Measured:
    """The columns of the table.

    Args:
        after: The runs of the stage.
        first: Directory of the first of them, which was audited.
        comparison: Of these runs with those kept last; `None` for the baseline.
    """
    summary = after[0].summary
    values = {name: reading.value for name, reading in summary.readings.items()}
    if comparison is not None:
        values.update({change.name: change.after for change in comparison.readings})
    return Measured(
        step_s=values.get("step_s"),
        effective_tokens_per_s=values.get("effective_tokens_per_s"),
        padded_tokens_per_s=values.get("padded_tokens_per_s"),
        padding_fraction=values.get("padding_fraction"),
        data_wait_fraction=values.get("data_wait_fraction"),
        peak_bytes=_peak_bytes(summary, first),
        mfu=summary.value("mfu"),
        loss=_last_loss(after),
    )


def notes(summary: Summary, settings: Settings) -> list[str]:
    """What matters for one kind of change and has no column."""
    sentences = []
    rate, scale = summary.value("overflow_rate"), summary.value("loss_scale")
    if rate is not None:
        at = "" if scale is None else f", loss scale {scale:,.6g} at the end"
        sentences.append(f"overflow rate {share(rate)} of the updates{at}")
    compilation = summary.compilation
    # None where the run before had compiled the same.
    if compilation is not None and compilation.graphs and settings.compiled:
        first_s, step_s = summary.value("first_step_s"), summary.value("step_s")
        sentences.append(
            f"{plural(compilation.graphs, 'graph')}, {plural(len(compilation.breaks), 'break')}, "
            f"{plural(len(compilation.recompiled), 'recompilation')}"
        )
        if first_s is not None and step_s is not None:
            sentences.append(f"first step {duration(first_s)}, then {duration(step_s)} per step")
    return sentences


def _peak_bytes(summary: Summary, run: Path) -> int | None:
    peak = summary.value("memory_peak_bytes")
    if peak is not None:
        return round(peak)
    ledger = read_document(MemoryLedger, run)
    return None if ledger is None else ledger.peak_bytes


def _last_loss(after: Sequence[ComparedRun]) -> float | None:
    """Mean over the last fifth of the steps of all runs, the same for every stage.

    Of steps with a loss; `None` where one became no number.
    """
    if any(run.losses.diverged for run in after):
        return None
    last = [run.losses.loss[-max(1, len(run.losses.loss) // 5) :] for run in after]
    finite = [losses[np.isfinite(losses)] for losses in last]
    means = [float(losses.mean()) for losses in finite if len(losses)]
    return sum(means) / len(means) if means else None

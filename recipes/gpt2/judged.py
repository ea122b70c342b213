"""Is a change proved?  What its runs show beside those of the settings kept last."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from recipes.gpt2.outcomes import Measured, StageOutcome
from recipes.gpt2.stages import Settings, Stage
from trainperf.analysis.rules.base import value
from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.compare import Judge
from trainperf.comparison.results import Comparison
from trainperf.comparison.side import Member, member
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.formatting.units import duration, plural, scale_factor, share
from trainperf.reports.comparison.rows import speed


def baseline(stage: Stage, settings: Settings, run: str, out: Path) -> StageOutcome:
    """The outcome of the stage that all others are compared with in the end."""
    read = [member(out / run)]
    return StageOutcome(
        stage=stage.name,
        change=stage.change,
        status="baseline",
        why="what the others are compared with",
        settings=settings,
        cumulative=1.0,
        measured=measured(read, out / run, None),
        runs=(run,),
    )


def judged(tried: StageOutcome, out: Path) -> StageOutcome:
    """What became of a stage, from its runs and those beside them."""
    before, after = ([member(out / run) for run in side] for side in (tried.before, tried.runs))
    comparison = Judge().compare(before, after)
    kept, why = decided(comparison)
    gain = comparison.speedup
    grown = gain.value if kept and gain is not None else 1.0
    return msgspec.structs.replace(
        tried,
        status="kept" if kept else "rejected",
        why=why,
        verdict=comparison.verdict,
        speedup=gain,
        cumulative=None if tried.cumulative is None else tried.cumulative * grown,
        noise=None if comparison.noise is None else comparison.noise.relative,
        parity=comparison.parity,
        measured=measured(after, out / tried.runs[0], comparison),
        notes=tuple(notes(after[0].summary, tried.settings)),
    )


def decided(comparison: Comparison) -> tuple[bool, str]:
    """Whether a change is kept, and why: faster by the interval, and the loss still matches."""
    gain, parity = comparison.speedup, comparison.parity
    if gain is None:
        return False, f"not comparable: {comparison.reason}"
    if comparison.verdict == "loss differs":
        return False, f"loss differs, so speed does not count ({speed(gain)}): {parity.why}"
    if comparison.verdict != "faster":
        return False, f"{comparison.verdict}: {speed(gain)}"
    if parity.verdict != "same":
        return False, f"faster, {speed(gain)}, but the loss is not proved equal: {parity.why}"
    return True, f"faster, {speed(gain)}, and the loss is equal: {parity.why}"


def measured(after: Sequence[Member], first: Path, comparison: Comparison | None) -> Measured:
    """The columns of the table.

    Args:
        after: The runs of the stage.
        first: Directory of the first of them, which was audited.
        comparison: What they were found to be; `None` for the baseline.
    """
    summary = after[0].summary
    known = {name: one.value for name, one in summary.readings.items()}
    if comparison is not None:
        known.update({one.name: one.after for one in comparison.readings})
    return Measured(
        step_s=known.get("step_s"),
        effective_tokens_per_s=known.get("effective_tokens_per_s"),
        padded_tokens_per_s=known.get("padded_tokens_per_s"),
        padding_fraction=known.get("padding_fraction"),
        data_wait_fraction=known.get("data_wait_fraction"),
        peak_bytes=_peak_bytes(summary, first),
        mfu=None if summary.light is None else summary.light.mfu,
        loss=_last_loss(after),
    )


def notes(summary: Summary, settings: Settings) -> list[str]:
    """What belongs to one kind of change and to no column."""
    said = []
    rate, scale = value(summary, "overflow_rate"), value(summary, "loss_scale")
    if rate is not None:
        at = "" if scale is None else f", loss scale {scale_factor(scale)} at the end"
        said.append(f"overflow rate {share(rate)} of the updates{at}")
    found = summary.compilation
    # None where the run before had compiled the same.
    if found is not None and found.graphs and settings.compiled:
        first_s, step_s = value(summary, "first_step_s"), value(summary, "step_s")
        said.append(
            f"{plural(found.graphs, 'graph')}, {plural(len(found.breaks), 'break')}, "
            f"{plural(len(found.recompiled), 'recompilation')}"
        )
        if first_s is not None and step_s is not None:
            said.append(f"first step {duration(first_s)}, then {duration(step_s)} a step")
    return said


def _peak_bytes(summary: Summary, run: Path) -> int | None:
    peak = value(summary, "memory_peak_bytes")
    if peak is not None:
        return round(peak)
    ledger = read_document(MemoryLedger, run)
    return None if ledger is None else ledger.peak_bytes


def _last_loss(after: Sequence[Member]) -> float | None:
    """Mean over the last fifth of the steps of all runs, the same for every stage.

    Of steps with a loss; `None` where one became no number.
    """
    if any(one.losses.diverged for one in after):
        return None
    last = [one.losses.loss[-max(1, len(one.losses.loss) // 5) :] for one in after]
    there = [losses[np.isfinite(losses)] for losses in last]
    known = [float(losses.mean()) for losses in there if len(losses)]
    return sum(known) / len(known) if known else None

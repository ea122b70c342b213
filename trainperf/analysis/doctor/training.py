"""Checks of memory, of accumulation, and of what torch.compile did."""

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    failed,
    failed_by,
    fails_on,
    not_applicable,
    passed,
    reason,
    to_audit,
    unknown,
)
from trainperf.analysis.rules.base import own_fit_s, setting
from trainperf.analysis.rules.compiler.base import WORTH, excess_s, recompiled_late
from trainperf.analysis.rules.memory.base import LEAST_S, LEAST_STEPS, long_enough
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.formatting.units import count, duration, plural, share, size
from trainperf.core.readings import (
    FIRST_STEP_S,
    MEMORY_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    OPTIMIZER_STEPS_PER_S,
    PADDING_FRACTION,
    RECOMPILES,
    RESIDENT_PEAK_BYTES,
    SAMPLES_PER_S,
    STEP_S,
)


@fails_on("out_of_memory", "graph_held", "leak", "validation_grad", "memory_limit", "fragmentation")
def peak_memory(case: Case) -> Outcome:
    """Peak memory is not raised by activations kept, temporaries or logging references.

    Fails on `out_of_memory`, `graph_held`, `leak`, `validation_grad`, `memory_limit` and
    `fragmentation`.  Unknown without an audit or device memory.

    Wrong where: the peak was reached before the first step, in loading a checkpoint for instance.
    To confirm: `memory` of the summary: what holds how much.
    """
    summary, ledger = case.summary, case.evidence.documents.memory
    peak, resident = summary.value(MEMORY_PEAK_BYTES), summary.value(RESIDENT_PEAK_BYTES)
    if ledger is None and peak is None and resident is None:
        return unknown("memory was not measured", case.loop.measures["memory"])
    if not long_enough(summary):
        enough = f"run for {LEAST_STEPS} steady steps and {LEAST_S:.0f} s"
        return unknown("too short to tell a leak from a warm-up", enough)
    slope = summary.value(MEMORY_SLOPE_BYTES_PER_STEP)
    if slope is None:
        why = reason(summary, MEMORY_SLOPE_BYTES_PER_STEP)
        return unknown(f"whether memory grows: {why}", case.loop.measures["memory"])
    if ledger is None and peak is None:
        # The resident set sees growth only: what it is made of, an audit tells.
        why = f"{size(resident or 0.0)} resident; no tensor was counted"
        return unknown(why, to_audit(case))
    activations = None if ledger is None else ledger.activations_bytes
    return passed(
        "" if ledger is None else f"{size(ledger.static_bytes)} of model and optimizer",
        "" if activations is None else f"{size(activations)} of activations at most",
        "" if peak is None else f"peak {size(peak)}",
        _growth(summary),
    )


def _growth(summary: Summary) -> str:
    """What the interval of the slope leaves: no growth that matters, the rules have looked."""
    slope = summary.readings[MEMORY_SLOPE_BYTES_PER_STEP]
    if slope.value is None or slope.low is None or slope.low <= 0:
        return "nothing grows from step to step"
    return f"{size(slope.value)} more per step: too little to matter"


@fails_on("no_sync", "scheduler_per_micro_batch", "data_parallel", "zero_grad")
def accumulation(case: Case) -> Outcome:
    """DDP global batch, accumulation and scheduler steps agree.

    Fails on `no_sync`, `scheduler_per_micro_batch`, `data_parallel` and `zero_grad`, and when the
    samples recorded per update are a quarter or more off batch × micro-batches × ranks.  Unknown
    without sample counts.

    Wrong where: batches end short, so that samples per update differ by themselves.
    To confirm: samples per update in the records against batch × micro-batches × ranks.
    """
    summary = case.summary
    samples, updates = summary.value(SAMPLES_PER_S), summary.value(OPTIMIZER_STEPS_PER_S)
    batch = setting(summary, "batch_size")
    if samples is None or not updates:
        return unknown("samples per step were not counted", case.loop.measures["samples"])
    micro_batches = summary.run.config.get("accumulate_grad_batches") or 1
    # A text says that it changed from update to update.
    if not batch or isinstance(micro_batches, str):
        why = "batch_size or accumulation is unknown, or varies between updates"
        return unknown(why, "load with a DataLoader of a fixed batch_size")
    recorded = samples / updates
    number, ranks = round(float(micro_batches)), summary.run.world_size
    expected = batch * float(micro_batches) * ranks
    micro = f"{number:,} micro-batch{'' if number == 1 else 'es'}"
    evidence = (
        f"{count(expected)} samples per update = batches of {count(float(batch))} × {micro} × "
        f"{plural(ranks, 'rank')}; {count(recorded)} recorded"
    )
    # Short last batches explain less than a quarter, and a forgotten factor is at least two.
    if abs(recorded / expected - 1) > 0.25:
        return failed(
            "make batch_size × accumulation × ranks the batch you mean, and the learning rate's "
            "schedule count updates",
            evidence,
        )
    schedulers = summary.run.config.get("schedulers")
    return passed(evidence, f"{schedulers} steps with the updates" if schedulers else "")


def compile_split(case: Case) -> Outcome:
    """`torch.compile` separates first from steady.

    Fails when compiled code has no steady step yet, on `compile_latency`, `first_step` and
    `recompiles`, and where one recompilation takes as much of the fit.  Unknown without graph
    counts.

    Wrong where: graphs were compiled before the fit began.
    To confirm: `TORCH_LOGS=recompiles`, and the reading `first_step_s`.
    """
    summary, compilation = case.summary, case.evidence.documents.compilation
    built = summary.value(RECOMPILES)
    if compilation is None and not built:
        if built is None and summary.run.config.get("compiled") is not False:
            return unknown(reason(summary, RECOMPILES), f"{case.loop.everything} counts graphs")
        return not_applicable("nothing was compiled in this fit")
    bad = failed_by(case, ("compile_latency", "recompiles", "first_step"))
    if bad is not None:
        return bad
    again = 0.0 if compilation is None else _again(compilation, summary)
    if again >= WORTH:
        return failed(_ONCE, f"recompilation takes {share(again)} of the fit", _graphs(case))
    step_s, first_s = summary.value(STEP_S), summary.value(FIRST_STEP_S)
    if step_s is None:
        return failed("run past the compilation: no step is steady yet", _graphs(case))
    first = "not measured" if first_s is None else duration(first_s)
    return passed(_graphs(case), f"first step {first}, steady {duration(step_s)}")


_ONCE = "compile for all shapes at once: torch.compile(…, dynamic=True) or mark_dynamic"


def _again(compilation: Compilation, summary: Summary) -> float:
    """Share of the fit that steps with a recompilation took beyond a steady one."""
    fit_s = own_fit_s(summary)
    steps = {graph.step for graph in recompiled_late(compilation) if graph.step is not None}
    return excess_s(compilation, summary, steps) / fit_s if fit_s else 0.0


def _graphs(case: Case) -> str:
    compilation = case.evidence.documents.compilation
    if compilation is None:
        return plural(round(case.summary.value(RECOMPILES) or 0), "graph")
    spent = "" if compilation.compile_s is None else f" in {duration(compilation.compile_s)}"
    breaks = f", {plural(len(compilation.breaks), 'graph break')}" if compilation.breaks else ""
    return f"{plural(compilation.graphs, 'graph')}{spent}{breaks}"


@fails_on("recompiles", "padding")
def dynamic_shapes(case: Case) -> Outcome:
    """Dynamic shapes do not cause recompiles or padding waste.

    Fails on `recompiles` and `padding`.  Unknown without graph counts or a mask.

    Wrong where: the run is too short to have met all shapes.
    To confirm: the readings `recompiles` and `padding_fraction` of a longer run.
    """
    summary, compilation = case.summary, case.evidence.documents.compilation
    graphs, wasted = summary.value(RECOMPILES), summary.value(PADDING_FRACTION)
    again = None if compilation is None else len(compilation.recompiled)
    if graphs is None and again is None and wasted is None:
        return unknown(reason(summary, RECOMPILES), f"{case.loop.everything} counts both")
    built = "" if graphs is None else f"{count(graphs)} graphs built inside steps"
    anew = "" if again is None else f"{again} of them compiled again"
    padded = (
        "padding was not measured"
        if wasted is None
        else f"{share(wasted)} of the tokens is padding"
    )
    return passed(built, anew, padded)

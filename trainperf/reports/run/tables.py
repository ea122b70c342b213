"""Tables of a run beyond its phases: time split, speed of light, torch.compile, memory.

Only what was looked at has a table; why a single figure is missing stands in its cell.
"""

from trainperf.analysis.roofline.memory_savings import savings
from trainperf.analysis.roofline.speed_of_light import SpeedOfLight
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.memory import Holder, MemoryLedger
from trainperf.core.choice import texts_of
from trainperf.core.formatting.table import UNKNOWN, Table, or_unknown
from trainperf.core.formatting.units import (
    Scale,
    count,
    duration,
    fine_share,
    plural,
    share,
    size,
    times,
    words,
)
from trainperf.core.readings import HFU, MFU
from trainperf.reports.run.rows import tail_not_covered


_DIMENSIONS = {
    "compute": "compute",
    "memory": "memory traffic",
    "launch": "launch overhead",
    "transfer": "transfer",
    "synchronisation": "synchronisation",
    "undivided": "compute, memory and launches",
}
"""Names for people."""

_BASIS = {
    "phases": "run an audit or capture a trace to split this",
    "audit": "split as the audited step",
    "trace": "shares of device time in a trace",
    "trace and audit": "shares of device time in a trace, split as the audited step",
}
_MOST = 8
"""Graph breaks and recompilations that are listed."""

_WORTH = 0.005
"""Share of the step from which a kind of work is mentioned in a line."""

_LINES = 3
"""Of a phase that are listed."""

_MODULES = 3
"""Largest modules whose activations are listed."""

_HELD = 3
"""Containers that are named."""


def of_step(summary: Summary) -> list[Table]:
    """How far the step is from the speed of light, operator by operator."""
    light = summary.light
    return [] if light is None else [_speed(summary, light), _operators(light)]


def split_line(summary: Summary) -> str:
    """The shares worth a word in one line, the largest first; e.g. `time spent on compute 41 %`."""
    split = summary.dimensions
    every = {} if split is None else split.shares
    shares = {name: fraction for name, fraction in every.items() if fraction >= _WORTH}
    names = sorted(shares, key=lambda name: (name == "other", -shares[name]))
    if split is None or not names:
        return ""
    # What ranks send each other is in the undivided part where nothing times it.
    sent = {"undivided": "compute, memory, launches and communication"}
    words = {**_DIMENSIONS, "other": "the rest", **(sent if tail_not_covered(summary) else {})}
    place = "undivided" if split.basis == "phases" else names[-1]
    aside = {place: f" ({_BASIS[split.basis]})"}
    parts = (f"{words[name]} {share(shares[name])}{aside.get(name, '')}" for name in names)
    return f"time spent on {' · '.join(parts)}"


def light_line(summary: Summary) -> str:
    """How many times its floor the step takes, and where most; empty without measured steps."""
    light = summary.light
    if light is None:
        return ""
    step, *phases = light.phases
    if step.over is None or step.measured_s is None:
        return ""
    lost_s = {each.name: each.measured_s - each.floor_s for each in phases if each.measured_s}
    most = f", most of the rest in {max(lost_s, key=lost_s.__getitem__)}" if lost_s else ""
    mfu = summary.value(MFU)
    used = "" if mfu is None else f" · MFU {share(mfu)}"
    floor = duration(step.floor_s)
    return f"speed of light {floor}; the step takes {times(step.over)} that{most}{used}"


def _speed(summary: Summary, light: SpeedOfLight) -> Table:
    flops, hfu, unknown = light.model_flops, summary.value(HFU), ", ".join(light.unknown_precisions)
    notes = (
        f"peaks of {light.chip} ({light.source})",
        f"{Scale.of(flops, 'FLOP').say(flops)}/step",
        "" if hfu is None or hfu == summary.value(MFU) else f"HFU {share(hfu)}",
        f"unknown peak for {unknown}: its arithmetic is in no floor" if unknown else "",
    )
    rows = (
        (
            each.name,
            or_unknown(each.measured_s, duration),
            or_unknown(each.floor_s or None, duration),
            or_unknown(each.fused_floor_s or None, duration),
            or_unknown(each.over, times),
        )
        for each in light.phases
        if each.measured_s is not None or each.floor_s
    )
    return Table(
        title="How far from the speed of light",
        head=("", "measured", "floor", "fused", "measured / floor"),
        rows=tuple(rows),
        notes=tuple(filter(None, notes)),
    )


def _operators(light: SpeedOfLight) -> Table:
    step = "" if light.audited_step is None else f" {light.audited_step}"
    rows = (
        (
            use.name.removeprefix("aten.").removesuffix(".default"),
            use.line or use.module or UNKNOWN,
            use.part,
            each.floor.bound,
            use.precision,
            count(use.calls),
            or_unknown(each.measured_s, duration),
            or_unknown(each.floor.floor_s or None, duration),
            fine_share(each.share),
        )
        for each in light.operators
        for use in (each.floor.use,)
    )
    return Table(
        title=f"Operators of the audited step{step}",
        head=("operator", "where", "part", "bound", "in", "calls", "time", "floor", "share"),
        rows=tuple(rows),
        words=5,
    )


def of_lines(summary: Summary) -> list[Table]:
    """Lines of the user's code by phase; empty where none were seen."""
    phases = summary.lines
    table = Table(
        title="Lines of your code",
        head=("", "line", "share of it"),
        rows=tuple(
            (words(phase.slot) if not place else "", line.name, share(line.fraction))
            for phase in phases
            for place, line in enumerate(phase.lines[:_LINES])
        ),
        words=2,
        notes=(
            "samples of wall time on rank 0; what a library does counts for the line that calls it",
            "samples: " + ", ".join(f"{words(phase.slot)} {phase.samples:,}" for phase in phases),
        ),
    )
    return [table] if table.rows else []


def of_compilation(compilation: Compilation) -> list[Table]:
    """What torch.compile did."""
    again, breaks = compilation.recompiled, compilation.breaks
    rows = [("break", brk.where or UNKNOWN, str(brk.times), brk.reason) for brk in breaks[:_MOST]]
    rows += [
        (
            "recompiled",
            graph.where or UNKNOWN,
            "in a gap" if graph.step is None else f"step {graph.step}",
            graph.reason or "",
        )
        for graph in again[:_MOST]
    ]
    spent = "" if compilation.compile_s is None else f" in {duration(compilation.compile_s)}"
    totals = (
        f"{plural(compilation.graphs, 'graph')}{spent}, {plural(len(breaks), 'graph break')}, "
        f"{plural(len(again), 'recompilation')}"
    )
    more = [n - _MOST for n in (len(breaks), len(again)) if n > _MOST]
    return [
        Table(
            title="What torch.compile did",
            head=("", "where", "times / step", "why"),
            rows=tuple(rows),
            words=4,
            notes=(
                totals,
                *(f"{number} more are in compile.json" for number in more),
                *compilation.reasons.values(),
            ),
        )
    ]


def of_memory(ledger: MemoryLedger) -> list[Table]:
    """What fills the memory, and what would need less where anything would."""
    states = {f"optimizer: {kind}": n for kind, n in ledger.optimizer_state_bytes.items()}
    static = {
        "parameters": ledger.parameters_bytes,
        "gradients": ledger.gradients_bytes,
        **states,
        "buffers": ledger.buffers_bytes,
    }
    modules = {f"  in {m.module or 'no module'}": m.size_bytes for m in ledger.activations}
    moving = {
        "activations": ledger.activations_bytes,
        **dict(list(modules.items())[:_MODULES]),
    }
    rows = [
        (name, size(amount), f"{amount / ledger.parameters:.1f}" if ledger.parameters else UNKNOWN)
        for name, amount in static.items()
        if amount
    ]
    rows += [(name, size(amount), UNKNOWN) for name, amount in moving.items() if amount]
    filled = Table(
        title="What fills the memory",
        head=("", "size", "bytes per parameter"),
        rows=tuple(rows),
        notes=_memory_notes(ledger),
    )
    saved = Table(
        title="What would need less memory",
        head=("", "saves at most"),
        rows=tuple((what, size(most)) for what, most in savings(ledger).items()),
        notes=("estimated from the ledger, not measured with the change made",),
    )
    return [filled, saved] if saved.rows and ledger.gradients_bytes else [filled]


def _memory_notes(ledger: MemoryLedger) -> tuple[str, ...]:
    at_peak = sorted(ledger.at_peak_bytes.items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} {size(amount)}" for name, amount in at_peak if amount)
    return texts_of(
        ledger.peak_bytes is not None
        and f"peak of the audited step {size(ledger.peak_bytes)}: {named}",
        ledger.capacity_bytes is not None and f"capacity {size(ledger.capacity_bytes)}",
        *map(_accumulated, ledger.held[:_HELD]),
    )


def _accumulated(holder: Holder) -> str:
    where = f" ({holder.where})" if holder.where else ""
    graphs = f", {count(holder.graphs)} with a graph" if holder.graphs else ""
    tensors = f"{plural(holder.count, 'tensor')}, {size(holder.size_bytes)}{graphs}"
    return f"{holder.name}{where} accumulated {tensors}"

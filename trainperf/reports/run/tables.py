"""Tables of a run beyond its phases: time split, speed of light, loader, torch.compile, memory.

Only what was looked at has a table; why a single figure is missing stands in its cell.
"""

from collections.abc import Iterator, Mapping

from trainperf.analysis.roofline.memory_savings import savings
from trainperf.analysis.roofline.roofline import PhaseFloor
from trainperf.analysis.roofline.speed_of_light import OperatorSpeed, SpeedOfLight
from trainperf.analysis.roofline.time_split import NAMES, Dimensions
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.memory import Holder, MemoryLedger
from trainperf.core.formatting.table import UNKNOWN, Table, or_unknown
from trainperf.core.formatting.units import (
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


SPLIT_HINT = "run an audit or capture a trace to split this"

DIMENSIONS = {
    "compute": "compute",
    "memory": "memory traffic",
    "launch": "launch overhead",
    "transfer": "transfer",
    "synchronisation": "synchronisation",
    "undivided": "compute, memory and launches",
    "other": "the rest",
}
"""Names for people."""

_WITH_COMMUNICATION = "compute, memory, launches and communication"

_BASIS = {
    "phases": f"from the phases alone: {SPLIT_HINT}",
    "audit": "split according to the audited step",
    "trace": "shares of device time in a trace",
    "trace and audit": "shares of device time in a trace, split according to the audited step",
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
    """What the step is spent on, and how far it is from the speed of light."""
    spent = [] if summary.dimensions is None else [_dimensions(summary, summary.dimensions)]
    light = summary.light
    return spent if light is None else [*spent, _speed(summary, light), _operators(light)]


def split_line(summary: Summary) -> str:
    """The shares worth a word in one line, the largest first; e.g. `time spent on compute 41 %`."""
    split = summary.dimensions
    if split is None:
        return ""
    shares = {name: fraction for name, fraction in split.shares.items() if fraction >= _WORTH}
    other = shares.pop("other", None)
    parts = [f"{_work(summary, name)} {share(shares[name])}" for name in _descending(shares)]
    if "undivided" in shares and split.basis == "phases":
        place = _descending(shares).index("undivided")
        parts[place] += f" ({SPLIT_HINT})"
    if other is not None:
        parts.append(f"the rest {share(other)}")
    return f"time spent on {' · '.join(parts)}" if parts else ""


def _descending(shares: Mapping[str, float]) -> list[str]:
    return sorted(shares, key=lambda name: -shares[name])


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


def _work(summary: Summary, name: str) -> str:
    """A dimension; what ranks send each other is in the undivided one where nothing times it."""
    if name == "undivided" and tail_not_covered(summary):
        return _WITH_COMMUNICATION
    return DIMENSIONS[name]


def _dimensions(summary: Summary, split: Dimensions) -> Table:
    rows = [
        (_work(summary, name), fine_share(value))
        for name in NAMES
        if (value := split.shares.get(name)) is not None
    ]
    return Table(
        title="What the step is spent on",
        head=("", "share"),
        rows=tuple(rows),
        notes=(_BASIS[split.basis],),
    )


def _speed(summary: Summary, light: SpeedOfLight) -> Table:
    peak = f"{light.chip} ({light.source})"
    flops = f"{_flops(light.model_flops)}/step"
    mfu, hfu = summary.value(MFU), summary.value(HFU)
    used = "" if mfu is None else f", MFU {share(mfu)}"
    used += "" if hfu is None or hfu == mfu else f", HFU {share(hfu)}"
    unknown = ", ".join(light.unknown_precisions)
    lacking = f"unknown peak for {unknown}: its arithmetic is in no floor" if unknown else ""
    return Table(
        title="How far from the speed of light",
        head=("", "measured", "floor", "fused", "measured / floor"),
        rows=tuple(_phase(p) for p in light.phases if p.measured_s is not None or p.floor_s),
        notes=tuple(filter(None, (f"peaks of {peak}", f"{flops}{used}", lacking))),
    )


def _flops(number: int) -> str:
    """E.g. `1.37 TFLOP`."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{count(number / unit)} {name}FLOP"
    return f"{number:,} FLOP"


def _phase(phase: PhaseFloor) -> tuple[str, ...]:
    return (
        phase.name,
        or_unknown(phase.measured_s, duration),
        or_unknown(phase.floor_s or None, duration),
        or_unknown(phase.fused_floor_s or None, duration),
        or_unknown(phase.over, times),
    )


def _operators(light: SpeedOfLight) -> Table:
    step = "" if light.audited_step is None else f" {light.audited_step}"
    return Table(
        title=f"Operators of the audited step{step}",
        head=("operator", "where", "part", "bound", "in", "calls", "time", "floor", "share"),
        rows=tuple(map(_operator, light.operators)),
        words=5,
    )


def _operator(operator: OperatorSpeed) -> tuple[str, ...]:
    floor, use = operator.floor, operator.floor.use
    name = use.name.removeprefix("aten.").removesuffix(".default")
    return (
        name,
        use.line or use.module or UNKNOWN,
        use.part,
        floor.bound,
        use.precision,
        count(use.calls),
        or_unknown(operator.measured_s, duration),
        or_unknown(floor.floor_s or None, duration),
        fine_share(operator.share),
    )


def of_loader(summary: Summary) -> list[Table]:
    """Where the time to make a batch goes; empty where it was not measured."""
    anatomy = summary.loader
    if anatomy is None:
        return []
    parts = {
        "samples": anatomy.getitem,
        "collate": anatomy.collate,
        "transport": anatomy.transport,
        "pinning": anatomy.pinning,
    }
    batch = (
        f"{count(anatomy.samples)} samples in {count(anatomy.tensors)} tensors, "
        f"{size(anatomy.batch_bytes)} per batch; timed {anatomy.batches:,} times"
    )
    needed = anatomy.workers_needed
    keep_up = "" if needed is None else f"; {needed:,} would keep up with this step"
    table = Table(
        title="Time to make a batch",
        head=("", "mean", "p95"),
        rows=tuple(
            (name, duration(spread.mean_s), duration(spread.p95_s))
            for name, spread in parts.items()
            if spread is not None
        ),
        notes=(batch, f"{plural(anatomy.workers, 'worker')}{keep_up}"),
    )
    return [table]


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


def of_compilation(summary: Summary) -> list[Table]:
    """What torch.compile did; empty where nothing was compiled."""
    compilation = summary.compilation
    if compilation is None:
        return []
    again, breaks = compilation.recompiled, compilation.breaks
    rows = [("break", brk.where or UNKNOWN, str(brk.times), brk.reason) for brk in breaks[:_MOST]]
    rows += [
        ("recompiled", graph.where or UNKNOWN, _step(graph.step), graph.reason or "")
        for graph in again[:_MOST]
    ]
    spent = "" if compilation.compile_s is None else f" in {duration(compilation.compile_s)}"
    totals = (
        f"{plural(compilation.graphs, 'graph')}{spent}, {plural(len(breaks), 'graph break')}, "
        f"{plural(len(again), 'recompilation')}"
    )
    more = [n - _MOST for n in (len(breaks), len(again)) if n > _MOST]
    table = Table(
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
    return [table]


def _step(step: int | None) -> str:
    return "in a gap" if step is None else f"step {step}"


def of_memory(summary: Summary) -> list[Table]:
    """What fills the memory, and what would need less where anything would."""
    ledger = summary.memory
    if ledger is None:
        return []
    rows = [
        (name, size(amount), f"{amount / ledger.parameters:.1f}" if ledger.parameters else UNKNOWN)
        for name, amount in _static(ledger)
        if amount
    ]
    rows += [(name, size(amount), UNKNOWN) for name, amount in _moving(ledger) if amount]
    filled = Table(
        title="What fills the memory",
        head=("", "size", "bytes per parameter"),
        rows=tuple(rows),
        notes=tuple(_memory_notes(ledger)),
    )
    saved = _savings(ledger)
    return [filled, saved] if saved.rows and ledger.gradients_bytes else [filled]


def _static(ledger: MemoryLedger) -> Iterator[tuple[str, int]]:
    """What is there whatever the batch."""
    yield "parameters", ledger.parameters_bytes
    yield "gradients", ledger.gradients_bytes
    yield "master weights", ledger.master_bytes
    for kind, amount in ledger.optimizer_state_bytes.items():
        yield f"optimizer: {kind}", amount
    yield "buffers", ledger.buffers_bytes


def _moving(ledger: MemoryLedger) -> Iterator[tuple[str, int | None]]:
    """What comes and goes with a step."""
    yield "activations", ledger.activations_bytes
    for module in ledger.activations[:_MODULES]:
        yield f"  in {module.module or 'no module'}", module.size_bytes
    yield "workspace", ledger.workspace_bytes
    yield "reserved, not used", ledger.fragmentation_bytes


def _memory_notes(ledger: MemoryLedger) -> Iterator[str]:
    if ledger.peak_bytes is not None:
        at_peak = sorted(ledger.at_peak_bytes.items(), key=lambda item: -item[1])
        named = ", ".join(f"{name} {size(amount)}" for name, amount in at_peak if amount)
        yield f"peak of the audited step {size(ledger.peak_bytes)}: {named}"
    if ledger.capacity_bytes is not None:
        yield f"capacity {size(ledger.capacity_bytes)}"
    yield from map(_held, ledger.held[:_HELD])


def _held(holder: Holder) -> str:
    where = f" ({holder.where})" if holder.where else ""
    graphs = f", {count(holder.graphs)} with a graph" if holder.graphs else ""
    tensors = f"{plural(holder.count, 'tensor')}, {size(holder.size_bytes)}{graphs}"
    return f"{holder.name}{where} accumulated {tensors}"


def _savings(ledger: MemoryLedger) -> Table:
    return Table(
        title="What would need less memory",
        head=("", "saves at most"),
        rows=tuple((what, size(most)) for what, most in savings(ledger).items()),
        notes=("estimated from the ledger, not measured with the change made",),
    )

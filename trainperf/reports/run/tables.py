"""What is there beyond the answer?  Tables of all that was looked at once, for every format.

A table that nobody looked at is not there; why a single figure is missing stands in its cell.
"""

from collections.abc import Sequence

from trainperf.analysis.roofline.speed_of_light import OperatorSpeed, PhaseSpeed, SpeedOfLight
from trainperf.analysis.roofline.time_split import NAMES, Dimensions
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.loader import LoaderAnatomy, Spread
from trainperf.core.formatting.table import UNKNOWN, Table
from trainperf.core.formatting.units import count, duration, fine_share, plural, share, size, times
from trainperf.reports.run.memory_tables import memory_tables


DIMENSIONS = {
    "compute": "compute",
    "memory": "memory traffic",
    "launch": "launch overhead",
    "transfer": "transfer",
    "synchronisation": "synchronisation",
    "undivided": "compute, memory and launching",
    "other": "the rest",
}
"""Names for people."""

_BASIS = {
    "phases": "from the phases alone: an audit (audit_at=20) or a trace divides the work",
    "audit": "the work is divided by the audited step",
    "trace": "of the device's time in a trace",
    "trace and audit": "of the device's time in a trace, divided by the audited step",
}
_MOST = 8
"""Graph breaks and recompilations that are listed."""


def tables(summary: Summary) -> list[Table]:
    """All that there are, in the order of the questions: what, how far, why."""
    memory = [] if summary.memory is None else memory_tables(summary.memory)
    return [*of_step(summary), *of_loader(summary), *of_compilation(summary), *memory]


def of_step(summary: Summary) -> list[Table]:
    """What the step is spent on, and how far it is from the speed of light."""
    spent = [] if summary.dimensions is None else [_dimensions(summary.dimensions)]
    light = summary.light
    return spent if light is None else [*spent, _speed(light), _operators(light)]


def of_loader(summary: Summary) -> list[Table]:
    """What a batch takes to make; empty where nobody looked."""
    return [] if summary.loader is None else [_loader(summary.loader)]


def of_compilation(summary: Summary) -> list[Table]:
    """What torch.compile did; empty where nothing was compiled."""
    return [] if summary.compilation is None else [_compilation(summary.compilation)]


def dimension_parts(known: Dimensions) -> list[str]:
    """The shares worth a word in one line, e.g. `compute 41 %`; the largest first."""
    why = " (an audit or a trace divides it)" if known.basis == "phases" else ""
    shares = {name: value for name, value in known.shares.items() if value >= _WORTH}
    other = shares.pop("other", None)
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    parts = [
        f"{DIMENSIONS[name]} {share(value)}{why if name == 'undivided' else ''}"
        for name, value in ordered
    ]
    return parts if other is None else [*parts, f"the rest {share(other)}"]


_WORTH = 0.005
"""Share of the step from which a dimension is mentioned in a line."""


def light_line(light: SpeedOfLight) -> str:
    """How many times its floor the step takes, and each phase; empty without measured steps."""
    step, *phases = light.phases
    if step.over is None or step.measured_s is None:
        return ""
    parts = [
        f"{one.name} {times(one.over).removesuffix('×')}" for one in phases if one.over is not None
    ]
    each = f" ({', '.join(parts)})" if parts else ""
    used = "" if light.mfu is None else f" · MFU {share(light.mfu)}"
    return (
        f"speed of light {duration(step.floor_s)}: the step takes {times(step.over)} that{each}"
        f"{used}"
    )


def _dimensions(known: Dimensions) -> Table:
    rows = [
        (DIMENSIONS[name] + (" ←" if name == known.dominant else ""), fine_share(value))
        for name in NAMES
        if (value := known.shares.get(name)) is not None
    ]
    evidence = f"← largest: {'; '.join(known.evidence)}" if known.evidence else ""
    return Table(
        title="What the step is spent on",
        head=("", "share"),
        rows=tuple(rows),
        notes=tuple(filter(None, (_BASIS[known.basis], evidence))),
    )


def _speed(light: SpeedOfLight) -> Table:
    peak = f"{light.chip} ({light.source})"
    flops = f"{_flops(light.model_flops)} a step"
    used = "" if light.mfu is None else f", MFU {share(light.mfu)}"
    used += "" if light.hfu is None or light.hfu == light.mfu else f", HFU {share(light.hfu)}"
    unknown = ", ".join(light.unknown_precisions)
    lacking = f"no peak is known for {unknown}: its arithmetic is in no floor" if unknown else ""
    return Table(
        title="How far from the speed of light",
        head=("", "measured", "floor", "fused", "measured / floor"),
        rows=tuple(_phase(one) for one in light.phases),
        notes=tuple(filter(None, (f"on {peak}", f"{flops}{used}", lacking))),
    )


def _flops(number: int) -> str:
    """E.g. `1.37 TFLOP`."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{count(number / unit)} {name}FLOP"
    return f"{number:,} FLOP"


def _phase(one: PhaseSpeed) -> tuple[str, ...]:
    return (
        one.name,
        UNKNOWN if one.measured_s is None else duration(one.measured_s),
        duration(one.floor_s) if one.floor_s else UNKNOWN,
        duration(one.fused_floor_s) if one.fused_floor_s else UNKNOWN,
        UNKNOWN if one.over is None else times(one.over),
    )


def _operators(light: SpeedOfLight) -> Table:
    near = any(one.near_roof for one in light.operators)
    step = "" if light.audited_step is None else f" {light.audited_step}"
    told = "* three quarters of its roof or more: leave it alone, or fuse it away" if near else ""
    return Table(
        title=f"Operators of the audited step{step}",
        head=("operator", "where", "part", "bound", "in", "calls", "time", "floor", "share"),
        rows=tuple(_operator(one) for one in light.operators),
        words=5,
        notes=tuple(filter(None, (told,))),
    )


def _operator(one: OperatorSpeed) -> tuple[str, ...]:
    plain = one.name.removeprefix("aten.").removesuffix(".default")
    return (
        plain + ("*" if one.near_roof else ""),
        one.line or one.module or UNKNOWN,
        one.part,
        one.bound,
        one.precision,
        count(one.calls),
        UNKNOWN if one.measured_s is None else duration(one.measured_s),
        duration(one.floor_s) if one.floor_s else UNKNOWN,
        fine_share(one.share),
    )


def _loader(known: LoaderAnatomy) -> Table:
    parts = {
        "samples": known.getitem,
        "collate": known.collate,
        "transport": known.transport,
        "pinning": known.pinning,
    }
    rows = [_spread(name, spread) for name, spread in parts.items() if spread is not None]
    batch = (
        f"{count(known.samples)} samples in {count(known.tensors)} tensors, "
        f"{size(known.batch_bytes)} a batch; timed: {known.batches:,}"
    )
    needed = known.workers_needed
    keep_up = "" if needed is None else f"; {needed:,} would keep up with this step"
    return Table(
        title="What a batch takes to make",
        head=("", "mean", "p95"),
        rows=tuple(rows),
        notes=(batch, f"{plural(known.workers, 'worker')}{keep_up}"),
    )


def _spread(name: str, spread: Spread) -> tuple[str, ...]:
    return (name, duration(spread.mean_s), duration(spread.p95_s))


def _compilation(known: Compilation) -> Table:
    again = known.recompiled
    rows = [
        ("break", _place(one.where), str(one.times), one.reason) for one in known.breaks[:_MOST]
    ]
    rows += [
        ("recompiled", _place(one.where), _step(one.step), one.reason or "")
        for one in again[:_MOST]
    ]
    spent = "" if known.compile_s is None else f" in {duration(known.compile_s)}"
    said = (
        f"{plural(known.graphs, 'graph')}{spent}, {plural(len(known.breaks), 'graph break')}, "
        f"{len(again):,} compiled again"
    )
    return Table(
        title="What torch.compile did",
        head=("", "where", "times / step", "why"),
        rows=tuple(rows),
        words=4,
        notes=(said, *_more(len(known.breaks), len(again)), *known.reasons.values()),
    )


def _place(where: str) -> str:
    return where or UNKNOWN


def _step(step: int | None) -> str:
    return "in a gap" if step is None else f"step {step}"


def _more(*numbers: int) -> Sequence[str]:
    return [f"{number - _MOST} more are in compile.json" for number in numbers if number > _MOST]

"""What do all report formats show?  The summary's numbers, put into rows and words once."""

from collections.abc import Callable
from dataclasses import dataclass

from trainperf.analysis.summary.schema import Summary
from trainperf.analysis.summary.trace_agreement import steps_of
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import (
    count,
    duration,
    fine_share,
    plural,
    rate,
    scale_factor,
    share,
    size,
    words,
)
from trainperf.core.loop_kind import PLAIN
from trainperf.core.phases import GAPS, PHASES, Phase
from trainperf.core.steps.records import NOT_CLOSED


DEVICES = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "hpu": "HPU"}


_TRACES = "captures"
"""Note that lists the traces written; the others are sentences."""

_SAID_ELSEWHERE = frozenset({"tokens", "loss"})
"""Notes that stand beside their number, or among the warnings."""

_ANSWERS = 3
"""Traces whose answer is told, the latest."""

OURS = "trainperf itself, in end_step()"
"""What a loop of one's own spends in hooks."""

_NOTHING = 0.001
"""Share of a step below which a batch was not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase of the mean step."""

    phase: Phase
    seconds: float
    fraction: float
    note: str = ""

    @property
    def label(self) -> str:
        """The phase's name for people."""
        return words(self.phase.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A number with its name, in words."""

    name: str
    said: str
    first: bool = False
    """Whether the number is said before its name, as rates are."""


def device(summary: Summary) -> str:
    """The device for people."""
    return DEVICES.get(summary.run.device, summary.run.device)


def phase_rows(summary: Summary) -> list[PhaseRow]:
    """The phases of the mean steady step; of the mean step of all where none is steady."""
    seconds = [_phase_s(summary, phase) for phase in PHASES]
    step_s = sum(seconds)
    if step_s <= 0:
        return []
    return [
        PhaseRow(
            phase=phase,
            seconds=spent_s,
            fraction=spent_s / step_s,
            note=_note(summary, phase),
        )
        for phase, spent_s in zip(PHASES, seconds, strict=True)
    ]


def not_there(summary: Summary, row: PhaseRow) -> str:
    """Why a phase has no time of its own, in words for its row; empty where it has."""
    # On a CPU nothing is moved to the device.
    on_cpu = summary.run.device == "cpu"
    if row.phase is Phase.H2D and on_cpu and row.fraction < _NOTHING:
        return "not applicable (CPU)"
    # A step that fetches by itself moves unseen, and a plain loop may bracket nothing.
    unseen = _value(summary, f"phase_{row.phase.label}_s") is None
    return "not measured" if unseen and summary.run.steady_steps else ""


def facts(summary: Summary) -> list[Fact]:
    """Throughput and the other single numbers that were measured."""
    said = (
        _tokens(summary),
        _samples(summary),
        _fact(summary, "padding_fraction", "padding", fine_share),
        _lengths(summary),
        _overflow(summary),
        _fact(summary, "first_step_s", "first step", duration),
        _fact(summary, "step_p95_s", "p95", duration),
        _fact(summary, "step_p99_s", "p99", duration),
        _fact(summary, "allreduce_tail_s", "all-reduce tail", duration),
        _fact(summary, "host_bound_fraction", "host-bound steps", share),
        _fact(summary, "memory_peak_bytes", "peak memory", size),
        _fact(summary, "resident_peak_bytes", "resident", size),
        _fact(summary, "loss", "loss", _loss),
        _fact(summary, "overhead_s", "our cost", lambda cost_s: f"{duration(cost_s)} a step"),
    )
    return [*(fact for fact in said if fact is not None), *_titled(summary)]


def amount(value: float, unit: str, name: str) -> str:
    """The value of the reading *name* with its unit."""
    if unit == "s":
        return duration(value)
    if unit == "B":
        return size(value)
    if unit == "B/s":
        return rate(value)
    if unit == "1/s":
        return f"{count(value)}/s"
    if name.endswith(("_fraction", "_rate")):
        return share(value)
    return f"{value:.4g}" if unit == "1" else f"{count(value)} {unit}"


def ledger(summary: Summary) -> list[tuple[str, float]]:
    """Seconds of the fit: steps, then each kind of gap, largest first, then what is left over."""
    entries = summary.ledger_s
    phases = {phase.label for phase in PHASES}
    steps = sum(spent_s for slot, spent_s in entries.items() if slot in phases)
    gaps = [(slot, spent_s) for slot, spent_s in entries.items() if slot not in phases]
    order = {gap.label: place for place, gap in enumerate(GAPS)}
    gaps.sort(key=lambda gap: (gap[0] not in order, -gap[1]))
    return [("steps", steps), *((words(slot), spent_s) for slot, spent_s in gaps)]


def left_out(summary: Summary) -> str:
    """The steps that are not steady and why, e.g. `12 warm-up, 6 after validation left out`."""
    reasons = [f"{steps:,} {words(label)}" for label, steps in summary.excluded.items()]
    return f"{', '.join(reasons)} left out" if reasons else ""


def progress(summary: Summary) -> str:
    """How far the run came and how it ended, e.g. `459 steady steps (12 warm-up left out)`."""
    run = summary.run
    stopped = "ended without close()" if run.end_reason == NOT_CLOSED else "interrupted"
    ended = {
        "finished": "",
        "interrupted": f"{stopped} after {plural(run.steps, 'step')}",
        "failed": f"ended by {run.end_reason} after {plural(run.steps, 'step')}",
        "running": f"still running, {plural(run.steps, 'step')} so far",
        "killed": f"cut off after {plural(run.steps, 'step')}",
    }[run.state]
    why = left_out(summary)
    steady = f"{plural(run.steady_steps, 'steady step')}{f' ({why})' if why else ''}"
    return f"{ended} · {steady}" if ended else steady


def remarks(summary: Summary) -> list[str]:
    """What was noted while training and is said nowhere else, e.g. why nothing was captured."""
    read = {traced.first_step: traced for traced in summary.traces if traced.answer}
    noted = [
        f"traces: {note}" if key == _TRACES else note
        for key, note in summary.run.notes.items()
        if key not in _SAID_ELSEWHERE and not (key == _TRACES and read)
    ]
    latest = list(read.values())[-_ANSWERS:]
    return [*(f"trace of {steps_of(one)}: {one.answer}" for one in latest), *noted]


def _phase_s(summary: Summary, phase: Phase) -> float:
    if summary.run.steady_steps:
        return _value(summary, f"phase_{phase.label}_s") or 0.0
    return summary.ledger_s.get(phase.label, 0.0) / max(1, summary.run.steps)


def _note(summary: Summary, phase: Phase) -> str:
    if phase is Phase.DATA_WAIT:
        return _loader(summary)
    if phase is Phase.CALLBACKS:
        ours = OURS if summary.run.loop is PLAIN else ""
        return next(iter(summary.actions_s), ours)
    if phase is Phase.LOOP and any(point.point == "loop" for point in summary.synchronisation):
        return "with the wait for ranks"
    if phase is Phase.H2D:
        copied, speed = _value(summary, "h2d_bytes"), _value(summary, "h2d_bytes_per_s")
        if summary.run.device == "cpu":
            return "hooks only: nothing is copied"
        return f"{size(copied)} at {rate(speed)}" if copied and speed else ""
    return ""


def _loader(summary: Summary) -> str:
    stalled = _value(summary, "data_stall_fraction")
    workers = summary.run.config.get("num_workers")
    said = [f"num_workers={workers}"] if workers is not None else []
    if stalled is not None and summary.run.device != "cpu":
        said.append(f"device idle for {share(stalled)}")
    return "; ".join(said)


def _tokens(summary: Summary) -> Fact | None:
    rate_per_s, mask = _value(summary, "effective_tokens_per_s"), summary.run.notes.get("tokens")
    if rate_per_s is None:
        return None
    name = f"effective tokens/s{f' ({mask})' if mask else ''}"
    return Fact(name=name, said=_whole(rate_per_s), first=True)


def _samples(summary: Summary) -> Fact | None:
    rate_per_s = _value(summary, "samples_per_s")
    if rate_per_s is None or _value(summary, "effective_tokens_per_s") is not None:
        return None
    return Fact(name="samples/s", said=_whole(rate_per_s), first=True)


def _lengths(summary: Summary) -> Fact | None:
    """Median and maximum of the sequence lengths, each as the upper edge of its bin."""
    lengths = summary.sequence_lengths
    half, below = sum(lengths.values()) / 2, 0
    for edge, number in lengths.items():
        below += number
        if below >= half:
            return Fact(name="sequences", said=f"half ≤ {edge:,}, longest ≤ {max(lengths):,}")
    return None


def _overflow(summary: Summary) -> Fact | None:
    overflowed, scale = _value(summary, "overflow_rate"), _value(summary, "loss_scale")
    if overflowed is None:
        return None
    at = f" (scale {scale_factor(scale)})" if scale is not None else ""
    return Fact(name="overflow", said=fine_share(overflowed) + at)


def _titled(summary: Summary) -> list[Fact]:
    """Readings that bring a name for people with them, as those of a user's own meters do."""
    return [
        Fact(name=plain(reading.title), said=amount(reading.value, reading.unit, name))
        for name, reading in summary.readings.items()
        if reading.title and reading.value is not None
    ]


def _fact(summary: Summary, reading: str, name: str, say: Callable[[float], str]) -> Fact | None:
    found = _value(summary, reading)
    return None if found is None else Fact(name=name, said=say(found))


def _whole(number: float) -> str:
    return count(round(number)) if number >= 100 else count(number)


def _loss(loss: float) -> str:
    return f"{loss:.4g}"


def _value(summary: Summary, name: str) -> float | None:
    reading = summary.readings.get(name)
    return reading.value if reading else None

"""Rows and sentences of every report of a run: the summary's numbers, put into words once."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from trainperf.analysis.summary.captures import steps_of
from trainperf.analysis.summary.machine import link_words
from trainperf.analysis.summary.schema import Summary
from trainperf.core import readings
from trainperf.core.artifacts.lines import BEFORE_FIT, IMPORTS, PREPARING
from trainperf.core.choice import texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import (
    Scale,
    count,
    duration,
    fine_share,
    plural,
    rate,
    share,
    size,
    words,
)
from trainperf.core.loop_kind import imported_from
from trainperf.core.phases import GAPS, PHASES, Phase
from trainperf.core.steps.own_sums import AnswerFacts
from trainperf.core.steps.records import NOT_CLOSED
from trainperf.meters.fold import NOT_COVERED, not_covered


DEVICES = {
    "cpu": "CPU",
    "cuda": "CUDA",
    "xpu": "XPU",
    "mps": "MPS",
    "hpu": "HPU",
    "unknown": "device not in the log",
}

_TRACES = "captures"
"""Note that lists the traces written; the others are sentences."""

_SHOWN_ELSEWHERE = frozenset({"tokens", "loss"})
"""Notes that are shown with their number, or among the warnings."""

_MOST_ANSWERS = 3
"""Traces whose answer is repeated here, the latest."""

_TRAINING = (Phase.BACKWARD.label, Phase.OPTIMIZER.label)
"""Phases that an inference loop has not."""

_NOTHING = 0.001
"""Share of a step below which a batch was not moved."""


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the mean step."""

    label: str
    phase: int
    """Its place in the order of phases, which is that of their colours; those that the loop has
    named itself come after all others."""
    seconds: float
    time: str
    share: str
    fraction: float
    note: str
    absent: str
    """Why it has no time of its own; empty where it has."""


def about(summary: Summary) -> str:
    """Ranks and device, e.g. `2 ranks · CUDA`."""
    run = summary.run
    device = DEVICES.get(run.device, run.device)
    return f"{run.loop.mark}{plural(len(run.ranks), 'rank')} · {plain(device)}"


def phase_rows(summary: Summary) -> list[PhaseRow]:
    """The phases of the mean steady step; of the mean of all steps where none is steady."""
    phases_s = {**{phase.label: 0.0 for phase in PHASES}, **summary.phases_s()}
    step_s = sum(phases_s.values())
    if step_s <= 0:
        return []
    scale = Scale.fine(step_s)
    return [
        PhaseRow(
            label=plain(words(label)),
            phase=place,
            seconds=spent_s,
            time=scale.say(spent_s),
            share=fine_share(spent_s / step_s),
            fraction=spent_s / step_s,
            note=plain(_note(summary, label)),
            absent=_absent(summary, label, spent_s / step_s),
        )
        for place, (label, spent_s) in enumerate(phases_s.items())
        if label not in _TRAINING or label in summary.run.loop.work
    ]


def phases_of(summary: Summary) -> str:
    """What the phases are the mean of."""
    run = summary.run
    steps = plural(run.steady_steps, "steady step") if run.steady_steps else "all steps"
    return f"mean of {steps}{' and of all ranks' if len(run.ranks) > 1 else ''}"


def facts(summary: Summary) -> list[str]:
    """Throughput and the other single numbers that were measured, e.g. `p95 55.3 ms`."""
    latency = summary.value(readings.LATENCY_S) is not None
    scale = summary.value(readings.LOSS_SCALE)
    at_scale = "" if scale is None else f" (scale {scale:,.6g})"
    # An inference loop has the percentiles of its latency; in a window the first step is another.
    single: tuple[tuple[str, str, Callable[[float], str], bool], ...] = (
        (readings.PADDING_FRACTION, "padding", fine_share, True),
        (readings.OVERFLOW_RATE, "overflow", lambda rate: f"{fine_share(rate)}{at_scale}", True),
        (readings.FIRST_STEP_S, "first step", duration, not summary.run.window),
        (readings.STEP_P95_S, "p95", duration, not latency),
        (readings.STEP_P99_S, "p99", duration, not latency),
        (readings.ALLREDUCE_TAIL_S, "all-reduce tail", duration, True),
        (readings.HOST_BOUND_FRACTION, "host-bound steps", share, True),
        (readings.MEMORY_PEAK_BYTES, "peak memory", size, True),
        (readings.RESIDENT_PEAK_BYTES, "peak resident memory", size, True),
        (readings.LOSS, readings.LOSS, "{:.4g}".format, True),
        (readings.OVERHEAD_S, "trainperf overhead", lambda s: f"{duration(s)}/step", True),
    )
    numbers = [
        f"{name} {say(value)}"
        for reading, name, say, applies in single
        if applies and (value := summary.value(reading)) is not None
    ]
    strategy = tail_not_covered(summary)
    numbers += [f"all-reduce tail not covered: {strategy}"] if strategy else []
    lengths = summary.lengths_in_words
    others = [
        *_rates(summary, latency=latency),
        *([f"sequences {lengths}"] if lengths else []),
        *_answers(summary),
        *numbers,
    ]
    return [*_titled(summary), *others] if latency else [*others, *_titled(summary)]


def _rates(summary: Summary, *, latency: bool) -> tuple[str, ...]:
    """Tokens that count, else samples; of an inference loop the batches, too."""
    mask = summary.run.notes.get("tokens")
    tokens = summary.value(readings.EFFECTIVE_TOKENS_PER_S)
    samples, step_s = summary.value(readings.SAMPLES_PER_S), summary.value(readings.STEP_MEAN_S)
    return texts_of(
        tokens is not None
        and f"{_whole(tokens)} effective tokens/s{f' ({plain(mask)})' if mask else ''}",
        tokens is None
        and samples is not None
        and f"{_whole(samples)} {summary.run.loop.samples}/s",
        step_s and latency and f"{_whole(1 / step_s)} batches/s",
    )


_SAY: dict[str, Callable[[float], str]] = {
    "s": duration,
    "B": size,
    "B/s": rate,
    "1/s": lambda number: f"{count(number)}/s",
    "1": lambda number: count(number) if abs(number) >= 100 else f"{number:.4g}",
}


def amount(number: float, unit: str, name: str) -> str:
    """The value of the reading *name* with its unit."""
    if name.endswith(("_fraction", "_rate")) or name in (readings.MFU, readings.HFU):
        return fine_share(number)
    say = _SAY.get(unit)
    return say(number) if say else f"{count(number)} {unit}".rstrip()


def ledger(summary: Summary) -> list[tuple[str, float]]:
    """Seconds of the fit: steps, then each kind of gap, largest first, then what remains."""
    entries = summary.ledger_s
    phases = {phase.label for phase in PHASES}
    steps = sum(spent_s for slot, spent_s in entries.items() if slot in phases)
    gaps = [(slot, spent_s) for slot, spent_s in entries.items() if slot not in phases]
    order = {gap.label: place for place, gap in enumerate(GAPS)}
    gaps.sort(key=lambda gap: (gap[0] not in order, -gap[1]))
    return [("steps", steps), *((plain(words(slot)), spent_s) for slot, spent_s in gaps)]


def fit_sum(summary: Summary) -> list[str]:
    """The terms of the fit's sum, those that would be shown as zero dropped; none of no time."""
    run = summary.run
    return _terms(run.loop.run_noun, run.fit_s, ledger(summary)) if run.fit_s else []


def prepared_of(summary: Summary) -> tuple[float, float]:
    """Seconds of the script's own work before the fit, 0 below a tenth of it, and of all of it."""
    run = summary.run
    whole_s = run.fit_s + sum(run.before_s.values())
    own_s = sum(run.before_s.get(slot, 0.0) for slot in PREPARING)
    return (own_s if own_s >= LIMITS.notable * whole_s else 0.0), whole_s


def script_sum(summary: Summary) -> list[str]:
    """The terms of the script's sum, where a tenth of it or more is its own work before the fit."""
    run, (own_s, whole_s) = summary.run, prepared_of(summary)
    names = {
        BEFORE_FIT: "before the fit",
        IMPORTS: "loading modules",
        "unseen": f"until {run.seen_from} was loaded",
    }
    first_s = Counter(run.before_s) + Counter(run.first_s)
    parts: list[tuple[str, float]] = [
        (names.get(slot, words(slot)), spent_s) for slot, spent_s in first_s.items()
    ]
    rest = f"the rest of the {run.loop.run_noun}" if run.first_s else run.loop.run_noun
    parts.append((rest, run.fit_s - sum(run.first_s.values())))
    return _terms("script", whole_s, parts) if own_s else []


def _terms(whole: str, whole_s: float, parts: Sequence[tuple[str, float]]) -> list[str]:
    """Each part with its time but those that would be shown as zero; the first one always."""
    scale = Scale.of(whole_s)
    shown = [
        f"{name} {scale.number(spent_s)}"
        for place, (name, spent_s) in enumerate(parts)
        if not place or float(scale.number(spent_s).replace(",", ""))
    ]
    return [f"{whole} {scale.say(whole_s)} = {shown[0]}", *shown[1:]]


def ending(summary: Summary) -> str:
    """How the run ended, e.g. `finished` or `ended without saying so (killed?)`."""
    run = summary.run
    # Who measures a loop of their own closes it; any other is over when its Trainer says so.
    unclosed = run.state == "interrupted" and run.end_reason == NOT_CLOSED
    names = {
        "failed": f"ended by {run.end_reason}",
        "running": "still running",
        "killed": "ended without saying so (killed?)",
    }
    return plain(run.loop.unclosed if unclosed else names.get(run.state, run.state))


def progress(summary: Summary) -> str:
    """How far the run came and how it ended, e.g. `459 steady steps (excluded: 12 warm-up)`."""
    run = summary.run
    steps = plural(run.steps, "step")
    reached = f", {steps} so far" if run.state == "running" else f" after {steps}"
    ended = "" if run.state == "finished" else f"{ending(summary)}{reached} · "
    reasons = ", ".join(f"{n:,} {words(label)}" for label, n in summary.excluded.items())
    why = f"excluded: {reasons}" if reasons else ""
    steady = f"{plural(run.steady_steps, 'steady step')}{f' ({why})' if why else ''}"
    window = f"{run.window} · " if run.window else ""
    return plain(f"{window}{ended}{steady}{_restarts(summary)}")


def _restarts(summary: Summary) -> str:
    """E.g. `3 restarts, 41 min lost; 1,200 steps done twice`; empty without one."""
    restarts = summary.restarts
    if restarts is None:
        return ""
    again = f"; {plural(restarts.again_steps, 'step')} done twice" if restarts.again_steps else ""
    # A log without times of day does not tell how long nothing was trained.
    lost = f", {duration(restarts.lost_s)} lost" if summary.run.started_at else ""
    return f" · {plural(summary.run.attempts - 1, 'restart')}{lost}{again}"


def no_trace(summary: Summary) -> str:
    """Why there is no capture, and how to have one."""
    capture = summary.run.loop.capture
    if imported_from(summary.run.config):
        return "no trace: the run was imported from a log"
    return f"no trace was captured: {capture}, or a file `capture` in the run directory"


def remarks(summary: Summary) -> list[str]:
    """Notes of the training process that no number shows, e.g. why nothing was captured."""
    read = {traced.first_step: traced for traced in summary.traces if traced.answer}
    hidden = {*_SHOWN_ELSEWHERE, *([_TRACES] if read else [])}
    latest = list(read.values())[-_MOST_ANSWERS:]
    answers = [f"trace of {steps_of(traced)}: {traced.answer}" for traced in latest]
    notes = {key: note for key, note in summary.run.notes.items() if key not in hidden}
    others = [f"traces: {note}" if key == _TRACES else note for key, note in notes.items()]
    return [plain(note) for note in (*answers, *others)]


def _absent(summary: Summary, phase: str, fraction: float) -> str:
    nothing = summary.run.backend.no_copies
    if phase == Phase.H2D.label and nothing and fraction < _NOTHING:
        return nothing
    # A step that fetches by itself moves unseen, and a plain loop may bracket nothing.
    reading = summary.readings.get(f"phase_{phase}_s")
    if reading is None or reading.value is not None:
        return ""
    if not_covered(reading):
        return "not in the log"
    return "not measured" if summary.run.steady_steps else ""


def _note(summary: Summary, phase: str) -> str:
    if phase == Phase.DATA_WAIT.label:
        return _loader(summary)
    if phase == Phase.CALLBACKS.label:
        callbacks_s = summary.phases_s().get(phase, 0.0)
        mostly = 2 * (summary.value(readings.OVERHEAD_S) or 0.0) > callbacks_s
        return next(iter(summary.actions_s), summary.run.loop.ours if mostly else "")
    meetings = {point.point for point in summary.synchronisation}
    if phase == Phase.LOOP.label and phase in meetings:
        return "includes waiting for ranks"
    if phase == Phase.H2D.label:
        copied, speed = summary.value(readings.H2D_BYTES), link_words(summary)
        measured = f"{size(copied)} at {speed}" if copied and speed else ""
        return summary.run.backend.copies or measured
    named = summary.named_phases.get(phase)
    return f"{named.cpus:.1f} CPUs" if named and named.cpus is not None else ""


def _loader(summary: Summary) -> str:
    stalled = summary.value(readings.DATA_STALL_FRACTION)
    workers = summary.run.config.get("num_workers")
    idle, several = summary.run.backend.idle, len(summary.run.ranks) > 1
    # Accelerate's rank 0 then loads the batches of all ranks and sends them.
    dispatched = several and summary.run.config.get("loader") == "DataLoaderDispatcher"
    parts = (
        summary.run.loop.waits,
        "" if workers is None else f"num_workers={workers}",
        "rank 0 loads for all" if dispatched else "",
        "" if stalled is None else idle.format(share=share(stalled)),
    )
    return "; ".join(filter(None, parts))


def _answers(summary: Summary) -> tuple[str, ...]:
    """What a policy has generated: tokens, the longest answer, and answers for nothing."""
    answers, generated = summary.answers or AnswerFacts(), summary.generated_tokens_per_s()
    usual = f"{answers.usual_is} {_whole(answers.usual)}"
    return texts_of(
        generated and f"{_whole(generated)} generated tokens/s",
        answers.longest and f"answers longest {_whole(answers.longest)}, {usual} tokens",
        answers.useless is not None and f"useless answers {share(answers.useless)}",
    )


def _titled(summary: Summary) -> list[str]:
    """Readings that bring a name for people with them, as those of a user's own meters do."""
    return [
        f"{plain(reading.title)} {amount(reading.value, reading.unit, name)}"
        for name, reading in summary.readings.items()
        if reading.title and reading.value is not None
    ]


def tail_not_covered(summary: Summary) -> str:
    """With what ranks share the work, of which the all-reduce tail is not covered; else empty.

    E.g. `FSDP2 (fully_shard)`.
    """
    tail = summary.readings[readings.ALLREDUCE_TAIL_S]
    if len(summary.run.ranks) < 2 or tail.value is not None or imported_from(summary.run.config):
        return ""
    named = (tail.reason or "").partition(";")[0].partition(f"{NOT_COVERED}: ")[2]
    return plain(named)


def _whole(number: float) -> str:
    return count(round(number)) if number >= 100 else count(number)

"""A comparison in words: the verdict, what must be known to believe it, and the readings."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.summary.loss_parity import Parity
from trainperf.comparison.comparability import UNCOMMITTED
from trainperf.comparison.fit_clock import FIT_SAMPLES_PER_S, FIT_STEP_S, FIT_TOKENS_PER_S
from trainperf.comparison.results import (
    ClockChange,
    Comparison,
    Difference,
    FirstSteps,
    ReadingChange,
    Speedup,
    TraceDifference,
)
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import (
    as_fast,
    count,
    duration,
    fine_share,
    plural,
    rate,
    share,
    size,
    words,
)
from trainperf.core.phases import PHASES
from trainperf.core.readings import (
    DATA_WAIT_FRACTION,
    EFFECTIVE_TOKENS_PER_S,
    FIRST_STEP_S,
    HFU,
    MFU,
    NAMES,
    PADDED_TOKENS_PER_S,
    SAMPLES_PER_S,
    STEP_P95_S,
    STEP_S,
    phase_reading,
)
from trainperf.reports.charts.forest import CAPTION, RatioMark, forest
from trainperf.reports.layout.document import Chart, Part, Sentence, items, missing, section


_FIRST = (
    FIT_STEP_S,
    FIT_TOKENS_PER_S,
    FIT_SAMPLES_PER_S,
    STEP_S,
    EFFECTIVE_TOKENS_PER_S,
    PADDED_TOKENS_PER_S,
    SAMPLES_PER_S,
    STEP_P95_S,
    FIRST_STEP_S,
    DATA_WAIT_FRACTION,
    *(phase_reading(phase.label) for phase in PHASES),
)
"""The order in which people want to see them; the others follow as they come."""

TOGETHER_S = 120.0
"""A machine may have changed its speed between runs that are further apart."""

WIDE = 1.25
"""Where an interval allows as much faster and as much slower, its ends are not shown."""

_KINDS = {"faster": "good", "slower": "bad"}
"""Classes of the style by verdict; the others are neither."""

_HEAD = ("", "before", "after", "after / before", "")
_UNITS = {"s": duration, "B": size, "B/s": rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """What a page has besides."""

    phases: Sequence[Chart] = ()
    steps: Sequence[Part] = ()
    losses: Sequence[Chart] = ()


def comparison_document(comparison: Comparison, charts: Charts | None = None) -> list[Part]:
    """The verdict first, then what it stands on."""
    drawn = charts or Charts()
    return [
        Sentence(text=answer(comparison), kind="answer"),
        *items(notes(comparison)),
        *_readings(comparison),
        *section("Where a step goes", drawn.phases),
        *section("How long the steps took", drawn.steps),
        *section("Loss at equal work", drawn.losses),
        *_differences(comparison),
        *explained(comparison),
        *(missing(_one_sided(comparison)) if charts else []),
    ]


def _readings(comparison: Comparison) -> list[Part]:
    """The readings that both sides have, each with its interval."""
    changes = compared(comparison)
    if not changes:
        return []
    rows = tuple(_row(change, comparison.margin) for change in changes)
    marks = [
        RatioMark(
            value=change.ratio,
            low=change.low,
            high=change.high,
            kind=_KINDS.get(change.verdict or "", "even"),
        )
        for change in changes
    ]
    return [forest(Table(head=_HEAD, rows=rows, end_words=2), marks, 3), CAPTION]


def _differences(comparison: Comparison) -> list[Part]:
    """What differs, where that is more than a sentence has room for."""
    rows = tuple(
        (each.name, setting(each.before), setting(each.after), each.change)
        for each in comparison.differences
    )
    head = ("", "before", "after", "belongs to")
    several = len(comparison.changes) > 1
    return [Table(title="what is different", head=head, rows=rows, words=4)] if several else []


def _one_sided(comparison: Comparison) -> list[tuple[str, str]]:
    """Readings that only one side has, and why."""
    return [
        (each.name, f"only {'after' if each.before is None else 'before'}: {each.reason or ''}")
        for each in comparison.readings
        if each.before is None or each.after is None
    ]


def answer(comparison: Comparison) -> str:
    """The verdict in a sentence, with the clock that the change moved first, and its limit."""
    names = f"{comparison.after.name} against {comparison.before.name}"
    decides = comparison.headline
    if decides is None:
        return f"{names}: not comparable: {comparison.reason}."
    first = comparison.first_steps
    others = [clock for clock in comparison.clocks if clock is not decides]
    clocks = "; ".join(
        [
            f"{_name(decides, first)} {speed(decides.speedup)}",
            *(f"{_name(clock, first)} {_other(clock, comparison.margin)}" for clock in others),
        ]
    )
    if first is not None:
        names += f" over the first {first.steps:,} steps"
    limit = "" if first is None else _limit(comparison, first)
    if comparison.verdict == "loss differs":
        return f"{names}: loss differs, so speed does not count ({clocks}).{limit}"
    return f"{names}: {_verdict(comparison.verdict, comparison.margin)}, {clocks}.{limit}"


def _name(clock: ClockChange, first: FirstSteps | None) -> str:
    return "the fit of these steps" if clock.clock == "fit" and first else f"the {clock.clock}"


def _limit(comparison: Comparison, first: FirstSteps) -> str:
    """What the fit clock does not have, and a sign that it matters."""
    if not first.period:
        return ""
    reached = "were not reached" if first.steps <= first.period else "came only once"
    limit = (
        f" Epochs, validation or checkpoints, every {first.period:,} steps, {reached}: the whole "
        "fit may differ."
    )
    lost_s, gained_s = (_longer_s(comparison, name) for name in (FIRST_STEP_S, STEP_S))
    if lost_s <= 0 or gained_s >= 0 or lost_s < -gained_s * first.period:
        return limit
    return (
        f"{limit} The first step took {duration(lost_s)} longer, more than the next "
        f"{first.period:,} gain: if every epoch begins like that, the fit is slower."
    )


def _longer_s(comparison: Comparison, name: str) -> float:
    """What a step takes more than before; 0 where it was not measured."""
    change = next((each for each in comparison.readings if each.name == name), None)
    if change is None or change.before is None or change.after is None:
        return 0.0
    return change.after - change.before


def _other(clock: ClockChange, margin: float) -> str:
    """E.g. `is equal (within 2 %), 1.00× as fast (95 % CI 0.99–1.01)`."""
    verdict = _verdict(clock.verdict, margin)
    if wide(clock.speedup.low, clock.speedup.high):
        return f"is {verdict}"
    return f"is {verdict}, {speed(clock.speedup)}"


def _verdict(verdict: str, margin: float) -> str:
    """E.g. `equal (within 2 %)`, `faster`."""
    return f"equal (within {share(margin)})" if verdict == "equal" else verdict


def speed(gain: Speedup) -> str:
    """E.g. `1.23× as fast (95 % CI 1.20–1.26)`; no number where the interval means nothing."""
    if wide(gain.low, gain.high):
        return f"not resolved (more than {share(WIDE - 1)} either way is possible)"
    return as_fast(gain.value, gain.low, gain.high, " per rank" if gain.per_rank else "")


def wide(low: float, high: float) -> bool:
    """Whether an interval of a ratio spans more than it can mean."""
    return low < 1 / WIDE and high > WIDE


def notes(comparison: Comparison) -> list[str]:
    """What must be known before the verdict is believed."""
    sentences = [
        _remedy(comparison),
        "" if comparison.speedup is None else comparison.reason,
        *surroundings(comparison),
        _coarse(comparison),
        _noise(comparison),
        loss_sentence(comparison.parity),
        settings_sentence(comparison),
    ]
    return [sentence for sentence in sentences if sentence]


def difference(change: Difference) -> str:
    """E.g. `num_workers: 0 → 2`."""
    return f"{change.name}: {setting(change.before)} → {setting(change.after)}"


def compared(comparison: Comparison) -> list[ReadingChange]:
    """The readings that both sides have, those that people want to see before the others."""
    readings = {
        reading.name: reading for reading in comparison.readings if reading.ratio is not None
    }
    first = [readings.pop(name) for name in _FIRST if name in readings]
    return [*first, *readings.values()]


def explained(comparison: Comparison) -> list[Part]:
    """By the traces of both, what a step spends other time on, the largest difference first."""
    rows = [
        (
            difference.name,
            _spent(difference.before_s, below=difference.below == "before"),
            _spent(difference.after_s, below=difference.below == "after"),
            _change(difference),
            "" if difference.kind == "time" else difference.kind,
        )
        for difference in comparison.explained
    ]
    head = ("", "before", "after", "difference", "")
    title = "per step, in the traces"
    return [Table(title=title, head=head, rows=tuple(rows), end_words=2)] if rows else []


def _change(difference: TraceDifference) -> str:
    sign = "+" if difference.after_s > difference.before_s else "−"
    least = "" if difference.below is None else "> "
    return f"{least}{sign}{duration(abs(difference.after_s - difference.before_s))}"


def _spent(seconds: float, *, below: bool) -> str:
    return f"< {duration(seconds)}" if below else duration(seconds)


def _row(change: ReadingChange, margin: float) -> tuple[str, ...]:
    """One of them in words: label, before, after, ratio with its interval, verdict."""
    stem = change.name.removesuffix("_fraction")
    # Of the same thing there may be seconds, too.
    label = f"{stem} share" if stem != change.name and f"{stem}_s" in NAMES else stem
    label = words(label.removesuffix("_per_s").removesuffix("_s"))
    ratio = "" if change.ratio is None else f"{change.ratio:.3f}"
    if change.low is not None and change.high is not None:
        unresolved = wide(change.low, change.high)
        ratio = "" if unresolved else f"{ratio} [{change.low:.3f}–{change.high:.3f}]"
    return (
        f"{label}/s" if change.name.endswith("_per_s") else label,
        _value(change.name, change.unit, change.before),
        _value(change.name, change.unit, change.after),
        ratio,
        _verdict(change.verdict or "", margin),
    )


def _value(name: str, unit: str, value: float | None) -> str:
    if value is None:
        return ""
    if name.endswith(("_fraction", "_rate")) or name in (MFU, HFU):
        return fine_share(value)
    if name == "loss":
        return f"{value:.4g}"
    say = _UNITS.get(unit)
    return say(value) if say else count(value)


def _remedy(comparison: Comparison) -> str:
    """What decides an undecided comparison, or its gate, in one sentence."""
    gate = comparison.gate
    if comparison.proof is not None:
        return ""
    if gate is not None and gate.verdict == "undecided":
        return f"to decide whether it is more than {share(gate.limit)} slower: `trainperf prove`"
    if comparison.verdict == "undecided":
        return f"to decide at a margin of {share(comparison.margin)}: `trainperf prove`"
    return ""


def _coarse(comparison: Comparison) -> str:
    """What data wait means where a loop was recorded from outside."""
    sides = (comparison.before, comparison.after)
    names = [side.name for side in sides if side.coarse]
    if not names:
        return ""
    whose = "both were" if len(names) == len(sides) else f"{names[0]} was"
    return (
        f"{whose} recorded from outside, coarsely: data wait is everything between an update and "
        "the next forward, the loop's own code too"
    )


def _noise(comparison: Comparison) -> str:
    noise = comparison.noise
    if noise is None:
        return ""
    least = f"a change below {share(noise.resolution)} cannot be resolved"
    if not noise.assumed:
        repeats = len(comparison.before.paths) + len(comparison.after.paths)
        turns = "in turns" if noise.source == "turns" else "not in turns"
        return (
            f"run-to-run noise {share(noise.relative)}, measured on repeats ({repeats} runs, "
            f"{turns}); {least}"
        )
    if comparison.proof is not None:
        few = f"{plural(comparison.proof.pairs, 'pair')}, too few to show run-to-run noise"
        return f"{few}: {share(noise.relative)} is assumed; {least}"
    why = "expected: the machine was busy or uneven" if noise.source == "drift" else "assumed"
    apart, repeat = "", "repeat both to measure the noise"
    if noise.apart_s is not None and noise.apart_s > TOGETHER_S:
        apart = f", {duration(noise.apart_s)} apart"
        repeat = "repeat both, in turns: a machine whose speed changed in between looks like this"
    noisy = f"run-to-run noise {share(noise.relative)}, {why}"
    return f"{_each(comparison)} each{apart}: {noisy}; {least}; {repeat}"


def _each(comparison: Comparison) -> str:
    runs = len(comparison.before.paths)
    return "one run" if runs == 1 else plural(runs, "run")


def loss_sentence(parity: Parity) -> str:
    """Whether the losses match, or why they are not compared."""
    if parity.verdict == "unknown":
        return f"loss not compared: {parity.why}"
    verdict = "equal" if parity.verdict == "same" else "different"
    return f"{parity.why}: {verdict} (tolerance {share(parity.tolerance)})"


def settings_sentence(comparison: Comparison) -> str:
    """How many changes there are, and whether the gain can be one's."""
    changed = comparison.changes
    if not changed:
        return "no difference in the recorded settings"
    if len(changed) == 1:
        listed = ", ".join(map(difference, comparison.differences))
        return f"one change: {listed}"
    if comparison.speedup is None:
        return plural(len(changed), "change")
    return f"{plural(len(changed), 'change')}: the gain cannot be attributed to any one of them"


def surroundings(comparison: Comparison) -> list[str]:
    """What changed besides the code and its settings, the code itself, and what is slow."""
    changed = [
        f"{each.name} {setting(each.before)} → {setting(each.after)}"
        for each in comparison.differences
        if each.besides_code
    ]
    sides = (comparison.before, comparison.after)
    before, after = (side.code for side in sides)
    # A single change is named by the sentence on the settings.
    several = len(comparison.changes) > 1
    besides = f"besides the code and its settings there changed: {', '.join(changed)}"
    code = [f"code: {before} → {after}"] if before and after and before != after else []
    if before == after and before.endswith(UNCOMMITTED):
        code = [f"code: {before} in both runs, which need not be the same ones"]
    return [
        *([besides] if changed and several else []),
        *code,
    ]


def setting(value: object) -> str:
    """The value of a setting."""
    return "not known" if value is None else str(value)

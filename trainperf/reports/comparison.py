"""A comparison in words: the verdict, what must be known to believe it, and the readings."""

from collections.abc import Mapping, Sequence

from trainperf.analysis.summary.loss_parity import Parity
from trainperf.comparison.comparability import UNCOMMITTED
from trainperf.comparison.fit_clock import FIT_SAMPLES_PER_S, FIT_STEP_S, FIT_TOKENS_PER_S
from trainperf.comparison.results import (
    ClockChange,
    Comparison,
    FirstSteps,
    ReadingChange,
    Speedup,
    TraceDifference,
)
from trainperf.core.choice import texts_of
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import (
    as_fast,
    duration,
    plural,
    share,
    words,
)
from trainperf.core.formatting.wrap import shortened
from trainperf.core.phases import PHASES
from trainperf.core.readings import (
    DATA_WAIT_FRACTION,
    EFFECTIVE_TOKENS_PER_S,
    FIRST_STEP_S,
    NAMES,
    PADDED_TOKENS_PER_S,
    SAMPLES_PER_S,
    STEP_P95_S,
    STEP_S,
    phase_reading,
)
from trainperf.core.stats.verdict import WIDE, wide
from trainperf.reports.charts.forest import CAPTION, RatioMark, forest
from trainperf.reports.layout.document import Part, Sentence, items, missing, section
from trainperf.reports.run.rows import amount


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

_KINDS = {"faster": "good", "slower": "bad"}
"""Classes of the style by verdict; the others are neither."""

_EXPLAINED = {
    "time": "per step, in the traces",
    "operator": "operators, per step",
    "kernel": "kernels, per step",
}

_HEAD = ("", "before", "after", "after / before", "")


def comparison_document(
    comparison: Comparison, charts: Mapping[str, Sequence[Part]] | None = None
) -> list[Part]:
    """The verdict first, then what it stands on; with *charts* what only one side has, too."""
    drawn = charts or {}
    one_sided = [
        (each.name, f"only {'after' if each.before is None else 'before'}: {each.reason or ''}")
        for each in comparison.readings
        if charts and (each.before is None or each.after is None)
    ]
    return [
        Sentence(text=answer(comparison), kind="answer"),
        *items(notes(comparison)),
        *_readings(comparison),
        *section("Where a step goes", drawn.get("phases", ())),
        *section("Loss at equal work", drawn.get("losses", ())),
        *_differences(comparison),
        *explained(comparison.explained),
        *missing(one_sided),
    ]


def _readings(comparison: Comparison) -> list[Part]:
    """The readings that both sides have, each with its interval."""
    both = {each.name: each for each in comparison.readings if each.ratio is not None}
    order = [name for name in _FIRST if name in both]
    changes = [both[name] for name in dict.fromkeys([*order, *both])]
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
    return [forest(Table(head=_HEAD, rows=rows, end_words=2), marks, 3), CAPTION] if rows else []


def _differences(comparison: Comparison) -> list[Part]:
    """What differs, where that is more than a sentence has room for."""
    rows = tuple(
        (each.name, setting(each.before), setting(each.after), each.change)
        for each in comparison.differences
    )
    head = ("", "before", "after", "belongs to")
    several = len(comparison.changes) > 1
    return [Table(title="what is different", head=head, rows=rows, words=4)] if several else []


def answer(comparison: Comparison) -> str:
    """The verdict in a sentence, with the clock that the change moved first, and its limit."""
    names = f"{comparison.after.name} against {comparison.before.name}"
    decides, first = comparison.headline, comparison.first_steps
    if decides is None:
        return f"{names}: not comparable: {comparison.reason}."
    limit = ""
    if first is not None:
        names += f" over the first {first.steps:,} steps"
        limit = _limit(comparison, first)
    others = [clock for clock in comparison.clocks if clock is not decides]
    clocks = "; ".join(_clock(clock, comparison) for clock in (decides, *others))
    verdict = (
        f"loss differs, so speed does not count ({clocks})"
        if comparison.verdict == "loss differs"
        else f"{_verdict(comparison.verdict, comparison.margin)}, {clocks}"
    )
    return f"{names}: {verdict}.{limit}"


def _clock(clock: ClockChange, comparison: Comparison) -> str:
    """E.g. `the fit is equal (within 2 %), 1.00× as fast (95 % CI 0.99–1.01)`."""
    of_these = clock.clock == "fit" and comparison.first_steps is not None
    name = "the fit of these steps" if of_these else f"the {clock.clock}"
    if clock is comparison.headline:
        return f"{name} {speed(clock.speedup)}"
    unresolved = wide(clock.speedup.low, clock.speedup.high)
    gain = "" if unresolved else f", {speed(clock.speedup)}"
    return f"{name} is {_verdict(clock.verdict, comparison.margin)}{gain}"


def _limit(comparison: Comparison, first: FirstSteps) -> str:
    """What the fit clock does not have, and a sign that it matters."""
    if not first.period:
        return ""
    reached = "were not reached" if first.steps <= first.period else "came only once"
    limit = (
        f" Epochs, validation or checkpoints, every {first.period:,} steps, {reached}: the whole "
        "fit may differ."
    )
    longer_s = {
        each.name: each.after - each.before
        for each in comparison.readings
        if each.before is not None and each.after is not None
    }
    lost_s, gained_s = longer_s.get(FIRST_STEP_S, 0.0), -longer_s.get(STEP_S, 0.0)
    if lost_s <= 0 or gained_s <= 0 or lost_s < gained_s * first.period:
        return limit
    return (
        f"{limit} The first step took {duration(lost_s)} longer, more than the next "
        f"{first.period:,} gain: if every epoch begins like that, the fit is slower."
    )


def _verdict(verdict: str, margin: float) -> str:
    """E.g. `equal (within 2 %)`, `faster`."""
    return f"equal (within {share(margin)})" if verdict == "equal" else verdict


def speed(gain: Speedup) -> str:
    """E.g. `1.23× as fast (95 % CI 1.20–1.26)`; no number where the interval means nothing."""
    if wide(gain.low, gain.high):
        return f"not resolved (more than {share(WIDE - 1)} either way is possible)"
    return as_fast(gain.value, gain.low, gain.high, " per rank" if gain.per_rank else "")


def notes(comparison: Comparison) -> list[str]:
    """What must be known before the verdict is believed."""
    sentences = (
        _remedy(comparison),
        "" if comparison.speedup is None else comparison.reason,
        *surroundings(comparison),
        _coarse(comparison),
        _noise(comparison),
        loss_sentence(comparison.parity),
        settings_sentence(comparison),
    )
    return [*filter(None, sentences)]


def explained(differences: Sequence[TraceDifference]) -> list[Part]:
    """By the traces of both, what a step spends other time on, the largest difference first."""
    tables: list[Part] = []
    for kind, title in _EXPLAINED.items():
        rows = tuple(
            (
                shortened(each.name),
                f"{'< ' if each.below == 'before' else ''}{duration(each.before_s)}",
                f"{'< ' if each.below == 'after' else ''}{duration(each.after_s)}",
                f"{'> ' if each.below else ''}"
                + ("+" if each.after_s > each.before_s else "−")
                + duration(abs(each.after_s - each.before_s)),
            )
            for each in differences
            if each.kind == kind
        )
        head = ("", "before", "after", "difference")
        tables += [Table(title=title, head=head, rows=rows)] if rows else []
    return tables


def _row(change: ReadingChange, margin: float) -> tuple[str, ...]:
    """One of them in words: label, before, after, ratio with its interval, verdict."""
    stem = change.name.removesuffix("_fraction")
    # Of the same thing there may be seconds, too.
    label = f"{stem} share" if stem != change.name and f"{stem}_s" in NAMES else stem
    per_s = "/s" if change.name.endswith("_per_s") else ""
    label = f"{words(label.removesuffix('_per_s').removesuffix('_s'))}{per_s}"
    ratio = "" if change.ratio is None else f"{change.ratio:.3f}"
    if change.low is not None and change.high is not None:
        unresolved = wide(change.low, change.high)
        ratio = "" if unresolved else f"{ratio} [{change.low:.3f}–{change.high:.3f}]"
    sides = [0.0 if side is None else side for side in (change.before, change.after)]
    before, after = (
        amount(side, change.unit, change.name).removesuffix("/s" * (change.unit == "1/s"))
        for side in sides
    )
    return label, before, after, ratio, _verdict(change.verdict or "", margin)


def _remedy(comparison: Comparison) -> str:
    """What decides an undecided comparison, or its gate, in one sentence."""
    gate, fixed = comparison.gate, comparison.proof is not None
    gated = gate is not None and gate.verdict == "undecided"
    if fixed or not (gated or comparison.verdict == "undecided"):
        return ""
    limit = f"whether it is more than {share(gate.limit)} slower" if gate and gated else ""
    return f"to decide {limit or f'at a margin of {share(comparison.margin)}'}: `trainperf prove`"


def _coarse(comparison: Comparison) -> str:
    """What data wait means where a loop was recorded from outside."""
    names = [side.name for side in (comparison.before, comparison.after) if side.coarse]
    whose = "both were" if len(names) > 1 else f"{''.join(names)} was"
    sentence = (
        f"{whose} recorded from outside, coarsely: data wait is everything between an update and "
        "the next forward, the loop's own code too"
    )
    return sentence if names else ""


def _noise(comparison: Comparison) -> str:
    noise, repeats = comparison.noise, len(comparison.before.paths)
    if noise is None:
        return ""
    relative = share(noise.relative)
    least = f"a change below {share(noise.resolution)} cannot be resolved"
    if not noise.assumed:
        turns = "in turns" if noise.source == "turns" else "not in turns"
        runs = repeats + len(comparison.after.paths)
        return f"run-to-run noise {relative}, measured on repeats ({runs} runs, {turns}); {least}"
    if comparison.proof is not None:
        few = f"{plural(comparison.proof.pairs, 'pair')}, too few to show run-to-run noise"
        return f"{few}: {relative} is assumed; {least}"
    why = "expected: the machine was busy or uneven" if noise.source == "drift" else "assumed"
    each = "one run each" if repeats == 1 else f"{plural(repeats, 'run')} each"
    repeat = "repeat both to measure the noise"
    if noise.apart_s is not None and noise.apart_s > TOGETHER_S:
        each += f", {duration(noise.apart_s)} apart"
        repeat = "repeat both, in turns: a machine whose speed changed in between looks like this"
    return f"{each}: run-to-run noise {relative}, {why}; {least}; {repeat}"


def loss_sentence(parity: Parity) -> str:
    """Whether the losses match, or why they are not compared."""
    verdicts = {"same": "equal", "differs": "different"}
    if parity.verdict == "unknown":
        return f"loss not compared: {parity.why}"
    return f"{parity.why}: {verdicts[parity.verdict]} (tolerance {share(parity.tolerance)})"


def settings_sentence(comparison: Comparison) -> str:
    """How many changes there are, and whether the gain can be one's."""
    number = len(comparison.changes)
    listed = (
        f"{each.name}: {setting(each.before)} → {setting(each.after)}"
        for each in comparison.differences
    )
    if number <= 1:
        only = f"one change: {', '.join(listed)}"
        return only if number else "no difference in the recorded settings"
    whose = ": the gain cannot be attributed to any one of them"
    return f"{plural(number, 'change')}{'' if comparison.speedup is None else whose}"


def surroundings(comparison: Comparison) -> tuple[str, ...]:
    """What changed besides the code and its settings, and the code itself."""
    changed = [
        f"{each.name} {setting(each.before)} → {setting(each.after)}"
        for each in comparison.differences
        # A single change is named by the sentence on the settings.
        if each.besides_code and len(comparison.changes) > 1
    ]
    before, after = comparison.before.code, comparison.after.code
    unsaved = before == after and before.endswith(UNCOMMITTED)
    return texts_of(
        changed and f"besides the code and its settings there changed: {', '.join(changed)}",
        before and after and before != after and f"code: {before} → {after}",
        unsaved and f"code: {before} in both runs, which need not be the same ones",
    )


def setting(value: object) -> str:
    """The value of a setting."""
    return "not known" if value is None else str(value)

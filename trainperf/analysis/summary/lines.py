"""Lines of the user's code by phase, and slow steps that come back, with the line they run.

Shares are of samples of wall time (`trainperf.core.artifacts.lines`); how long a phase took is
known from its records alone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.roofline.time_split import WORK
from trainperf.analysis.summary.schema import (
    LineShare,
    PhaseLines,
    PlainCode,
    RecurringSteps,
    StallingCall,
)
from trainperf.core.arrays import Column, Mask
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.lines import (
    BEFORE,
    COLLECT,
    OBJECTS,
    OF_WORKERS,
    STALLS,
    Place,
    SampledLines,
    SampledStack,
)
from trainperf.core.findings import LIMITS
from trainperf.core.groups import counted, grouped, summed
from trainperf.core.phases import GAPS, PHASES, Gap, Phase, Tag
from trainperf.core.stats.quantiles import wilson
from trainperf.meters.lead_steps import HOST, INDEX, LeadSteps, tagged


FEWEST_SAMPLES = 10
"""Fewer of a phase name no line."""
SLOW = 1.5
"""A step so many times as long as the median is slow."""
FEWEST_SLOW = 4
_OWNED = int(
    Tag.WARMUP
    | Tag.FIRST_IN_EPOCH
    | Tag.PROFILED
    | Tag.AUDITED
    | Tag.RECOMPILED
    | Tag.GC
    | Tag.PARTIAL_GROUP
    | Tag.OUT_OF_TURN
    | Tag.TURN_BOUNDARY
    | Tag.TRIAL
)
"""Steps that other rules speak about."""

BETWEEN = "between"
"""Slot of what a loop does between two steps where that was recorded as data wait."""

_NO_PHASES = {*(gap.label for gap in GAPS), *BEFORE, *OF_WORKERS}
"""Slots of samples outside of steps; all others are phases, those of the loop's own among them."""

Function = tuple[str, str]
Stacks = Counter[tuple[int, ...]]
WeighedStack = tuple[SampledStack, int]
"""What was running in a sample, and the microseconds that it stands for."""


def slow_steps(steps: LeadSteps, code: "SampledCode | None") -> RecurringSteps | None:
    """Those that come back at a regular distance, with what was seen in them."""
    rows = steps.latest(_OWNED)
    if len(rows) < 3 * FEWEST_SLOW:
        return None
    index, host_s = rows[:, INDEX].astype(int), rows[:, HOST:]
    walls_s = host_s.sum(axis=1)
    typical_s = float(np.median(walls_s))
    if typical_s <= 0:
        return None  # a clock that stood still
    every, which = _periodic(index, walls_s / typical_s)
    if not every:
        return None
    more_s = np.median(host_s[which], axis=0) - np.median(host_s[~which], axis=0)
    longer_s = float(more_s.clip(min=0).sum())
    if longer_s <= 0:
        return None  # what they take longer is in a different phase each
    phase = PHASES[int(np.argmax(more_s))].label
    slow, ordinary = (frozenset(index[some].tolist()) for some in (which, ~which))
    return RecurringSteps(
        every=every,
        steps=len(slow),
        of_steps=len(rows),
        slow_s=float(np.median(walls_s[which])),
        typical_s=typical_s,
        lost_s=float((walls_s[which] - typical_s).sum()),
        phase=phase,
        phase_fraction=float(more_s.max()) / longer_s,
        line=code.beyond(phase, slow, ordinary) if code else None,
    )


def _periodic(index: npt.NDArray[np.int64], medians: Column) -> tuple[int, Mask]:
    """Steps from a slow one to the next, 0 without any, and which these are.

    Where steps are slow by chance as well, those that come back may be longer still: the bar is
    doubled until a period shows, or hardly any is left above it.
    """
    bar = SLOW
    while (slow := medians > bar).sum() >= FEWEST_SLOW:
        numbers, bar = index[slow], 2 * bar
        period = _period(numbers, index) if 3 * len(numbers) <= len(index) else 0
        if period:
            return period, slow & np.isin(index, [numbers + period, numbers - period])
    return 0, np.zeros(len(index), dtype=bool)


def _period(numbers: npt.NDArray[np.int64], index: npt.NDArray[np.int64]) -> int:
    """Steps between slow ones, where most are followed by another so many steps later; else 0.

    Those are not counted after which the step in question is not among the ones looked at.
    """
    apart = Counter(int(step) for ahead in (1, 2, 3) for step in numbers[ahead:] - numbers[:-ahead])
    for period, _ in sorted(apart.most_common(5)):
        could = numbers[np.isin(numbers + period, index) & (numbers + period <= numbers[-1])]
        followed = np.isin(could + period, numbers)
        if len(could) >= FEWEST_SLOW - 1 and followed.mean() >= LIMITS.regular:
            return period if period > 1 else 0  # one after the other: a slow stretch
    return 0


def before_fit(lines: SampledLines | None) -> dict[str, float]:
    """Seconds of the process before its first fit, by slot; they sum to its age then.

    Empty where no sample tells of them.  Unseen is what came before the first.
    """
    if lines is None or not lines.before_fit_s:
        return {}
    spent_us = summed((lines.stacks[at.stack].slot, at.stands_for_us) for at in lines.samples)
    spent_s = {slot: spent_us[slot] / 1e6 for slot in BEFORE if slot in spent_us}
    return {**spent_s, "unseen": max(0.0, lines.before_fit_s - sum(spent_s.values()))}


def up_to_steady(
    rows: Column,
    ledger_s: Mapping[str, float],
    compilation: Compilation | None,
    *,
    outside: bool = False,
) -> dict[str, float]:
    """Seconds of the fit until its steps are steady; empty where they never are.

    The first step is what it takes beyond its batch and beyond compiling.  From *outside* it was
    over before the fit.

    Args:
        rows: Steps one by one; empty is returned where the first is not among them.
        ledger_s: Of the fit.
        compilation: What was compiled in it.
        outside: Whether it was recorded so.
    """
    warm = rows[tagged(rows, Tag.WARMUP)]
    if not len(warm) or len(warm) == len(rows) or rows[0, INDEX]:
        return {}
    before_s = {
        gap.label: ledger_s[gap.label]
        for gap in (Gap.STARTUP, Gap.SANITY_CHECK)
        if gap.label in ledger_s
    }
    if outside:
        return {**before_s, "warmup": float(warm[:, HOST:].sum())}
    compiled = () if compilation is None else compilation.compiled
    first_s, batch_s = float(rows[0, HOST:].sum()), float(rows[0, HOST + Phase.DATA_WAIT])
    compiled_s = sum(each.seconds or 0.0 for each in compiled if each.step == 0)
    return {
        **before_s,
        "first_batch": batch_s,
        "compiling": min(compiled_s, first_s - batch_s),
        "first_step": max(0.0, first_s - batch_s - compiled_s),
        "warmup": float(warm[warm[:, INDEX] > 0, HOST:].sum()),
    }


class SampledCode:
    """What was sampled: stacks of lines, and functions that run the loop itself.

    Args:
        lines: What was seen.
        apart: Whether data wait is the loop's own code as well: what is in no loader is `BETWEEN`.
    """

    def __init__(self, lines: SampledLines, *, apart: bool = False) -> None:
        divided = tuple(
            msgspec.structs.replace(stack, slot=BETWEEN)
            if apart and stack.slot == "data_wait" and stack.loads is False
            else stack
            for stack in lines.stacks
        )
        self._lines = msgspec.structs.replace(lines, stacks=divided)
        self._functions = [(place.file, place.function) for place in lines.places]
        stacks = [stack for stack, _ in self._samples((), None)]
        nearly_all = 1 - LIMITS.worth
        # Lines that nearly all samples of steps share: the call that trains runs in every phase,
        # and says nothing about any of them.
        counts = Counter(place for stack in stacks for place in set(_frames(stack)))
        self._shared = {place for place in counts if counts[place] >= nearly_all * len(stacks)}
        # Functions that run the loop: outside of modules they are seen in several phases.  One that
        # is seen around forward, backward and update only runs none of it.
        phases = grouped(
            (function, stack.slot if stack.slot in WORK else "")
            for stack in stacks
            for function in set(map(self._functions.__getitem__, stack.frames[: stack.outside]))
        )
        self._around = {
            function
            for function, slots in phases.items()
            if max(Counter(slots).values()) < nearly_all * len(slots)
        }

    def phases(self, steady: Collection[int]) -> tuple[PhaseLines, ...]:
        """Of each phase in steady steps, and of each gap; those with most samples first.

        Args:
            steady: Numbers of the steady steps.
        """
        slots = Counter(self._lines.stacks[sample.stack].slot for sample in self._lines.samples)
        named = (
            self._named(slot, None if slot in _NO_PHASES else steady)
            for slot, _ in slots.most_common()
        )
        return tuple(each for each in named if each is not None)

    def collecting(self, steps: Collection[int]) -> tuple[StallingCall, ...]:
        """Lines that look for garbage, with their share of these steps, the longest first."""
        return self._stalling((), steps, COLLECT)

    def _named(self, slot: str, steps: Collection[int] | None) -> PhaseLines | None:
        """The lines of a slot, in all steps or in some of them; `None` with too few samples."""
        samples = self._samples((slot,), steps)
        number, stacks = len(samples), self._time(samples)
        whole = stacks.total()
        if number < FEWEST_SAMPLES or not whole:
            return None
        tops = counted((frames[-1], weight) for frames, weight in stacks.items() if frames)
        loads = [(at.loads, us) for at, us in self._samples(_recorded_with(slot), steps)]
        loading = sum(us for in_loader, us in loads if in_loader) / sum(us for _, us in loads)
        return PhaseLines(
            slot=slot,
            samples=number,
            owner=self._owner(stacks, number, self._around),
            lines=tuple(
                self._line(place, weight / whole, number)
                for place, weight in tops.most_common()
                if weight >= LIMITS.worth * whole
            ),
            host=self._plain_code(samples),
            loader_fraction=None if (None in dict(loads)) else loading,
            stalls=self._stalling((slot,), steps, *STALLS, *OBJECTS),
        )

    def _stalling(
        self, slots: Collection[str], steps: Collection[int] | None, *calls: str
    ) -> tuple[StallingCall, ...]:
        """Lines of some slots, or of all phases, that make calls of these last names.

        With their share of the samples, and that of what comes after the line in the same function,
        unless that runs the loop.
        """
        samples = self._samples(slots, steps)
        whole_us = max(1, sum(spent_us for _, spent_us in samples))
        inside_us = counted(
            (self._lines.places[place], spent_us)
            for stack, spent_us in samples
            for place in set(_frames(stack))
            if self._functions[place] not in self._around
        )
        parts_us = counted(
            ((stack.host_work, self._lines.places[stack.frames[-1]]), spent_us)
            for stack, spent_us in samples
            if stack.host_work.endswith(calls)
        )
        return tuple(
            StallingCall(
                name=name,
                where=f"{place.file}:{place.line}",
                fraction=spent_us / whole_us,
                inside=(spent_us + _after_us(place, inside_us)) / whole_us,
            )
            for (name, place), spent_us in parts_us.most_common()
        )

    def _plain_code(self, samples: Sequence[WeighedStack]) -> PlainCode | None:
        """What is no tensor operation there, and the innermost function that most of it is in."""
        plain = [
            (stack, spent_us)
            for stack, spent_us in samples
            if stack.host_work and not stack.host_work.endswith((COLLECT, *STALLS, *OBJECTS))
        ]
        stacks = counted((stack.frames, spent_us) for stack, spent_us in plain)
        owner = self._owner(stacks, len(samples), self._around)
        if owner is None:
            return None
        file, _, line = owner.where.rpartition(":")
        inside = {
            number
            for number, at in enumerate(self._lines.places)
            if at.file == file
            and (at.function == owner.function if owner.function else str(at.line) == line)
        }
        names = counted(
            (stack.host_work, spent_us)
            for stack, spent_us in plain
            if not inside.isdisjoint(stack.frames)
        )
        weights = np.array([spent_us for _, spent_us in samples], dtype=np.float64)
        fraction = owner.fraction * stacks.total() / float(weights.sum())
        # Samples stand for unlike times: so many equal ones would be as sure.
        low, high = wilson(fraction, float(weights.sum() ** 2 / (weights**2).sum()))
        return PlainCode(
            line=msgspec.structs.replace(owner, fraction=fraction),
            low=low,
            high=high,
            names=tuple(name for name, _ in names.most_common(3)),
        )

    def beyond(
        self, phase: str, slow: frozenset[int], ordinary: frozenset[int]
    ) -> LineShare | None:
        """What owns that phase of the slow steps beyond what an ordinary step has of it."""
        slots = _recorded_with(phase)
        samples = self._samples(slots, slow)
        weights, usual = self._time(samples), self._time(self._samples(slots, ordinary))
        per_step = len(slow) / len(ordinary)
        excess = counted(
            [
                *weights.items(),
                *((frames, -round(weight * per_step)) for frames, weight in usual.items()),
            ]
        )
        whole = excess.total()
        if whole <= 0 or len(samples) * whole < FEWEST_SAMPLES * weights.total():
            return None
        # What ordinary steps call as well (a tenth of it, or more) cannot be called less often: in
        # it, a line is named.
        part, usual_part = self._by_function(weights), self._by_function(usual)
        running = {name for name in part if 10 * usual_part[name] * per_step >= part[name]}
        return self._owner(excess, len(samples), running | self._around, outermost=True)

    def _samples(self, slots: Collection[str], steps: Collection[int] | None) -> list[WeighedStack]:
        """In these slots, or without any in all phases; in some of the steps, or in all."""
        looks = ((self._lines.stacks[look.stack], look) for look in self._lines.samples)
        return [
            (stack, look.stands_for_us)
            for stack, look in looks
            if (steps is None or look.step in steps)
            and (stack.slot in slots if slots else stack.slot not in _NO_PHASES)
        ]

    def _time(self, samples: Iterable[WeighedStack]) -> Stacks:
        """Time of each stack, without the frames that all share."""
        return counted(
            (tuple(place for place in _frames(stack) if place not in self._shared), spent_us)
            for stack, spent_us in samples
        )

    def _by_function(self, stacks: Stacks) -> Counter[Function]:
        """Time of each function, with what it calls."""
        return counted(
            (function, weight)
            for frames, weight in stacks.items()
            for function in set(map(self._functions.__getitem__, frames))
        )

    def _line(self, place: int, fraction: float, samples: int, *, named: bool = True) -> LineShare:
        at = self._lines.places[place]
        return LineShare(
            where=f"{at.file}:{at.line}",
            function=at.function if named and not at.function.startswith("<") else "",
            fraction=min(1.0, fraction),
            samples=samples,
        )

    def _owner(
        self,
        stacks: Stacks,
        samples: int,
        running: Collection[Function],
        *,
        outermost: bool = False,
    ) -> LineShare | None:
        """The innermost function that is seen in at least half of the time, at its heaviest line.

        Of functions that are *running* anyway a line is named, if it is seen in half of it itself:
        the innermost one, and only where no other function is.
        """
        whole, depth = stacks.total(), 0
        owner: LineShare | None = None
        while True:
            function, stacks = self._heaviest(stacks, depth)
            weight = stacks.total()
            if 2 * weight < whole or not weight:
                return owner
            lines = counted((frames[depth], part) for frames, part in stacks.items())
            line, part = lines.most_common(1)[0]
            if owner is not None and function[1].startswith("<"):
                pass  # a comprehension or a lambda is a line of the function around it
            elif function not in running:
                owner = self._line(line, weight / whole, samples)
                if outermost:
                    return owner
            elif owner is None or not owner.function:
                most = self._line(line, part / whole, samples, named=False)
                owner = most if 2 * part >= whole else None
            depth += 1

    def _heaviest(self, stacks: Stacks, depth: int) -> tuple[Function, Stacks]:
        """The function with most of the time so deep in the stacks, and those that it is in."""
        inside = grouped(
            (self._functions[frames[depth]], (frames, weight))
            for frames, weight in stacks.items()
            if len(frames) > depth
        )
        functions = ((function, Counter(dict(weighed))) for function, weighed in inside.items())
        return max(functions, key=lambda item: item[1].total(), default=(("", ""), Counter()))


def _recorded_with(slot: str) -> tuple[str, ...]:
    """The slots that one phase was recorded as: data wait may be divided."""
    return ("data_wait", BETWEEN) if slot in ("data_wait", BETWEEN) else (slot,)


def _frames(stack: SampledStack) -> tuple[int, ...]:
    """Those that name it: a module called outside forward and backward is one call."""
    return stack.frames if stack.slot in ("forward", "backward") else stack.frames[: stack.outside]


def _after_us(place: Place, spent_us: Mapping[Place, int]) -> int:
    """Of what was spent at later lines of the function of a place."""
    return sum(
        us
        for other, us in spent_us.items()
        if (other.file, other.function) == (place.file, place.function) and other.line > place.line
    )

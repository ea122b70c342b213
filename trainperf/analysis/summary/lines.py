"""Lines of the user's code by phase, and slow steps that come back, with the line they run.

Shares are of samples of wall time (`trainperf.core.artifacts.lines`); how long a phase took is
known from its records alone.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.summary.schema import LineShare, PhaseLines, PlainCode, RecurringSteps
from trainperf.core.artifacts.lines import Sample, SampledLines, SampledStack
from trainperf.core.phases import DISQUALIFYING, PHASES, Tag
from trainperf.core.stats.quantiles import wilson
from trainperf.core.steps.block import StepBlock


FEWEST_SAMPLES = 10
"""Fewer of a phase name no line."""
MOST_LINES = 5
"""Of a phase that are kept."""
NEARLY_ALL = 0.95
"""Of the samples of steps: a frame that they share is around the loop."""
DOMINANT = 0.5
"""A function or a line owns a phase if it is seen in so much of it."""
ONE_PHASE = 0.99
"""Of the samples of a function: it belongs to that phase, and does not run the loop."""
RUNNING = 0.1
"""Of the time of a function in a slow step: from so much in an ordinary one on it runs there."""

SLOW = (1.5, 3.0, 10.0)
"""A step so many times as long as the median is slow; the first of these that shows a period."""
REGULAR = 0.7
"""Share of the slow steps that another one must follow a period later."""
FEWEST_SLOW = 4
MOST_STEPS = 65_536
"""The latest ones are looked at."""

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
_CAUSES = (Tag.AFTER_VALIDATION, Tag.AFTER_CHECKPOINT)

_PHASES = {phase.label for phase in PHASES}


class StepTimesFold:
    """Keeps the times of the latest steps on the lowest rank."""

    def __init__(self) -> None:
        self._blocks: deque[npt.NDArray[np.float32]] = deque()
        self._steps = 0

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps, a block per rank."""
        block = next((block for block in blocks if len(block)), None)
        if block is None or not len(block := block.single()):
            return
        host_s = [block.host_ns(phase) / 1e9 for phase in PHASES]
        rows = np.column_stack([block.index, block.tags, *host_s])
        self._blocks.append(rows)
        self._steps += len(rows)
        while self._steps - len(self._blocks[0]) >= MOST_STEPS:
            self._steps -= len(self._blocks.popleft())

    def slow_steps(self, lines: SampledLines | None) -> RecurringSteps | None:
        """Those that cost most, of the ones that come back by number or after a pause."""
        if self._steps < 3 * FEWEST_SLOW:
            return None
        rows = np.concatenate(self._blocks)
        ordinary = rows[(rows[:, 1].astype(int) & _OWNED) == 0]
        if len(ordinary) < 3 * FEWEST_SLOW:
            return None
        walls_s = ordinary[:, 2:].sum(axis=1)
        typical_s = float(np.median(walls_s))
        chosen = [_periodic(ordinary[:, 0].astype(int), walls_s, typical_s)]
        for tag in _CAUSES:
            tagged = (ordinary[:, 1].astype(int) & tag) != 0
            if tagged.sum() >= FEWEST_SLOW and np.median(walls_s[tagged]) > SLOW[0] * typical_s:
                chosen.append((tag.label, tagged))
        lost = [
            (float((walls_s[which] - typical_s).sum()), kind, which)
            for kind, which in chosen
            if which.any()
        ]
        if not lost:
            return None
        lost_s, kind, which = max(lost, key=lambda item: item[0])
        return _described(ordinary, which, kind, lost_s=lost_s, typical_s=typical_s, lines=lines)

    def steady(self) -> frozenset[int]:
        """Numbers of the steady steps among them."""
        rows = np.concatenate(self._blocks) if self._blocks else np.empty((0, 2))
        return frozenset(rows[(rows[:, 1].astype(int) & DISQUALIFYING) == 0][:, 0].astype(int))


def phase_lines(lines: SampledLines | None, steady: Collection[int]) -> tuple[PhaseLines, ...]:
    """Of each phase in steady steps, and of each gap; those with most samples first."""
    if lines is None:
        return ()
    slots = Counter(stack.slot for stack in _stacks_of(lines, lines.samples))
    return tuple(
        named
        for slot, _ in slots.most_common()
        if (named := _named(lines, slot, steady if slot in _PHASES else None)) is not None
    )


def _periodic(
    index: npt.NDArray[np.int64], walls_s: npt.NDArray[np.float32], typical_s: float
) -> tuple[str, npt.NDArray[np.bool_]]:
    """The period of slow steps in words, and which they are; none without a period."""
    for times in SLOW:
        slow = walls_s > times * typical_s
        numbers = index[slow]
        if FEWEST_SLOW <= len(numbers) <= len(index) / 3:
            period = _period(numbers, index)
            if period is not None:
                follow = np.isin(index, numbers + period) | np.isin(index, numbers - period)
                return str(period), slow & follow
    return "", np.zeros(len(index), dtype=bool)


def _period(numbers: npt.NDArray[np.int64], index: npt.NDArray[np.int64]) -> int | None:
    """Steps between slow ones, where nearly each is followed by another so many steps later.

    Those are not counted after which the step in question is not among the ones looked at.
    """
    apart = Counter(int(step) for ahead in (1, 2, 3) for step in numbers[ahead:] - numbers[:-ahead])
    for period, _ in sorted(apart.most_common(5)):
        could = numbers[np.isin(numbers + period, index) & (numbers + period <= numbers[-1])]
        followed = np.isin(could + period, numbers)
        if len(could) >= FEWEST_SLOW - 1 and followed.mean() >= REGULAR:
            return period if period > 1 else None  # one after the other: a slow stretch
    return None


def _described(
    rows: npt.NDArray[np.float32],
    which: npt.NDArray[np.bool_],
    kind: str,
    *,
    lost_s: float,
    typical_s: float,
    lines: SampledLines | None,
) -> RecurringSteps | None:
    """`None` where no phase is longer in them: what they take longer is a different one each."""
    host_s = rows[:, 2:]
    more_s = np.median(host_s[which], axis=0) - np.median(host_s[~which], axis=0)
    longer_s = float(more_s.clip(min=0).sum())
    if longer_s <= 0:
        return None
    phase = PHASES[int(np.argmax(more_s))].label
    slow, ordinary = (frozenset(rows[some][:, 0].astype(int)) for some in (which, ~which))
    return RecurringSteps(
        every=int(kind) if kind.isdecimal() else None,
        tag="" if kind.isdecimal() else kind,
        steps=int(which.sum()),
        of_steps=len(rows),
        slow_s=float(np.median(host_s[which].sum(axis=1))),
        typical_s=typical_s,
        lost_s=lost_s,
        phase=phase,
        phase_fraction=float(max(more_s)) / longer_s,
        line=None if lines is None else _slow_line(lines, phase, slow, ordinary),
    )


def _slow_line(
    lines: SampledLines, phase: str, slow: frozenset[int], ordinary: frozenset[int]
) -> LineShare | None:
    """What owns that phase of the slow steps beyond what an ordinary step has of it."""
    weights, number = _weights(lines, phase, slow)
    usual, _ = _weights(lines, phase, ordinary)
    excess = Counter(weights)
    for frames, weight in usual.items():
        excess[frames] -= round(weight * len(slow) / len(ordinary))
    whole = excess.total()
    if number * whole < FEWEST_SAMPLES * weights.total() or whole <= 0:
        return None
    # What ordinary steps call as well cannot be called less often: in it, a line is named.
    share = _Share(lines, number, whole)
    part, usual_part = _by_function(weights, share), _by_function(usual, share)
    per_step = len(slow) / len(ordinary)
    running = {name for name in part if usual_part[name] * per_step >= RUNNING * part[name]}
    return _owner(excess, share, running | _around(lines, share), outermost=True)


def _by_function(stacks: Counter[tuple[int, ...]], share: "_Share") -> Counter[tuple[str, str]]:
    """Time of each function, with what it calls."""
    parts: Counter[tuple[str, str]] = Counter()
    for frames, weight in stacks.items():
        for function in {share.function(place) for place in frames}:
            parts[function] += weight
    return parts


def _named(lines: SampledLines, slot: str, steps: Collection[int] | None) -> PhaseLines | None:
    """The lines of a slot, in all steps or in some of them; `None` with too few samples."""
    weights, number = _weights(lines, slot, steps)
    if number < FEWEST_SAMPLES or not weights.total():
        return None
    share = _Share(lines, number, weights.total())
    tops: Counter[int] = Counter()
    for frames, weight in weights.items():
        if frames:
            tops[frames[-1]] += weight
    return PhaseLines(
        slot=slot,
        samples=number,
        owner=_owner(weights, share, _around(lines, share)),
        lines=tuple(share(place, weight) for place, weight in tops.most_common(MOST_LINES)),
        host=_plain_code(lines, slot, steps),
        loader_fraction=_loader_fraction(lines, slot, steps),
    )


def _loader_fraction(lines: SampledLines, slot: str, steps: Collection[int] | None) -> float | None:
    """Share of a slot in which a loader was asked; `None` where the recording does not say."""
    loading = whole = 0
    for sample in lines.samples:
        stack = lines.stacks[sample.stack]
        if stack.slot == slot and (steps is None or sample.step in steps):
            if stack.loads is None:
                return None
            whole += sample.stands_for_us
            loading += sample.stands_for_us * stack.loads
    return loading / whole if whole else None


def _plain_code(lines: SampledLines, slot: str, steps: Collection[int] | None) -> PlainCode | None:
    """What is no tensor operation there, under the innermost function that most of it is in."""
    stacks: Counter[tuple[int, ...]] = Counter()
    names: Counter[str] = Counter()
    all_us: list[int] = []
    for sample in lines.samples:
        stack = lines.stacks[sample.stack]
        if stack.slot != slot or (steps is not None and sample.step not in steps):
            continue
        all_us.append(sample.stands_for_us)
        if stack.host_work:
            stacks[stack.frames] += sample.stands_for_us
            names[stack.host_work] += sample.stands_for_us
    if not stacks.total():
        return None
    in_it = _Share(lines, len(all_us), stacks.total())
    owner = _owner(stacks, in_it, _around(lines, in_it))
    if owner is None:
        return None
    weights = np.array(all_us, dtype=np.float64)
    fraction = owner.fraction * stacks.total() / float(weights.sum())
    # Samples stand for unlike times: so many equal ones would be as sure.
    low, high = wilson(fraction, float(weights.sum() ** 2 / (weights**2).sum()))
    return PlainCode(
        line=msgspec.structs.replace(owner, fraction=fraction),
        low=low,
        high=high,
        names=tuple(name for name, _ in names.most_common(3)),
    )


def _weights(
    lines: SampledLines, slot: str, steps: Collection[int] | None
) -> tuple[Counter[tuple[int, ...]], int]:
    """Time of each stack of a slot, without the frames that all share; and how many samples."""
    weights: Counter[tuple[int, ...]] = Counter()
    number, base = 0, _common(lines)
    for sample in lines.samples:
        stack = lines.stacks[sample.stack]
        if stack.slot == slot and (steps is None or sample.step in steps):
            weights[_frames(stack)[base:]] += sample.stands_for_us
            number += 1
    return weights, number


class _Share:
    """A line with its share of the samples of a slot."""

    def __init__(self, lines: SampledLines, samples: int, whole: int) -> None:
        self.places = lines.places
        self.samples, self.whole = samples, whole

    def __call__(self, place: int, weight: int, *, named: bool = True) -> LineShare:
        at = self.places[place]
        return LineShare(
            where=f"{at.file}:{at.line}",
            function=at.function if named and not at.function.startswith("<") else "",
            fraction=min(1.0, weight / self.whole),
            samples=self.samples,
        )

    def function(self, place: int) -> tuple[str, str]:
        """What tells the function of a place from others."""
        at = self.places[place]
        return at.file, at.function


def _owner(
    stacks: Counter[tuple[int, ...]],
    share: _Share,
    running: Collection[tuple[str, str]],
    *,
    outermost: bool = False,
) -> LineShare | None:
    """The innermost function that is seen in most of the samples, at its heaviest line.

    Of functions that are *running* anyway a line is named, if it is seen in most of them itself:
    the innermost one, and only where no other function is.
    """
    depth, chosen = 0, stacks
    owner: LineShare | None = None
    while True:
        function, chosen = _heaviest(chosen, depth, share)
        weight = chosen.total()
        if weight < DOMINANT * share.whole:
            return owner
        lines: Counter[int] = Counter()
        for frames, part in chosen.items():
            lines[frames[depth]] += part
        line, part = lines.most_common(1)[0]
        if function not in running:
            owner = share(line, weight)
            if outermost:
                return owner
        elif owner is None or not owner.function:
            most = part >= DOMINANT * share.whole
            owner = share(line, part, named=False) if most else None
        depth += 1


def _heaviest(
    stacks: Counter[tuple[int, ...]], depth: int, share: _Share
) -> tuple[tuple[str, str], Counter[tuple[int, ...]]]:
    """The function with most of the time so deep in the stacks, and those that it is in."""
    functions: Counter[tuple[str, str]] = Counter()
    for frames, weight in stacks.items():
        if len(frames) > depth:
            functions[share.function(frames[depth])] += weight
    heaviest = max(functions, key=lambda name: functions[name], default=("", ""))
    inside = {
        frames: weight
        for frames, weight in stacks.items()
        if len(frames) > depth and share.function(frames[depth]) == heaviest
    }
    return heaviest, Counter(inside)


def _around(lines: SampledLines, share: _Share) -> set[tuple[str, str]]:
    """Functions that run the loop: outside of modules they are seen in several phases."""
    phases: dict[tuple[str, str], Counter[str]] = {}
    for stack in _stacks_of(lines, lines.samples):
        if stack.slot in _PHASES:
            for function in {share.function(place) for place in stack.frames[: stack.outside]}:
                phases.setdefault(function, Counter())[stack.slot] += 1
    return {
        function
        for function, samples in phases.items()
        if max(samples.values()) < ONE_PHASE * samples.total()
    }


def _frames(stack: SampledStack) -> tuple[int, ...]:
    """Those that name it: a module called outside forward and backward is one call."""
    return stack.frames if stack.slot in ("forward", "backward") else stack.frames[: stack.outside]


def _stacks_of(lines: SampledLines, samples: Iterable[Sample]) -> Iterable[SampledStack]:
    return (lines.stacks[sample.stack] for sample in samples)


def _common(lines: SampledLines) -> int:
    """How many outer frames nearly all samples of steps share: the call that trains.

    It runs in every phase, and says nothing about any of them.
    """
    frames = [_frames(stack) for stack in _stacks_of(lines, lines.samples) if stack.slot in _PHASES]
    depth = 0
    while True:
        places = Counter(stack[depth] for stack in frames if len(stack) > depth)
        if max(places.values(), default=0) < max(1, NEARLY_ALL * len(frames)):
            return depth
        depth += 1

"""Results of a loader sweep: which settings are worth having.

SI units; `None` means *not measured*.  Nothing here prints: `str(sweep)` is the report.
"""

from statistics import median

import msgspec

from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.units import Scale, count, duration, plural, times
from trainperf.core.formatting.wrap import paragraphs


CLEARLY = 1.05
"""A setting is better than another if it is faster by this factor in every round."""

_MORE = f"{CLEARLY - 1:.0%}".replace("%", " %")

_BEST = "best is the first setting that no other clearly beats"


class LoaderPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a loader, in every round.  Host time."""

    num_workers: int
    prefetch_factor: int | None
    """Batches that each worker has ready; `None` without workers."""
    pin_memory: bool
    start_s: tuple[float, ...]
    """From asking for the iterator to the first batch, with the start of the workers."""
    interval_s: tuple[float, ...]
    """Mean time between two batches that are taken as fast as they come."""
    wait_s: tuple[float, ...] | None
    """Mean time that the step waits for its batch; `None` where no step was given."""

    @property
    def batches_per_s(self) -> float:
        """Highest rate of the loader: median over the rounds."""
        return 1 / median(self.interval_s)

    @property
    def name(self) -> str:
        """As written in a `DataLoader`, without defaults."""
        fetched = self.prefetch_factor not in {None, 2}
        parts = [
            f"num_workers={self.num_workers}",
            f"prefetch_factor={self.prefetch_factor}" if fetched else "",
            "pin_memory=True" if self.pin_memory else "",
        ]
        return ", ".join(filter(None, parts))


class LoaderSweep(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a loader, from those that take the least to those that take the most."""

    points: tuple[LoaderPoint, ...]
    step_s: float | None
    """How long the step takes that the batches are for; `None` for as fast as they come."""
    cpus: int | None
    """That this process may use."""
    notes: tuple[str, ...] = ()

    @property
    def fastest(self) -> LoaderPoint:
        """The setting of the shortest time per batch, by the median over the rounds."""
        return min(self.points, key=lambda point: median(costs_s(point, self.step_s)))

    @property
    def best(self) -> LoaderPoint:
        """The first setting that the fastest does not clearly beat."""
        fastest = self.fastest
        return next(p for p in self.points if p is fastest or not self.better(fastest, p))

    def better(self, point: LoaderPoint, other: LoaderPoint) -> bool:
        """Whether *point* is faster than *other* by the factor `CLEARLY` in every round."""
        rounds = zip(costs_s(point, self.step_s), costs_s(other, self.step_s), strict=True)
        return all(other_s > CLEARLY * own_s for own_s, other_s in rounds)

    def __str__(self) -> str:
        answer, notes = paragraphs([_answer(self)]), paragraphs(_notes(self))
        return "\n".join([*answer, "", *_table(self), "", *notes])


def costs_s(point: LoaderPoint, step_s: float | None) -> tuple[float, ...]:
    """Time per batch in every round: between batches, or of the step with its wait."""
    if step_s is None or point.wait_s is None:
        return point.interval_s
    return tuple(step_s + wait for wait in point.wait_s)


def _answer(sweep: LoaderSweep) -> str:
    best, first = sweep.best, sweep.points[0]
    answer = _effect(best, sweep.step_s)
    if best is not first:
        answer += f", against {_short(first, sweep.step_s)} with {first.name}"
        answer += _gain(best, first, sweep.step_s)
    if best is not sweep.points[-1]:
        return f"{best.name}: {answer}. No larger setting is clearly better."
    return f"{best.name}: {answer}." + ("" if best is first else " It is the last tried: try more.")


def _effect(point: LoaderPoint, step_s: float | None) -> str:
    short = _short(point, step_s)
    return short if step_s is None else f"a step of {duration(step_s)} waits {short} for data"


def _short(point: LoaderPoint, step_s: float | None) -> str:
    if step_s is None or point.wait_s is None:
        return f"{count(_digits(point.batches_per_s))} batches/s"
    return duration(median(point.wait_s))


def _gain(best: LoaderPoint, first: LoaderPoint, step_s: float | None) -> str:
    gain = median(costs_s(first, step_s)) / median(costs_s(best, step_s))
    return f" ({times(gain)} the speed)"


def _table(sweep: LoaderSweep) -> list[str]:
    head = ["setting", "batches/s", "lowest–highest", "first batch"]
    head += ["step waits"] if sweep.step_s is not None else []
    rows = tuple((*_row(point), "← best" if point is sweep.best else "") for point in sweep.points)
    return text_table(Table(head=(*head, ""), rows=rows, end_words=1))


def _row(point: LoaderPoint) -> list[str]:
    rates = sorted(1 / interval for interval in point.interval_s)
    low, high = count(_digits(rates[0])), count(_digits(rates[-1]))
    row = [
        point.name,
        count(_digits(point.batches_per_s)),
        f"{low}–{high}",
        duration(median(point.start_s)),
    ]
    if point.wait_s is None:
        return row
    wait_s = median(point.wait_s)
    return [*row, Scale.of(wait_s).say(wait_s)]


def _notes(sweep: LoaderSweep) -> list[str]:
    rounds = len(sweep.points[0].interval_s)
    better = f"Clearly better means faster by more than {_MORE} in every round"
    notes = [f"Medians of {plural(rounds, 'round')} in turns. {better}; {_BEST}."]
    most = max(point.num_workers for point in sweep.points)
    if sweep.cpus is not None and most > sweep.cpus:
        notes.append(
            f"This process may use {plural(sweep.cpus, 'CPU')}: more workers must share them."
        )
    return [*notes, *sweep.notes]


def _digits(number: float) -> float:
    """Rounded to the digits that were measured."""
    return round(number) if number >= 100 else number

"""Loader sweep: the same loader with other settings, in turns, and which are worth having.

Each pass starts a loader's workers, takes batches as fast as they come, then, if a step time is
given, as many more with that time between them, and ends the workers.  `str(sweep)` is the report.
"""

import contextlib
import math
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

import msgspec
import torch
from torch.utils.data import DataLoader

from trainperf.audit.loader.probe_loader import order, random_state_kept
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.html.markup import fragment, paragraph, table, tag, text
from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.units import Scale, count, duration, plural, times
from trainperf.core.formatting.wrap import paragraphs
from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.core.machine.limits import cpu_count, host_cpus, launched_ranks, share_of_rank


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
        return "\n".join([*answer, "", *text_table(_table(self)), "", *notes])

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        grid = _table(self)
        last = len(grid.head) - 1
        return fragment(
            tag(
                "header",
                tag("h1", text(_answer(self))),
                table(grid.head, grid.rows, words=(0, last)),
                *(paragraph(note, "soft") for note in _notes(self)),
            )
        )


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


def _table(sweep: LoaderSweep) -> Table:
    head = ["setting", "batches/s", "lowest–highest", "first batch"]
    head += ["step waits"] if sweep.step_s is not None else []
    rows = tuple((*_row(point), "← best" if point is sweep.best else "") for point in sweep.points)
    return Table(head=(*head, ""), rows=rows, end_words=1)


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


BATCHES, LIMIT_S = 32, 1.0
"""Batches in each half of a pass; fewer where they take longer than the limit."""


def sweep_loader(
    loader: "DataLoader[Any]",
    num_workers: Sequence[int] = (0, 1, 2, 4),
    *,
    prefetch_factor: Sequence[int] = (2,),
    pin_memory: Sequence[bool] = (),
    step_s: float | None = None,
    rounds: int = 3,
) -> LoaderSweep:
    """Batches per second under every combination of settings, and what a step would wait.

    *loader* itself is not touched: each setting has a loader of its own over copies of its
    samplers, epoch after epoch.  The dataset is the same one: without workers, or where they are
    forked, what it holds in memory may be warm, and `num_workers=0` moves on what state it has.

    Args:
        loader: A `DataLoader`; settings that are not tried are its own.
        num_workers: To try; 0 makes batches in this process.
        prefetch_factor: To try where there are workers.
        pin_memory: To try; by default as the loader has it.  Nothing without an accelerator.
        step_s: How long a step takes after each batch.  The host sleeps meanwhile, as it does
            next to a busy device: on a CPU the step competes with the workers, and this does not.
        rounds: Passes of each setting, in an order that is reversed every time.

    Raises:
        ConfigError: A value is refused, a sampler cannot be copied, or there are too few batches.
    """
    _check(num_workers, prefetch_factor, step_s, rounds)
    pins, notes = _pins(loader, pin_memory)
    settings = _settings(num_workers, prefetch_factor, pins)
    passes: dict[_Setting, list[_Pass]] = {setting: [] for setting in settings}
    with random_state_kept(), warnings.catch_warnings():
        # More workers than CPUs: the table says so.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        for turn in range(rounds):
            for setting in settings if turn % 2 == 0 else reversed(settings):
                passes[setting].append(_run_pass(_like(loader, setting), step_s, monotonic_ns))
    points = [_point(setting, done) for setting, done in passes.items()]
    return LoaderSweep(points=tuple(points), step_s=step_s, cpus=_cpus(), notes=notes)


def _cpus() -> int | None:
    """For this process; of several ranks launched together its share."""
    share = share_of_rank(cpu_count(), host_cpus(), launched_ranks() or 1)
    return None if share is None else max(1, int(share))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One combination."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """What one pass measured, in seconds."""

    start_s: float
    interval_s: float
    wait_s: float | None


def _run_pass(loader: "DataLoader[Any]", step_s: float | None, clock: HostClock) -> _Pass:
    """One pass over a loader; its workers have ended when it returns."""
    group = max(1, loader.num_workers)
    begun = clock()
    with contextlib.closing(_batches(loader)) as batches:
        free = _fetches(batches, group, None, clock)
        paced = [] if step_s is None else _fetches(batches, group, step_s, clock)
    if len(free) < 2 * group or (step_s is not None and len(paced) < 2 * group):
        raise ConfigError(
            f"{type(loader.dataset).__qualname__}: it yields too few batches for {group} workers; "
            "try a dataset with eight per worker, or fewer workers"
        )
    return _Pass(
        start_s=(free[0].got_ns - begun) / 1e9,
        # From the first batch of the last worker on: those before were made side by side.
        interval_s=(free[-1].got_ns - free[group - 1].got_ns) / (len(free) - group) / 1e9,
        wait_s=fmean(fetch.wait_ns for fetch in paced[group:]) / 1e9 if paced else None,
    )


class _Fetch(NamedTuple):
    """When a batch was requested, and when it arrived."""

    requested_ns: int
    got_ns: int

    @property
    def wait_ns(self) -> int:
        return self.got_ns - self.requested_ns


def _fetches(
    batches: Iterator[bool], group: int, step_s: float | None, clock: HostClock
) -> list[_Fetch]:
    """One batch of each worker, then more, as many of each: workers come in bursts."""
    pause = threading.Event()
    fetches: list[_Fetch] = []
    most = group * (1 + math.ceil(BATCHES / group))
    begun = clock()
    while len(fetches) < most:
        enough = len(fetches) >= 2 * group and len(fetches) % group == 0
        if enough and clock() - begun > LIMIT_S * 1e9:
            break
        if step_s is not None:
            pause.wait(step_s)
        requested_ns = clock()
        if not next(batches, False):
            break
        fetches.append(_Fetch(requested_ns, clock()))
    return fetches[: len(fetches) // group * group]


def _batches(loader: "DataLoader[Any]") -> Generator[bool, None, None]:
    """True for every batch; with its own frame, so that the workers end when it is closed."""
    for _ in loader:
        yield True


def _like(loader: "DataLoader[Any]", setting: _Setting) -> "DataLoader[Any]":
    """The same batches, made with other settings."""
    make: Callable[..., DataLoader[Any]] = DataLoader
    chosen = order(loader)
    for name in ("batch_sampler", "sampler"):
        if name in chosen:
            chosen[name] = _Again(chosen[name])
    return make(
        loader.dataset,
        **chosen,
        num_workers=setting.num_workers,
        prefetch_factor=setting.prefetch_factor,
        pin_memory=setting.pin_memory,
        collate_fn=loader.collate_fn,
        timeout=loader.timeout if setting.num_workers else 0,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if setting.num_workers else None,
        generator=torch.Generator().manual_seed(0),
    )


class _Again:
    """A sampler repeated forever: the end of an epoch would restart every worker."""

    def __init__(self, sampler: Iterable[object]) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[object]:
        empty = False
        while not empty:
            empty = True
            for indices in self._sampler:
                empty = False
                yield indices


def _settings(
    num_workers: Sequence[int], prefetch_factor: Sequence[int], pins: Sequence[bool]
) -> list[_Setting]:
    """All combinations, the cheapest first; without workers there is no prefetching."""
    return [
        _Setting(num_workers=workers, prefetch_factor=factor, pin_memory=pin)
        for workers in sorted(set(num_workers))
        for factor in (sorted(set(prefetch_factor)) if workers else [None])
        for pin in pins
    ]


def _point(setting: _Setting, passes: Sequence[_Pass]) -> LoaderPoint:
    waits = [each.wait_s for each in passes if each.wait_s is not None]
    return LoaderPoint(
        num_workers=setting.num_workers,
        prefetch_factor=setting.prefetch_factor,
        pin_memory=setting.pin_memory,
        start_s=tuple(each.start_s for each in passes),
        interval_s=tuple(each.interval_s for each in passes),
        wait_s=tuple(waits) if waits else None,
    )


def _pins(
    loader: "DataLoader[Any]", requested: Sequence[bool]
) -> tuple[tuple[bool, ...], tuple[str, ...]]:
    """Pinning to try, and a note where it cannot be."""
    wanted = tuple(sorted(set(requested))) or (bool(loader.pin_memory),)
    if True not in wanted or torch.accelerator.is_available():
        return wanted, ()
    return (False,), ("pin_memory=True was not tried: there is no accelerator.",)


def _check(
    num_workers: Sequence[int], prefetch_factor: Sequence[int], step_s: float | None, rounds: int
) -> None:
    if not num_workers or min(num_workers) < 0:
        raise ConfigError(
            f"num_workers={list(num_workers)}: needs at least one number, none below 0"
        )
    if not prefetch_factor or min(prefetch_factor) < 1:
        raise ConfigError(
            f"prefetch_factor={list(prefetch_factor)}: needs at least one number, none below 1"
        )
    if step_s is not None and step_s <= 0:
        raise ConfigError(f"step_s={step_s}: must be above 0, or None for no step")
    if rounds < 1:
        raise ConfigError(f"rounds={rounds}: must be at least 1; try 3")

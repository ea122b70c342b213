"""Loader sweep: the same loader with other settings, in turns, and which are worth having.

Each pass starts a loader's workers, takes batches as fast as they come, then, if a step time is
given, as many more with that time between them, and ends the workers.  `str(sweep)` is the report.
"""

import math
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import cycle
from statistics import fmean, median
from typing import Any

import msgspec
import torch
from torch.utils.data import DataLoader

from trainperf.audit.loader.probe_loader import order, random_state_kept
from trainperf.benchmark.shown import Shown
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.table import Table, or_unknown
from trainperf.core.formatting.units import count, duration, plural, times
from trainperf.core.machine.clocks import monotonic_ns


CLEARLY = 1.05
"""A setting is better than another if it is faster by this factor in every round."""
BATCHES, LIMIT_S = 32, 1.0
"""Batches in each half of a pass; fewer where they take longer than the limit."""


class LoaderPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A number of workers, in every round.  Host time."""

    num_workers: int
    start_s: tuple[float, ...] = ()
    """From asking for the iterator to the first batch, with the start of the workers."""
    interval_s: tuple[float, ...] = ()
    """Mean time between two batches that are taken as fast as they come."""
    wait_s: tuple[float, ...] | None = None
    """Mean time that the step waits for its batch; `None` where no step was given."""

    @property
    def batches_per_s(self) -> float:
        """Highest rate of the loader: median over the rounds."""
        return 1 / median(self.interval_s)


class LoaderSweep(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of workers, ascending."""

    points: tuple[LoaderPoint, ...]
    step_s: float | None
    """How long the step takes that the batches are for; `None` for as fast as they come."""

    def costs_s(self, point: LoaderPoint) -> tuple[float, ...]:
        """Time per batch in every round: between batches, or of the step with its wait."""
        waits = () if point.wait_s is None else point.wait_s
        return tuple((self.step_s or 0.0) + wait for wait in waits) or point.interval_s

    @property
    def best(self) -> LoaderPoint:
        """The first that the fastest does not beat by the factor `CLEARLY` in every round."""
        fastest = min(map(self.costs_s, self.points), key=median)
        return next(
            point
            for point in self.points
            if not all(
                own > CLEARLY * least
                for own, least in zip(self.costs_s(point), fastest, strict=True)
            )
        )

    def report(self) -> tuple[Sequence[str], Table, Sequence[str]]:
        """As `Shown` has it."""
        best, first, last = self.best, self.points[0], self.points[-1]
        answer = f"num_workers={best.num_workers}: {_rate(best.batches_per_s)} batches/s"
        if best.wait_s is not None and self.step_s is not None:
            answer += f", a step of {duration(self.step_s)} waits {duration(median(best.wait_s))}"
        if best is not first:
            gain = median(self.costs_s(first)) / median(self.costs_s(best))
            answer += f", {times(gain)} the speed with num_workers={first.num_workers}"
        beyond = "No larger number is clearly better" if best is not last else "Try more"
        head = ("num_workers", "batches/s", "lowest–highest", "first batch", "step waits", "")
        rows = tuple((*_row(point), "← best" if point is best else "") for point in self.points)
        rounds = plural(len(first.interval_s), "round")
        notes = [f"Medians of {rounds} in turns; better is more than 5 % faster in each of them."]
        return [f"{answer}. {beyond}."], Table(head=head, rows=rows, end_words=1), notes


def _row(point: LoaderPoint) -> tuple[str, ...]:
    rates = sorted(1 / interval for interval in point.interval_s)
    waits = None if point.wait_s is None else median(point.wait_s)
    return (
        f"{point.num_workers}",
        _rate(point.batches_per_s),
        f"{_rate(rates[0])}–{_rate(rates[-1])}",
        duration(median(point.start_s)),
        or_unknown(waits, duration),
    )


def _rate(number: float) -> str:
    """Rounded to the digits that were measured."""
    return count(round(number) if number >= 100 else number)


def sweep_loader(
    loader: "DataLoader[Any]",
    num_workers: Sequence[int] = (0, 1, 2, 4),
    *,
    step_s: float | None = None,
    rounds: int = 3,
) -> LoaderSweep:
    """Batches per second with so many workers, and what a step would wait.

    *loader* itself is not touched: each number has a loader of its own over copies of its samplers,
    whose first epoch is repeated.  The dataset is the same one: without workers, or where they are
    forked, what it holds in memory may be warm, and `num_workers=0` moves on what state it has.

    Args:
        loader: A `DataLoader`; its other settings stay.
        num_workers: To try; 0 makes batches in this process.
        step_s: How long a step takes after each batch.  The host sleeps meanwhile, as it does
            next to a busy device: on a CPU the step competes with the workers, and this does not.
        rounds: Passes of each, in an order that is reversed every time.

    Raises:
        ConfigError: A value is refused, a sampler cannot be copied, or there are too few batches.
    """
    for name, values, least in (("num_workers", num_workers, 0), ("rounds", [rounds], 1)):
        if not values or min(values) < least:
            raise ConfigError(f"{name}={list(values)}: needs at least one, none below {least}")
    if step_s is not None and step_s <= 0:
        raise ConfigError(f"step_s={step_s}: must be above 0, or None for no step")
    points = [LoaderPoint(num_workers=workers) for workers in sorted(set(num_workers))]
    with random_state_kept(), warnings.catch_warnings():
        # More workers than CPUs: what they bring is in the table.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        for _ in range(rounds):
            points = [_with_pass(point, loader, step_s) for point in points][::-1]
    ascending = sorted(points, key=lambda point: point.num_workers)
    return LoaderSweep(points=tuple(ascending), step_s=step_s)


def _with_pass(point: LoaderPoint, loader: "DataLoader[Any]", step_s: float | None) -> LoaderPoint:
    """A setting with one pass more; its workers have ended when this returns."""
    group, begun_s = max(1, point.num_workers), monotonic_ns() / 1e9
    with closing(_batches(_like(loader, point.num_workers))) as batches:
        free = _fetches(batches, group, None)
        paced = None if step_s is None else _fetches(batches, group, step_s)
    if len(free) < 2 * group or (paced is not None and len(paced) < 2 * group):
        raise ConfigError(
            f"{type(loader.dataset).__qualname__}: it yields too few batches for {group} workers; "
            "try a dataset with eight per worker, or fewer workers"
        )
    # From the first batch of the last worker on: those before were made side by side.
    interval_s = (free[-1][1] - free[group - 1][1]) / (len(free) - group)
    waits = [] if paced is None else [got - requested for requested, got in paced[group:]]
    return msgspec.structs.replace(
        point,
        start_s=(*point.start_s, free[0][1] - begun_s),
        interval_s=(*point.interval_s, interval_s),
        wait_s=(*(point.wait_s or ()), fmean(waits)) if waits else None,
    )


def _fetches(
    batches: Iterator[bool], group: int, step_s: float | None
) -> list[tuple[float, float]]:
    """When batches were requested and arrived: as many of each worker, as they come in bursts."""
    pause = threading.Event()
    fetches: list[tuple[float, float]] = []
    begun_s = monotonic_ns() / 1e9
    for place in range(group * (1 + math.ceil(BATCHES / group))):
        enough = place >= 2 * group and place % group == 0
        if enough and monotonic_ns() / 1e9 - begun_s > LIMIT_S:
            break
        if step_s is not None:
            pause.wait(step_s)
        requested_s = monotonic_ns() / 1e9
        if not next(batches, False):
            break
        fetches.append((requested_s, monotonic_ns() / 1e9))
    return fetches[: len(fetches) // group * group]


def _batches(loader: "DataLoader[Any]") -> Generator[bool, None, None]:
    """True for every batch; with its own frame, so that the workers end when it is closed."""
    for _ in loader:
        yield True


def _like(loader: "DataLoader[Any]", workers: int) -> "DataLoader[Any]":
    """The same batches, made by so many workers."""
    # The end of an epoch would restart every worker.
    samplers = {"batch_sampler", "sampler"}
    chosen: dict[str, Any] = {
        name: cycle(value) if name in samplers else value for name, value in order(loader).items()
    }
    return DataLoader(
        loader.dataset,
        **chosen,
        num_workers=workers,
        prefetch_factor=(loader.prefetch_factor or 2) if workers else None,
        pin_memory=loader.pin_memory and torch.accelerator.is_available(),
        collate_fn=loader.collate_fn,
        timeout=loader.timeout if workers else 0,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if workers else None,
        generator=torch.Generator().manual_seed(0),
    )

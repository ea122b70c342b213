"""How many workers do I need?  The same loader with other settings, in turns.

Each pass starts a loader's workers, takes batches as fast as they come, then, with a step given,
lets that time pass after each of as many more, and ends the workers.
"""

import contextlib
import math
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from trainperf.audit.loader.probe_loader import order, random_state_kept
from trainperf.benchmark.sweeps.loader_results import LoaderPoint, LoaderSweep
from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.core.machine.limits import cpu_count


BATCHES, LIMIT_S = 32, 1.0
"""Of each half of a pass: so many batches, fewer where they take longer than this."""


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
            beside a busy device: on a CPU the step competes with the workers, and this does not.
        rounds: Passes of each setting, in an order that is reversed every time.

    Raises:
        ConfigError: A value is refused, a sampler cannot be copied, or there are too few batches.
    """
    _check(num_workers, prefetch_factor, step_s, rounds)
    pins, notes = _pins(loader, pin_memory)
    made = _settings(num_workers, prefetch_factor, pins)
    passes: dict[_Setting, list[_Pass]] = {setting: [] for setting in made}
    with random_state_kept(), warnings.catch_warnings():
        # More workers than CPUs: the table says so.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        for turn in range(rounds):
            for setting in made if turn % 2 == 0 else reversed(made):
                passes[setting].append(_passed(_like(loader, setting), step_s, monotonic_ns))
    points = [_point(setting, done) for setting, done in passes.items()]
    return LoaderSweep(points=tuple(points), step_s=step_s, cpus=cpu_count(), notes=notes)


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


def _passed(loader: "DataLoader[Any]", step_s: float | None, clock: HostClock) -> _Pass:
    """One pass over a loader; its workers have ended when it returns."""
    group = max(1, loader.num_workers)
    begun = clock()
    with contextlib.closing(_batches(loader)) as batches:
        free = _taken(batches, group, None, clock)
        felt = [] if step_s is None else _taken(batches, group, step_s, clock)
    if len(free) < 2 * group or (step_s is not None and len(felt) < 2 * group):
        raise ConfigError(
            f"{type(loader.dataset).__qualname__}: it gave too few batches for {group} workers; "
            "try a dataset that gives eight for each, or fewer workers"
        )
    return _Pass(
        start_s=(free[0].got_ns - begun) / 1e9,
        # From the first batch of the last worker on: those before were made side by side.
        interval_s=(free[-1].got_ns - free[group - 1].got_ns) / (len(free) - group) / 1e9,
        wait_s=fmean(one.got_ns - one.asked_ns for one in felt[group:]) / 1e9 if felt else None,
    )


class _Taken(NamedTuple):
    """When a batch was asked for, and when it was there."""

    asked_ns: int
    got_ns: int


def _taken(
    batches: Iterator[bool], group: int, step_s: float | None, clock: HostClock
) -> list[_Taken]:
    """One batch of each worker, then more, as many of each: workers come in bursts."""
    pause = threading.Event()
    taken: list[_Taken] = []
    most = group * (1 + math.ceil(BATCHES / group))
    begun = clock()
    while len(taken) < most:
        enough = len(taken) >= 2 * group and len(taken) % group == 0
        if enough and clock() - begun > LIMIT_S * 1e9:
            break
        if step_s is not None:
            pause.wait(step_s)
        asked = clock()
        if not next(batches, False):
            break
        taken.append(_Taken(asked, clock()))
    return taken[: len(taken) // group * group]


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
    """A sampler epoch after epoch: an end would cost the restart of every worker."""

    def __init__(self, sampler: Iterable[object]) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[object]:
        given = True
        while given:
            given = False
            for one in self._sampler:
                given = True
                yield one


def _settings(
    num_workers: Sequence[int], prefetch_factor: Sequence[int], pins: Sequence[bool]
) -> list[_Setting]:
    """Those that take the least first; without workers nothing is fetched ahead."""
    return [
        _Setting(num_workers=workers, prefetch_factor=factor, pin_memory=pin)
        for workers in sorted(set(num_workers))
        for factor in (sorted(set(prefetch_factor)) if workers else [None])
        for pin in pins
    ]


def _point(setting: _Setting, passes: Sequence[_Pass]) -> LoaderPoint:
    waits = [one.wait_s for one in passes if one.wait_s is not None]
    return LoaderPoint(
        num_workers=setting.num_workers,
        prefetch_factor=setting.prefetch_factor,
        pin_memory=setting.pin_memory,
        start_s=tuple(one.start_s for one in passes),
        interval_s=tuple(one.interval_s for one in passes),
        wait_s=tuple(waits) if waits else None,
    )


def _pins(
    loader: "DataLoader[Any]", asked: Sequence[bool]
) -> tuple[tuple[bool, ...], tuple[str, ...]]:
    """Whether to pin, and what there is to say about it."""
    wanted = tuple(sorted(set(asked))) or (bool(loader.pin_memory),)
    if True not in wanted or torch.accelerator.is_available():
        return wanted, ()
    return (False,), ("pin_memory=True was not tried: there is no accelerator to pin for.",)


def _check(
    num_workers: Sequence[int], prefetch_factor: Sequence[int], step_s: float | None, rounds: int
) -> None:
    if not num_workers or min(num_workers) < 0:
        raise ConfigError(f"num_workers={list(num_workers)}: needs at least one, none below 0")
    if not prefetch_factor or min(prefetch_factor) < 1:
        raise ConfigError(f"prefetch_factor={list(prefetch_factor)}: needs one, none below 1")
    if step_s is not None and step_s <= 0:
        raise ConfigError(f"step_s={step_s}: must be above 0, or None for no step")
    if rounds < 1:
        raise ConfigError(f"rounds={rounds}: must be at least 1; try 3")

"""Other numbers of loader workers, each from a second loader with as many."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from trainperf.core.formatting.units import plural
from trainperf.core.loop_kind import LoopKind
from trainperf.core.machine.limits import cpu_count, host_cpus, share_of_rank
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE, RULES = "workers", "other numbers of workers", ("data_wait",)
PREFETCH = 2
"""Batches ahead of each worker: torch's own default."""


@dataclass(frozen=True, slots=True)
class Staffing:
    """Workers, and threads for the model; `None` leaves those as they are."""

    workers: int
    threads: int | None = None


def workers(training: Training) -> list[Trial]:
    """Numbers that this machine has CPUs for, with fewer threads where the model would need them.

    Their batches are the loader's own, made elsewhere: the loss cannot differ, and is not compared.
    """
    source = training.source
    if source is None:
        return [cannot(ID, "its batches cannot be taken over", title=TITLE, rules=RULES)]
    loader = source.loader
    if not isinstance(loader, DataLoader):
        why = f"the loop's batches come from no DataLoader ({type(loader).__name__})"
        return [cannot(ID, why, title=TITLE, rules=RULES)]
    if isinstance(loader.dataset, IterableDataset):
        why = "an iterable dataset would lose the samples of a second pass"
        return [cannot(ID, why, title=TITLE, rules=RULES)]
    share = share_of_rank(cpu_count(), host_cpus(), training.ranks_here)
    cpus = max(1, int(share or 1))
    threads = torch.get_num_threads() if training.device.type == "cpu" else 0
    staffs = choices(loader.num_workers, cpus, threads)
    if not staffs:
        return [cannot(ID, f"no CPU is free for one more: {plural(cpus, 'CPU')}", title=TITLE)]
    return [_trial(source, loader, staff, training.kind) for staff in staffs]


def choices(now: int, cpus: int, threads: int) -> list[Staffing]:
    """What to try beside *now* workers.

    On a device: one, two, four, … workers up to all CPUs.  On the CPU the model's threads compete:
    with them one worker and as many as CPUs; and as few threads fewer as there are workers.

    Args:
        now: Workers of the loader.
        cpus: For this rank.
        threads: Of a model on the CPU; 0 on a device.
    """
    if not threads:
        powers = [2**power for power in range(cpus.bit_length()) if 2**power <= cpus]
        return [Staffing(number) for number in powers[-4:] if number != now]
    numbers = sorted({1, max(1, cpus // 2), cpus})
    more = [Staffing(number) for number in numbers if number != now]
    fewer = [
        Staffing(number, cpus - number)
        for number in numbers
        if number < cpus and cpus - number < threads
    ]
    return more[:2] + fewer[:2]


def _trial(
    source: BatchSource, loader: "DataLoader[Any]", staff: Staffing, kind: LoopKind
) -> Trial:
    switch = _Staffed(source, staff, settings(loader, staff.workers))
    fewer = f", {plural(staff.threads, 'thread')}" if staff.threads else ""
    line = kind.data_loader(f"…, num_workers={staff.workers}, persistent_workers=True")
    if staff.threads:
        line += f"; torch.set_num_threads({staff.threads})"
    return Trial(
        f"{ID}_{staff.workers}" + (f"_threads_{staff.threads}" if staff.threads else ""),
        on=switch.on,
        off=switch.off,
        title=f"{plural(staff.workers, 'worker')}{fewer}",
        apply=line,
        rules=RULES,
        group="workers",
        warmup_steps=staff.workers * int(switch.settings["prefetch_factor"]) + 1,
        tolerance=None,
        run_last=True,
        bounded_by="free_loader",
        finish=switch.finish,
    )


def settings(loader: "DataLoader[Any]", number: int) -> dict[str, Any]:
    """Of the second loader."""
    ahead = loader.prefetch_factor if loader.num_workers else None
    return {
        "num_workers": number,
        "persistent_workers": True,
        "prefetch_factor": ahead or PREFETCH,
    }


class _Staffed:
    """A second loader, whose workers idle between the blocks: their queue is full."""

    def __init__(self, source: BatchSource, staff: Staffing, settings: dict[str, Any]) -> None:
        self._source, self._staff, self.settings = source, staff, settings
        self._batches: Iterator[Any] | None = None
        self._threads = 0

    def on(self) -> None:
        if self._batches is None:
            self._batches = self._source.second_pass(**self.settings)
        self._source.draw_from(self._batches)
        if self._staff.threads:
            self._threads = torch.get_num_threads()
            torch.set_num_threads(self._staff.threads)

    def off(self) -> None:
        self._source.draw_from(None)
        if self._threads:
            torch.set_num_threads(self._threads)

    def finish(self) -> None:
        """Its workers stop with the last reference to it."""
        close: Callable[[], None] | None = getattr(self._batches, "close", None)
        if close is not None:
            close()
        self._batches = None

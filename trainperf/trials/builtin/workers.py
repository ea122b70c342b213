"""Other numbers of loader workers, each from a second loader with as many."""

from functools import cache, partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from trainperf.core.errors import ConfigError
from trainperf.core.formatting.units import plural
from trainperf.core.machine.limits import cpu_count, host_cpus, launched_ranks, share_of_rank
from trainperf.trials.batch_source import demand_second_pass, second_pass
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


PREFETCH = 2
"""Batches ahead of each worker: torch's own default."""


Staff = tuple[int, int | None]
"""Workers, and threads for the model; `None` leaves those as they are."""


def workers(training: Training) -> list[Trial]:
    """Numbers that this machine has CPUs for, with fewer threads where the model would need them.

    Their batches are the loader's own, made elsewhere: the loss cannot differ, and is not compared.
    """
    title = "other numbers of workers"
    try:
        loader = demand_second_pass(training.batches.loader)
    except ConfigError as error:
        return [cannot("workers", training.no_batches or str(error), title=title)]
    # Ranks on this machine share its CPUs; all of them do, where nobody tells.
    ranks = launched_ranks() or training.agreement.ranks
    cpus = max(1, int(share_of_rank(cpu_count(), host_cpus(), ranks) or 1))
    threads = torch.get_num_threads() if training.device.type == "cpu" else 0
    staffs = choices(loader.num_workers, cpus, threads)
    if not staffs:
        why = f"no CPU is free for one more: {plural(cpus, 'CPU')}"
        return [cannot("workers", why, title=title)]
    return [_trial(training, loader, staff) for staff in staffs]


def choices(now: int, cpus: int, threads: int) -> list[Staff]:
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
        return [(number, None) for number in powers[-4:] if number != now]
    numbers = sorted({1, max(1, cpus // 2), cpus})
    more: list[Staff] = [(number, None) for number in numbers if number != now]
    few = [n for n in numbers if n < cpus and cpus - n < threads]
    return [*more[:2], *((number, cpus - number) for number in few[:2])]


def _trial(training: Training, loader: "DataLoader[Any]", staff: Staff) -> Trial:
    """A second loader, whose workers idle between the blocks: their queue is full."""
    (number, fewer), source, threads = staff, training.batches, torch.get_num_threads()
    prefetch = loader.prefetch_factor or PREFETCH
    batches = cache(partial(second_pass, loader, number, prefetch))

    def on() -> None:
        source.draw_from(batches())
        torch.set_num_threads(fewer or threads)

    def off() -> None:
        source.draw_from(None)
        torch.set_num_threads(threads)

    name, title = f"workers_{number}", plural(number, "worker")
    line = training.kind.data_loader(f"…, num_workers={number}, persistent_workers=True")
    if fewer:
        name += f"_threads_{fewer}"
        title += f", {plural(fewer, 'thread')}"
        line += f"; torch.set_num_threads({fewer})"
    return Trial(
        name,
        on,
        off,
        title=title,
        apply=line,
        group="workers",
        warmup_steps=number * prefetch + 1,
        tolerance=None,
        run_last=True,
        bounded_by="free_loader",
        finish=batches.cache_clear,  # its workers stop with the last reference to it
    )

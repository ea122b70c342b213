"""Workers of the loader: which of them make batches, by samples inside of each."""

from dataclasses import dataclass

from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.lines import FEWEST_SAMPLES
from trainperf.core.artifacts.lines import SampledLines
from trainperf.core.findings import LIMITS
from trainperf.core.groups import summed


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderWorkers:
    """Those of the loader that the loop trains from."""

    making: tuple[float, ...]
    """By number: share of its own time in which it made batches; 0 for a worker that ended, or was
    never asked, before it was seen to make any."""
    batches: tuple[int, ...]
    """By number: how many it has made; empty where they were not counted."""
    at_work: int
    """How many made a part of the busiest one's batches that is worth a word; where these were not
    counted, for such a part of its seconds."""
    iterable: bool
    """Whether each goes through a part of an `IterableDataset`."""
    hands_over: bool
    """Whether batches wait to be taken over for longer than they are made."""
    starting_s: float
    """What the slowest took to start; less what passed before it was looked at."""
    threads: int
    """With which each computes."""
    lacked: float
    """Share of the time in which a thread was ready to run that had no CPU."""


def sampled_workers(facts: Facts) -> LoaderWorkers | None:
    """Those of a run; `None` where too little is known of them."""
    return loader_workers(facts.documents.lines, facts.number("num_workers"))


def loader_workers(lines: SampledLines | None, number: float | None) -> LoaderWorkers | None:
    """Of all epochs together; `None` where too little is known of them.

    Args:
        lines: What was sampled.
        number: Workers of the loader that the loop trains from; `None` is not known: then there
            must be one loader alone.
    """
    rows = [] if lines is None else [w for w in lines.workers if number in (None, w.of)]
    if len({(row.dataset, row.of) for row in rows}) != 1:
        return None
    making_s = summed((row.worker, row.making_s) for row in rows)
    all_s = summed((row.worker, row.making_s + row.waiting_s) for row in rows)
    batches = summed((row.worker, row.batches or 0) for row in rows)
    busiest = max(making_s, key=making_s.__getitem__)
    samples = sum(row.samples for row in rows if row.worker == busiest)
    if not making_s[busiest] or samples < FEWEST_SAMPLES:
        return None
    counted = all(row.batches is not None for row in rows)
    work = [*batches.values()] if counted and any(batches.values()) else [*making_s.values()]
    ran_s, lacked_s = sum(row.ran_s for row in rows), sum(row.lacked_cpu_s for row in rows)
    return LoaderWorkers(
        making=tuple(
            making_s.get(at, 0.0) / (all_s.get(at, 0.0) or 1.0) for at in range(rows[0].of)
        ),
        batches=tuple(batches.get(at, 0) for at in range(rows[0].of)) if counted else (),
        at_work=sum(each > LIMITS.worth * max(work) for each in work),
        iterable=rows[0].iterable,
        hands_over=sum(row.handing_s for row in rows) > sum(making_s.values()),
        starting_s=max(row.starting_s for row in rows),
        threads=max(row.threads for row in rows),
        lacked=lacked_s / ((ran_s + lacked_s) or 1.0),
    )

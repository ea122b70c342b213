"""Rule about workers that restart in every epoch."""

from trainperf.analysis.rules.base import Evidence, all_steps_s, own_fit_s, setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.loop_kind import PLAIN
from trainperf.core.readings import DATA_WAIT_ALL_FRACTION, DATA_WAIT_FRACTION


WORTH = 0.05
"""Share of the fit that starting epochs takes: between them and in their first batches."""

NOT_OURS = 2.0
"""Starting the workers explains what lies between epochs if it takes no less than half of it."""


def epoch_start(evidence: Evidence) -> Finding | None:
    """The loader's workers end with every epoch, and the next one waits for new ones.

    Counted are the gaps between epochs, in which Lightning starts them, and what the first batches
    of the epochs wait beyond the others, which steady steps leave out.
    """
    summary = evidence.summary
    epochs, workers = summary.gaps.get("epoch_boundary", 0), setting(summary, "num_workers")
    fit_s = own_fit_s(summary)
    if epochs < 2 or not workers or setting(summary, "persistent_workers") or not fit_s:
        return None
    first_s, between_s = _first_batches_s(summary), _between_s(summary)
    if first_s is None:
        return None
    lost = (first_s + between_s) / fit_s
    if lost < WORTH or not _explained(summary, first_s + between_s, epochs):
        return None
    each_s = (first_s + between_s) / epochs
    return Finding(
        id="epoch_start",
        title=f"{share(lost)} of the fit goes into starting epochs",
        advice="Keep the loader's workers",
        evidence=(
            (
                f"{duration(each_s)} in each of {plural(epochs, 'epoch')}: {duration(between_s)} "
                f"between epochs and {duration(first_s)} for their first batches"
            ),
            *_started(summary),
        ),
        action="DataLoader(persistent_workers=True)",
        **costs(lost),
        scope="fit",
        confidence="medium",
        confirm="data_wait_all_fraction comes near data_wait_fraction, and the epoch boundaries "
        "in the ledger shrink",
    )


def _first_batches_s(summary: Summary) -> float | None:
    """What the fit waits for data beyond what it would if every step were a steady one."""
    steady, every = summary.value(DATA_WAIT_FRACTION), summary.value(DATA_WAIT_ALL_FRACTION)
    if steady is None or every is None:
        return None
    return max(0.0, every - steady) * all_steps_s(summary)


def _between_s(summary: Summary) -> float:
    """The gaps between epochs, where nothing else can hide in them.

    In a plain loop the user's own code between epochs is there too: then only a look into the
    loader tells that it is the workers.
    """
    if summary.run.loop is PLAIN and summary.loader is None:
        return 0.0
    return summary.ledger_s.get("epoch_boundary", 0.0)


def _explained(summary: Summary, lost_s: float, epochs: int) -> bool:
    """Whether starting the workers takes that long, as far as it was timed."""
    if summary.loader is None:
        return True
    return summary.loader.start_s * epochs * NOT_OURS >= lost_s


def _started(summary: Summary) -> tuple[str, ...]:
    if summary.loader is None:
        return ()
    workers = plural(summary.loader.workers, "worker")
    return (f"{duration(summary.loader.start_s)} to start {workers} and have a batch",)

"""Rule about workers that restart in every epoch."""

from trainperf.analysis.rules.base import (
    Evidence,
    first_batches_s,
    leaves_cold_caches,
    own_fit_s,
    setting,
)
from trainperf.analysis.rules.input.base import restarts_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, plural, share


@leaves_cold_caches
def epoch_start(evidence: Evidence) -> Finding | None:
    """The loader's workers end with every epoch, and the next one waits for new ones.

    Counted are the gaps between epochs, in which Lightning starts them, and what the first batches
    of the epochs wait beyond the others, which steady steps exclude.  From outside no epoch is
    seen: there it is what steps wait longer that come back with the length of the loader's epoch.

    Wrong where: epochs are long, and the fit that was measured had short ones.
    To confirm: `trainperf prove` with `persistent_workers=True` and without, for whole epochs
    (`--to-the-end`).
    """
    summary = evidence.summary
    if summary.run.loop.outside:
        return _from_outside(summary)
    epochs, workers = summary.gaps.get("epoch_boundary", 0), setting(summary, "num_workers")
    fit_s = own_fit_s(summary)
    if epochs < 2 or not workers or setting(summary, "persistent_workers") or not fit_s:
        return None
    first_s, between_s = first_batches_s(summary), _between_s(summary)
    if first_s is None:
        return None
    spent_s = first_s + between_s
    lost = spent_s / fit_s
    loader = summary.loader
    # Starting the workers explains it if it takes no less than half of it, as far as it was timed.
    if lost < LIMITS.worth or (loader and 2 * loader.start_s * epochs < spent_s):
        return None
    parts = f"{duration(between_s)} between epochs and {duration(first_s)} for their first batches"
    return Finding(
        id="epoch_start",
        title=f"{share(lost)} of the fit goes into starting epochs",
        advice="Keep the loader's workers",
        evidence=(
            f"{duration(spent_s / epochs)} in each of {plural(epochs, 'epoch')}: {parts}",
            *_started(summary),
        ),
        action=_kept_workers(summary),
        **costs(lost, confidence="medium", scope="fit"),
        confirm="data_wait_all_fraction comes near data_wait_fraction, and the epoch boundaries "
        "in the ledger shrink",
    )


def _from_outside(summary: Summary) -> Finding | None:
    spent_s, fit_s, slow = restarts_s(summary), own_fit_s(summary), summary.slow_steps
    lost = spent_s / fit_s if fit_s else 0.0
    if slow is None or lost < LIMITS.worth:
        return None
    often = f"{plural(slow.steps, 'step')}, one in {slow.every}: the length of the loader's epoch"
    return Finding(
        id="epoch_start",
        title=f"{share(lost)} of the fit goes into starting epochs",
        advice="Keep the loader's workers",
        evidence=(f"{duration(slow.slow_s - slow.typical_s)} more in {often}",),
        action=_kept_workers(summary),
        **costs(lost, confidence="medium", scope="fit"),
        confirm="trainperf report: p99 comes close to the median",
    )


def _kept_workers(summary: Summary) -> str:
    """In a loop of one's own the loader may be made in each epoch: then nothing is kept."""
    loop = summary.run.loop
    once = "; make it once, before the first epoch" if loop.own or loop.outside else ""
    return loop.data_loader("persistent_workers=True") + once


def _between_s(summary: Summary) -> float:
    """The gaps between epochs, where nothing else can hide in them.

    In a plain loop the user's own code between epochs is there too: then only a look into the
    loader tells that it is the workers.
    """
    if summary.run.loop.own and summary.loader is None:
        return 0.0
    return summary.ledger_s.get("epoch_boundary", 0.0)


def _started(summary: Summary) -> tuple[str, ...]:
    if summary.loader is None:
        return ()
    workers = plural(summary.loader.workers, "worker")
    return (f"{duration(summary.loader.start_s)} to start {workers} and have a batch",)

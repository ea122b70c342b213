"""Rule about steps that wait for data."""

import math
import sys

from trainperf.analysis.rules.base import (
    Evidence,
    TraceTime,
    late_s,
    phase_fraction,
    setting,
    warm_bound,
    worst,
)
from trainperf.analysis.rules.input.base import (
    LoaderRemedy,
    by_anatomy,
    cpus_of_rank,
    lost_to_loader,
    micro_batches,
    round_trip_s,
    sharing,
    small_tensors_wait,
    worth_a_worker,
)
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.phases import Phase
from trainperf.core.readings import DATA_STALL_FRACTION, STEP_MEAN_S


TRACE_TIME: TraceTime = "data_wait"
SAMPLED = Phase.DATA_WAIT


def data_wait(evidence: Evidence) -> Finding | None:
    """The loader keeps the device waiting.

    Judged by the stall where it is known: a wait that hides behind queued device work is
    `data_hidden`.  With an anatomy of the loader the part that costs is named; batches of
    `many_small_tensors` are left to that rule.
    """
    summary = evidence.summary
    waited, lost = phase_fraction(summary, Phase.DATA_WAIT), lost_to_loader(summary)
    step_s = summary.value(STEP_MEAN_S)
    if waited is None or lost is None or not step_s:
        return None
    if lost < LIMITS.notable or small_tensors_wait(summary):
        return None
    remedy = _remedy(summary, waited, lost)
    # Workers share the processor with the model where the model runs on it too.
    making = _made_by_workers(waited, remedy, summary)
    finding = Finding(
        id="data_wait",
        title=_title(lost, summary, remedy.part),
        advice=remedy.advice,
        evidence=(
            f"{duration(waited * step_s)} of {duration(step_s)} per step in the loader's next()",
            *_details(summary),
            *remedy.evidence,
        ),
        action=remedy.action,
        **costs(
            1 - max(1 - lost, making),
            confidence="medium" if summary.run.device == "cpu" else "high",
        ),
        effort=remedy.effort,
        where=remedy.where,
        confirm=f"the next run waits for data for less than {share(LIMITS.notable)} of its step",
    )
    return warm_bound(finding, summary, least=making)


def _made_by_workers(waited: float, remedy: LoaderRemedy, summary: Summary) -> float:
    """Share of the step that the workers of the advice take for a batch; 0 without workers.

    They do not do away with making batches: so many of them make one in a part of its time.
    E.g. a batch of 20 ms before 2 ms of work: two workers make the step 10 ms, not 2.
    """
    if remedy.workers is None or setting(summary, "num_workers"):
        return 0.0
    return waited / remedy.workers


def _title(lost: float, summary: Summary, part: str) -> str:
    where = ""
    if len(summary.run.ranks) > 1:
        # What one late rank waits beyond the others is the straggler's.
        late = late_s(summary, Phase.DATA_WAIT) > 0
        where = " on every rank" if late else " on the rank that waits longest"
    mainly = f", mainly for {part}" if part else ""
    return f"{share(lost)} of the step is spent waiting for data{mainly}{where}"


def _details(summary: Summary) -> list[str]:
    facts = []
    more_s, stalled = late_s(summary, Phase.DATA_WAIT), worst(summary, DATA_STALL_FRACTION)
    if more_s:
        facts.append(f"the late rank waits {duration(more_s)} longer: see the straggler finding")
    if stalled is not None and summary.run.device != "cpu":
        facts.append(f"the device idled for data {share(stalled)} of the step")
    return facts


def _remedy(summary: Summary, waited: float, lost: float) -> LoaderRemedy:
    if summary.loader is not None:
        return by_anatomy(summary, summary.loader)
    workers, cpus = setting(summary, "num_workers"), cpus_of_rank(summary)
    rest = max(1.0 - lost, 1e-3)
    if workers is None:
        return LoaderRemedy(
            evidence=("the loader's settings are unknown",),
            action="give the DataLoader more workers",
        )
    look = f"{summary.run.loop.loader_anatomy} shows which part of a batch is slow"
    # Without workers the loop waits for a batch as long as it takes to make, whatever of that the
    # device hides.
    making_s = waited * (summary.value(STEP_MEAN_S) or 0.0)
    batch_s = making_s / micro_batches(summary)
    if workers == 0 and not worth_a_worker(summary, batch_s):
        trip = f"getting one from a worker about {duration(round_trip_s(summary))}"
        return LoaderRemedy(
            advice="Make batches cheaper",
            evidence=(f"a batch takes {duration(batch_s)}, {trip}: num_workers=0 is right",),
            action="fetch a batch at once (__getitems__, one index into a tensor) instead of "
            "sample by sample, or take larger batches",
            effort="hours",
        )
    if workers == 0:
        # Workers only have to make a batch in the time the rest of the step takes.
        needed = max(1, min(math.ceil(round(waited / rest, 2)), int(cpus or sys.maxsize)))
        spent = f"num_workers=0: {duration(making_s)} per step to make batches in this process"
        remedy = LoaderRemedy(
            evidence=(spent, look),
            action=f"DataLoader(num_workers={needed}, persistent_workers=True)",
            workers=needed,
        )
        return sharing(summary, remedy)
    needed = math.ceil(workers / rest)
    if cpus is None or needed <= cpus:
        return LoaderRemedy(
            evidence=(f"num_workers={workers:.0f}: too few or too slow", look),
            action=f"DataLoader(num_workers={needed}, persistent_workers=True, prefetch_factor=4)",
        )
    return LoaderRemedy(
        evidence=(f"{workers:.0f} workers on {cpus:.0f} CPUs do not keep up", look),
        action="make a sample cheaper: cache or preprocess what __getitem__ and collate_fn compute",
        effort="hours",
    )

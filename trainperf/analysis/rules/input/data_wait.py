"""Rule about steps that wait for data."""

from trainperf.analysis.rules.base import (
    Evidence,
    TraceTime,
    dispatched,
    late_s,
    phase_fraction,
    setting,
    warm_bound,
    worst,
)
from trainperf.analysis.rules.input.base import (
    asleep_fraction,
    awaits_requests,
    lost_to_loader,
    micro_batches,
    small_tensors_wait,
)
from trainperf.analysis.rules.input.remedies import (
    LoaderRemedy,
    by_anatomy,
    staffed,
    unless_waiting,
)
from trainperf.analysis.rules.input.workers import (
    MOSTLY_ASLEEP,
    cheaper_than_a_worker,
    round_trip_s,
    staffing,
    too_many_workers,
    why_no_more,
    worth_a_worker,
)
from trainperf.analysis.rules.measured import refuted
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, Level, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.phases import Phase
from trainperf.core.readings import DATA_STALL_FRACTION, STEP_MEAN_S


TRACE_TIME: TraceTime = "data_wait"
LOADER_IS_HEARD = (3, 12)
"""The Python from which on a recording from outside tells the loader from the loop's own code."""

SAMPLED = Phase.DATA_WAIT


def data_wait(evidence: Evidence) -> Finding | None:
    """The loader keeps the device waiting.

    Judged by the stall where it is known: a wait that hides behind queued device work is
    `data_hidden`.  With an anatomy of the loader the part that costs is named; batches of
    `many_small_tensors`, and more workers than CPUs (`oversubscription`), are left to those rules.
    Workers that were tried in this training and gain nothing are not advised.  Where rank 0 loads
    for all ranks, each rank is given a loader of its own.
    A batch that takes less to make than to get from a worker is how loaders are: nothing is said of
    it below a fifth of the step.  An inference loop without a DataLoader waits for requests.
    Where the wait may be the loop's own code, and no DataLoader was found, the two are told apart
    first.

    Wrong where: the wait is for another process that uses the CPUs or the disk, and not for the
    loader's own work.
    To confirm: `trainperf try --only free_loader SCRIPT`: batches from memory are the ceiling of
    every remedy.
    """
    summary = evidence.summary
    waited, lost = phase_fraction(summary, Phase.DATA_WAIT), lost_to_loader(summary)
    step_s = summary.value(STEP_MEAN_S)
    if waited is None or lost is None or not step_s:
        return None
    if awaits_requests(summary):
        return None
    if lost < LIMITS.notable or small_tensors_wait(summary) or too_many_workers(summary):
        return None
    if lost < LIMITS.critical and cheaper_than_a_worker(summary, waited * step_s):
        return None
    trials = evidence.documents.trials
    no_help = refuted(
        () if trials is None else trials.trials, "workers", evidence.documents.trials_from
    )
    remedy = _remedy(summary, waited * step_s, step_s, no_help)
    # Workers share the processor with the model where the model runs on it too.
    finding = Finding(
        id="data_wait",
        title=_title(lost, summary, remedy.part),
        advice=remedy.advice,
        evidence=(
            f"{duration(waited * step_s)} of {duration(step_s)} per step {_where(summary)}",
            *_details(summary),
            *remedy.evidence,
        ),
        action=remedy.action,
        **costs(
            1 - max(1 - lost, remedy.making),
            confidence=_confidence(summary),
        ),
        effort=remedy.effort,
        where=remedy.where,
        confirm=f"the next run waits for data for less than {share(LIMITS.notable)} of its step",
    )
    return warm_bound(finding, summary, least=remedy.making)


def _title(lost: float, summary: Summary, part: str) -> str:
    where = ""
    if len(summary.run.ranks) > 1:
        # What one late rank waits beyond the others is the straggler's.
        late = late_s(summary, Phase.DATA_WAIT) > 0
        where = " on every rank" if late else " on the rank that waits longest"
    mainly = f", mainly for {part}" if part else ""
    most = "up to " if summary.run.loop.coarse else ""
    return f"{most}{share(lost)} of the step is spent waiting for data{mainly}{where}"


def _where(summary: Summary) -> str:
    if summary.run.loop.coarse:
        return "between the update and the next forward: the loader, and the loop's own code"
    return "in the loader's next()"


def _confidence(summary: Summary) -> Level:
    if summary.run.loop.coarse:
        return "low"
    return "medium" if summary.run.device == "cpu" else "high"


def _details(summary: Summary) -> list[str]:
    facts = []
    more_s, stalled = late_s(summary, Phase.DATA_WAIT), worst(summary, DATA_STALL_FRACTION)
    if more_s:
        facts.append(f"the late rank waits {duration(more_s)} longer: see the straggler finding")
    if stalled is not None and summary.run.device != "cpu":
        facts.append(f"the device idled for data {share(stalled)} of the step")
    return facts


def _remedy(summary: Summary, waited_s: float, step_s: float, no_help: str) -> LoaderRemedy:
    if dispatched(summary):
        return _own_loaders(summary)
    if summary.loader is not None:
        return by_anatomy(summary, summary.loader, no_help)
    workers = setting(summary, "num_workers")
    if workers is None and summary.run.loop.coarse:
        return _tell_apart(summary)
    if workers is None:
        return LoaderRemedy(
            evidence=("the loader's settings are unknown",),
            action="give the DataLoader more workers",
        )
    batch_s = waited_s / micro_batches(summary)
    if not workers and not worth_a_worker(summary, batch_s):
        trip = f"getting one from a worker about {duration(round_trip_s(summary))}"
        return LoaderRemedy(
            advice="Make batches cheaper",
            evidence=(f"a batch takes {duration(batch_s)}, {trip}: num_workers=0 is right",),
            action="fetch a batch at once (__getitems__, one index into a tensor) instead of "
            "sample by sample, or take larger batches",
            effort="hours",
        )
    return _more_or_cheaper(summary, int(workers), waited_s, step_s, no_help)


def _tell_apart(summary: Summary) -> LoaderRemedy:
    """Where the wait may be anything between an update and the next forward."""
    line = summary.owner(Phase.DATA_WAIT.label)
    sampled = () if line is None else (f"{line.name}: {share(line.fraction)} of it, sampled",)
    newer = ""
    if _python(summary) < LOADER_IS_HEARD:
        newer = f"run it with Python {'.'.join(map(str, LOADER_IS_HEARD))} or newer, or "
    return LoaderRemedy(
        advice="Tell the loader from the loop's own code",
        evidence=("no DataLoader of this loop was found", *sampled),
        action=f"{newer}{summary.run.loop.measures['data wait']}: then it is the loader's time "
        "alone",
        where="" if line is None else line.where,
    )


def _python(summary: Summary) -> tuple[int, ...]:
    """The version that trained: major and minor."""
    major_minor = summary.run.software.get("python", "").split(".")[:2]
    return tuple(int(part) for part in major_minor if part.isdigit())


def _own_loaders(summary: Summary) -> LoaderRemedy:
    ranks, option = len(summary.run.ranks), "dispatch_batches"
    without = (
        f'TrainingArguments(accelerator_config={{"{option}": False}})'
        if summary.run.loop is HUGGING_FACE
        else f"Accelerator(dataloader_config=DataLoaderConfiguration({option}=False))"
    )
    return LoaderRemedy(
        advice="Let each rank load its own batches",
        evidence=(f"rank 0 loads the batches of all {ranks} ranks and sends them ({option})",),
        action=f"{without}; a stream is split by rank first (split_dataset_by_node), else every "
        "rank reads all of it",
    )


def _more_or_cheaper(
    summary: Summary, workers: int, waited_s: float, step_s: float, no_help: str
) -> LoaderRemedy:
    # Without workers the loop waits for a batch as long as it takes to make, whatever of that the
    # device hides; workers that do not keep up are busy all the time.
    making_s = workers * step_s or waited_s
    state, prefetch = f"num_workers={workers}: too few or too slow", ", prefetch_factor=4"
    if not workers:
        state = f"num_workers=0: {duration(waited_s)} per step to make batches in this process"
        prefetch = ""
    look = f"{summary.run.loop.loader_anatomy} shows which part of a batch is slow"
    staff = None if no_help else staffing(summary, making_s)
    if staff is None:
        remedy = LoaderRemedy(
            advice="Make a sample cheaper",
            evidence=(state, no_help or why_no_more(summary, making_s), look),
            action="cache or preprocess what __getitem__ and collate_fn compute",
            effort="hours",
        )
        return remedy if no_help else unless_waiting(remedy, summary, making_s)
    options = f"num_workers={staff.workers}, persistent_workers=True{prefetch}"
    action = summary.run.loop.data_loader(options)
    asleep = asleep_fraction(summary)
    if asleep >= MOSTLY_ASLEEP:
        state += f"; {share(asleep)} of it asleep, so that workers share CPUs"
    remedy = LoaderRemedy(evidence=(state, look), action=action)
    return staffed(remedy, staff, summary, making_s)

"""Detectors of the loader: its workers, its waits, its starts."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainperf.analysis.diagnosis.account import Claim, LoaderAccount, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.law import (
    ROUND_TRIP_S,
    WorkerPlan,
    worker_plan,
    workers_hold_up_s,
    workers_take_s,
)
from trainperf.analysis.diagnosis.workers import sampled_workers
from trainperf.analysis.summary.schema import HostShare, LineShare
from trainperf.core.artifacts.lines import WORKER_MAKING
from trainperf.core.choice import all_that_hold, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.readings import (
    DATA_WAIT_ALL_FRACTION,
    DATA_WAIT_FRACTION,
)


OWN_WAYS = {
    "WebDataset": "num_workers of its WebLoader, or of the DataLoader around the dataset, up to "
    "the number of shards",
    "Mosaic StreamingDataset": "num_workers of the DataLoader around it, predownload and a local "
    "copy of the shards",
    "Grain": "worker_count of its DataLoader, or .mp_prefetch(grain.MultiprocessingOptions(…))",
    "DALI": "num_threads, prefetch_queue_depth and py_num_workers of its pipeline, decoding on the "
    "device",
    "batchgenerators": "num_processes and num_cached_per_queue of its MultiThreadedAugmenter",
    "tf.data": ".map(…, num_parallel_calls=tf.data.AUTOTUNE) and .prefetch(tf.data.AUTOTUNE)",
}
"""Library that makes batches to what decides how many at once."""


def lost_to_loader_s(account: StepAccount) -> float:
    """Seconds of a step: what the device stalls where that is known, else the wait."""
    waited_s = account.spent("data_wait")
    stalled_s = None if account.device is None else account.device.data_s
    return waited_s if stalled_s is None else min(stalled_s, waited_s)


def of_loader(account: StepAccount) -> Claim:
    """All of the wait has its owner, also what a device hides."""
    lost_s = lost_to_loader_s(account)
    return Claim(
        owns_s={"data_wait": account.spent("data_wait")},
        removes_s=lost_s,
        device={} if account.device is None else {"data_s": lost_s},
    )


@worth(LIMITS.notable)
def workers_compete(account: StepAccount, facts: Facts) -> Cause | None:
    """The loader's workers compute on CPUs that the model's threads need.

    Removed is what steps wait for their batches, and what they take from the model by the law of
    the CPUs: with fewer workers it is to be computed, too.  The training thread must be seen to
    lack a CPU.

    Wrong where: a worker computes with several threads, or other jobs have the CPUs.
    To confirm: `trainperf try --only free_loader SCRIPT`: batches from memory are the ceiling.
    """
    host, inside = facts.summary.host, sampled_workers(facts)
    waited = 0.0 if host is None else host.waited_fraction or 0.0
    claim, owner = of_loader(account), facts.summary.owner(WORKER_MAKING)
    rest_s = account.step_s - claim.removes_s
    takes_s = account.share(rest_s) * workers_take_s(account)
    if min(waited, account.share(takes_s)) < LIMITS.notable or (inside and inside.threads > 1):
        return None
    return Cause(
        id="workers_compete",
        title=f"{share(account.share(claim.removes_s + takes_s))} of the step goes to the loader, "
        "whose workers compute on the model's CPUs",
        evidence=(
            f"{duration(takes_s)} of {duration(account.step_s)} are the workers' computing",
            f"{duration(claim.removes_s)} are data wait",
            f"a training thread had no CPU {share(waited)} of the time",
        ),
        changes=(_cheaper_sample(account, _part(owner), rest_s),),
        claim=replace(claim, removes_s=claim.removes_s + takes_s),
        where="" if owner is None else owner.where,
    )


@worth(LIMITS.notable)
def oversubscription(account: StepAccount, facts: Facts) -> Cause | None:
    """Ranks, their threads and their loaders' workers are more than the host's CPUs, and wait.

    Counted are the CPUs that a rank may use: by masks, quotas and the ranks it shares them with.
    More on paper is no fault: the training thread, or workers that steps wait for, must be seen to
    lack a CPU.  Removed is the time that the thread waits for one beyond what workers compute, as
    fewer of them would, too; or what steps lose to a loader whose workers lack one.  A worker that
    computes with several threads (of torch, of BLAS, of OpenCV) counts as so many.

    Wrong where: other jobs of the same host take the CPUs, which no count of this run shows.
    To confirm: `trainperf prove` with fewer threads or workers per rank.
    """
    host, inside = facts.summary.host, sampled_workers(facts)
    each = 1 if inside is None else inside.threads
    if host is None or host.threads + each * host.workers <= host.cpus_per_rank:
        return None
    waited = host.waited_fraction or 0.0
    workers_waited = max(
        host.workers_waited_fraction or 0.0, inside.lacked if inside and each > 1 else 0.0
    )
    used = each * (host.workers_ran or 0.0) + (host.ran_fraction or 0.0)
    idle = host.workers_ran is not None and used < LIMITS.mostly * host.cpus_per_rank
    crowded = each * host.workers + 1 > host.cpus_per_rank and not idle
    held_up_s = workers_hold_up_s(account) if each == 1 else 0.0
    waits = Claim(removes_s=max(0.0, waited * account.step_s - held_up_s))
    loads = of_loader(account)
    # Workers ready to run for a third of their time are slowed by what they wait for.
    by_loader = crowded and workers_waited >= 1 / 3 and loads.removes_s > waits.removes_s
    who = (
        plural(host.threads, "thread")
        + (f" and {plural(host.workers, 'worker')}" if host.workers else "")
        + (f" of {each} threads" if each > 1 else "")
    )
    whole = f"{plural(host.ranks, 'rank')} with {who} each" if host.ranks > 1 else who
    lacks = (
        f"workers wait for a CPU {share(workers_waited)}"
        if by_loader
        else f"a training thread waits for one {share(waited)}"
    )
    cpus = host.cpus_per_rank * host.ranks
    return Cause(
        id="oversubscription",
        title=f"{whole} on {cpus:.3g} {'CPU' if cpus == 1 else 'CPUs'}: {lacks} of the time",
        evidence=texts_of(
            each > 1 and f"each of {host.workers} workers computes with {each} threads",
            waited and f"the training thread had no CPU {share(waited)} of the time",
            workers_waited and f"workers had none {share(workers_waited)} of theirs",
            host.throttled_fraction
            and f"the quota was used up in {share(host.throttled_fraction)} of its periods",
        ),
        changes=_fewer(account, host, each),
        claim=loads if by_loader else waits,
    )


def _fewer(account: StepAccount, host: HostShare, each: int) -> tuple[Use, ...]:
    """Fewer workers or threads; where even one is too many, CPUs.

    Args:
        account: Of the step.
        host: What the rank has of its host.
        each: Threads with which a worker computes: one is enough.
    """
    own = int(account.cpus or 0)
    workers, cpus = min(host.workers, own // 2), plural(own, "CPU")
    threads = min(host.threads, max(1, own - workers))
    fewer = {"number": workers, "threads": threads, "cpus": cpus}
    threads_do = own >= 1 and workers == host.workers
    return all_that_hold(
        (Use(change="one_thread_in_workers", values={"threads": each}), each > 1),
        (Use(change="more_cpus", values={"ranks": host.ranks}), own < 1),
        (Use(change="fewer_workers", values=fewer), own >= 1 and not threads_do),
        (Use(change="fewer_threads", values=fewer), threads_do),
    )


def data_wait(account: StepAccount, facts: Facts) -> Cause | None:
    """The loader keeps the step waiting.

    Judged by the device's stall where it is known: a wait that hides behind queued work is
    `data_hidden`.  Which change helps is said by the law of the loader: more workers while there
    are CPUs for them, none where handing batches over costs more than making them, a cheaper sample
    otherwise.  A batch that takes less to make than to get from a worker is how loaders are:
    nothing is said of it below a fifth of the step.

    Wrong where: the wait is for another process that uses the CPUs or the disk, and not for the
    loader's own work; in a loop recorded from outside it may be the loop's own code.
    To confirm: `trainperf try --only free_loader SCRIPT`: batches from memory are the ceiling of
    every remedy.
    """
    lost, loader = account.share(lost_to_loader_s(account)), account.loader
    alone = loader is None or not loader.workers
    least = LIMITS.critical if loader and alone and _is_short(loader) else account.least
    # Without a DataLoader an inference loop waits for requests, which nobody has sent yet.
    if lost < least or (loader is None and not facts.loop.trains):
        return None
    inside = sampled_workers(facts)
    hands_over = inside is not None and inside.hands_over
    owner = facts.summary.owner("data_wait" if alone else WORKER_MAKING)
    changes = _loader_changes(account, facts, owner, hands_over=hands_over)
    if not changes:
        return None
    return Cause(
        id="data_wait",
        title=f"{share(lost)} of the step is spent waiting for data"
        f"{', mainly for transport' if hands_over else ''}"
        f"{'' if len(facts.run.ranks) == 1 else ' on the rank that waits longest'}",
        evidence=(
            *texts_of(
                f"{duration(account.spent('data_wait'))} of {duration(account.step_s)} per step in "
                "the loader's next()",
                account.device is not None
                and f"the device idled for data {share(lost)} of the step",
            ),
            *_loader_facts(account, facts, owner),
        ),
        changes=changes,
        claim=of_loader(account),
        where="" if owner is None else owner.where,
        confidence="high"
        if account.device is not None and not facts.loop.data_wait_is_bound
        else "medium",
    )


def idle_workers(account: StepAccount, facts: Facts) -> Cause | None:
    """Workers that deliver nothing: an `IterableDataset` has a part for some of them only.

    A dataset of one file, or of fewer shards than there are workers, leaves the others without
    work: they end at once, and more of them would change nothing.  Seen is which of them make
    batches, counted from Python 3.12 on, else by samples; a dataset that tells how many shards it
    has is believed as well.

    Wrong where: those that work keep up, and the wait is for the loop's own code.
    To confirm: print `get_worker_info().id` in `__iter__`, and what it goes through.
    """
    inside, shards = sampled_workers(facts), facts.number("dataset_shards")
    loader, lost_s = account.loader, lost_to_loader_s(account)
    unseen = shards is None and (inside is None or not inside.iterable)
    if loader is None or not loader.idle or unseen or account.share(lost_s) < account.least:
        return None
    owner, number = facts.summary.owner(WORKER_MAKING), loader.workers or 0
    shared_s = max(account.step_s - lost_s, loader.making_s / number)
    making, few = () if inside is None else inside.making, int(min(shards or number, number))
    batches = () if inside is None else inside.batches
    little = "next to nothing" if batches and batches.count(0) < loader.idle else "nothing"
    return Cause(
        id="idle_workers",
        title=f"{loader.idle} of the loader's {number} workers deliver {little}"
        + (f": the dataset has {plural(few, 'shard')}" if number - few == loader.idle else ""),
        evidence=texts_of(
            batches and f"batches: {_of_workers(batches, '{:,}'.format)}",
            making
            and f"share of the time in which batches were made: {_of_workers(making, share)}",
            f"{duration(account.spent('data_wait'))} of {duration(account.step_s)} are data wait",
        ),
        changes=(
            Use(
                change="share_the_data",
                values={"workers": number},
                step_s=shared_s,
                least_s=shared_s,
            ),
        ),
        claim=of_loader(account),
        where="" if owner is None else owner.where,
    )


def _of_workers(numbers: Sequence[float], in_words: Callable[[float], str]) -> str:
    """What is known of each worker, of the first eight."""
    return ", ".join(f"worker {at}: {in_words(each)}" for at, each in enumerate(numbers[:8]))


def _is_short(loader: LoaderAccount) -> bool:
    """Whether its batches take less to make than to get from a worker."""
    return loader.making_s < ROUND_TRIP_S * loader.batches


def _loader_facts(account: StepAccount, facts: Facts, owner: LineShare | None) -> tuple[str, ...]:
    """What makes the batches, and whose code most of it is."""
    loader, waited_s = account.loader, account.spent("data_wait")
    workers = 0 if loader is None else loader.workers
    whose = (
        owner
        and f"{owner.name}: {share(owner.fraction)} of "
        f"{'what workers do for it' if workers else 'it'} in {owner.samples} samples"
    )
    if loader is None:
        library = facts.settings.get("loader_library")
        makes = f"{library} makes the batches" if library else "the loader's settings are unknown"
        return texts_of(makes, whose)
    return texts_of(
        f"num_workers={workers}"
        if workers
        else f"num_workers=0: {duration(waited_s)} per step to make batches in this process",
        loader.asleep >= LIMITS.mostly
        and f"{share(loader.asleep)} of that asleep, so that workers share CPUs",
        workers
        and loader.making_s < waited_s
        and f"the workers compute only {duration(loader.making_s)} of a step",
        account.others_cpus
        and f"other processes kept {account.others_cpus:.1f} of {facts.cpus} CPUs busy, and a "
        "worker needs one",
        whose,
        workers
        and sampled_workers(facts) is None
        and facts.settings.get("worker_start") in ("spawn", "forkserver")
        and "workers are spawned: what they do is seen under `trainperf run` only",
    )


def _loader_changes(
    account: StepAccount, facts: Facts, owner: LineShare | None, *, hands_over: bool
) -> tuple[Use, ...]:
    """All that would help by the law, each with its own step.

    Args:
        account: Of the step.
        facts: Of the run.
        owner: In which most of the making was seen.
        hands_over: Whether workers hand their batches over for longer than they make them.
    """
    loader, rest_s = account.loader, account.step_s - lost_to_loader_s(account)
    if len(facts.run.ranks) > 1 and facts.settings.get("loader") == "DataLoaderDispatcher":
        return (Use(change="own_loaders", values={"ranks": len(facts.run.ranks)}),)
    library = str(facts.settings.get("loader_library") or "")
    if library or loader is None:
        values = {"library": library, "how": OWN_WAYS.get(library)}
        return (Use(change="its_own_workers" if library else "some_workers", values=values),)
    alone_s = account.step_s - account.spent("data_wait") + loader.making_s
    returns = loader.workers and alone_s < account.step_s
    makes = not hands_over and not (loader.workers and _is_short(loader))
    name = _part(owner)
    nearer = Use(change="nearer_data", values={"part": name}, realises=0.9 * loader.asleep)
    return (
        *_as_planned(worker_plan(account), loader, rest_s),
        *all_that_hold(
            (Use(change="no_workers", step_s=alone_s, least_s=rest_s), returns),
            (Use(change="send_less"), hands_over),
            (nearer, makes and loader.asleep >= LIMITS.mostly),
            (_cheaper_sample(account, name, rest_s), makes and loader.asleep < LIMITS.mostly),
        ),
    )


def _as_planned(plan: WorkerPlan | None, loader: LoaderAccount, rest_s: float) -> tuple[Use, ...]:
    """The number of workers that the law says; none where it helps nowhere."""
    if plan is None:
        return ()
    return (
        Use(
            change="more_workers" if plan.threads is None else "workers_and_threads",
            values={
                "workers": plural(plan.workers, "worker"),
                "number": plan.workers,
                "threads": plan.threads,
            },
            step_s=plan.step_s,
            least_s=max(rest_s, loader.making_s / plan.workers),
        ),
    )


def _part(owner: LineShare | None) -> str:
    """What makes samples, in words."""
    return (owner and owner.function) or "__getitem__ and collate_fn"


def _cheaper_sample(account: StepAccount, part: str, rest_s: float) -> Use:
    """With what the model gets back of the CPUs on which workers computed it.

    Args:
        account: Of the step.
        part: What makes samples.
        rest_s: What the step takes without a wait for them, in which workers take CPUs from it.
    """
    takes_s = account.share(rest_s) * workers_take_s(account)
    return Use(
        change="cheaper_sample",
        values={"part": part},
        step_s=rest_s - takes_s if takes_s else None,
        least_s=rest_s - account.share(rest_s) * workers_hold_up_s(account) if takes_s else None,
    )


def data_hidden(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 its seconds
    """The loader takes much of the host's time and none of the device's: nothing is to be done.

    A finding without gain, so that nobody speeds up a loader that costs nothing.

    Wrong where: the device gets faster: then the loader is what it waits for.
    To confirm: `trainperf try --only free_loader SCRIPT` gains nothing.
    """
    stalled_s = None if account.device is None else account.device.data_s
    waited = account.share(account.spent("data_wait"))
    # A stall below a quarter of the host's data wait: the device hides the rest.
    if (
        stalled_s is None
        or waited < LIMITS.notable
        or account.share(stalled_s) >= min(LIMITS.notable, waited / 4)
    ):
        return None
    return Cause(
        id="data_hidden",
        title=f"{share(waited)} of the step is data wait that the device hides",
        evidence=(f"the device idled for data {share(account.share(stalled_s))} of the step",),
        changes=(Use(change="leave_the_loader"),),
        claim=Claim(owns_s={"data_wait": account.spent("data_wait")}),
        severity="low",
    )


@worth(LIMITS.worth)
def epoch_start(account: StepAccount, facts: Facts) -> Cause | None:
    """The loader's workers end with every epoch, and the next one waits for new ones.

    Counted are the gaps between epochs, in which Lightning starts them, and what the first batches
    of the epochs wait beyond the others, which steady steps exclude; and as much for each
    validation whose loader has as many workers, and ends them, too.  From outside no epoch is
    seen: there it is what steps wait longer that come back with the length of the loader's epoch.

    Wrong where: epochs are long, and the fit that was measured had short ones.
    To confirm: `trainperf prove` with `persistent_workers=True` and without, for whole epochs
    (`--to-the-end`).
    """
    if not facts.number("num_workers") or facts.number("persistent_workers"):
        return None
    slow, epochs = facts.summary.slow_steps, facts.summary.gaps.get("epoch_boundary", 0)
    if epochs >= 2:
        first_s = first_batches_s(account, facts)
        # Code of the user's own passes between the epochs of a plain loop.
        between_s = 0.0 if facts.loop.own else account.pauses_s.get("epoch_boundary", 0.0)
        each_s = (between_s + first_s) / epochs
        # Another loader of as many workers takes as long to start.
        alike = facts.number("validation_workers") == facts.number("num_workers")
        anew = alike and not facts.number("validation_persistent")
        starts = facts.summary.gaps.get("validation", 0) if anew else 0
        again_s = min(starts * each_s, account.pauses_s.get("validation", 0.0))
        much = (
            f"{duration(each_s)} in each of {plural(epochs, 'epoch')}: {duration(between_s)} "
            f"between epochs and {duration(first_s)} for their first batches"
            + (f"; {duration(again_s)} in {plural(starts, 'validation')}" if again_s else "")
        )
        claim = Claim(pauses_s={"epoch_boundary": between_s + first_s, "validation": again_s})
    elif slow is not None and slow.phase == "data_wait":
        length = (facts.number("dataset_samples") or 0.0) / (facts.number("batch_size") or 1.0)
        if abs(slow.every - length / facts.run.world_size / facts.micro_batches) >= 1:
            return None
        per_step_s = slow.lost_s * slow.phase_fraction / slow.of_steps
        all_s = per_step_s * max(slow.of_steps, facts.run.steady_steps)
        more = duration(slow.slow_s - slow.typical_s)
        much = f"{more} more in one step of {slow.every}: the length of the loader's epoch"
        claim = Claim(pauses_s={"epoch_boundary": all_s}, owns_s={"data_wait": per_step_s})
    else:
        return None
    inside, spent_s = sampled_workers(facts), sum(claim.pauses_s.values())
    return Cause(
        id="epoch_start",
        title=f"{share(account.share(spent_s, 'fit'))} of the fit goes into starting epochs",
        evidence=texts_of(
            much,
            inside is not None
            and inside.starting_s * epochs >= spent_s / 2
            and f"a worker takes {duration(inside.starting_s)} to start",
        ),
        changes=(Use(change="persistent_workers"),),
        claim=claim,
        confidence="medium",
    )


def first_batches_s(account: StepAccount, facts: Facts) -> float:
    """What the fit waits for data beyond what it would if every step were a steady one."""
    steady, every = facts.value(DATA_WAIT_FRACTION), facts.value(DATA_WAIT_ALL_FRACTION)
    if steady is None or every is None or steady >= 1.0:
        return 0.0
    return max(0.0, every - steady) * account.steps_s / (1.0 - steady)

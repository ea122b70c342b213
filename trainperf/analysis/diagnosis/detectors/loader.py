"""Detectors of the way of a batch: workers, loader, copies, padding."""

from collections.abc import Iterator, Mapping

from trainperf.analysis.diagnosis.account import Claim, StepAccount, total_s
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.law import ROUND_TRIP_S, without_workers_s, worker_plan
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, plural, rate, share, size
from trainperf.core.readings import (
    DATA_WAIT_ALL_FRACTION,
    DATA_WAIT_FRACTION,
    EFFECTIVE_TOKENS_PER_S,
    H2D_BYTES,
    H2D_BYTES_PER_S,
    H2D_TENSORS,
    PADDED_TOKENS_PER_S,
    PADDING_FRACTION,
)
from trainperf.core.steps.records import EXACT_LENGTHS, LENGTH_BIN


SMALL_TENSOR_BYTES = 1 << 18
"""A copy of 256 KiB takes 10 µs over a link of 25 GB/s: as long as starting it does."""

MANY_TENSORS = 16
"""In a batch: from here on handling them stands out against what is in them."""


def lost_to_loader_s(account: StepAccount) -> float:
    """Seconds of a step: what the device stalls where that is known, else the wait."""
    waited_s = account.spent("data_wait")
    stalled_s = None if account.device is None else account.device.data_s
    return waited_s if stalled_s is None else min(stalled_s, waited_s)


def _claimed(account: StepAccount, removes_s: float) -> Claim:
    """All of the wait has its owner, also what a device hides."""
    lost = {} if account.device is None else {"data_s": lost_to_loader_s(account)}
    owns_s = {"data_wait": account.spent("data_wait")}
    return Claim(owns_s=owns_s, removes_s=removes_s, device=lost)


def oversubscription(account: StepAccount, facts: Facts) -> Cause | None:
    """Ranks, their threads and their loaders' workers are more than the host's CPUs, and wait.

    Counted are the CPUs that a rank may use: by masks, quotas and the ranks it shares them with.
    More on paper is no fault: the training thread, or workers that steps wait for, must be seen to
    lack a CPU.  Removed is the time that the thread waits for one, or what steps lose to a loader
    whose workers do.

    Wrong where: other jobs of the same host take the CPUs, which no count of this run shows.
    To confirm: `trainperf prove` with fewer threads or workers per rank.
    """
    host = facts.host
    if host is None or host.demand <= host.cpus_per_rank or not account.step_s:
        return None
    waited_s = (host.waited_fraction or 0.0) * account.step_s
    used = (host.workers_ran or 0.0) + (host.ran_fraction or 0.0)
    idle = host.workers_ran is not None and used < LIMITS.mostly * host.cpus_per_rank
    crowded = host.workers + 1 > host.cpus_per_rank and not idle
    # Workers ready to run for a third of their time are slowed by what they wait for.
    starved = crowded and (host.workers_waited_fraction or 0.0) >= 1 / 3
    by_loader_s = lost_to_loader_s(account) if starved else 0.0
    lost_s = max(waited_s, by_loader_s)
    if account.share(lost_s) < LIMITS.notable:
        return None
    claim = _claimed(account, lost_s) if by_loader_s >= waited_s else Claim(removes_s=lost_s)
    who = plural(host.threads, "thread") + (
        f" and {plural(host.workers, 'worker')}" if host.workers else ""
    )
    each = f"{plural(host.ranks, 'rank')} with {who} each" if host.ranks > 1 else who
    waits = (
        f"workers wait for a CPU {share(host.workers_waited_fraction or 0.0)} of the time"
        if by_loader_s > waited_s
        else f"a training thread waits for one {share(host.waited_fraction or 0.0)} of the time"
    )
    return Cause(
        id="oversubscription",
        title=f"{each} on {host.cpus_per_rank * host.ranks:.3g} CPUs: {waits}",
        evidence=_crowding(facts),
        changes=(_fewer(account, facts),),
        claim=claim,
    )


def _crowding(facts: Facts) -> tuple[str, ...]:
    host = facts.host
    parts = {
        "the training thread had no CPU {} of the time": host and host.waited_fraction,
        "workers had none {} of theirs": host and host.workers_waited_fraction,
        "the quota was used up in {} of its periods": host and host.throttled_fraction,
    }
    return tuple(text.format(share(value)) for text, value in parts.items() if value)


def _fewer(account: StepAccount, facts: Facts) -> Use:
    """Fewer workers, then fewer threads; where even one is too many, CPUs."""
    host, own = facts.host, int(account.cpus or 0)
    if host is None or own < 1:
        return Use(change="more_cpus", values={"ranks": facts.ranks})
    workers = min(host.workers, own // 2)
    if workers < host.workers:
        return Use(change="fewer_workers", values={"number": workers, "cpus": plural(own, "CPU")})
    threads = min(host.threads, max(1, own - workers))
    return Use(change="fewer_threads", values={"threads": threads, "cpus": plural(own, "CPU")})


def many_small_tensors(account: StepAccount, facts: Facts) -> Cause | None:
    """The batch is many small tensors, and the step pays for the handling of each.

    On a device for a copy of each, which every run shows; in the loader for making, stacking and
    sending each, which an anatomy of the loader shows.

    Wrong where: the model needs them one by one, so that joining them moves the work and saves
    none.
    To confirm: `trainperf run --loader-anatomy`: times of making, stacking and sending a batch.
    """
    tensors, copied = facts.value(H2D_TENSORS), facts.value(H2D_BYTES)
    moved_s, anatomy = _moved_s(account), facts.documents.loader
    many = MANY_TENSORS * facts.micro_batches
    if tensors and copied is not None and many <= tensors and copied < tensors * SMALL_TENSOR_BYTES:
        if account.share(moved_s) < LIMITS.notable:
            return None
        return Cause(
            id="many_small_tensors",
            title=f"{share(account.share(moved_s))} of the step goes into copying "
            f"{count(round(tensors))} small tensors",
            evidence=(
                f"{duration(moved_s)} of {duration(account.step_s)} per step",
                (
                    f"{size(copied / tensors)} per tensor, at "
                    f"{rate(facts.value(H2D_BYTES_PER_S) or 0)}"
                ),
            ),
            changes=(Use(change="join_copies"),),
            claim=_copies(account, moved_s),
            confidence="medium",
        )
    lost_s = lost_to_loader_s(account)
    if anatomy is None or account.share(lost_s) < LIMITS.notable or not _only_handling(anatomy):
        return None
    return Cause(
        id="many_small_tensors",
        title=f"{share(account.share(lost_s))} of the step waits for batches of "
        f"{count(round(anatomy.tensors))} small tensors",
        evidence=(*parts(anatomy), f"{size(anatomy.batch_bytes / anatomy.tensors)} per tensor"),
        changes=(Use(change="join_fields"),),
        claim=_claimed(account, lost_s),
        where=anatomy.getitem_line or "",
        confidence="medium",
    )


def _only_handling(anatomy: LoaderAnatomy) -> bool:
    """Whether a batch is many small tensors, and the dataset does little more than handle them."""
    if anatomy.tensors < MANY_TENSORS or anatomy.tensor_s is None:
        return False
    small = anatomy.batch_bytes < anatomy.tensors * SMALL_TENSOR_BYTES
    # Twelve times the least that a small tensor costs: beyond that the dataset does real work.
    handling_s = 12 * anatomy.tensor_s * anatomy.tensors * max(1.0, anatomy.samples)
    return small and anatomy.making_s <= handling_s


def parts(anatomy: LoaderAnatomy) -> tuple[str, ...]:
    """What a batch costs, part by part."""
    where = (
        f"{duration(anatomy.getitem.mean_s)} in {_getitem(anatomy)}, "
        f"{duration(anatomy.collate.mean_s)} in collate_fn"
    )
    facts = [f"a batch takes {duration(anatomy.making_s)} to make: {where}"]
    if anatomy.workers and anatomy.transport is not None:
        facts.append(
            f"{duration(anatomy.transport.mean_s)} to arrive from its worker: "
            f"{size(anatomy.batch_bytes)} in {plural(round(anatomy.tensors), 'tensor')}"
        )
    if anatomy.pinning is not None:
        facts.append(f"{duration(anatomy.pinning.mean_s)} to pin")
    return tuple(facts)


def _getitem(anatomy: LoaderAnatomy) -> str:
    return "__getitem__" if anatomy.kind == "map" else "__iter__"


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
    lost_s, loader = lost_to_loader_s(account), account.loader
    lost = account.share(lost_s)
    # Without a DataLoader an inference loop waits for requests, which nobody has sent yet.
    if lost < account.least or (loader is None and not facts.loop.trains):
        return None
    short = (
        loader is not None
        and not loader.workers
        and loader.making_s < ROUND_TRIP_S * loader.batches
    )
    if short and lost < LIMITS.critical:
        return None
    anatomy = facts.documents.loader
    part, line = ("", "") if anatomy is None else _slowest(anatomy)
    owner = facts.owner("data_wait") if loader is None or not loader.workers else None
    waits = "" if facts.ranks == 1 else " on the rank that waits longest"
    return Cause(
        id="data_wait",
        title=f"{share(lost)} of the step is spent waiting for data"
        f"{f', mainly for {part}' if part else ''}{waits}",
        evidence=(
            (
                f"{duration(account.spent('data_wait'))} of {duration(account.step_s)} per step in "
                "the loader's next()"
            ),
            *(
                ()
                if account.device is None
                else (f"the device idled for data {share(lost)} of the step",)
            ),
            *_loader_facts(account, facts),
            *(() if anatomy is None else parts(anatomy)),
            *(
                ()
                if owner is None
                else (f"{owner.name}: {share(owner.fraction)} of it in {owner.samples} samples",)
            ),
        ),
        changes=tuple(_loader_changes(account, facts, part)),
        claim=_claimed(account, lost_s),
        where=line or ("" if owner is None else owner.where),
        confidence="high" if account.device is not None and not facts.loop.coarse else "medium",
    )


def _loader_facts(account: StepAccount, facts: Facts) -> tuple[str, ...]:
    loader = account.loader
    if loader is None:
        return ("the loader's settings are unknown",)
    evidence = [f"num_workers={loader.workers}"]
    if not loader.workers:
        evidence[0] += (
            f": {duration(account.spent('data_wait'))} per step to make batches in this process"
        )
    if loader.asleep >= LIMITS.mostly:
        evidence.append(f"{share(loader.asleep)} of that asleep, so that workers share CPUs")
    if loader.workers and loader.making_s < account.spent("data_wait"):
        evidence.append(f"the workers compute only {duration(loader.making_s)} of a step")
    if account.others_cpus:
        taken = f"{account.others_cpus:.1f} of {facts.cpus} CPUs"
        evidence.append(f"other processes kept {taken} busy, and a worker needs one")
    return tuple(evidence)


def _slowest(anatomy: LoaderAnatomy) -> tuple[str, str]:
    """The part of a batch that takes most, as it is called in code, and its line."""
    if anatomy.workers and (anatomy.receiving_s or anatomy.packing_s or 0.0) > anatomy.making_s:
        return "transport", ""
    if anatomy.collate.mean_s > anatomy.getitem.mean_s:
        return "collate_fn", anatomy.collate_line or ""
    return _getitem(anatomy), anatomy.getitem_line or ""


def _loader_changes(account: StepAccount, facts: Facts, part: str) -> Iterator[Use]:
    """All that would help by the law, each with its own step."""
    loader, rest_s = account.loader, account.step_s - lost_to_loader_s(account)
    if facts.ranks > 1 and facts.settings.get("loader") == "DataLoaderDispatcher":
        yield Use(change="own_loaders", values={"ranks": facts.ranks})
        return
    if loader is None:
        yield Use(change="some_workers")
        return
    plan = worker_plan(account)
    if plan is not None:
        least_s = max(rest_s, loader.making_s / plan.workers)
        workers = plural(plan.workers, "worker")
        how = {"workers": workers, "number": plan.workers, "threads": plan.threads}
        change = "more_workers" if plan.threads is None else "workers_and_threads"
        yield Use(change=change, values=how, step_s=plan.step_s, least_s=least_s)
    if loader.workers:
        alone_s = without_workers_s(account)
        if alone_s < account.step_s and part in ("", "transport"):
            yield Use(change="no_workers", step_s=alone_s, least_s=rest_s)
    if part == "transport":
        yield Use(change="send_less")
    elif loader.making_s > ROUND_TRIP_S * loader.batches or not loader.workers:
        yield Use(change="cheaper_sample", values={"part": part or "__getitem__ and collate_fn"})


def data_hidden(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 its seconds
    """The loader takes much of the host's time and none of the device's: nothing is to be done.

    A finding without gain, so that nobody speeds up a loader that costs nothing.

    Wrong where: the device gets faster: then the loader is what it waits for.
    To confirm: `trainperf try --only free_loader SCRIPT` gains nothing.
    """
    stalled_s = None if account.device is None else account.device.data_s
    waited = account.share(account.spent("data_wait"))
    if stalled_s is None or waited < LIMITS.notable:
        return None
    # A stall below a quarter of the host's data wait: the device hides the rest.
    if account.share(stalled_s) >= min(LIMITS.notable, waited / 4):
        return None
    return Cause(
        id="data_hidden",
        title=f"{share(waited)} of the step is data wait that the device hides",
        evidence=(f"the device idled for data {share(account.share(stalled_s))} of the step",),
        changes=(Use(change="leave_the_loader"),),
        claim=Claim(owns_s={"data_wait": account.spent("data_wait")}),
        severity="low",
    )


def epoch_start(account: StepAccount, facts: Facts) -> Cause | None:
    """The loader's workers end with every epoch, and the next one waits for new ones.

    Counted are the gaps between epochs, in which Lightning starts them, and what the first batches
    of the epochs wait beyond the others, which steady steps exclude.  From outside no epoch is
    seen: there it is what steps wait longer that come back with the length of the loader's epoch.

    Wrong where: epochs are long, and the fit that was measured had short ones.
    To confirm: `trainperf prove` with `persistent_workers=True` and without, for whole epochs
    (`--to-the-end`).
    """
    if not facts.number("num_workers") or facts.number("persistent_workers"):
        return None
    slow, epochs = facts.slow_steps, facts.gaps.get("epoch_boundary", 0)
    if epochs >= 2:
        loader = facts.documents.loader
        between_s = account.pauses_s.get("epoch_boundary", 0.0)
        # Code of the user's own passes between the epochs of a plain loop.
        if facts.loop.own and (loader is None or 2 * loader.start_s * epochs < between_s):
            between_s = 0.0
        first_s = first_batches_s(account, facts)
        spent_s = between_s + first_s
        much = (
            f"{duration(spent_s / epochs)} in each of {plural(epochs, 'epoch')}: "
            f"{duration(between_s)} between epochs and {duration(first_s)} for their first batches"
        )
        claim = Claim(pauses_s={"epoch_boundary": spent_s})
    elif slow is not None and slow.every is not None and slow.phase == "data_wait":
        length = (facts.number("dataset_samples") or 0.0) / (facts.number("batch_size") or 1.0)
        if abs(slow.every - length / facts.world_size / facts.micro_batches) >= 1:
            return None
        spent_s = slow.lost_s * slow.phase_fraction * max(1.0, facts.steady_steps / slow.of_steps)
        more_s = duration(slow.slow_s - slow.typical_s)
        much = f"{more_s} more in one step of {slow.every}: the length of the loader's epoch"
        per_step_s = slow.lost_s * slow.phase_fraction / slow.of_steps
        claim = Claim(pauses_s={"epoch_boundary": spent_s}, owns_s={"data_wait": per_step_s})
    else:
        return None
    if account.share_of_fit(spent_s) < LIMITS.worth:
        return None
    return Cause(
        id="epoch_start",
        title=f"{share(account.share_of_fit(spent_s))} of the fit goes into starting epochs",
        evidence=(much,),
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


def _moved_s(account: StepAccount) -> float:
    """What the batch's way to the device costs a step at most."""
    host_s = account.spent("h2d")
    copies_s = None if account.device is None else account.device.copies_s
    if copies_s is None:
        return host_s
    return max(host_s, copies_s) if account.host_decides else copies_s


def _copies(account: StepAccount, moved_s: float) -> Claim:
    timed = account.device is not None and account.device.copies_s is not None
    lost = {"copies_s": moved_s} if timed else {}
    return Claim(owns_s={"h2d": account.spent("h2d")}, removes_s=moved_s, device=lost)


def transfer(account: StepAccount, facts: Facts) -> Cause | None:
    """The host-to-device copy takes a notable part of the step.

    What a trace shows to overlap computation is not counted.

    Wrong where: the copies overlap computation, which only a trace shows.
    To confirm: `trainperf try --only no_transfer SCRIPT`; `trainperf trace` shows the share that
    overlaps.
    """
    moved_s = _moved_s(account)
    moved = account.share(moved_s)
    if moved < account.least:
        return None
    copied, tensors = facts.value(H2D_BYTES), facts.value(H2D_TENSORS)
    pinned = facts.number("pin_memory")
    speed = facts.value(H2D_BYTES_PER_S)
    change = "hooks_of_transfer" if account.device is None else "send_smaller"
    return Cause(
        id="transfer",
        title=f"moving the batch to the device takes {share(moved)} of the step",
        evidence=(
            f"{duration(moved_s)} of {duration(account.step_s)} per step",
            *(
                ()
                if copied is None
                else (f"{size(copied)} per step" + (f" at {rate(speed)}" if speed else ""),)
            ),
            *(() if tensors is None else (f"{count(tensors)} tensors per step",)),
            *(() if pinned is None else (f"pin_memory={bool(pinned)}",)),
        ),
        changes=(Use(change="pin_memory" if pinned == 0 and account.device else change),),
        claim=_copies(account, moved_s),
    )


PACKED = "packed_rows"
"""Setting of a run whose batches said that their rows hold several sequences."""

ALIKE = 0.10
"""Share of padding up to which the sequences of a batch are of similar length."""


def padding(account: StepAccount, facts: Facts) -> Cause | None:
    """Many of the tokens that are computed are padding.

    The gain is in effective tokens per second, in updates of the same sequences: what is around
    forward and backward stays.  Attention over shorter rows gains more than its tokens: what the
    audit says of it is added.

    Wrong where: padded rows are what the hardware likes: a multiple of 64 may be faster than fewer
    tokens.
    To confirm: `trainperf try --only trimmed_batches --only sorted_batches SCRIPT`, in effective
    tokens.
    """
    wasted = facts.value(PADDING_FRACTION)
    # Ordinary batches of unequal documents have 30–66 % (parcae#8).
    if wasted is None or wasted < LIMITS.critical or not account.step_s:
        return None
    slots = ("forward", "backward", "h2d", "other", "between")
    use, shorter = _less_padding(facts)
    attends_s = total_s(region for region in account.regions if "attention" in region.use.name)
    squared = attends_s / (total_s(account.regions) or 1.0) if shorter else 0.0
    part = wasted + squared * wasted * (1 - wasted)
    owns_s = {slot: part * account.spent(slot) for slot in slots}
    useful, every = facts.value(EFFECTIVE_TOKENS_PER_S), facts.value(PADDED_TOKENS_PER_S)
    lengths = facts.sequence_lengths
    return Cause(
        id="padding",
        title=f"{share(wasted)} of the tokens are padding",
        evidence=(
            *(
                (f"{count(round(useful))} of {count(round(every))} tokens/s are effective",)
                if useful is not None and every is not None
                else ()
            ),
            *(("several sequences share a row already",) if facts.number(PACKED) else ()),
            *(
                (f"longest ≤ {max(lengths):,}, median ≤ {_median(lengths):,} tokens",)
                if lengths
                else ()
            ),
        ),
        changes=(use,),
        claim=Claim(owns_s=owns_s, removes_s=sum(owns_s.values()), shrinks=part),
        confidence="medium",
    )


def _less_padding(facts: Facts) -> tuple[Use, bool]:
    """What to do first, and whether rows get shorter by it."""
    lengths, wasted = facts.sequence_lengths, facts.value(PADDING_FRACTION) or 0.0
    if facts.number(PACKED):
        return Use(change="pack_more"), False
    if not lengths:
        return Use(change="pack"), True
    tokens, longest = _tokens(lengths), max(lengths)
    capacity = max(facts.number("sequence_length") or 0, longest)
    # Hardly any token is padding in batches as wide as their longest sequence: lengths are alike.
    if 0 < (1 - ALIKE) * facts.longest_tokens <= tokens:
        return Use(change="pad_to_longest"), True
    if longest <= 0.75 * capacity:  # even the longest sequence leaves room
        return Use(
            change="pad_less", values={"longest": longest, "capacity": round(capacity)}
        ), True
    # Each batch is padded to its own longest sequence already: their order is all there is.
    widest = 0 < (1 - ALIKE) * tokens / max(1 - wasted, 1e-9) <= facts.longest_tokens
    if _median(lengths) <= capacity / 2 and not widest:
        return Use(change="pack_rows", values={"capacity": round(capacity)}), False
    return Use(
        change="similar_lengths", values={"version": facts.software.get("transformers", "")}
    ), True


def _tokens(lengths: Mapping[int, int]) -> float:
    """Effective tokens; sequences of a bin count with its middle, as its edge is beyond them."""
    edges = {edge for edge in lengths if edge % LENGTH_BIN == 0}
    beyond = (LENGTH_BIN - 1) / 2 if len(edges) > EXACT_LENGTHS / LENGTH_BIN else 0.0
    return sum(number * (length - beyond * (length in edges)) for length, number in lengths.items())


def _median(lengths: Mapping[int, int]) -> int:
    """Upper edge of the bin in which half of the sequences is reached."""
    half, total = sum(lengths.values()) / 2, 0
    for edge in sorted(lengths):
        total += lengths[edge]
        if total >= half:
            break
    return edge

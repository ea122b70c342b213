"""Detectors of operators: attention, updates, chains, launches, precision, layouts, recomputing.

All stand on regions: rows of one audited step, laid over the mean of the steady ones.  What a cause
removes is a region's seconds beyond its ideal, the roofline of the work that has to stay.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from trainperf.analysis.diagnosis.account import (
    Claim,
    Region,
    StepAccount,
    of_regions,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.detectors.host import LOOP, lines_of, place_of
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.memory_room import room_for
from trainperf.analysis.roofline.roofline import LAUNCH_S
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, REFILL_BYTES, Level
from trainperf.core.formatting.units import count, duration, plural, share, size
from trainperf.core.readings import SAMPLES_PER_S


PASSES = ("forward", "backward", "recompute")
"""Parts of the step that are no update."""

MANY_CALLS = 100
"""Launching so many takes about a millisecond, Python and autograd around them included."""


def _sure(account: StepAccount) -> Level:
    return "low" if account.regions_basis == "modelled" else "medium"


def _spent(account: StepAccount, rows: Iterable[Region]) -> str:
    """E.g. `1.2 ms of 9.8 ms per step`."""
    return f"{duration(total_s(rows))} of {duration(account.step_s)} per step"


def stands_on(account: StepAccount, facts: Facts) -> str:
    """Where the times are from."""
    audit = facts.documents.audit
    step = "" if audit is None or audit.step is None else f" {audit.step}"
    if account.regions_basis == "modelled":
        return f"modelled from the floors of step{step}; {facts.loop.capture} would measure it"
    if account.regions_basis == "traced":
        return f"device times from the trace, operators from step{step}"
    return f"operators timed one by one in step{step}"


def _passes(account: StepAccount) -> list[Region]:
    return [region for region in account.regions if region.use.part in PASSES]


def _cause(
    cause: Cause,
    rows: Sequence[Region],
    account: StepAccount,
    facts: Facts,
    *,
    at: Sequence[Region] = (),
) -> Cause | None:
    """A *cause* in operators with where they are, if it removes a notable part of the step."""
    removes_s = 0.0 if cause.claim is None else cause.claim.removes_s
    if account.share(removes_s) < LIMITS.notable:
        return None
    where, called_at = place_of(at or rows)
    return replace(
        cause,
        evidence=(*cause.evidence, *lines_of(rows), stands_on(account, facts)),
        where=where,
        called_at=called_at,
        confidence=_sure(account),
        bounded=account.regions_basis != "modelled",
    )


# -- attention ----------------------------------------------------------------------------------

UNFUSED = "_safe_softmax"
"""Which nothing else calls than `scaled_dot_product_attention` without a fused kernel."""
SOFTMAX = ("_softmax", UNFUSED)
DROPOUT = frozenset({"bernoulli_", "native_dropout"})


def attention(account: StepAccount, facts: Facts) -> Cause | None:
    """Eager attention makes all scores, where a fused one keeps a few at a time.

    Of everything that touches the scores only the arithmetic of the products has to stay.  Where
    `scaled_dot_product_attention` is called already and runs unfused, that is said.

    Wrong where: the mask or the dropout is of a kind that fused kernels do not take.
    To confirm: `trainperf try --only attention_sdpa SCRIPT`.
    """
    rows = attention_rows(account.regions)
    if not rows:
        return None
    softmax = [row for row in rows if row.use.short_name in SOFTMAX]
    stays_s = sum(row.compute_s for row in rows if row.use.kind == "matmul")
    shape = softmax[0].use.shapes[0]
    # Scores push the rest of the model out of the caches, in forward and in backward.
    written = sum(4 * prod(row.use.shapes[0]) * row.use.calls for row in softmax if row.use.shapes)
    claim = of_regions(rows, stays_s=stays_s)
    names = {row.use.short_name for row in rows}
    change = "fused_attention"
    if UNFUSED in names:
        change = (
            "no_dropout_in_attention"
            if facts.host_computes and names & DROPOUT
            else "fusible_attention"
        )
    return _cause(
        Cause(
            id="attention",
            title="attention with scores in memory takes "
            f"{share(account.share(total_s(rows)))} of the step",
            evidence=(
                f"scores of {' × '.join(map(str, shape))} in memory: {_spent(account, rows)}",
            ),
            changes=(Use(change=change),),
            claim=Claim(
                owns_s=claim.owns_s,
                removes_s=claim.removes_s,
                regions=claim.regions,
                interruptions=max(1.0, 2 * written / REFILL_BYTES),
            ),
        ),
        rows,
        account,
        facts,
        at=softmax,
    )


@dataclass(frozen=True, slots=True)
class _Scores:
    """One shape of attention scores: queries, keys, and elements over all sequences and heads."""

    rows: int
    columns: int
    number: int

    def are_in(self, use: OperatorUse) -> bool:
        return any(map(self.is_shape, use.shapes)) or self.number == _product_elements(use)

    def is_shape(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of that shape is one of scores, perhaps transposed."""
        alike = len(shape) >= 3 and prod(shape) == self.number
        return alike and {shape[-2], shape[-1]} == {self.rows, self.columns}


def attention_rows(regions: Iterable[Region]) -> list[Region]:
    """Everything that touches the scores of eager attention, products included."""
    own = [region for region in regions if region.use.part in PASSES]
    kinds = set(_scores([region.use for region in own]))
    return [region for region in own if any(kind.are_in(region.use) for kind in kinds)]


def _product_elements(use: OperatorUse) -> int | None:
    """Elements of the result of a batched product; `None` for another operator."""
    if use.short_name not in ("bmm", "baddbmm") or len(use.shapes) < 2:
        return None
    left, right = use.shapes[-2:]
    return left[0] * left[1] * right[2] if len(left) == len(right) == 3 else None


def _scores(uses: Sequence[OperatorUse]) -> Iterator[_Scores]:
    """Shapes that a product makes, a softmax normalises and another product takes."""
    forward = [use for use in uses if use.part == "forward"]
    for use in forward:
        if use.short_name not in SOFTMAX or not use.shapes or len(use.shapes[0]) < 3:
            continue
        shape = use.shapes[0]
        if min(shape[-2:]) < 32:  # too few queries or keys to matter
            continue
        kind = _Scores(shape[-2], shape[-1], prod(shape))
        products = [each for each in forward if _product_elements(each) is not None]
        multiplied = any(_product_elements(each) == kind.number for each in products)
        if multiplied and any(kind.is_shape(each.shapes[-2]) for each in products):
            yield kind


# -- updates ------------------------------------------------------------------------------------


def optimizer_not_fused(account: StepAccount, facts: Facts) -> Cause | None:
    """The update takes a notable part of the step and is not one fused kernel.

    What has to stay: each value is read and written once, at the speed of memory.

    Wrong where: the update overlaps communication, or parameters are few and large.
    To confirm: `trainperf try --only optimizer_fused --only optimizer_foreach SCRIPT`; `--only
    no_update` is the ceiling.
    """
    rows = [region for region in account.regions if region.use.part == "optimizer"]
    if any(row.use.short_name.startswith("_fused_") for row in rows):
        return None
    update = [row for row in rows if row.use.kind != "matmul"]
    listed = [row for row in update if row.use.short_name.startswith("_foreach_")]
    lists = total_s(listed) >= total_s(update) / 2
    calls = count(sum(row.use.calls for row in update))
    stays_s = sum(row.fused_s for row in update)
    own = facts.settings.get("optimizer_fused") is None and bool(facts.settings.get("optimizers"))
    return _cause(
        Cause(
            id="optimizer_not_fused",
            title="an unfused optimizer update takes "
            f"{share(account.share(total_s(update)))} of the step",
            evidence=(
                f"{_spent(account, update)} in {calls} operators",
                "lists of tensors (foreach)"
                if lists
                else "one tensor after the other (foreach=False)",
            ),
            changes=(Use(change="foreach_update" if own and not lists else "fused_optimizer"),),
            claim=of_regions(update, stays_s=stays_s),
        ),
        update,
        account,
        facts,
    )


# -- launches -----------------------------------------------------------------------------------


def launch_bound(account: StepAccount, facts: Facts) -> Cause | None:
    """Most operators take longer to launch than to compute, and the step waits for launches.

    On a device only where the always-on marks say that it waits for the host.  What has to stay is
    the roofline of the same work.  Where one line calls operators again and again in a step, it is
    that Python loop, and a single operator may do the work of all its calls.

    Wrong where: the audited step is smaller than most: larger batches hide launches.
    To confirm: `trainperf try --only compile SCRIPT`; `trainperf prove` with a larger batch, in
    samples per second.
    """
    if not account.host_decides:
        return None
    every = [region for region in account.regions if region.use.part in PASSES]
    looping = [row for row in every if row.use.calls >= LOOP and _is_small(row)]
    tiny = looping if _calls(looping) >= MANY_CALLS else [row for row in every if _is_tiny(row)]
    if _calls(tiny) < MANY_CALLS or 2 * _calls(tiny) < _calls(every):
        return None
    claim = of_regions(tiny, stays_s=sum(row.fused_s for row in tiny))
    # In a healthy step of a few ms small operators add up to a tenth.
    if account.share(claim.removes_s) < (
        LIMITS.critical if tiny == looping else 3 * LIMITS.notable
    ):
        return None
    calls = count(_calls(tiny))
    where, _ = place_of(tiny)
    title = f"{calls} tiny operators keep the step busy launching"
    if tiny == looping:
        title = f"a Python loop launches {calls} tiny operators in a step"
    changes = [Use(change="one_operator", values={"where": where})] if tiny == looping else []
    return _cause(
        Cause(
            id="launch_bound",
            title=title,
            evidence=(
                (
                    f"{duration(total_s(tiny))} of {duration(account.step_s)} per step, "
                    f"for work of {duration(sum(row.ideal_s for row in tiny))}"
                ),
            ),
            changes=(
                *changes,
                Use(change="compile_step"),
                Use(change="larger_batch"),
            ),
            claim=claim,
        ),
        tiny,
        account,
        facts,
    )


def _is_tiny(region: Region) -> bool:
    """Whether its calls take longer than its work."""
    if region.python_s or region.run_s:
        return region.run_s <= region.python_s / 2
    return region.ideal_s < region.use.calls * LAUNCH_S


def _is_small(region: Region) -> bool:
    """Whether each of many calls has so little work that one call would do all of it sooner."""
    small = region.ideal_s < region.use.calls * LAUNCH_S and region.seconds > 4 * region.ideal_s
    return _is_tiny(region) or small


def _calls(rows: Iterable[Region]) -> int:
    return sum(row.use.calls for row in rows)


def host_bound(account: StepAccount, facts: Facts) -> Cause | None:
    """At the end of most forwards and backwards the device had already caught up.

    How much that costs a capture tells; without one no bound is given.

    Wrong where: something drains the device once in every step for another reason, e.g. a metric.
    To confirm: `trainperf try --only compile SCRIPT`; a trace shows idle time before launches.
    """
    device = account.device
    if device is None:
        return None
    idle = account.share(device.host_s or 0.0)
    bound = device.host_bound or 0.0
    # A device that starved in the loader has caught up for a reason that has its own name.
    starved = account.share(device.data_s or 0.0) >= LIMITS.notable
    if idle < 2 * LIMITS.worth and (bound < LIMITS.mostly or starved or not account.judged):
        return None
    evidence = [
        (
            f"the device had caught up in {share(bound)} of the steps when forward and backward "
            f"returned"
        )
    ]
    title = f"the device waits for the host in {share(bound)} of the steps"
    if idle >= 2 * LIMITS.worth:
        title = f"the device is idle {share(idle)} of the time because launches come too late"
        evidence = [*_launched(facts), *(evidence if bound else [])]
    lost_s = device.host_s or 0.0
    return Cause(
        id="host_bound",
        title=title,
        evidence=tuple(evidence),
        changes=(Use(change="compile_step"), Use(change="larger_batch")),
        claim=Claim(removes_s=lost_s, device={"host_s": lost_s})
        if idle >= 2 * LIMITS.worth
        else None,
        confidence="high" if idle >= 2 * LIMITS.worth else "medium",
        severity=None if idle >= 2 * LIMITS.worth else "medium",
    )


def _launched(facts: Facts) -> tuple[str, ...]:
    """What a step of the latest capture launches."""
    trace = facts.traces[-1] if facts.traces else None
    if trace is None or not trace.totals.kernels:
        return ()
    kernels, steps = trace.totals.kernels, max(1, len(trace.steps))
    short = sum(step.short_kernels or 0 for step in trace.steps) / steps / kernels
    busy = duration(trace.totals.cpu_op_s or 0.0)
    few = f"; {share(short)} of them take less than 10 µs" if short >= LIMITS.mostly else ""
    return (
        (
            f"a step launches {count(round(kernels))} kernels, and its operators keep the host "
            f"busy for {busy}{few}"
        ),
    )


def small_micro_batches(account: StepAccount, facts: Facts) -> Cause | None:
    """Gradients are accumulated over micro-batches that are brief, where a larger one would fit.

    A larger micro-batch launches as much once as each of them does; what that gains is known where
    an audit tells launches from work.

    Wrong where: the loss or a norm is taken over the micro-batch, or summed over them undivided, or
    rows are so unlike in length that a larger batch is padded more.
    To confirm: `trainperf prove` with the larger micro-batch, in samples per second.
    """
    number, spent_s = facts.micro_batches, account.spent("forward", "backward")
    launches_s = sum(row.python_s for row in _passes(account)) * (1 - 1 / number)
    # Without an audit: a model of some layers has hundreds of operators, and a call takes 10 µs.
    brief = spent_s / number < 10 * MANY_CALLS * LAUNCH_S * 2
    if account.regions:
        brief = account.share(launches_s) >= LIMITS.notable
    room = room_for(facts, number)
    if number < 2 or not spent_s or room is None or not brief or not account.host_decides:
        return None
    rows = round((facts.value(SAMPLES_PER_S) or 0.0) * account.step_s / facts.world_size)
    return Cause(
        id="small_micro_batches",
        title=f"an update is {count(number)} micro-batches of {duration(spent_s / number)} each",
        evidence=(
            f"{duration(spent_s)} of forward and backward per step",
            f"{size(room[0])} of {size(room[1])} at the peak: one of all their rows would fit",
        ),
        changes=(
            Use(
                change="larger_micro_batches",
                values={"number": count(number), "rows": max(1, rows)},
            ),
        ),
        claim=Claim(owns_s={"forward": launches_s}, removes_s=launches_s) if launches_s else None,
        confidence="medium",
        bounded=False,
    )


# -- chains, constants, copies --------------------------------------------------------------------


def elementwise_chain(account: StepAccount, facts: Facts) -> Cause | None:
    """Elementwise operators hand each other large results that one kernel would not write.

    What has to stay: each chain as one kernel at the speed of memory.

    Wrong where: a fused kernel exists already where the audit sees its parts, as it runs eagerly.
    To confirm: `trainperf try --only compile SCRIPT`.
    """
    rows = [
        row
        for row in _passes(account)
        if row.use.kind == "pointwise"
        and row.use.inner_bytes
        and not row.use.constant
        and not _is_tiny(row)
    ]
    inner = sum(row.use.inner_bytes for row in rows)
    moved = sum(row.use.moved_bytes for row in rows)
    # Share of what they move that one kernel would not: a pair hands on a third.
    if inner < 0.25 * moved:
        return None
    return _cause(
        Cause(
            id="elementwise_chain",
            title="unfused elementwise operators take "
            f"{share(account.share(total_s(rows)))} of the step",
            evidence=(
                (
                    f"{_spent(account, rows)}; {size(inner)} of the {size(moved)} "
                    f"they move pass between them"
                ),
            ),
            changes=(Use(change="fuse_chain"),),
            claim=of_regions(rows, stays_s=sum(row.fused_s for row in rows)),
        ),
        rows,
        account,
        facts,
    )


def constant_rebuilt(account: StepAccount, facts: Facts) -> Cause | None:
    """Masks, tables and the like are made anew in forward from nothing but numbers.

    Those numbers may differ from step to step, a length for instance: that is not seen.

    Wrong where: the numbers it is made from change between steps, a length for instance.
    To confirm: `trainperf prove` with it made once and kept (`register_buffer`).
    """
    rows = [row for row in account.regions if row.use.constant and row.use.part == "forward"]
    return _cause(
        Cause(
            id="constant_rebuilt",
            title=f"{share(account.share(total_s(rows)))} of the step rebuilds constants",
            evidence=(f"{_spent(account, rows)}, computed from numbers only",),
            changes=(Use(change="register_buffer"),),
            claim=_moving(rows),
        ),
        rows,
        account,
        facts,
    )


def _moving(rows: Sequence[Region]) -> Claim:
    """Rows whose results push others out of the caches."""
    claim, written = of_regions(rows), sum(row.use.written_bytes for row in rows)
    return Claim(
        owns_s=claim.owns_s,
        removes_s=claim.removes_s,
        regions=claim.regions,
        interruptions=max(1.0, written / REFILL_BYTES),
    )


def autocast_casts(account: StepAccount, facts: Facts) -> Cause | None:
    """Conversions take a notable part of the step: labels, masks, weights per micro-batch.

    Where most are autocast's own, once per step, to do without it is the advice: that changes every
    product, so what it gains is not bounded by the conversions.

    Wrong where: the casts are of weights, once per update, that a compiled step shares.
    To confirm: `trainperf prove` with the tensor made in that precision where it is loaded.
    """
    rows = [row for row in account.regions if is_cast(row.use)]
    whole = [
        row for row in rows if _dtypes(row.use)[0] not in ("fp64", "fp32", "fp16", "bf16", "fp8")
    ]
    config = facts.settings
    on = bool(config.get("autocast")) or "mixed" in str(config.get("precision") or "")
    audit = facts.documents.audit
    repeated = audit is not None and audit.micro_batches > 1
    halves = [
        row for row in rows if {"fp16", "bf16"} & {*_dtypes(row.use)} and "fp32" in _dtypes(row.use)
    ]
    own = on and not repeated and 2 * total_s(halves) >= total_s(rows)
    change = "fp32_instead" if own else "convert_once"
    if not own and 2 * total_s(whole) >= total_s(rows):
        change = "keep_dtype"
    elif not own and repeated:
        change = "weights_in_half"
    pairs = dict.fromkeys(
        " to ".join(_dtypes(row.use)) for row in sorted(rows, key=lambda r: -r.seconds)
    )
    cause = _cause(
        Cause(
            id="autocast_casts",
            title="conversions to another dtype take "
            f"{share(account.share(total_s(rows)))} of the step",
            evidence=(f"{_spent(account, rows)}: {', '.join([*pairs][:2])}",),
            changes=(Use(change=change),),
            claim=_moving(rows),
        ),
        rows,
        account,
        facts,
    )
    if cause is None or not own:
        return cause
    return Cause(
        id=cause.id,
        title=cause.title,
        evidence=cause.evidence,
        changes=cause.changes,
        claim=cause.claim,
        where=cause.where,
        confidence="low",
        bounded=False,
    )


def is_cast(use: OperatorUse) -> bool:
    """Whether it makes the same numbers in another dtype."""
    if use.part not in PASSES or use.constant or not use.dtypes:
        return False
    if use.short_name == "_to_copy":
        return use.result_dtype is not None and use.result_dtype != use.dtypes[0]
    return use.short_name == "copy_" and len(set(use.dtypes[:2])) == 2


def _dtypes(use: OperatorUse) -> tuple[str, str]:
    """Before and after the conversion."""
    if use.short_name == "copy_":
        return use.dtypes[-1], use.dtypes[0]
    return use.dtypes[0], use.result_dtype or "another"


def layout_copies(account: StepAccount, facts: Facts) -> Cause | None:
    """`contiguous()`, `clone()` and reshapes that copy take a notable part of the step.

    Summed over the audited step's copies in forward and backward that change neither the type of
    their elements nor the device; nothing of them has to stay.

    Wrong where: the copy makes the kernels after it faster than it costs.
    To confirm: `trainperf prove` without the call; `trainperf try --only channels_last SCRIPT`.
    """
    names = ("clone", "copy_", "_to_copy", "contiguous")
    rows = [
        row
        for row in _passes(account)
        if row.use.short_name in names and not row.use.constant and not is_cast(row.use)
    ]
    return _cause(
        Cause(
            id="layout_copies",
            title="copies to another memory layout take "
            f"{share(account.share(total_s(rows)))} of the step",
            evidence=(_spent(account, rows),),
            changes=(Use(change="one_layout"),),
            claim=_moving(rows),
        ),
        rows,
        account,
        facts,
    )


def channels_last(account: StepAccount, facts: Facts) -> Cause | None:
    """Convolutions on tensor cores are given channels first, and the library reorders them.

    On a CPU the gain depends on the sizes and is mostly small: nothing is said.

    Wrong where: a layer in between wants channels first and converts back.
    To confirm: `trainperf try --only channels_last SCRIPT`.
    """
    first = [row for row in account.regions if row.use.channels_last is False]
    places = {(row.use.module, row.use.line) for row in first if row.use.part == "forward"}
    rows = [
        row
        for row in account.regions
        if "convolution" in row.use.name
        and row.use.precision in STEPS  # what tensor cores take
        and (row.use.module, row.use.line) in places
    ]
    return _cause(
        Cause(
            id="channels_last",
            title="convolutions on channels-first images take "
            f"{share(account.share(total_s(rows)))} of the step",
            evidence=(_spent(account, rows),),
            changes=(Use(change="channels_last"),),
            claim=of_regions(rows, stays_s=sum(row.ideal_s for row in rows)),
        ),
        rows,
        account,
        facts,
    )


STEPS = {"tf32": 4, "fp16": 8, "bf16": 8, "fp8": 16}
"""Elements of 16 bytes: sizes that are no multiple of them cost alignment (NVIDIA's guide)."""


def matmul_shapes(account: StepAccount, facts: Facts) -> Cause | None:
    """Sizes are no multiple of what tensor cores take; on other devices it makes no difference.

    The sizes are those of the audited products; of their time, the gain leaves what the same
    arithmetic takes at the speed of the device.

    Wrong where: the library pads by itself, or the odd size is of one small product.
    To confirm: `trainperf.benchmark` of the step with the size rounded up to a multiple of 64.
    """
    if account.device is None or facts.settings.get("device_type", "cuda") != "cuda":
        return None
    rows = [row for row in account.regions if odd_sizes(row.use)]
    if not rows:
        return None
    sizes = sorted({number for row in rows for number in odd_sizes(row.use)}, reverse=True)
    # A vocabulary is padded to whole tiles at no cost worth mentioning.
    tile = 64 if sizes[0] >= 8192 else max(STEPS[row.use.precision] for row in rows)
    values = {"size": sizes[0], "padded": -(-sizes[0] // tile) * tile, "tile": tile}
    return _cause(
        Cause(
            id="matmul_shapes",
            title=f"products of odd sizes take {share(account.share(total_s(rows)))} of the step",
            evidence=(f"sizes {', '.join(map(str, sizes[:4]))}: {_spent(account, rows)}",),
            changes=(Use(change="pad_sizes", values=values),),
            claim=of_regions(rows, stays_s=sum(row.ideal_s for row in rows)),
        ),
        rows,
        account,
        facts,
    )


def odd_sizes(use: OperatorUse) -> tuple[int, ...]:
    """Sizes of a product that are no multiple of its precision's step; empty where all are."""
    step, products = STEPS.get(use.precision), ("mm", "addmm", "bmm", "baddbmm")
    if step is None or use.short_name not in products or len(use.shapes) < 2:
        return ()
    left, right = use.shapes[-2:]
    if min(len(left), len(right)) < 2:
        return ()
    return tuple(number for number in (left[-2], left[-1], right[-1]) if number % step)


# -- precision ------------------------------------------------------------------------------------

_WEIGHT = {"mm": -1, "addmm": -1, "convolution": 1}
"""Which of its tensors is the weight, in products that have one; the input is before it."""


def matmul_precision(account: StepAccount, facts: Facts) -> Cause | None:
    """Double precision, or fp32 where the chip has a much faster way to multiply.

    Of products on a CPU it is a forecast: the arithmetic gets faster as the peaks are, calls and
    conversions are added, and fused attention takes what it took when it was timed in both.

    Wrong where: the products are small: then calls and conversions take what the arithmetic saves.
    To confirm: `trainperf try --only autocast_bf16 --only matmul_precision SCRIPT`, with its
    losses.
    """
    if facts.light is None or not account.regions:
        return None
    return _double(account, facts) or _single(account, facts)


def _double(account: StepAccount, facts: Facts) -> Cause | None:
    rows = [row for row in account.regions if "fp64" in {row.use.precision, *row.use.dtypes}]
    chip = facts.light.chip if facts.light else None
    peak = chip.flops_per_s.get("fp32") if chip else None
    # Half the bytes, and the arithmetic at the peak of fp32; a call stays a call.
    stays_s = sum(
        row.python_s + max(row.use.flops / peak if peak else 0.0, row.ideal_s / 2) for row in rows
    )
    return _cause(
        Cause(
            id="matmul_precision",
            title=f"{share(account.share(total_s(rows)))} of the step computes in double precision",
            evidence=(_spent(account, rows),),
            changes=(Use(change="single_precision"),),
            claim=of_regions(rows, stays_s=stays_s),
        ),
        rows,
        account,
        facts,
    )


def _single(account: StepAccount, facts: Facts) -> Cause | None:
    light = facts.light
    if light is None:
        return None
    peaks = light.chip.flops_per_s
    slow = peaks.get("fp32", 0.0)
    # Twice the fp32 peak is worth the digits (A100's TF32: eight times), the least different first.
    faster = [name for name in ("tf32", "bf16", "fp16") if peaks.get(name, 0.0) >= 2 * slow > 0]
    rows = [r for r in _passes(account) if r.use.kind == "matmul" and r.use.precision == "fp32"]
    if not faster or not rows:
        return None
    precision = faster[0]
    saved_s = sum(_saved_s(row, precision, account, facts) for row in rows)
    claim = Claim(owns_s=_by_slot(rows, saved_s), removes_s=max(0.0, saved_s))
    rates = f"{slow / 1e12:.3g} TFLOP/s in fp32, {peaks[precision] / 1e12:.3g} in {precision}"
    forecast = Use(
        change=f"{precision}_products",
        step_s=account.step_s - saved_s,
        least_s=_least_s(account, precision, rows, facts),
    )
    return _cause(
        Cause(
            id="matmul_precision",
            title=f"fp32 products take {share(account.share(total_s(rows)))} of the step",
            evidence=(
                f"{light.chip.name}: {rates}",
                _spent(account, rows),
            ),
            changes=(forecast,),
            claim=claim,
        ),
        rows,
        account,
        facts,
    )


def _by_slot(rows: Sequence[Region], saved_s: float) -> dict[str, float]:
    """Seconds in proportion to the rows of each slot."""
    whole_s = total_s(rows) or 1.0
    owns_s: dict[str, float] = {}
    for row in rows:
        owns_s[row.slot] = owns_s.get(row.slot, 0.0) + max(0.0, saved_s) * row.seconds / whole_s
    return owns_s


def _least_s(account: StepAccount, precision: str, rows: Sequence[Region], facts: Facts) -> float:
    """The step at best: products at the peak, and with autocast all else in half the time."""
    peak = facts.light.chip.flops_per_s[precision] if facts.light else 1.0
    saved_s = total_s(rows) - sum(row.use.flops for row in rows) / peak
    if precision != "tf32":
        saved_s += (account.spent("forward", "backward", "other") - total_s(rows)) / 2
    return max(account.step_s - saved_s, account.step_s / 10)


def _saved_s(row: Region, precision: str, account: StepAccount, facts: Facts) -> float:
    """Forecast for all its calls: below zero where they take longer in *precision*.

    What keeps them from the peak of fp32 keeps them from that of *precision*, too: calls, threads
    that wake up, memory.  Convolutions were measured from 0.7 to 1.3 times as fast in bf16 on a
    CPU, whatever the peaks: they count as no gain there.
    """
    chip, use, document = facts.light.chip if facts.light else None, row.use, facts.documents.chip
    if chip is None:
        return 0.0
    if account.device is not None:
        return row.run_s - use.flops / chip.flops_per_s[precision]
    if use.is_fused_attention:
        timed = (
            {} if document is None else {each.shapes: each.seconds for each in document.attention}
        )
        seconds = timed.get(use.shapes[:3], {}) if use.part == "forward" else {}
        return use.calls * (seconds["fp32"] - seconds[precision]) if precision in seconds else 0.0
    arithmetic_s = 0.0 if "convolution" in use.short_name else row.compute_s
    saved_s = arithmetic_s * (1 - chip.flops_per_s["fp32"] / chip.flops_per_s[precision])
    call_s = chip.product_s.get(precision, 0.0) - chip.product_s.get("fp32", 0.0)
    return saved_s - use.calls * (max(0.0, call_s) + _conversions_s(row, facts))


def _conversions_s(row: Region, facts: Facts) -> float:
    """Of weight and input, and in backward of their gradients, for one call.

    Products without a weight (attention's) get the results of others in the same precision.
    """
    times = {"forward": 2, "recompute": 1}.get(row.use.part, 0)
    place, chip = _WEIGHT.get(row.use.short_name), facts.light.chip if facts.light else None
    if not times or place is None or chip is None or len(row.use.shapes) < 2:
        return 0.0
    elements = sum(prod(row.use.shapes[index]) for index in (place - 1, place))
    launch_s = LAUNCH_S if chip.launch_s is None else chip.launch_s
    # Four bytes are read and two written, or the other way round; a call, and autograd's node.
    return times * (6 * elements / chip.memory_bytes_per_s + 4 * launch_s)


LOSSES = frozenset(
    {"_log_softmax", "nll_loss_forward", "nll_loss2d_forward", "mse_loss", "binary_cross_entropy"}
    | {"binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss", "logsumexp"}
)
"""Losses, and what they are made of."""

SUMS = frozenset({"_softmax", "native_layer_norm", "native_batch_norm", "native_group_norm"})
"""Operators that compute in fp32 inside, and round what they are given and return."""


def half_sensitive(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 needs no seconds
    """The loss is computed in half precision, or, in fp16, a norm or softmax is.

    It is about what is computed, not how fast: no gain.

    Wrong where: the values stay small and few: sums of half precision are then exact enough.
    To confirm: train both for as long as you can afford and compare the losses (`trainperf
    compare`).
    """
    audit = facts.documents.audit
    uses = [u for u in (audit.operators if audit else ()) if u.part == "forward" and u.dtypes]
    losses = [u for u in uses if u.short_name in LOSSES and u.dtypes[0] in ("fp16", "bf16")]
    rows = losses or [u for u in uses if u.short_name in SUMS and u.dtypes[0] == "fp16"]
    if not rows:
        return None
    what = "the loss" if losses else "a norm or softmax"
    kinds = "/".join(sorted({use.dtypes[0] for use in rows}))
    names = ", ".join(sorted({use.short_name for use in rows}))
    return Cause(
        id="half_sensitive",
        title=f"{what} is computed in {kinds}",
        evidence=(
            f"{names} in {plural(sum(use.calls for use in rows), 'call')} of the audited step",
            "bf16 keeps 8 bits of a number, fp16 11: small differences between losses are lost"
            if losses
            else "fp16 overflows beyond 65,504",
        ),
        changes=(Use(change="loss_in_fp32" if losses else "sums_in_fp32"),),
        where=next((use.line for use in rows if use.line), ""),
        confidence="medium",
        severity="medium" if losses else "low",
    )


KEPT = 20
"""A block that is not recomputed keeps at most so many times as much: some 17 tensors of the size
of its input without the attention matrix (34 bytes per 16-bit number: Korthikanti et al., arXiv
2205.05198, section 4.1), and a few more."""


def recompute(account: StepAccount, facts: Facts) -> Cause | None:
    """Activation checkpointing computes forward a second time, and the memory would do without.

    Removed is that second forward: as the audit timed it, else as long as the first one.  Said only
    where twenty times what is held beyond the model and its update would still fit.

    Wrong where: attention of one's own writes out its scores, which grow with the square of the
    length, or batches that are much longer are still to come.
    To confirm: `trainperf try --only no_checkpointing SCRIPT`; the peak it then has.
    """
    room = room_for(facts, KEPT)
    # Written out, the scores of all blocks outgrow that.
    if room is None or facts.settings.get("attention") == "eager":
        return None
    rows = [region for region in account.regions if region.use.part == "recompute"]
    claim = of_regions(rows)
    if not account.regions and facts.settings.get("gradient_checkpointing") is True:
        # Without an audit nothing but the model's own word tells; it names no place.
        again_s = min(account.spent("forward"), account.spent("backward"))
        claim = Claim(owns_s={"backward": again_s}, removes_s=again_s)
    if account.share(claim.removes_s) < LIMITS.notable:
        return None
    where, called_at = place_of(rows)
    return Cause(
        id="recompute",
        title=f"activations are computed twice, and {share(1 - room[0] / room[1])} of the memory "
        f"is free",
        evidence=(
            (
                f"{'' if rows else 'up to '}{duration(claim.removes_s)} of "
                f"{duration(account.step_s)} per step"
            ),
            f"{size(room[0])} of {size(room[1])} at the peak",
        ),
        changes=(Use(change="keep_activations"),),
        claim=claim,
        where=where,
        called_at=called_at,
        confidence="medium",
    )


def gradients_on(account: StepAccount, facts: Facts) -> Cause | None:
    """Autograd was on in an inference loop: every answer came with a graph.

    What the graph keeps of a call was added up, and its nodes were counted; what a node costs the
    host was timed when the loop had ended.  Memory that the next operator cannot use again comes on
    top, often many times that, and has no bound: so none is promised.

    Wrong where: gradients of the input are wanted, as for saliency maps.
    To confirm: `trainperf.benchmark.compare` of the model with and without `inference_mode`.
    """
    nodes, node_s = facts.number("answer_graph_nodes"), facts.number("graph_node_s")
    if not nodes:
        return None
    kept, calls = facts.number("answer_graph_bytes"), facts.number("answer_calls") or 1
    evidence = [f"{count(nodes)} nodes per call of the model, {count(calls)} calls per batch"]
    if kept:
        evidence[0] += f", which keep {size(kept)} until the answer is dropped"
    if node_s and account.step_s:
        spent_s = calls * nodes * node_s
        evidence.append(
            f"building them takes the host about {duration(spent_s)} of {duration(account.step_s)} "
            f"({share(account.share(spent_s))}): {duration(node_s)} per node, timed after the loop"
        )
    return Cause(
        id="gradients_on",
        title="a graph for gradients is built with every answer, and never used",
        evidence=tuple(evidence),
        changes=(Use(change="inference_mode"),),
    )

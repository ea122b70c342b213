"""Detectors of operators: attention, updates, launches, chains, copies, precision, recomputing.

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
from trainperf.analysis.roofline.precision import Products
from trainperf.analysis.roofline.roofline import LAUNCH_S
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, REFILL_BYTES
from trainperf.core.formatting.units import count, duration, plural, share, size
from trainperf.core.readings import SAMPLES_PER_S


PASSES = ("forward", "backward", "recompute")
"""Parts of the step that are no update."""


def _passes(account: StepAccount) -> list[Region]:
    return [region for region in account.regions if region.use.part in PASSES]


def _cause(  # noqa: PLR0913 a cause has so many parts
    name: str,
    title: str,
    rows: Sequence[Region],
    claim: Claim,
    changes: Iterable[Use],
    account: StepAccount,
    facts: Facts,
    *,
    said: str = "",
    at: Sequence[Region] = (),
) -> Cause | None:
    """A cause in operators, where it removes a notable part of the step.

    Args:
        name: Id of the cause.
        title: With `{part}` for the share of the step that the operators take.
        rows: The operators.
        claim: What the cause removes.
        changes: What would remove it.
        account: The step.
        facts: Of the run.
        said: Follows the time that they take, in the evidence.
        at: Those of them whose line is the one to change; by default all.
    """
    if account.share(claim.removes_s) < LIMITS.notable:
        return None
    where, called_at = place_of(at or rows)
    spent = f"{duration(total_s(rows))} of {duration(account.step_s)} per step"
    return Cause(
        id=name,
        title=title.format(part=share(account.share(total_s(rows)))),
        evidence=(f"{spent}{said}", *lines_of(rows), stands_on(account, facts)),
        changes=tuple(changes),
        claim=claim,
        where=where,
        called_at=called_at,
        confidence="low" if account.regions_basis == "modelled" else "medium",
        bounded=account.regions_basis != "modelled",
    )


def stands_on(account: StepAccount, facts: Facts) -> str:
    """Where the times are from."""
    audit = facts.documents.audit
    step = "step" if audit is None or audit.step is None else f"step {audit.step}"
    sources = {
        "modelled": f"modelled from the floors of {step}; {facts.loop.capture} would measure it",
        "traced": f"device times from the trace, operators from {step}",
    }
    return sources.get(account.regions_basis, f"operators timed one by one in {step}")


def _emptying(claim: Claim, written_bytes: float) -> Claim:
    """The same of operators whose results push others out of the caches."""
    return replace(claim, interruptions=max(1.0, written_bytes / REFILL_BYTES))


def _needless(rows: Sequence[Region]) -> Claim:
    """Operators of whose work nothing has to stay."""
    return _emptying(of_regions(rows), sum(row.use.written_bytes for row in rows))


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
    # Scores push the rest of the model out of the caches, in forward and in backward.
    written = sum(8 * prod(row.use.shapes[0]) * row.use.calls for row in softmax if row.use.shapes)
    names = {row.use.short_name for row in rows}
    change = "fused_attention"
    if UNFUSED in names:
        dropped = facts.host_computes and names & DROPOUT
        change = "no_dropout_in_attention" if dropped else "fusible_attention"
    shape = " × ".join(map(str, softmax[0].use.shapes[0]))
    return _cause(
        "attention",
        "attention with scores in memory takes {part} of the step",
        rows,
        _emptying(of_regions(rows, stays_s=stays_s), written),
        [Use(change=change)],
        account,
        facts,
        said=f", with scores of {shape} in memory",
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
        made = any(_product_elements(each) == kind.number for each in products)
        if made and any(kind.is_shape(each.shapes[-2]) for each in products):
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
    own = facts.settings.get("optimizer_fused") is None and bool(facts.settings.get("optimizers"))
    how = "lists of tensors (foreach)" if lists else "one tensor after the other (foreach=False)"
    return _cause(
        "optimizer_not_fused",
        "an unfused optimizer update takes {part} of the step",
        update,
        of_regions(update, stays_s=sum(row.fused_s for row in update)),
        [Use(change="foreach_update" if own and not lists else "fused_optimizer")],
        account,
        facts,
        said=f" in {count(_calls(update))} operators, {how}",
    )


# -- launches -----------------------------------------------------------------------------------

MANY_CALLS = 100
"""Launching so many takes about a millisecond, Python and autograd around them included."""


def launch_bound(account: StepAccount, facts: Facts) -> Cause | None:
    """The step waits for launches: its operators take longer to call than to compute.

    An audited step shows which, on a device only where the always-on marks say that it waits for
    the host.  What has to stay is the roofline of the same work.  Where one line calls operators
    again and again for one batch, it is that Python loop, and a single operator may do the work of
    all its calls.  Without such operators a capture shows how long the device was idle because
    launches came too late, or the marks that it had caught up at the end of most forwards and
    backwards: how much that costs they do not tell.

    Wrong where: the audited step is smaller than most: larger batches hide launches; or something
    drains the device once in every step for another reason, e.g. a metric.
    To confirm: `trainperf try --only compile SCRIPT`; `trainperf prove` with a larger batch, in
    samples per second; a trace shows idle time before launches.
    """
    return _tiny_operators(account, facts) or _idle_device(account, facts)


def _tiny_operators(account: StepAccount, facts: Facts) -> Cause | None:
    audit = facts.documents.audit
    if audit is None or not account.host_decides:
        return None
    every = _passes(account)
    tiny = [row for row in every if _is_tiny(row, facts)]
    looping = [row for row in tiny if row.use.calls >= LOOP * audit.micro_batches]
    loops = _calls(looping) >= MANY_CALLS
    rows = looping if loops else tiny
    claim = of_regions(rows, stays_s=sum(row.fused_s for row in rows))
    # In a healthy step of a few ms small operators add up to a tenth.
    least = LIMITS.critical if loops else 3 * LIMITS.notable
    most_calls = MANY_CALLS <= _calls(rows) >= _calls(every) / 2
    if not most_calls or account.share(claim.removes_s) < least:
        return None
    calls = count(_calls(rows))
    where, _ = place_of(rows)
    one_operator = [Use(change="one_operator", values={"where": where})] if loops else []
    return _cause(
        "launch_bound",
        f"a Python loop launches {calls} tiny operators in a step"
        if loops
        else f"{calls} tiny operators keep the step busy launching",
        rows,
        claim,
        [*one_operator, *_fewer_launches(account, facts, claim.removes_s)],
        account,
        facts,
        said=f", for work of {duration(sum(row.ideal_s for row in rows))}",
    )


def _is_tiny(region: Region, facts: Facts) -> bool:
    """Whether a call has less work than a launch takes, and takes far longer than its work.

    Work is the roofline with all that it reads and writes: what a cache serves is work, too.
    """
    if facts.light is None:
        return False
    moved_s = region.use.moved_bytes / facts.light.chip.memory_bytes_per_s
    work_s = max(region.ideal_s, moved_s)
    return work_s < region.use.calls * LAUNCH_S and region.seconds > 4 * work_s


def _calls(rows: Iterable[Region]) -> int:
    return sum(row.use.calls for row in rows)


def _fewer_launches(account: StepAccount, facts: Facts, lost_s: float) -> Iterator[Use]:
    """What makes a step launch less for its samples, as far as the memory allows it."""
    number = facts.micro_batches
    if number > 1 and room_for(facts, number) is not None:
        samples = (facts.value(SAMPLES_PER_S) or 0.0) * account.step_s / facts.world_size
        yield Use(
            change="larger_micro_batches",
            values={"number": count(number), "rows": max(1, round(samples))},
            step_s=account.step_s - lost_s * (1 - 1 / number),
        )
    yield Use(change="compile_step")
    if room_for(facts, 2) is not None:
        yield Use(change="larger_batch")


def _idle_device(account: StepAccount, facts: Facts) -> Cause | None:
    device = account.device
    if device is None:
        return None
    idle_s, bound = device.host_s or 0.0, device.host_bound or 0.0
    idle = account.share(idle_s) >= 2 * LIMITS.worth
    # A device that starved in the loader has caught up for a reason that has its own name.
    starved = account.share(device.data_s or 0.0) >= LIMITS.notable
    if not idle and (bound < LIMITS.mostly or starved or not account.judged):
        return None
    bound_in = f"{share(bound)} of the steps"
    marks = f"the device had caught up in {bound_in} when forward and backward returned"
    late = share(account.share(idle_s))
    return Cause(
        id="launch_bound",
        title=f"the device is idle {late} of the time because launches come too late"
        if idle
        else f"the device waits for the host in {bound_in}",
        evidence=(*_launched(facts), *([marks] if bound else [])),
        changes=tuple(_fewer_launches(account, facts, idle_s)),
        claim=Claim(removes_s=idle_s, device={"host_s": idle_s}) if idle else None,
        confidence="high" if idle else "medium",
        severity=None if idle else "medium",
    )


def _launched(facts: Facts) -> tuple[str, ...]:
    """What a step of the latest capture launches."""
    trace = facts.traces[-1] if facts.traces else None
    if trace is None or not trace.totals.kernels:
        return ()
    kernels, busy_s = trace.totals.kernels, trace.totals.cpu_op_s or 0.0
    short = sum(step.short_kernels or 0 for step in trace.steps) / max(1, len(trace.steps))
    few = f"; {share(short / kernels)} of them take less than 10 µs"
    many = f"a step launches {count(round(kernels))} kernels"
    busy = f"its operators keep the host busy for {duration(busy_s)}"
    return (f"{many}, and {busy}{few if short >= LIMITS.mostly * kernels else ''}",)


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
        and not _is_tiny(row, facts)
    ]
    inner = sum(row.use.inner_bytes for row in rows)
    moved = sum(row.use.moved_bytes for row in rows)
    # Share of what they move that one kernel would not: a pair hands on a third.
    if inner < 0.25 * moved:
        return None
    return _cause(
        "elementwise_chain",
        "unfused elementwise operators take {part} of the step",
        rows,
        of_regions(rows, stays_s=sum(row.fused_s for row in rows)),
        [Use(change="fuse_chain"), Use(change="compile_step")],
        account,
        facts,
        said=f"; {size(inner)} of the {size(moved)} they move pass between them",
    )


def constant_rebuilt(account: StepAccount, facts: Facts) -> Cause | None:
    """Masks, tables and the like are made anew in forward from nothing but numbers.

    Those numbers may differ from step to step, a length for instance: that is not seen.

    Wrong where: the numbers it is made from change between steps, a length for instance.
    To confirm: `trainperf prove` with it made once and kept (`register_buffer`).
    """
    rows = [row for row in account.regions if row.use.constant and row.use.part == "forward"]
    return _cause(
        "constant_rebuilt",
        "{part} of the step rebuilds constants",
        rows,
        _needless(rows),
        [Use(change="register_buffer")],
        account,
        facts,
        said=", computed from numbers only",
    )


def layout_copies(account: StepAccount, facts: Facts) -> Cause | None:
    """`contiguous()`, `clone()` and reshapes that copy take a notable part of the step.

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
        "layout_copies",
        "copies to another memory layout take {part} of the step",
        rows,
        _needless(rows),
        [Use(change="one_layout")],
        account,
        facts,
    )


def autocast_casts(account: StepAccount, facts: Facts) -> Cause | None:
    """Conversions take a notable part of the step: labels, masks, weights per micro-batch.

    Where most are autocast's own and take longer than its products save, by the peaks of the chip,
    to do without it is the advice.

    Wrong where: the casts are of weights, once per update, that a compiled step shares.
    To confirm: `trainperf prove` with the tensor made in that precision where it is loaded.
    """
    rows = sorted(
        (row for row in account.regions if is_cast(row.use)), key=lambda row: -row.seconds
    )
    pairs = dict.fromkeys(" to ".join(_dtypes(row.use)) for row in rows)
    return _cause(
        "autocast_casts",
        "conversions to another dtype take {part} of the step",
        rows,
        _needless(rows),
        [_fewer_casts(rows, account, facts)],
        account,
        facts,
        said=f": {', '.join([*pairs][:2])}",
    )


def _fewer_casts(rows: Sequence[Region], account: StepAccount, facts: Facts) -> Use:
    """The change that fits most of the conversions."""
    config, audit, half = facts.settings, facts.documents.audit, total_s(rows) / 2
    floats = {"fp64", "fp32", "fp16", "bf16", "fp8"}
    whole = [row for row in rows if _dtypes(row.use)[0] not in floats]
    if total_s(whole) >= half:
        return Use(change="keep_dtype")
    each = 1 if audit is None else audit.micro_batches
    if each > 1 and total_s(row for row in rows if row.use.calls >= each) >= half:
        return Use(change="weights_in_half")
    own = [row for row in rows if {*_dtypes(row.use)} in ({"fp32", "fp16"}, {"fp32", "bf16"})]
    products = _products(facts)
    autocast = config.get("autocast") or "mixed" in str(config.get("precision") or "")
    if autocast and products is not None and total_s(own) >= half:
        slower_s = sum(
            -products.saved_s(row.use, row.compute_s, "fp32")
            for row in _passes(account)
            if row.use.kind == "matmul" and row.use.precision in ("fp16", "bf16")
        )
        if slower_s < total_s(own):
            return Use(change="fp32_instead", step_s=account.step_s - total_s(own) + slower_s)
    return Use(change="convert_once")


def is_cast(use: OperatorUse) -> bool:
    """Whether it makes the same numbers in another dtype."""
    copies = use.part in PASSES and use.short_name in ("_to_copy", "copy_") and not use.constant
    return copies and bool(use.dtypes) and len({*_dtypes(use)}) == 2


def _dtypes(use: OperatorUse) -> tuple[str, str]:
    """Before and after it."""
    if use.short_name == "copy_":
        return use.dtypes[-1], use.dtypes[0]
    return use.dtypes[0], use.result_dtype or use.dtypes[0]


# -- precision ------------------------------------------------------------------------------------


def _products(facts: Facts) -> Products | None:
    """The chip that multiplies; `None` where its limits are not known."""
    if facts.light is None:
        return None
    timed = () if facts.documents.chip is None else facts.documents.chip.attention
    return Products(
        chip=facts.light.chip,
        on_host=facts.host_computes,
        attention_s={each.shapes: each.seconds for each in timed},
    )


def matmul_precision(account: StepAccount, facts: Facts) -> Cause | None:
    """Double precision, or fp32 where the chip has a much faster way to multiply.

    Of products it is a forecast: the arithmetic gets faster as the peaks are, calls and conversions
    are added, and on a CPU fused attention takes what it took when it was timed in both.

    Wrong where: the products are small: then calls and conversions take what the arithmetic saves.
    To confirm: `trainperf try --only autocast_bf16 --only matmul_precision SCRIPT`, with its
    losses.
    """
    products = _products(facts)
    if products is None or not account.regions:
        return None
    return _double(products, account, facts) or _single(products, account, facts)


def _double(products: Products, account: StepAccount, facts: Facts) -> Cause | None:
    rows = [row for row in account.regions if "fp64" in {row.use.precision, *row.use.dtypes}]
    peak = products.chip.flops_per_s.get("fp32")
    # Half the bytes, and the arithmetic at the peak of fp32; a call stays a call.
    stays_s = sum(
        row.python_s + max(row.use.flops / peak if peak else 0.0, row.ideal_s / 2) for row in rows
    )
    return _cause(
        "matmul_precision",
        "{part} of the step computes in double precision",
        rows,
        of_regions(rows, stays_s=stays_s),
        [Use(change="single_precision")],
        account,
        facts,
    )


def _single(products: Products, account: StepAccount, facts: Facts) -> Cause | None:
    rows = [r for r in _passes(account) if r.use.kind == "matmul" and r.use.precision == "fp32"]
    precision = products.faster_than_fp32()
    if precision is None or not rows:
        return None
    saved_s = sum(products.saved_s(row.use, row.compute_s, precision) for row in rows)
    peaks, flops = products.chip.flops_per_s, sum(row.use.flops for row in rows)
    best_s = total_s(rows) - flops / peaks[precision]
    if precision != "tf32":  # autocast may halve the bytes of everything else
        best_s += (account.spent("forward", "backward", "other") - total_s(rows)) / 2
    return _cause(
        "matmul_precision",
        "fp32 products take {part} of the step",
        rows,
        of_regions(rows, stays_s=total_s(rows) - max(0.0, saved_s)),
        [
            Use(
                change=f"{precision}_products",
                step_s=account.step_s - saved_s,
                least_s=max(account.step_s - best_s, account.step_s / 10),
            )
        ],
        account,
        facts,
        said=f"; {products.chip.name}: {peaks['fp32'] / 1e12:.3g} TFLOP/s in fp32, "
        f"{peaks[precision] / 1e12:.3g} in {precision}",
    )


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
    said = [f"{count(nodes)} nodes per batch"]
    if calls > 1:
        said = [f"{count(nodes)} nodes per call of the model, {count(calls)} calls per batch"]
    if kept:
        said[0] += f", which keep {size(kept)} until the answer is dropped"
    if node_s and account.step_s:
        spent_s = calls * nodes * node_s
        said.append(
            f"building them takes the host about {duration(spent_s)} of {duration(account.step_s)} "
            f"({share(account.share(spent_s))}): {duration(node_s)} per node, timed after the loop"
        )
    return Cause(
        id="gradients_on",
        title="a graph for gradients is built with every answer, and never used",
        evidence=tuple(said),
        changes=(Use(change="inference_mode"),),
    )

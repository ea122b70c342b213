"""Detectors of operators: attention, updates, chains, copies, recomputing.

All stand on regions: rows of one audited step, laid over the mean of the steady ones.  What a cause
removes is a region's seconds beyond its ideal, the roofline of the work that has to stay.
"""

from collections.abc import Iterable, Sequence
from math import prod

from trainperf.analysis.diagnosis.account import (
    Claim,
    Region,
    StepAccount,
    of_regions,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.lines import LOOP, calls_of, place_of
from trainperf.analysis.diagnosis.detectors.operator_causes import (
    PASSES,
    cause_in_operators,
    emptying,
    is_looped,
    is_tiny,
    needless,
    passes,
)
from trainperf.analysis.diagnosis.detectors.precision import is_cast
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.memory_room import room_for
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.choice import first_that_holds, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, share, size


UNFUSED = "_safe_softmax"
"""Which nothing else calls than `scaled_dot_product_attention` without a fused kernel."""

SOFTMAX = ("_softmax", UNFUSED)

DROPOUT = frozenset({"bernoulli_", "native_dropout"})


@worth(LIMITS.notable)
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
    change = first_that_holds(
        ("fused_attention", UNFUSED not in names),
        ("no_dropout_in_attention", account.device is None and names & DROPOUT),
        ("fusible_attention", True),
    )
    return cause_in_operators(
        Cause(
            id="attention",
            title="attention with scores in memory takes {part} of the step",
            evidence=(),
            changes=(Use(change=change),),
            claim=emptying(of_regions(rows, stays_s=stays_s), written),
        ),
        rows,
        account,
        facts,
        detail=f", with scores of {' × '.join(map(str, softmax[0].use.shapes[0]))} in memory",
        at=softmax,
    )


def attention_rows(regions: Iterable[Region]) -> list[Region]:
    """Everything that touches the scores of eager attention, products included."""
    own = [region for region in regions if region.use.part in PASSES]
    kinds = _scores([region.use for region in own])
    return [region for region in own if any(_touches(region.use, scores) for scores in kinds)]


def _touches(use: OperatorUse, scores: Sequence[int]) -> bool:
    """Whether an operator takes or makes scores of that shape."""
    taken = any(_are_scores(shape, scores) for shape in use.shapes)
    return taken or _product_elements(use) == prod(scores)


def _are_scores(shape: Sequence[int], scores: Sequence[int]) -> bool:
    """Whether a tensor of a shape is one of scores, perhaps transposed."""
    alike = len(shape) >= 3 and prod(shape) == prod(scores)
    return alike and {*shape[-2:]} == {*scores[-2:]}


def _product_elements(use: OperatorUse) -> int | None:
    """Elements of the result of a batched product; `None` for another operator."""
    if use.short_name not in ("bmm", "baddbmm") or len(use.shapes) < 2:
        return None
    left, right = use.shapes[-2:]
    return left[0] * left[1] * right[2] if len(left) == len(right) == 3 else None


def _scores(uses: Sequence[OperatorUse]) -> set[tuple[int, ...]]:
    """Shapes that a product makes, a softmax normalises and another product takes."""
    forward = [use for use in uses if use.part == "forward"]
    products = [each for each in forward if _product_elements(each) is not None]
    normalised = {u.shapes[0] for u in forward if u.short_name in SOFTMAX and u.shapes}
    return {
        scores
        for scores in normalised
        if len(scores) >= 3
        and min(scores[-2:]) >= 32  # with fewer queries or keys they do not matter
        and any(_product_elements(each) == prod(scores) for each in products)
        and any(_are_scores(each.shapes[-2], scores) for each in products)
    }


@worth(LIMITS.notable)
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
    return cause_in_operators(
        Cause(
            id="optimizer_not_fused",
            title="an unfused optimizer update takes {part} of the step",
            evidence=(),
            changes=(Use(change="foreach_update" if own and not lists else "fused_optimizer"),),
            claim=of_regions(update, stays_s=sum(row.fused_s for row in update)),
        ),
        update,
        account,
        facts,
        detail=f" in {count(calls_of(update))} operators, {how}",
    )


@worth(LIMITS.notable)
def elementwise_chain(account: StepAccount, facts: Facts) -> Cause | None:
    """Elementwise operators hand each other large results that one kernel would not write.

    What has to stay: each chain as one kernel at the speed of memory.  Formulas of a library are
    ordinary in a step that runs eagerly, and no line of the user's would change them.  No formula
    is what backward alone computes, where gradients of the same tensor are summed, nor what a loop
    calls again and again for less than a compiled call takes.

    Wrong where: a fused kernel exists already where the audit sees its parts, as it runs eagerly.
    To confirm: `trainperf try --only compile SCRIPT`.
    """
    chains = [
        row
        for row in passes(account)
        if row.use.kind == "pointwise"
        and row.use.inner_bytes
        and not row.use.called_at
        and not row.use.constant
        and row.use.in_call < LOOP
        and not is_tiny(row, facts)
        and not is_looped(row, facts)
    ]
    forward = {row.use.source for row in chains if row.use.part != "backward"}
    rows = [row for row in chains if row.use.source in forward]
    inner = sum(row.use.inner_bytes for row in rows)
    moved = sum(row.use.moved_bytes for row in rows)
    # Share of what they move that one kernel would not: a pair hands on a third.
    if inner < 0.25 * moved:
        return None
    return cause_in_operators(
        Cause(
            id="elementwise_chain",
            title="unfused elementwise operators take {part} of the step",
            evidence=(),
            changes=(Use(change="fuse_chain"), Use(change="compile_step")),
            claim=of_regions(rows, stays_s=sum(row.fused_s for row in rows)),
        ),
        rows,
        account,
        facts,
        detail=f"; {size(inner)} of the {size(moved)} they move pass between them",
    )


@worth(LIMITS.notable)
def constant_rebuilt(account: StepAccount, facts: Facts) -> Cause | None:
    """Masks, tables and the like are made anew in forward from nothing but numbers.

    Those numbers may differ from step to step, a length for instance: that is not seen.

    Wrong where: the numbers it is made from change between steps, a length for instance.
    To confirm: `trainperf prove` with it made once and kept (`register_buffer`).
    """
    rows = [row for row in account.regions if row.use.constant and row.use.part == "forward"]
    return cause_in_operators(
        Cause(
            id="constant_rebuilt",
            title="{part} of the step rebuilds constants",
            evidence=(),
            changes=(Use(change="register_buffer"),),
            claim=needless(rows),
        ),
        rows,
        account,
        facts,
        detail=", computed from numbers only",
    )


@worth(LIMITS.notable)
def layout_copies(account: StepAccount, facts: Facts) -> Cause | None:
    """`contiguous()`, `clone()` and reshapes that copy take a notable part of the step.

    Summed over the audited step's copies in forward and backward that change neither the type of
    their elements nor the device; nothing of them has to stay.  What DDP copies into its buckets
    and out of them, in backward and outside of every module, is no layout, nor is what
    `nn.MultiheadAttention` copies by itself.

    Wrong where: the copy makes the kernels after it faster than it costs.
    To confirm: `trainperf prove` without the call; `trainperf try --only channels_last SCRIPT`.
    """
    buckets = facts.settings.get("ddp_gradient_as_bucket_view") is False
    rows = [
        row
        for row in passes(account)
        if row.use.short_name in ("clone", "copy_", "_to_copy", "contiguous")
        and not (row.use.constant or row.use.composed or is_cast(row.use))
        and not (buckets and row.use.part == "backward" and not row.use.module)
    ]
    return cause_in_operators(
        Cause(
            id="layout_copies",
            title="copies to another memory layout take {part} of the step",
            evidence=(),
            changes=(Use(change="one_layout"),),
            claim=needless(rows),
        ),
        rows,
        account,
        facts,
    )


KEPT = 20
"""A block that is not recomputed keeps at most so many times as much: some 17 tensors of the size
of its input without the attention matrix (34 bytes per 16-bit number: Korthikanti et al., arXiv
2205.05198, section 4.1), and a few more."""


def convolution_search(account: StepAccount, facts: Facts) -> Cause | None:
    """Sizes of batches vary, and cuDNN looks for the fastest convolution anew for each.

    What that costs depends on how many sizes there are: nothing is known but that it costs.

    Wrong where: a few sizes come back again and again.
    To confirm: `trainperf try --only cudnn_benchmark SCRIPT`, or `trainperf prove` without it.
    """
    searches = map(facts.settings.get, ("cudnn_benchmark", "convolution_format", "shapes_vary"))
    if account.device is None or not account.judged or not all(searches):
        return None
    return Cause(
        id="convolution_search",
        title="cuDNN searches for its fastest convolutions while the sizes of batches vary",
        evidence=("cudnn.benchmark is on: each new size is tried with every algorithm",),
        changes=(Use(change="no_cudnn_benchmark"),),
        confidence="medium",
        severity="low",
    )


@worth(LIMITS.notable)
def recompute(account: StepAccount, facts: Facts) -> Cause | None:
    """Activation checkpointing computes forward a second time, and the memory would do without.

    Removed is that second forward: as the audit timed it, else as long as the first one.  Said only
    where twenty times what is held beyond the model and its update would still fit.

    Wrong where: attention of one's own writes out its scores, which grow with the square of the
    length, or batches that are much longer are still to come.
    To confirm: `trainperf try --only no_checkpointing SCRIPT`; the peak it then has.
    """
    room = room_for(account, facts, KEPT)
    # Written out, the scores of all blocks outgrow that.
    if room is None or facts.settings.get("attention") == "eager":
        return None
    rows = [region for region in account.regions if region.use.part == "recompute"]
    claim = of_regions(rows)
    if not account.regions and facts.settings.get("gradient_checkpointing") is True:
        # Without an audit nothing but the model's own word tells; it names no place.
        again_s = min(account.spent("forward"), account.spent("backward"))
        claim = Claim(owns_s={"backward": again_s}, removes_s=again_s)
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
    spent_s = calls * nodes * (node_s or 0.0)
    often = f"call of the model, {count(calls)} calls per batch" if calls > 1 else "batch"
    return Cause(
        id="gradients_on",
        title="a graph for gradients is built with every answer, and never used",
        evidence=texts_of(
            f"{count(nodes)} nodes per {often}"
            + (f", which keep {size(kept)} until the answer is dropped" if kept else ""),
            node_s
            and account.step_s
            and f"building them takes the host about {duration(spent_s)} of "
            f"{duration(account.step_s)} ({share(account.share(spent_s))}): {duration(node_s)} per "
            "node, timed after the loop",
        ),
        changes=(Use(change="inference_mode"),),
    )

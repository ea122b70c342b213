"""Detectors of precision: casts, products, sums in half precision."""

from collections.abc import Sequence

from trainperf.analysis.diagnosis.account import (
    Region,
    StepAccount,
    of_regions,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.operator_causes import (
    PASSES,
    cause_in_operators,
    needless,
    passes,
)
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.roofline.precision import Products
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import plural


@worth(LIMITS.notable)
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
    return cause_in_operators(
        Cause(
            id="autocast_casts",
            title="conversions to another dtype take {part} of the step",
            evidence=(),
            changes=(_fewer_casts(rows, account, facts),),
            claim=needless(rows),
        ),
        rows,
        account,
        facts,
        detail=f": {', '.join([*pairs][:2])}",
    )


def _fewer_casts(rows: Sequence[Region], account: StepAccount, facts: Facts) -> Use:
    """The change that fits most of the conversions."""
    config, half = facts.settings, total_s(rows) / 2
    floats = {"fp64", "fp32", "fp16", "bf16", "fp8"}
    whole = [row for row in rows if _dtypes(row.use)[0] not in floats]
    of_weights = [row for row in rows if row.use.calls >= facts.micro_batches > 1]
    own = [row for row in rows if {*_dtypes(row.use)} in ({"fp32", "fp16"}, {"fp32", "bf16"})]
    products, own_s = _products(account, facts), total_s(own)
    autocast = config.get("autocast") or "mixed" in str(config.get("precision") or "")
    slower_s = sum(
        -products.saved_s(row.use, row.compute_s, "fp32") if products else 0.0
        for row in passes(account)
        if row.use.kind == "matmul" and row.use.precision in ("fp16", "bf16")
    )
    return first_that_holds(
        (Use(change="keep_dtype"), total_s(whole) >= half),
        (Use(change="weights_in_half"), of_weights and total_s(of_weights) >= half),
        (
            Use(change="fp32_instead", step_s=account.step_s - own_s + slower_s),
            autocast and products and own_s >= half and slower_s < own_s,
        ),
        (Use(change="convert_once"), True),
    )


def is_cast(use: OperatorUse) -> bool:
    """Whether it makes the same numbers in another dtype."""
    copies = use.part in PASSES and use.short_name in ("_to_copy", "copy_") and not use.constant
    return copies and bool(use.dtypes) and len({*_dtypes(use)}) == 2


def _dtypes(use: OperatorUse) -> tuple[str, str]:
    """Before and after it."""
    if use.short_name == "copy_":
        return use.dtypes[-1], use.dtypes[0]
    return use.dtypes[0], use.result_dtype or use.dtypes[0]


def _products(account: StepAccount, facts: Facts) -> Products | None:
    """The chip that multiplies; `None` where its limits are not known."""
    if facts.light is None:
        return None
    timed = () if facts.documents.chip is None else facts.documents.chip.attention
    return Products(
        chip=facts.light.chip,
        on_host=account.device is None,
        attention_s={each.shapes: each.seconds for each in timed},
    )


@worth(LIMITS.notable)
def matmul_precision(account: StepAccount, facts: Facts) -> Cause | None:
    """Double precision, or fp32 where the chip has a much faster way to multiply.

    It is a forecast: what keeps the arithmetic from its peak stays as it is.  In half precision
    calls and conversions are added, and on a CPU fused attention takes what it took when it was
    timed in both.

    Wrong where: the products are small: then calls and conversions take what the arithmetic saves.
    To confirm: `trainperf try --only autocast_bf16 --only matmul_precision SCRIPT`, with its
    losses.
    """
    products = _products(account, facts)
    if products is None or not account.regions:
        return None
    return _double(products, account, facts) or _single(products, account, facts)


def _double(products: Products, account: StepAccount, facts: Facts) -> Cause | None:
    rows = [row for row in account.regions if "fp64" in {row.use.precision, *row.use.dtypes}]
    peak = products.chip.flops_per_s.get("fp32")
    saved_s = sum(
        row.run_s
        - products.in_single_s(row.use, row.run_s, arithmetic=row.compute_s > row.ideal_s / 2)
        for row in rows
    )
    # At best, half the bytes, and the arithmetic at the peak of fp32; a call stays a call.
    stays_s = sum(
        row.python_s + max(row.use.flops / peak if peak else 0.0, row.ideal_s / 2) for row in rows
    )
    if account.share(total_s(rows) - stays_s) < LIMITS.notable:
        return None
    return cause_in_operators(
        Cause(
            id="matmul_precision",
            title="{part} of the step computes in double precision",
            evidence=(),
            changes=(Use(change="single_precision", step_s=account.step_s - saved_s),),
            claim=of_regions(rows, stays_s=stays_s),
        ),
        rows,
        account,
        facts,
    )


def _single(products: Products, account: StepAccount, facts: Facts) -> Cause | None:
    rows = [r for r in passes(account) if r.use.kind == "matmul" and r.use.precision == "fp32"]
    precision = products.faster_than_fp32()
    if precision is None or not rows:
        return None
    saved_s = sum(products.saved_s(row.use, row.compute_s, precision) for row in rows)
    peaks, flops = products.chip.flops_per_s, sum(row.use.flops for row in rows)
    best_s = total_s(rows) - flops / peaks[precision]
    if precision != "tf32":  # autocast may halve the bytes of everything else
        best_s += (account.spent("forward", "backward", "other") - total_s(rows)) / 2
    return cause_in_operators(
        Cause(
            id="matmul_precision",
            title="fp32 products take {part} of the step",
            evidence=(),
            changes=(
                Use(
                    change=f"{precision}_products",
                    step_s=account.step_s - saved_s,
                    least_s=max(account.step_s - best_s, account.step_s / 10),
                ),
            ),
            claim=of_regions(rows, stays_s=total_s(rows) - max(0.0, saved_s)),
        ),
        rows,
        account,
        facts,
        detail=f"; {products.chip.name}: {peaks['fp32'] / 1e12:.3g} TFLOP/s in fp32, "
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
    uses = [use for use in facts.uses if use.part == "forward" and use.dtypes]
    losses = [u for u in uses if u.short_name in LOSSES and u.dtypes[0] in ("fp16", "bf16")]
    rows = losses or [u for u in uses if u.short_name in SUMS and u.dtypes[0] == "fp16"]
    if not rows:
        return None
    kinds = "/".join(sorted({use.dtypes[0] for use in rows}))
    names = ", ".join(sorted({use.short_name for use in rows}))
    return Cause(
        id="half_sensitive",
        title=f"{'the loss' if losses else 'a norm or softmax'} is computed in {kinds}",
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

"""Detectors of work that nobody needs: of modules that do not learn, gradients, and logits."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from trainperf.analysis.diagnosis.account import Region, StepAccount, of_regions, total_s
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.operator_causes import (
    cause_in_operators,
    in_loops,
    needless,
    passes,
)
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, plural, share
from trainperf.core.groups import largest, summed
from trainperf.core.readings import PADDING_FRACTION


@worth()
def compute_once(account: StepAccount, facts: Facts) -> Cause | None:
    """Modules that do not learn are given the same inputs again, epoch after epoch.

    An image or text encoder, a reference model: none of their weights is held by an optimizer, or
    changes.  In steps spread over the fit rows of their inputs and outputs are compared.  Removed
    is the time of their calls that are given nothing learned; on a device that is told by the
    audit's operators, of which these calls have the share that they have of the host's time.

    Wrong where: only a part of the inputs comes back, e.g. where some rows are augmented.
    To confirm: `trainperf prove` with a dataset that returns the kept outputs, and the same loss.
    """
    spent_s, names = facts.number("frozen_s"), str(facts.settings.get("frozen_modules") or "")
    if not spent_s:
        return None
    rows = [
        region
        for region in account.regions
        if region.use.part == "forward"
        and any(f"{region.use.module}.".startswith(f"{name}.") for name in names.split(", "))
    ]
    stays_s = (1.0 - (facts.number("frozen_part") or 1.0)) * total_s(rows)
    slot, claim = str(facts.settings.get("frozen_slot")), of_regions(rows, stays_s=stays_s)
    if account.device is None:
        slot = "between" if slot == "data_wait" and account.spent("between") else slot
        spent_s = min(spent_s, account.spent(slot))
        claim = replace(claim, owns_s={slot: spent_s}, removes_s=spent_s)
    again = share(facts.number("frozen_again") or 0.0)
    return Cause(
        id="compute_once",
        title=f"{names}, which does not learn, takes {share(account.share(claim.removes_s))} of "
        "the step for inputs that come back",
        evidence=(
            f"{duration(claim.removes_s)} of {duration(account.step_s)} per step in its calls",
            f"{again} of the inputs looked at had been there before, and gave the same",
        ),
        changes=(Use(change="keep_outputs", values={"name": names}),),
        claim=claim,
    )


@worth(LIMITS.notable)
def computed_again(account: StepAccount, facts: Facts) -> Cause | None:
    """A forward computes again what it has computed already, from the same values.

    A weight that a parametrization makes anew for each use, keys and values that every decoder step
    projects, a second forward for a metric.  Removed are all such calls but the first, and what
    backward does for them.  A call that makes a graph repeats one with the same graph only.  Of a
    line that calls tiny operators by the hundred most must be repeated: else it is their loop.

    Wrong where: the result was let go to save memory.
    To confirm: `trainperf prove` with the result kept in a variable, and the same loss.
    """
    every = passes(account)
    again_s = summed((region.use.line, _again_s(region)) for region in every)
    loops = in_loops(every, facts)
    rows = [
        region
        for region in every
        if region.use.again
        and again_s[region.use.line] >= LIMITS.mostly * total_s(loops.get(region.use.line, ()))
    ]
    lost_s = sum(map(_again_s, rows))
    forward = [region for region in rows if region.use.part == "forward"]
    first = largest(((row.use.module or row.use.line, _again_s(row)) for row in forward), None)
    return cause_in_operators(
        Cause(
            id="computed_again",
            title=f"{share(account.share(lost_s))} of the step repeats what the same forward has "
            "computed",
            evidence=(),
            changes=(Use(change="keep_result", values={"name": first or "it"}),),
            claim=of_regions(rows, stays_s=total_s(rows) - lost_s),
        ),
        rows,
        account,
        facts,
        detail=f": {count(sum(row.use.again for row in forward))} calls are given the same "
        "values again",
    )


def _again_s(region: Region) -> float:
    """Seconds of its calls that compute the same again."""
    return region.seconds * region.use.again / region.use.calls


@worth(LIMITS.notable)
def unheld_gradients(account: StepAccount, facts: Facts) -> Cause | None:
    """Backward computes gradients of weights that no optimizer holds.

    A teacher, an encoder or the layers below adapters, which were frozen by leaving their weights
    out of the optimizer.  Removed is what goes into such gradients and nowhere else; at most also
    what passes around the calls of its forward, where the graph is made.

    Wrong where: an optimizer that holds these weights steps in other steps only.
    To confirm: `trainperf prove` with `requires_grad_(False)` on these weights, and the same loss.
    """
    rows = [region for region in account.regions if region.use.unheld]
    backward = [region for region in rows if region.use.part == "backward"]
    around_s = sum(region.python_s for region in rows if region.use.part == "forward")
    claim = of_regions(backward)
    first = largest(((region.use.unheld, region.seconds) for region in backward), "")
    number = len({region.use.unheld for region in backward})
    others = f" and {plural(number - 1, 'other')}" if number > 1 else ""
    return cause_in_operators(
        Cause(
            id="unheld_gradients",
            title="{part} of the step computes gradients of weights that no optimizer holds",
            evidence=(),
            changes=(Use(change="no_gradients", values={"name": f"{first}{others}"}),),
            claim=replace(claim, at_most_s=claim.removes_s + around_s),
        ),
        backward,
        account,
        facts,
        detail=f", in {plural(len({r.use.module for r in backward}), 'module')}",
    )


@worth(LIMITS.notable)
def dropped_gradients(account: StepAccount, facts: Facts) -> Cause | None:
    """Backward computes gradients that are zeroed or freed before an update reads them.

    A discriminator is trained on what still hangs on the generator, so that backward goes through
    both, and `zero_grad` drops what it made there; or backward is called for the gradient of an
    input, and makes those of all weights.  Removed is what goes into such gradients and nowhere
    else.  Gradients that are still there at the end of the step are none.

    Wrong where: code outside of torch has read these gradients, e.g. a kernel of its own.
    To confirm: `trainperf prove` with the input of that pass detached, and the same loss.
    """
    rows = [region for region in account.regions if region.use.dropped]
    where = largest(((region.use.dropped, region.seconds) for region in rows), "")
    cause = cause_in_operators(
        Cause(
            id="dropped_gradients",
            title="{part} of the step computes gradients that are dropped before any update",
            evidence=(),
            changes=(Use(change="detach_input", values={"where": where}),),
            claim=needless(rows),
        ),
        rows,
        account,
        facts,
        detail=f" in the backward of {where}, zeroed or freed unread",
    )
    return replace(cause, where=where, called_at="")


@worth(LIMITS.notable)
def sparse_gradients(account: StepAccount, facts: Facts) -> Cause | None:
    """Gradients of large tables are made and applied whole, though few rows were looked up.

    Of the operators that make such gradients, and of an update that works mostly on such tables,
    only the part of the rows that were looked up has to stay.

    Wrong where: momentum or weight decay shall change rows that no batch looks up.
    To confirm: `trainperf prove` with `sparse=True`, and a loss that falls as well.
    """
    gradients = [region for region in account.regions if _table(region.use)]
    tables = dict(filter(None, (_table(region.use) for region in gradients)))
    needless = {
        id(region): sum(prod(shape) * tables.get(shape, 0.0) for shape in shapes)
        / max(1, sum(map(prod, shapes)))
        for region in account.regions
        if (shapes := _worked_on(region.use))
    }
    rows = [region for region in account.regions if needless.get(id(region), 0) >= LIMITS.mostly]
    stays_s = sum((1.0 - needless[id(region)]) * region.seconds for region in rows)
    return cause_in_operators(
        Cause(
            id="sparse_gradients",
            title="gradients of whole tables take {part} of the step",
            evidence=(),
            changes=(Use(change="sparse_gradients"),),
            claim=of_regions(rows, stays_s=stays_s),
        ),
        rows,
        account,
        facts,
        detail=f"; a step leaves {share(max(tables.values(), default=0.0))} of such a table's rows "
        "as they are",
        at=gradients,
    )


def _table(use: OperatorUse) -> tuple[tuple[int, ...], float] | None:
    """Shape of the table that a gradient is made of, and the share of it that stays as it is."""
    makes = use.short_name == "embedding_dense_backward" and len(use.shapes) >= 2
    if not makes or not prod(use.shapes[0]):
        return None
    looked_up, width = prod(use.shapes[1]), use.shapes[0][-1]
    length = round(use.written_numbers / width)
    return ((length, width), max(0.0, 1 - looked_up / length)) if length else None


def _worked_on(use: OperatorUse) -> Sequence[tuple[int, ...]]:
    """Shapes of the weights that an operator makes gradients of, or updates."""
    table = _table(use)
    return (table[0],) if table else use.shapes if use.part == "optimizer" else ()


@worth(LIMITS.notable)
def ignored_targets(account: StepAccount, facts: Facts) -> Cause | None:
    """Logits of a vocabulary are computed for positions that the loss ignores.

    Prompts of a conversation, tokens that are not masked, padding.  Removed is their part of the
    head's product, of the loss, and of the backward of both: all that has the classes as a side
    and touches as many numbers as the logits have.  Padding is not counted twice.

    Wrong where: the logits of these positions are wanted for something else.
    To confirm: `trainperf prove` with the head on the rows that have a target, and the same loss.
    """
    losses = (r.use for r in account.regions if r.use.short_name == "nll_loss_forward")
    loss = max(losses, key=lambda use: use.ignored * prod(use.shapes[0]), default=None)
    if loss is None or len(loss.shapes[0]) < 2:
        return None
    padded = facts.value(PADDING_FRACTION) or 0.0
    stays = min(1.0, (1.0 - loss.ignored) / ((1.0 - padded) or 1.0))
    rows = [region for region in passes(account) if _touches_logits(region.use, *loss.shapes[0])]
    return cause_in_operators(
        Cause(
            id="ignored_targets",
            title=f"the loss ignores {share(loss.ignored)} of the positions that have logits",
            evidence=(),
            changes=(Use(change="logits_of_targets"),),
            claim=of_regions(rows, stays_s=stays * total_s(rows)),
        ),
        rows,
        account,
        facts,
        detail=f" in the logits of {count(loss.shapes[0][0])} positions and "
        f"{count(loss.shapes[0][1])} classes",
        at=[region for region in rows if region.use.kind == "matmul"],
    )


def _touches_logits(use: OperatorUse, positions: int, classes: int) -> bool:
    """Whether it is given, or computes, about as many numbers as there are logits."""
    product = use.kind == "matmul"
    # A weight of so many rows may have as many columns as there are positions.
    given = [s for s in use.shapes if s and (s[-1] == classes or (product and s[0] == classes))]
    result = [use.written_numbers] if product and given else []
    return any(
        positions <= size / classes <= (1 + LIMITS.notable) * positions
        for size in [*map(prod, given), *result]
    )

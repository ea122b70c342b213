"""What has been done so far?  The totals that a checkpoint carries from one fit to the next."""

from trainperf.blocks import StepBlock


_COUNTED = ("samples", "tokens_effective")


def counted(progress: dict[str, int], block: StepBlock) -> dict[str, int]:
    """*progress* and the steps of a block; a fact that none of them has adds no total."""
    total = {**progress, "steps": progress.get("steps", 0) + len(block)}
    for fact in _COUNTED:
        known = block.having(fact)
        if known is not None:
            total[fact] = total.get(fact, 0) + int(known.total(fact))
    return total

"""What has been done so far?  The totals that a checkpoint carries from one fit to the next."""

from collections.abc import Sequence

from trainperf.recording.recorder import Draft


_COUNTED = ("samples", "tokens_effective")


def counted(
    progress: dict[str, int], columns: tuple[str, ...], steps: Sequence[Draft]
) -> dict[str, int]:
    """*progress* and these steps; a fact that none of them has adds no total."""
    total = {**progress, "steps": progress.get("steps", 0) + len(steps)}
    for place, fact in enumerate(columns):
        if fact in _COUNTED:
            known = [step.facts[place] for step in steps]
            amounts = [amount for amount in known if amount is not None]
            if amounts:
                total[fact] = total.get(fact, 0) + int(sum(amounts))
    return total

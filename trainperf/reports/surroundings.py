"""Surroundings of two compared runs: what they were run on, in sentences near the verdict."""

from trainperf.comparison.comparability import UNCOMMITTED
from trainperf.comparison.results import Comparison


def surroundings(comparison: Comparison) -> list[str]:
    """What changed besides the code and its settings, the code itself, and what is slow."""
    changed = [
        f"{each.name} {setting(each.before)} → {setting(each.after)}"
        for each in comparison.differences
        if each.besides_code
    ]
    sides = (comparison.before, comparison.after)
    before, after = (side.code for side in sides)
    # A single change is named by the sentence on the settings.
    several = len(comparison.changes) > 1
    besides = f"besides the code and its settings there changed: {', '.join(changed)}"
    code = [f"code: {before} → {after}"] if before and after and before != after else []
    if before == after and before.endswith(UNCOMMITTED):
        code = [f"code: {before} in both runs, which need not be the same ones"]
    return [
        *([besides] if changed and several else []),
        *code,
    ]


def setting(value: object) -> str:
    """The value of a setting."""
    return "not known" if value is None else str(value)

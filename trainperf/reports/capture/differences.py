"""Two captures side by side: what a step spends other time on, the largest difference first."""

from collections.abc import Sequence

from trainperf.comparison.results import TraceDifference
from trainperf.core.formatting.units import duration, plural
from trainperf.reports.comparison import explained
from trainperf.reports.layout.document import Heading, Part, Sentence, items
from trainperf.traces.results import RankTrace


def differences_document(
    old: RankTrace, new: RankTrace, differences: Sequence[TraceDifference]
) -> list[Part]:
    """A step of both, then times, operators and kernels; a few profiled steps give no verdict."""
    steps = f"{plural(len(old.steps), 'step')} before, {len(new.steps)} after"
    times = f"{duration(old.totals.step_s)} before and {duration(new.totals.step_s)} after"
    few = (
        f"median of {steps}, all of them profiled: for a verdict with an interval compare two "
        "runs, with trainperf compare or trainperf prove"
    )
    devices = [each.device for each in (old, new) if each.device]
    unlike = f"not the same device: {', then '.join(devices)}" if len({*devices}) > 1 else ""
    nothing = [] if differences else items(["No difference of 1 % of a step was seen."], "")
    return [
        Heading(f"trainperf trace · {new.file} · after {old.file}", 1),
        Sentence(text=f"A step takes {times}.", kind="answer"),
        *explained(differences),
        *nothing,
        *items([few, unlike], "warn", "note"),
    ]

"""Losses of several ranks in words: steps without them, and where the device-hours went."""

from trainperf.analysis.summary.ranks import STEPS
from trainperf.analysis.summary.schema import DeviceTime, Summary, WhatIf
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import Scale, duration, fine_share, ranks_named, words


_LEAST = 0.01
"""Of the whole, for a part to be named in a sentence."""


_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))

_DEVICES = {"cuda": "GPU", "cpu": "rank"}
"""What one process drives; on a CPU it is its ranks that take the time."""

_NAMES = {"restart": "restarts", "checkpoint": "checkpoints", STEPS: "steps, apart from that"}


def ranks_lost(summary: Summary) -> list[str]:
    """A sentence about the step and one about the job; none for a single rank."""
    predicted, spent = summary.what_if, summary.device_time
    step = [] if predicted is None or len(summary.run.ranks) < 2 else [_without(predicted)]
    return [*step, *([] if spent is None else _job(spent, summary.run.device))]


def of_job(summary: Summary) -> list[Table]:
    """Where the device-hours went, the largest part first; empty for a single rank."""
    spent = summary.device_time
    if spent is None or not spent.whole_s:
        return []
    scale = _scale(spent, summary.run.device)
    parts = sorted(spent.parts_s.items(), key=lambda part: -part[1])
    return [
        Table(
            title=f"Where {scale.say(spent.whole_s)} went",
            head=("", scale.unit, "share"),
            rows=tuple(
                (_named(name), scale.number(part_s), fine_share(part_s / spent.whole_s))
                for name, part_s in parts
            ),
            notes=("what a steady step loses, taken for every step",),
        )
    ]


def _without(predicted: WhatIf) -> str:
    ranks, late_s = predicted.ranks, without_ranks(predicted)
    late = [f"{late_s} if {ranks_named(ranks)} were as fast as the median rank"] if ranks else []
    every = "every rank were" if ranks else "every rank were as fast as the median rank"
    parts = [*late, f"{duration(predicted.even_s)} if {every}"]
    if predicted.hidden_s is not None:
        parts.append(f"{duration(predicted.hidden_s)} if the all-reduce were hidden")
    return f"step {duration(predicted.step_s)}: {', '.join(parts)}"


def without_ranks(predicted: WhatIf) -> str:
    """The step without the late ranks and its interval, e.g. `82.5 ms (80.1–84.9)`."""
    step_s, below_s, above_s = predicted.without_ranks_s, predicted.below_s, predicted.above_s
    if below_s is None or above_s is None:
        return duration(step_s)
    scale = Scale.of(step_s)
    ends = (scale.number(step_s - below_s), scale.number(step_s + above_s))
    return f"{scale.say(step_s)} ({ends[0]}–{ends[1]})"


def _job(spent: DeviceTime, device: str) -> list[str]:
    """E.g. `of 64.0 GPU-hours 9.0 were lost to stragglers, 6.0 to data stall`."""
    scale = _scale(spent, device)
    lost = {name: part_s for name, part_s in spent.parts_s.items() if name != STEPS}
    named = [
        f"{scale.number(part_s)} {'were lost ' if not place else ''}to {_named(name)}"
        for place, (name, part_s) in enumerate(sorted(lost.items(), key=lambda part: -part[1]))
        if part_s >= _LEAST * spent.whole_s
    ]
    return [f"of {scale.say(spent.whole_s)} {', '.join(named)}"] if named else []


def _named(name: str) -> str:
    return _NAMES.get(name, words(name))


def _scale(spent: DeviceTime, device: str) -> Scale:
    """The largest unit of which there is one, e.g. `GPU-hours`."""
    per, unit = next((unit for unit in _UNITS if spent.whole_s >= unit[0]), _UNITS[-1])
    decimals = sum(spent.whole_s < most * per for most in (10, 100))
    unit = f"{_DEVICES.get(device, 'device')}-{unit}"
    return Scale(per_second=1 / per, unit=unit, decimals=decimals)

"""The roofline plot: operators by FLOP per byte and FLOP/s, on logarithmic axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainperf.analysis.diagnosis.of_run import Evidence
from trainperf.analysis.roofline.roofline import Bound, OperatorFloor, Roofline
from trainperf.analysis.roofline.speed_of_light import achieved, family
from trainperf.core.formatting.html.figures import Axis, Frame, curve, dot, keys, note, short
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.units import count, duration, plural, share


_MOST = 300
"""Operators that are drawn, those that take longest; a step of a large model has some hundred."""

_LEAST = 1e-4
"""Of the ridge: operators with less arithmetic a byte are drawn at the edge."""

_LARGEST, _SMALLEST = 24.0, 6.0
_KINDS: dict[Bound, tuple[str, int]] = {
    "memory": ("bound by memory", 0),
    "compute": ("bound by arithmetic", 2),
    "launch": ("bound by its launches", 4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """An operator with its time in a step."""

    label: str
    measured_s: float
    flops: int
    moved_bytes: int
    """Read and written, as if nothing were cached."""
    bound: Bound

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.measured_s

    @property
    def intensity(self) -> float | None:
        """FLOP a byte; `None` if nothing is moved."""
        return self.flops / self.moved_bytes if self.moved_bytes else None


def roof(evidence: Evidence, light: Roofline) -> Markup:
    """Operators by what they do with a byte, under what the chip allows.

    On a CPU each row of the audit; on a device, whose times the audit does not know, families of
    operators by their time in a trace of the same fit.  Empty where neither has a time.
    """
    peak = light.peak_flops_per_s
    spots = sorted(_spots(evidence, light), key=lambda spot: -spot.measured_s)[:_MOST]
    if not spots or not peak:
        return Markup("")
    frame = _frame(light, spots, peak)
    longest_s = spots[0].measured_s
    picture = frame.picture(
        f"operators under the roof of {light.chip.name}",
        [*_roofs(frame, light, peak), *(_dot(frame, spot, longest_s) for spot in spots)],
        names=("FLOP a byte read or written", "FLOP/s"),
        over=_words(frame, light, peak),
    )
    there = {spot.bound for spot in spots}
    named = keys(
        (name, f"dot b{colour}") for bound, (name, colour) in _KINDS.items() if bound in there
    )
    return Markup(picture + named + paragraph(_caption(spots), "soft small"))


def why_not(evidence: Evidence, light: Roofline) -> str:
    """Why there is nothing to draw."""
    if light.peak_flops_per_s is None:
        return f"the peak of {light.chip.name} in the precision of this step is not known"
    if _on_host(evidence):
        return "no operator of the audited step computes"
    return "operators on a device are timed by a trace, and none of this fit saw the same calls"


def _caption(spots: Sequence[_Spot]) -> str:
    return (
        f"{plural(len(spots), 'operator')} of the audited step, those that compute; a larger dot "
        "took longer. Far below the roof there is time to gain; above its slope the data came "
        "from a cache."
    )


def _on_host(evidence: Evidence) -> bool:
    audit = evidence.documents.audit
    return audit is not None and audit.timed


def _spots(evidence: Evidence, light: Roofline) -> Iterator[_Spot]:
    own = [operator for operator in light.own if operator.use.flops]
    if _on_host(evidence):
        yield from (_of_row(operator) for operator in own if operator.use.host_s > 0)
        return
    for group in achieved(light, evidence.captures):
        rows = [operator for operator in own if family(operator.use.name) == group.name]
        if not rows or group.share_of_roof is None:
            continue
        yield _Spot(
            label=_label(group.name, "", group.measured_s, group.calls, group.share_of_roof),
            measured_s=group.measured_s,
            flops=sum(operator.use.flops for operator in rows),
            moved_bytes=sum(operator.use.moved_bytes for operator in rows),
            bound=max(rows, key=lambda operator: operator.floor_s).bound,
        )


def _of_row(operator: OperatorFloor) -> _Spot:
    use = operator.use
    where = use.line or use.module or use.part
    return _Spot(
        label=_label(use.name, where, use.host_s, use.calls, operator.share_of_roof(use.host_s)),
        measured_s=use.host_s,
        flops=use.flops,
        moved_bytes=use.moved_bytes,
        bound=operator.bound,
    )


def _label(name: str, where: str, measured_s: float, calls: float, part: float | None) -> str:
    place = f" ({where})" if where else ""
    roof_said = "" if part is None else f", {share(part)} of its roof"
    times = "1 call" if calls == 1 else f"{count(calls)} calls"
    return f"{name}{place}: {duration(measured_s)} in {times}{roof_said}"


def _frame(light: Roofline, spots: Sequence[_Spot], peak: float) -> Frame:
    ridge = peak / light.chip.memory_bytes_per_s
    intensities = [spot.intensity for spot in spots if spot.intensity is not None]
    slowest = max(min(spot.rate for spot in spots), peak * 1e-7)
    fastest = max(peak, *(spot.rate for spot in spots))
    return Frame(
        across=Axis(
            low=max(min([*intensities, ridge / 10]) / 2, ridge * _LEAST),
            high=max([*intensities, ridge * 4]) * 2,
            logarithmic=True,
            say=short,
        ),
        up=Axis(low=slowest / 2, high=fastest * 3, logarithmic=True, say=short),
        height=320,
    )


def _roofs(frame: Frame, light: Roofline, peak: float) -> list[Markup]:
    bandwidth = light.chip.memory_bytes_per_s
    # It begins where the slope enters the picture: cut off there it would be bent.
    start = max(frame.across.low, frame.up.low / bandwidth)
    corner = (frame.x(peak / bandwidth), frame.y(peak))
    return [
        curve([(frame.x(start), frame.y(start * bandwidth)), corner], "roof"),
        curve([corner, (frame.x(frame.across.high), corner[1])], "roof"),
    ]


def _words(frame: Frame, light: Roofline, peak: float) -> list[Markup]:
    bandwidth = light.chip.memory_bytes_per_s
    start = max(frame.across.low, frame.up.low / bandwidth)
    middle = (start * peak / bandwidth) ** 0.5
    return [
        note(frame.x(frame.across.high), frame.y(peak) - 16, f"{short(peak)}FLOP/s"),
        note(frame.x(middle), frame.y(middle * bandwidth) - 22, f"{short(bandwidth)}B/s"),
    ]


def _dot(frame: Frame, spot: _Spot, longest_s: float) -> Markup:
    colour = _KINDS[spot.bound][1] if spot.bound in _KINDS else 7
    across = frame.across.high if spot.intensity is None else spot.intensity
    wide = _SMALLEST + (_LARGEST - _SMALLEST) * (spot.measured_s / longest_s) ** 0.5
    return dot((frame.x(across), frame.y(spot.rate)), wide, f"d{colour} clear", spot.label)

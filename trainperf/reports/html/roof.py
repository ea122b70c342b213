"""The roofline plot: operators by FLOP per byte and FLOP/s, on logarithmic axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainperf.analysis.roofline.roofline import Bound, OperatorFloor, Roofline
from trainperf.analysis.roofline.speed_of_light import achieved, family
from trainperf.analysis.rules.base import Evidence
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.html.scales import Axis, short
from trainperf.core.formatting.html.svg import Frame, curve, dot, keys, note
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

    said: str
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
    spots = sorted(_spots(evidence, light), key=lambda one: -one.measured_s)[:_MOST]
    if not spots or not peak:
        return Markup("")
    frame = _frame(light, spots, peak)
    longest_s = spots[0].measured_s
    picture = frame.picture(
        f"operators under the roof of {light.chip.name}",
        [*_roofs(frame, light, peak), *(_dot(frame, one, longest_s) for one in spots)],
        names=("FLOP a byte read or written", "FLOP/s"),
        over=_words(frame, light, peak),
    )
    there = {one.bound for one in spots}
    named = keys(
        (name, f"dot b{colour}") for bound, (name, colour) in _KINDS.items() if bound in there
    )
    return Markup(picture + named + paragraph(_told(spots), "soft small"))


def why_not(evidence: Evidence, light: Roofline) -> str:
    """Why there is nothing to draw."""
    if light.peak_flops_per_s is None:
        return f"the peak of {light.chip.name} in the precision of this step is not known"
    if _on_host(evidence):
        return "no operator of the audited step computes"
    return "operators on a device are timed by a trace, and none of this fit saw the same calls"


def _told(spots: Sequence[_Spot]) -> str:
    return (
        f"{plural(len(spots), 'operator')} of the audited step, those that compute; a larger dot "
        "took longer. Far below the roof there is time to gain; above its slope the data came "
        "from a cache."
    )


def _on_host(evidence: Evidence) -> bool:
    audit = evidence.documents.audit
    return audit is not None and audit.device == "cpu"


def _spots(evidence: Evidence, light: Roofline) -> Iterator[_Spot]:
    own = [one for one in light.operators if one.use.place == "device" and one.use.flops]
    if _on_host(evidence):
        yield from (_of_row(one) for one in own if one.use.host_s > 0)
        return
    for found in achieved(light, evidence.captures):
        rows = [one for one in own if family(one.use.name) == found.name]
        if not rows or found.share_of_roof is None:
            continue
        yield _Spot(
            said=_said(found.name, "", found.measured_s, found.calls, found.share_of_roof),
            measured_s=found.measured_s,
            flops=sum(one.use.flops for one in rows),
            moved_bytes=sum(one.use.moved_bytes for one in rows),
            bound=max(rows, key=lambda one: one.floor_s).bound,
        )


def _of_row(one: OperatorFloor) -> _Spot:
    use = one.use
    where = use.line or use.module or use.part
    return _Spot(
        said=_said(use.name, where, use.host_s, use.calls, one.share_of_roof(use.host_s)),
        measured_s=use.host_s,
        flops=use.flops,
        moved_bytes=use.moved_bytes,
        bound=one.bound,
    )


def _said(name: str, where: str, measured_s: float, calls: float, part: float | None) -> str:
    place = f" ({where})" if where else ""
    roof_said = "" if part is None else f", {share(part)} of its roof"
    times = "1 call" if calls == 1 else f"{count(calls)} calls"
    return f"{name}{place}: {duration(measured_s)} in {times}{roof_said}"


def _frame(light: Roofline, spots: Sequence[_Spot], peak: float) -> Frame:
    ridge = peak / light.chip.memory_bytes_per_s
    known = [one.intensity for one in spots if one.intensity is not None]
    slowest = max(min(one.rate for one in spots), peak * 1e-7)
    fastest = max(peak, *(one.rate for one in spots))
    return Frame(
        across=Axis(
            low=max(min([*known, ridge / 10]) / 2, ridge * _LEAST),
            high=max([*known, ridge * 4]) * 2,
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


def _dot(frame: Frame, one: _Spot, longest_s: float) -> Markup:
    colour = _KINDS[one.bound][1] if one.bound in _KINDS else 7
    across = frame.across.high if one.intensity is None else one.intensity
    wide = _SMALLEST + (_LARGEST - _SMALLEST) * (one.measured_s / longest_s) ** 0.5
    return dot((frame.x(across), frame.y(one.rate)), wide, f"d{colour} clear", one.said)

"""The machine and the steps, joined by one clock: what the machine did, and which steps it slowed.

A cause is a rule of thumb over what was sampled.  The samples at which it holds are stretches of
time, each from the sample before: on one clock for all hosts, on which attempts follow each other.
They divide the steady steps, by their middle, into those inside, and those outside of any stretch
of any cause, and medians of the two are compared.  A step in stretches of several causes counts for
each of them: nothing tells which of them made it slow.  Constant memory: steps are counted in bins
of their duration.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.machine import MachineSeries, attempt_ns
from trainperf.analysis.summary.schema import (
    Cause,
    CauseFacts,
    DeviceFacts,
    HostFacts,
    MachineFacts,
    MachineWindow,
    Summary,
)
from trainperf.core.artifacts.machine import (
    HOST_COLUMNS,
    POWER_BRAKE_BIT,
    POWER_CAP_BIT,
    THERMAL_BITS,
)
from trainperf.core.findings import LIMITS
from trainperf.core.machine.link import of_link
from trainperf.core.readings import H2D_BYTES_PER_S
from trainperf.core.stats.quantiles import Distribution, joined
from trainperf.core.steps.block import Column, StepBlock


Mask = npt.NDArray[np.bool_]


TOGETHER_NS = 5e9
"""Stretches that are no further apart are one: clocks are sampled once a second, and flicker."""


MOST_WINDOWS = 64
"""Of a cause on one host that are listed; all of them are counted."""


MOST_NAMED = 3
"""Other processes."""


OTHERS_CPUS = 0.25
"""From so many CPUs on, and a notable share of the host's, others count as busy."""


STALLED = {"memory_pressure": LIMITS.worth, "io_pressure": LIMITS.critical}
"""Share of the time in which some task is stalled.  Of a disk more is usual: readers wait."""


SWAPPED = 1 << 20
"""Bytes per second."""


LOST_SEGMENTS = 10.0
"""TCP segments sent again per second, if they are more than a trifle of those sent."""


CLOCK_REASONS = {
    "thermal": THERMAL_BITS,
    "power brake": POWER_BRAKE_BIT,
    "power cap": POWER_CAP_BIT,
}


_OF_HOST = (*(name for name in HOST_COLUMNS if name != "sampler_s"), "others_cpus")
_OF_DEVICE = ("sm_mhz", "power_w", "celsius", "busy", "others", "others_busy")


_LEAST_IS_WORST = ("memory_free", "sm_mhz")


def _causes(series: MachineSeries) -> Iterator[tuple[Cause, int | None, Mask]]:
    """Each cause on a host or a device, and the samples at which it holds."""
    crowded = max(OTHERS_CPUS, LIMITS.notable * (series.header.cpus or 1))
    yield "host shared", None, series.column("others_cpus") >= crowded
    stalled = series.column("memory_pressure") >= STALLED["memory_pressure"]
    yield "memory", None, stalled | (series.column("swapped") >= SWAPPED)
    yield "disk", None, series.column("io_pressure") >= STALLED["io_pressure"]
    lost, sent = series.column("net_retransmitted"), series.column("net_segments")
    notably = lost >= LIMITS.trifle * np.nan_to_num(sent)
    yield "network", None, notably & (lost >= LOST_SEGMENTS)
    for device in range(len(series.header.devices)):
        yield "thermal", device, _clock_lowered(series, device, "thermal")
        yield "power brake", device, _clock_lowered(series, device, "power brake")
        busy = series.device(device, "others_busy")
        # A process that only holds memory there is no cause.
        working = np.isnan(busy) | (busy >= LIMITS.worth)
        yield "device shared", device, working & (series.device(device, "others") >= 1)


def _clock_lowered(series: MachineSeries, device: int, reason: str) -> Mask:
    """Samples at which a device said that its clock was lower for a reason."""
    reasons = np.nan_to_num(series.device(device, "reasons")).astype(np.int64)
    lowered: Mask = (reasons & CLOCK_REASONS[reason]) != 0
    return lowered


class _Stretches:
    """A cause on one host or device: where it holds, and the steady steps there.

    Args:
        cause: Its name.
        device: Place of the device; `None` where it is the host's.
        series: Of the host.
        mask: The samples at which it holds, one at least.
    """

    def __init__(self, cause: Cause, device: int | None, series: MachineSeries, mask: Mask) -> None:
        self.cause, self.device, self.series = cause, device, series
        anew = np.append(series.begins(), True)
        begins = mask & (anew[:-1] | ~np.append(False, mask[:-1]))
        ends = mask & (anew[1:] | ~np.append(mask[1:], False))
        since_ns, until_ns = series.since_ns()[begins], series.at_ns[ends]
        apart = since_ns[1:] - until_ns[:-1] > TOGETHER_NS
        self.since_ns = since_ns[np.append(True, apart)]
        self.until_ns = until_ns[np.append(apart, True)]
        self.inside: Distribution | None = None
        number = len(self.since_ns)
        self.steps, self.seconds = np.zeros(number, np.int64), np.zeros(number)
        self.first, self.last = np.full(number, np.iinfo(np.int64).max), np.full(number, -1)

    def place_of(self, at_ns: Column) -> npt.NDArray[np.int64]:
        """The stretch in which each moment is, by its place; -1 outside of all."""
        place = np.searchsorted(self.until_ns, at_ns).clip(max=len(self.until_ns) - 1)
        inside = (at_ns > self.since_ns[place]) & (at_ns <= self.until_ns[place])
        return np.where(inside, place, -1)

    def add(self, index: Column, at_ns: Column, walls_s: Column) -> Mask:
        """Take steps; which of them are inside."""
        place = self.place_of(at_ns)
        inside = place >= 0
        place, index, walls_s = place[inside], index[inside].astype(np.int64), walls_s[inside]
        np.add.at(self.steps, place, 1)
        np.add.at(self.seconds, place, walls_s)
        np.minimum.at(self.first, place, index)
        np.maximum.at(self.last, place, index)
        self.inside = joined((self.inside, Distribution.of(walls_s)))
        return inside

    def windows(self, typical_s: float | None) -> tuple[MachineWindow, ...]:
        """The longest stretches that have a step, in their order."""
        longest = np.argsort(-self.seconds, kind="stable")[:MOST_WINDOWS]
        return tuple(
            MachineWindow(
                first_step=int(self.first[place]),
                last_step=int(self.last[place]),
                steps=int(self.steps[place]),
                seconds=float(self.seconds[place]),
                slower=float(self.seconds[place] / self.steps[place] / typical_s - 1)
                if typical_s and self.steps[place] >= LIMITS.steps
                else None,
            )
            for place in np.sort(longest).tolist()
            if self.steps[place]
        )

    def values(self) -> dict[str, float]:
        """Means over its samples, and of a device outside of them."""
        inside = self.place_of(self.series.at_ns) >= 0
        means = _means(_sampled(self.series.select(inside), self.device))
        if self.device is not None:
            outside = _means(_sampled(self.series.select(~inside), self.device))
            means |= {f"outside_{name}": mean for name, mean in outside.items()}
        return means

    def who(self) -> tuple[str, ...]:
        """Other processes named while it held, the one that kept most CPUs busy first."""
        named: defaultdict[str, float] = defaultdict(float)
        for each in self.series.neighbours if self.cause.endswith("shared") else ():
            there = each.device == self.device and self.place_of(np.array([each.at_ns]))[0] >= 0
            if there and each.name:
                named[f"{each.name} ({each.pid})"] += each.cpus
        return tuple(sorted(named, key=lambda name: -named[name])[:MOST_NAMED])


class MachineFold:
    """Fed with the steps of the run's lowest rank in the pass that makes its summary.

    Args:
        series: Of all hosts.
        window: Whether only some steps are read: what the machine did before and after them is
            left out then.
    """

    def __init__(self, series: Sequence[MachineSeries], *, window: bool = False) -> None:
        self._hosts, self._window = series, window
        self._sampled_ns = [span for host in series for span in host.attempts_ns()]
        self._causes = [
            _Stretches(cause, device, host, mask)
            for host in series
            for cause, device, mask in _causes(host)
            if mask.any()
        ]
        self._since_ns, self._until_ns = np.inf, -np.inf
        """From the first steady step to the last."""
        self._outside: Distribution | None = None
        self._outside_s = self._steady_s = 0.0

    def observe(self, block: StepBlock, attempt: int) -> None:
        """Take the next steps of an attempt, by its place in the run."""
        steady = block.steady()
        if not self._hosts or not len(steady):
            return
        walls_s = steady.wall_ns / 1e9
        at_ns = steady.start_ns + steady.wall_ns / 2 + attempt_ns(attempt)
        self._since_ns = min(self._since_ns, float(at_ns[0]))
        self._until_ns = max(self._until_ns, float(at_ns[-1]))
        outside = np.zeros(len(steady), np.bool_)
        for since_ns, until_ns in self._sampled_ns:
            outside |= (at_ns > since_ns) & (at_ns <= until_ns)
        for each in self._causes:
            outside &= ~each.add(steady.index, at_ns, walls_s)
        self._outside = joined((self._outside, Distribution.of(walls_s[outside])))
        self._outside_s += float(walls_s[outside].sum())
        self._steady_s += float(walls_s.sum())

    def facts(self) -> MachineFacts | None:
        """What there is to say; `None` where nothing was sampled."""
        hosts = self._hosts
        if self._window:
            since_ns, until_ns = self._since_ns, self._until_ns
            hosts = [h.select((h.at_ns >= since_ns) & (h.at_ns <= until_ns)) for h in hosts]
        sampled = tuple(_host_facts(host) for host in hosts if len(host))
        if not sampled:
            return None
        happened = [each for each in self._causes if each.inside and self._steady_s]
        causes = [self._facts(each, each.inside) for each in happened if each.inside]
        causes.sort(key=lambda each: (-each.lost_fraction, -each.fraction))
        return MachineFacts(hosts=sampled, causes=tuple(causes))

    def _facts(self, stretches: _Stretches, inside: Distribution) -> CauseFacts:
        """What steps in it took, compared with those outside of all causes."""
        inside_s = float(stretches.seconds.sum())
        typical_s = mean_s = slower = None
        lost_s = 0.0
        if self._outside is not None and self._outside.n >= LIMITS.steps:
            typical_s, mean_s = self._outside.value(), self._outside_s / self._outside.n
        if typical_s and inside.n >= LIMITS.steps:
            slower = inside.quantile(50.0) / typical_s - 1
            lost_s = max(0.0, inside_s - inside.n * typical_s)
        return CauseFacts(
            cause=stretches.cause,
            host=stretches.series.header.host,
            device=stretches.device,
            fraction=min(1.0, inside_s / self._steady_s),
            steps=inside.n,
            slower=slower,
            lost_fraction=min(lost_s / self._steady_s, 0.99),
            shown=bool(typical_s and slower is not None and inside.quantile(25.0) > typical_s),
            values=stretches.values(),
            who=stretches.who(),
            windows=stretches.windows(mean_s),
        )


def _sampled(series: MachineSeries, device: int | None = None) -> dict[str, Column]:
    """What was sampled of a host, or of one of its devices, by name of the column."""
    if device is None:
        columns = {name: series.column(name) for name in _OF_HOST}
    else:
        columns = {name: series.device(device, name) for name in _OF_DEVICE}
    present = {name: column[~np.isnan(column)] for name, column in columns.items()}
    return {name: column for name, column in present.items() if len(column)}


def _means(sampled: Mapping[str, Column]) -> dict[str, float]:
    return {name: float(column.mean()) for name, column in sampled.items()}


def _worst(sampled: Mapping[str, Column]) -> dict[str, float]:
    return {
        name: float(column.min() if name in _LEAST_IS_WORST else column.max())
        for name, column in sampled.items()
    }


def _host_facts(series: MachineSeries) -> HostFacts:
    sampled, header, apart_ns = _sampled(series), series.header, np.diff(series.at_ns)
    within = apart_ns < attempt_ns(1) / 2
    span_s = float(apart_ns[within].sum()) / 1e9
    sampler_s = float(np.diff(series.column("sampler_s"))[within].sum())
    return HostFacts(
        rank=header.rank,
        host=header.host,
        cpus=header.cpus,
        samples=len(series),
        span_s=span_s,
        sampler_cpus=sampler_s / span_s if span_s else None,
        means=_means(sampled),
        worst=_worst(sampled),
        devices=tuple(_device_facts(series, place) for place in range(len(header.devices))),
        reasons=header.reasons,
    )


def _device_facts(series: MachineSeries, place: int) -> DeviceFacts:
    device, sampled = series.header.devices[place], _sampled(series, place)
    shares = {
        reason: float(_clock_lowered(series, place, reason).mean()) for reason in CLOCK_REASONS
    }
    return DeviceFacts(
        name=device.name,
        most_mhz=device.most_mhz,
        limit_w=device.limit_w,
        means=_means(sampled),
        worst=_worst(sampled),
        throttled={reason: fraction for reason, fraction in shares.items() if fraction},
    )


def link_words(summary: Summary) -> str:
    """The rate of the batch's copies in words, as `of_link`; empty where no copy was timed.

    Said wherever copied bytes are shown, however little of the step they take: a link at a tenth of
    its rate says *pageable memory* or *many small tensors* long before it costs a tenth of the
    step.  By the reading `h2d_bytes_per_s` of the run, and the data sheet of its device.
    """
    speed = summary.value(H2D_BYTES_PER_S)
    device = str(summary.run.hardware.get("device_name", ""))
    return of_link(speed, device) if speed else ""

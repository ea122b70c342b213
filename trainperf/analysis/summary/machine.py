"""The machine and the steps, joined by one clock: what the machine did, and which steps it slowed.

A cause is a rule of thumb over what was sampled, and holds at some of the samples.  A sample speaks
of the time since the one before: on one clock for all hosts, on which attempts follow each other.
So a cause divides the steady steps, by their middle, into those inside, and those outside of all
causes, and medians of the two are compared.  A step at which several causes hold counts for each of
them: nothing tells which of them made it slow.  Constant memory: steps are counted in bins of their
duration.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.machine import MachineSeries, attempt_ns
from trainperf.analysis.summary.schema import (
    Cause,
    CauseFacts,
    DeviceFacts,
    HostFacts,
    MachineFacts,
    Summary,
)
from trainperf.core.artifacts.machine import HOST_COLUMNS, POWER_BRAKE_BIT, THERMAL_BITS
from trainperf.core.findings import LIMITS
from trainperf.core.machine.link import of_link
from trainperf.core.readings import H2D_BYTES_PER_S
from trainperf.core.stats.quantiles import Distribution, joined
from trainperf.core.steps.block import Column, StepBlock


Mask = npt.NDArray[np.bool_]


STALLED = {"memory_pressure": LIMITS.worth, "io_pressure": LIMITS.critical}
"""Share of the time in which some task is stalled.  Of a disk more is usual: readers wait."""


SWAPPED = 1 << 20
"""Bytes per second."""

OTHERS_CPUS = 0.25
"""What an idle machine's own services may take."""

_OF_HOST = (*HOST_COLUMNS, "others_cpus")
_OF_DEVICE = ("sm_mhz", "power_w", "celsius", "busy", "others", "others_busy")


_LEAST_IS_WORST = ("memory_free", "sm_mhz")


def _causes(series: MachineSeries) -> Iterator[tuple[Cause, int | None, Mask]]:
    """Each cause on a host or a device, and the samples at which it holds."""
    crowded = max(OTHERS_CPUS, LIMITS.notable * (series.header.cpus or 1))
    yield "host shared", None, series.column("others_cpus") >= crowded
    stalled = series.column("memory_pressure") >= STALLED["memory_pressure"]
    yield "memory", None, stalled | (series.column("swapped") >= SWAPPED)
    yield "disk", None, series.column("io_pressure") >= STALLED["io_pressure"]
    for device in range(len(series.header.devices)):
        reasons = np.nan_to_num(series.device(device, "reasons")).astype(np.int64)
        yield "thermal", device, (reasons & THERMAL_BITS) != 0
        yield "power brake", device, (reasons & POWER_BRAKE_BIT) != 0
        busy = series.device(device, "others_busy")
        # A process that only holds memory there is no cause.
        working = np.isnan(busy) | (busy >= LIMITS.worth)
        yield "device shared", device, working & (series.device(device, "others") >= 1)


class _Inside:
    """A cause on one host or device, and the steady steps in the time of which it holds.

    Args:
        series: Of the host.
        cause: Its name.
        device: Place of the device; `None` where it is the host's.
        mask: The samples at which it holds.  A clock flickers and is looked at once a second: what
            lies between two of them is one of them.
    """

    def __init__(self, series: MachineSeries, cause: Cause, device: int | None, mask: Mask) -> None:
        self.series, self.cause, self.device = series, cause, device
        self.mask: Mask = mask | (np.append(mask[1:], False) & np.append(False, mask[:-1]))
        self.walls: Distribution | None = None
        self.seconds = 0.0
        self.first, self.last = np.inf, -np.inf

    def holds(self, at_ns: Column) -> Mask:
        """At which of these moments it does."""
        place = self.series.place_of(at_ns)
        return (place >= 0) & self.mask[place]

    def add(self, index: Column, at_ns: Column, walls_s: Column) -> Mask:
        """Take steps; which of them are inside."""
        inside = self.holds(at_ns)
        self.walls = joined((self.walls, Distribution.of(walls_s[inside])))
        self.seconds += float(walls_s[inside].sum())
        self.first = index[inside].min(initial=self.first)
        self.last = index[inside].max(initial=self.last)
        return inside

    def facts(self, outside: Distribution | None, steady_s: float) -> CauseFacts | None:
        """What steps in it took, compared with those outside of all causes."""
        if self.walls is None:
            return None
        slower, lost_s, shown = None, 0.0, False
        if outside is not None and min(outside.n, self.walls.n) >= LIMITS.steps:
            typical_s = outside.quantile(50.0)
            slower = self.walls.quantile(50.0) / typical_s - 1
            lost_s = max(0.0, self.seconds - self.walls.n * typical_s)
            shown = self.walls.quantile(25.0) > typical_s
        return CauseFacts(
            cause=self.cause,
            host=self.series.header.host,
            device=self.device,
            fraction=min(1.0, self.seconds / steady_s),
            steps=self.walls.n,
            first_step=int(self.first),
            last_step=int(self.last),
            slower=slower,
            lost_fraction=min(lost_s / steady_s, 0.99),
            shown=shown,
            values=self._values(),
            who=self._who(),
        )

    def _values(self) -> dict[str, float]:
        """Means over its samples, and of a device outside of them."""
        means = _means(self.series.select(self.mask), self.device)
        if self.device is not None:
            outside = _means(self.series.select(~self.mask), self.device)
            means |= {f"outside_{name}": mean for name, mean in outside.items()}
        return means

    def _who(self) -> tuple[str, ...]:
        """Other processes named while it held, down to half of the CPUs of the busiest one."""
        named: defaultdict[str, float] = defaultdict(float)
        for each in self.series.neighbours if self.cause.endswith("shared") else ():
            if each.name and each.device == self.device and self.holds(np.array([each.at_ns]))[0]:
                named[f"{each.name} ({each.pid})"] += each.cpus
        least = LIMITS.mostly * max(named.values(), default=0.0)
        busiest = sorted(named, key=lambda name: -named[name])
        return tuple(name for name in busiest if named[name] >= least)


class MachineFold:
    """Fed with the steps of the run's lowest rank in the pass that makes its summary.

    Args:
        series: Of all hosts.
        window: Whether only some steps are read: what the machine did before and after them is
            left out then.
    """

    def __init__(self, series: Sequence[MachineSeries], *, window: bool = False) -> None:
        self._hosts, self._window = series, window
        self._causes = [
            _Inside(host, *cause) for host in series for cause in _causes(host) if cause[-1].any()
        ]
        self._since_ns, self._until_ns = np.inf, -np.inf
        """From the first steady step to the last."""
        self._outside: Distribution | None = None
        self._steady_s = 0.0

    def observe(self, block: StepBlock, attempt: int) -> None:
        """Take the next steps of an attempt, by its place in the run."""
        steady = block.steady()
        if not self._hosts or not len(steady):
            return
        walls_s = steady.wall_ns / 1e9
        at_ns = steady.start_ns + steady.wall_ns / 2 + attempt_ns(attempt)
        self._since_ns = min(self._since_ns, float(at_ns[0]))
        self._until_ns = max(self._until_ns, float(at_ns[-1]))
        outside = np.logical_or.reduce([host.place_of(at_ns) >= 0 for host in self._hosts])
        for each in self._causes:
            outside &= ~each.add(steady.index, at_ns, walls_s)
        self._outside = joined((self._outside, Distribution.of(walls_s[outside])))
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
        happened = (each.facts(self._outside, self._steady_s) for each in self._causes)
        causes = [each for each in happened if each is not None]
        causes.sort(key=lambda each: (-each.lost_fraction, -each.fraction))
        return MachineFacts(hosts=sampled, causes=tuple(causes))


def _sampled(series: MachineSeries, device: int | None) -> Iterator[tuple[str, Column]]:
    """What was sampled of a host, or of one of its devices, by name of the column."""
    for name in _OF_HOST if device is None else _OF_DEVICE:
        column = series.column(name) if device is None else series.device(device, name)
        present = column[~np.isnan(column)]
        if len(present):
            yield name, present


def _means(series: MachineSeries, device: int | None = None) -> dict[str, float]:
    return {name: float(column.mean()) for name, column in _sampled(series, device)}


def _worst(series: MachineSeries, device: int | None = None) -> dict[str, float]:
    return {
        name: float(column.min() if name in _LEAST_IS_WORST else column.max())
        for name, column in _sampled(series, device)
    }


def _host_facts(series: MachineSeries) -> HostFacts:
    header = series.header
    return HostFacts(
        rank=header.rank,
        host=header.host,
        cpus=header.cpus,
        samples=len(series),
        means=_means(series),
        worst=_worst(series),
        devices=tuple(
            DeviceFacts(
                name=device.name,
                most_mhz=device.most_mhz,
                limit_w=device.limit_w,
                means=_means(series, place),
                worst=_worst(series, place),
            )
            for place, device in enumerate(header.devices)
        ),
        reasons=header.reasons,
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

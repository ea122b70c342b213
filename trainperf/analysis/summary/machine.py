"""The machine and the steps, joined by their clock: what made which steps slower.

A cause is a rule of thumb over what was sampled.  Its stretches of time are found first, by the
samples alone; they divide the steady steps into those inside, and those outside of any stretch of
any cause, and medians of the two are compared.  Where causes overlap each is told by all of its own
steps.  Constant memory: steps are counted in bins of their
duration.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.machine import MachineSeries
from trainperf.analysis.summary.machine_samples import (
    Mask,
    clock_lowered,
    host_facts,
    mean_sampled,
    others_cpus,
    over_attempts,
)
from trainperf.analysis.summary.schema import (
    Cause,
    CauseFacts,
    MachineFacts,
    MachineWindow,
    Summary,
)
from trainperf.core.artifacts.machine import device_column
from trainperf.core.findings import LIMITS
from trainperf.core.machine.link import of_link
from trainperf.core.readings import H2D_BYTES_PER_S
from trainperf.core.stats.quantiles import Distribution, joined
from trainperf.core.steps.block import Column, StepBlock


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


_DEVICE_VALUES = ("sm_mhz", "power_w", "celsius", "others", "others_busy")


_HOST_VALUES = (
    *("waited", "cpu_pressure", "memory_pressure", "io_pressure", "memory_free", "swapped"),
    *("disk_read", "disk_written", "net_retransmitted"),
)


def _causes(series: MachineSeries) -> Iterator[tuple[Cause, int | None, Mask]]:
    """Each cause on a host or a device, and the samples at which it holds."""
    lost, sent = series.column("net_retransmitted"), series.column("net_segments")
    on_host: dict[Cause, Mask] = {
        "host shared": others_cpus(series)
        >= max(OTHERS_CPUS, LIMITS.notable * (series.header.cpus or 1)),
        "memory": (series.column("swapped") >= SWAPPED)
        | (series.column("memory_pressure") >= STALLED["memory_pressure"]),
        "disk": series.column("io_pressure") >= STALLED["io_pressure"],
        "network": (lost >= LOST_SEGMENTS) & (lost >= LIMITS.trifle * np.nan_to_num(sent)),
    }
    for cause, mask in on_host.items():
        yield cause, None, mask
    for device in range(len(series.header.devices)):
        yield "thermal", device, clock_lowered(series, device, "thermal")
        yield "power brake", device, clock_lowered(series, device, "power brake")
        busy = series.device(device, "others_busy")
        # A process that only holds memory there is no cause.
        working = np.isnan(busy) | (busy >= LIMITS.worth)
        yield "device shared", device, working & (series.device(device, "others") >= 1)


def without_flicker(at_ns: Column, mask: Mask) -> Mask:
    """The samples in which *mask* holds, and those between two of them close to each other."""
    places = np.arange(len(mask))
    before = np.maximum.accumulate(np.where(mask, places, -1))
    after = np.minimum.accumulate(np.where(mask, places, len(mask))[::-1])[::-1]
    between = (before >= 0) & (after < len(mask))
    # A sample speaks of the time since the one before.
    between[between] = at_ns[after[between] - 1] - at_ns[before[between]] <= TOGETHER_NS
    return mask | between


class _SampledSteps:
    """One host during one attempt, and the steady steps that fell between its samples."""

    def __init__(self, series: MachineSeries) -> None:
        self.series = series
        every_ns = np.median(np.diff(series.at_ns)) if len(series) > 1 else 0.0
        self._since_ns = series.at_ns[0] - every_ns
        self.steps, self.seconds = np.zeros(len(series), np.int32), np.zeros(len(series))
        """Up to each sample from the one before."""
        self.first = np.full(len(series), np.iinfo(np.int32).max, np.int32)
        self.last = np.full(len(series), -1, np.int32)

    def sample_of(self, at_ns: Column) -> tuple[npt.NDArray[np.int64], Mask]:
        """The sample that speaks of each moment, and whether there is one."""
        sampled: Mask = (at_ns > self._since_ns) & (at_ns <= self.series.at_ns[-1])
        return np.where(sampled, np.searchsorted(self.series.at_ns, at_ns), 0), sampled

    def add(self, sample: npt.NDArray[np.int64], index: Column, walls_s: Column) -> None:
        """Take steps."""
        np.add.at(self.steps, sample, 1)
        np.add.at(self.seconds, sample, walls_s)
        np.minimum.at(self.first, sample, index.astype(np.int32))
        np.maximum.at(self.last, sample, index.astype(np.int32))

    def window(self, part: slice, typical_s: float | None) -> MachineWindow:
        """Its steps between some samples."""
        steps, seconds = int(self.steps[part].sum()), float(self.seconds[part].sum())
        judged = typical_s and steps >= LIMITS.steps
        return MachineWindow(
            first_step=int(self.first[part].min()),
            last_step=int(self.last[part].max()),
            steps=steps,
            seconds=seconds,
            slower=seconds / steps / typical_s - 1 if typical_s and judged else None,
        )


class _CauseFold:
    """A cause on one host or device, over all attempts."""

    def __init__(self, cause: Cause, device: int | None) -> None:
        self.cause, self.device = cause, device
        self.parts: list[tuple[_SampledSteps, Mask]] = []
        """Each attempt, and the samples at which the cause holds."""
        self.inside: Distribution | None = None

    def facts(
        self, steady_s: float, outside: Distribution | None, outside_s: float
    ) -> CauseFacts | None:
        """What steps in it took, compared with those outside of all causes."""
        inside = self.inside
        if inside is None:
            return None
        inside_s = sum(float(steps.seconds[mask].sum()) for steps, mask in self.parts)
        typical_s = mean_s = slower = None
        if outside is not None and outside.n >= LIMITS.steps:
            typical_s, mean_s = outside.value(), outside_s / outside.n
        judged = typical_s and inside.n >= LIMITS.steps
        if typical_s and judged:
            slower = (inside.value() or typical_s) / typical_s - 1
        lost_s = max(0.0, inside_s - inside.n * typical_s) if typical_s and judged else 0.0
        return CauseFacts(
            cause=self.cause,
            host=self.parts[0][0].series.header.host,
            device=self.device,
            fraction=min(1.0, inside_s / steady_s),
            steps=inside.n,
            slower=slower,
            lost_fraction=min(lost_s / steady_s, 0.99),
            shown=bool(typical_s and judged and inside.quantile(25.0) > typical_s),
            values=self._values(),
            who=self._who(),
            windows=self._windows(mean_s),
        )

    def _values(self) -> dict[str, float]:
        """Means over its samples, and the clock outside of them."""
        inside = np.concatenate([mask for _, mask in self.parts])
        attempts = [steps.series for steps, _ in self.parts]
        names = {name: name for name in _HOST_VALUES}
        if self.device is not None:
            names = {name: device_column(self.device, name) for name in _DEVICE_VALUES}
        columns = {name: over_attempts(attempts, column) for name, column in names.items()}
        means = {name: mean_sampled(column[inside]) for name, column in columns.items()}
        if self.device is not None:
            means["outside_sm_mhz"] = mean_sampled(columns["sm_mhz"][~inside])
        else:
            means["others_cpus"] = mean_sampled(
                np.concatenate([*map(others_cpus, attempts)])[inside]
            )
        return {name: mean for name, mean in means.items() if mean is not None}

    def _who(self) -> tuple[str, ...]:
        """Other processes named while it held, the one that kept most CPUs busy first."""
        named: dict[str, float] = {}
        for steps, mask in self.parts if self.cause in ("device shared", "host shared") else ():
            for each in steps.series.neighbours:
                sample, sampled = steps.sample_of(np.array([each.at_ns]))
                if (sampled & mask[sample])[0] and each.device == self.device and each.name:
                    name = f"{each.name} ({each.pid})"
                    named[name] = named.get(name, 0.0) + each.cpus
        return tuple(sorted(named, key=lambda name: -named[name])[:MOST_NAMED])

    def _windows(self, typical_s: float | None) -> tuple[MachineWindow, ...]:
        """The longest stretches that have a steady step, in their order."""
        windows = []
        for steps, mask in self.parts:
            edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
            parts = (slice(*pair) for pair in zip(edges[::2], edges[1::2], strict=True))
            windows += [steps.window(part, typical_s) for part in parts if steps.steps[part].any()]
        longest = sorted(windows, key=lambda window: -window.seconds)[:MOST_WINDOWS]
        return tuple(sorted(longest, key=lambda window: window.first_step))


class MachineFold:
    """Fed with the steps of the run's lowest rank in the pass that makes its summary.

    Args:
        series: Of all hosts and attempts.
        window: Whether only some steps are read: what the machine did before and after them is
            left out then.
    """

    def __init__(self, series: Sequence[MachineSeries], *, window: bool = False) -> None:
        self._hosts = [_SampledSteps(each) for each in series]
        self._window = window
        self._reached: dict[int, tuple[float, float]] = {}
        """Attempt to the nanoseconds of its fit that its steps are from and to."""
        self._causes: dict[tuple[object, ...], _CauseFold] = {}
        for host in self._hosts:
            header = host.series.header
            for cause, device, mask in _causes(host.series):
                key = (cause, header.host, header.rank, device)
                fold = self._causes.setdefault(key, _CauseFold(cause, device))
                fold.parts.append((host, without_flicker(host.series.at_ns, mask)))
        self._outside: Distribution | None = None
        self._outside_s = self._steady_s = 0.0

    def observe(self, block: StepBlock, attempt: int) -> None:
        """Take the next steps of an attempt, by its place in the run."""
        if not self._hosts or not len(block):
            return
        since, until = self._reached.get(attempt, (np.inf, -np.inf))
        end_ns = float((block.start_ns + block.wall_ns).max())
        self._reached[attempt] = min(since, float(block.start_ns.min())), max(until, end_ns)
        steady = block.steady()
        walls_s, middle_ns = steady.wall_ns / 1e9, steady.start_ns + steady.wall_ns / 2
        samples = {}
        for host in self._hosts:
            if host.series.attempt == attempt:
                samples[host] = sample, sampled = host.sample_of(middle_ns)
                host.add(sample[sampled], steady.index[sampled], walls_s[sampled])
        held = [
            (fold, samples[host][1] & mask[samples[host][0]])
            for fold in self._causes.values()
            for host, mask in fold.parts
            if host in samples
        ]
        causes = np.sum([inside for _, inside in held], axis=0)
        for fold, inside in held:
            fold.inside = joined((fold.inside, Distribution.of(walls_s[inside])))
        if samples:
            anywhere = np.logical_or.reduce([sampled for _, sampled in samples.values()])
            outside_s = walls_s[anywhere & (causes == 0)]
            self._outside = joined((self._outside, Distribution.of(outside_s)))
            self._outside_s += float(outside_s.sum())
        self._steady_s += float(walls_s.sum())

    def facts(self) -> MachineFacts | None:
        """What there is to say; `None` where nothing was sampled."""
        hosts: dict[tuple[str, int], list[MachineSeries]] = {}
        for series in (host.series for host in self._hosts):
            since, until = self._span(series)
            inside = (series.at_ns >= since) & (series.at_ns <= until)
            if inside.any():
                read = replace(series, at_ns=series.at_ns[inside], values=series.values[inside])
                hosts.setdefault((series.header.host, series.header.rank), []).append(read)
        if not hosts:
            return None
        facts = (
            fold.facts(self._steady_s, self._outside, self._outside_s)
            for fold in self._causes.values()
        )
        causes = [each for each in facts if each is not None]
        return MachineFacts(
            hosts=tuple(map(host_facts, hosts.values())),
            causes=tuple(sorted(causes, key=lambda each: (-each.lost_fraction, -each.fraction))),
        )

    def _span(self, series: MachineSeries) -> tuple[float, float]:
        """The nanoseconds of an attempt that are told of."""
        since, until = float(series.at_ns[0]), float(series.at_ns[-1])
        if not self._window:
            return since, until
        first, last = self._reached.get(series.attempt, (np.inf, -np.inf))
        return max(since, first), min(until, last)


def link_words(summary: Summary) -> str:
    """The rate of the batch's copies in words, as `of_link`; empty where no copy was timed.

    Said wherever copied bytes are shown, however little of the step they take: a link at a tenth of
    its rate says *pageable memory* or *many small tensors* long before it costs a tenth of the
    step.  By the reading `h2d_bytes_per_s` of the run, and the data sheet of its device.
    """
    speed = summary.value(H2D_BYTES_PER_S)
    device = str(summary.run.hardware.get("device_name", ""))
    return of_link(speed, device) if speed else ""

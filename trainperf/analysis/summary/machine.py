"""The machine and the steps, joined by one clock: what the machine did, and which steps it slowed.

A cause is a rule of thumb over what was sampled, and holds at some of the samples.  A sample speaks
of the time since the one before: on one clock for all hosts, on which attempts follow each other.
So a cause divides the steady steps, by their middle, into those inside, and those outside of all
causes, and medians of the two are compared: of tenths of a second, where steps are shorter, since a
task that shares a CPU runs undisturbed for some of its steps, and not at all in others.  A step at
which several causes hold counts for each of them: nothing tells which of them made it slow.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.machine import MachineSeries, attempt_ns
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.schema import (
    Cause,
    CauseFacts,
    DeviceFacts,
    HostFacts,
    MachineFacts,
    Summary,
)
from trainperf.core.arrays import Column, Mask
from trainperf.core.artifacts.machine import HOST_COLUMNS, POWER_BRAKE_BIT, THERMAL_BITS
from trainperf.core.findings import LIMITS
from trainperf.core.groups import summed
from trainperf.core.machine.link import of_link
from trainperf.core.readings import H2D_BYTES_PER_S


STALLED = {"memory_pressure": LIMITS.worth, "io_pressure": LIMITS.critical}
"""Share of the time in which some task is stalled.  Of a disk more is usual: readers wait."""


SWAPPED = 1 << 20
"""Bytes per second."""

TURN_NS = 1e8
"""Longer than the turns in which tasks share a CPU."""

_OF_HOST = (*HOST_COLUMNS, "others_cpus")
_OF_DEVICE = ("sm_mhz", "power_w", "celsius", "busy", "others", "others_busy")


_LEAST_IS_WORST = ("memory_free", "sm_mhz")


def _causes(series: MachineSeries) -> Iterator[tuple[Cause, int | None, Mask]]:
    """Each cause on a host or a device, and the samples at which it holds."""
    # An idle machine's own services take less than a fifth of a CPU.
    crowded = max(LIMITS.critical, LIMITS.notable * (series.header.cpus or 1))
    stalled = series.column("memory_pressure") >= STALLED["memory_pressure"]
    holds: list[tuple[Cause, int | None, Mask]] = [
        ("host shared", None, series.column("others_cpus") >= crowded),
        ("memory", None, stalled | (series.column("swapped") >= SWAPPED)),
        ("disk", None, series.column("io_pressure") >= STALLED["io_pressure"]),
    ]
    for device in range(len(series.header.devices)):
        reasons = np.nan_to_num(series.device(device, "reasons")).astype(np.int64)
        busy = series.device(device, "others_busy")
        # A process that only holds memory there is no cause.
        working = np.isnan(busy) | (busy >= LIMITS.worth)
        holds += [
            ("thermal", device, (reasons & THERMAL_BITS) != 0),
            ("power brake", device, (reasons & POWER_BRAKE_BIT) != 0),
            ("device shared", device, working & (series.device(device, "others") >= 1)),
        ]
    for cause, place, mask in holds:
        # A clock flickers and is looked at once a second: what lies between two is one of them.
        between = np.append(mask[1:], False) & np.append(False, mask[:-1])
        yield cause, place, mask | between


def _by_turns(steps: Column) -> Column:
    """Mean seconds of the steps in each tenth of a second; a longer step's own."""
    _, at_ns, walls_s = steps
    _, turn = np.unique(at_ns // TURN_NS, return_inverse=True)
    return np.bincount(turn, walls_s) / np.bincount(turn)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A cause on one host, or on one of its devices."""

    series: MachineSeries
    cause: Cause
    device: int | None
    """Place of the device; `None` where it is the host's."""
    mask: Mask
    """The samples at which it holds."""

    def holds(self, at_ns: Column) -> Mask:
        """At which of these moments it does."""
        place = self.series.place_of(at_ns)
        return (place >= 0) & self.mask[place]

    def facts(self, steps: Column, outside_s: Column, steady_s: float) -> CauseFacts:
        """What it did.

        Args:
            steps: Those in it: rows of their numbers, of when they were, and of their seconds.
            outside_s: Seconds of steps outside of all causes, as `_by_turns`.
            steady_s: Seconds of all steady steps.
        """
        index, _, walls_s = steps
        inside_s = _by_turns(steps)
        slower, lost_s, shown = None, 0.0, False
        turns = min(len(outside_s), len(inside_s))
        if len(walls_s) >= LIMITS.steps <= 2 * turns:
            typical_s = float(np.median(outside_s))
            slower = float(np.median(inside_s)) / typical_s - 1
            lost_s = max(0.0, float((walls_s - typical_s).sum()))
            shown = bool(np.quantile(inside_s, 0.25) > typical_s)
        values = _means(self.series.select(self.mask), self.device)
        if self.device is not None:
            outside = _means(self.series.select(~self.mask), self.device)
            values |= {f"outside_{name}": mean for name, mean in outside.items()}
        return CauseFacts(
            cause=self.cause,
            host=self.series.header.host,
            device=self.device,
            fraction=min(1.0, float(walls_s.sum()) / steady_s),
            steps=len(walls_s),
            first_step=int(index.min()),
            last_step=int(index.max()),
            slower=slower,
            lost_fraction=min(lost_s / steady_s, 0.99),
            shown=shown,
            values=values,
            who=self._who(),
        )

    def _who(self) -> tuple[str, ...]:
        """Other processes named while it held, down to half of the CPUs of the busiest one."""
        cpus = summed(
            (f"{each.name} ({each.pid})", each.cpus)
            for each in (self.series.neighbours if self.cause.endswith("shared") else ())
            if each.name and each.device == self.device and self.holds(np.array([each.at_ns]))[0]
        )
        least = LIMITS.mostly * max(cpus.values(), default=0.0)
        busiest = sorted(cpus, key=lambda name: -cpus[name])
        return tuple(name for name in busiest if cpus[name] >= least)


class MachineFold:
    """Fed with the steps of the run's lowest rank in the pass that makes its summary.

    Args:
        replay: That pass.  Where nothing was sampled beside the run, no step is kept.  Of a window
            of it, what the machine did before and after is left out.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._hosts, self.problems = replay.machines
        self._steps = [np.empty((3, 0))]

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of the attempt that is read."""
        if self._hosts:
            steady = job.first.steady()
            at_ns = steady.start_ns + steady.wall_ns / 2 + attempt_ns(self._replay.attempt)
            self._steps.append(np.stack([steady.index, at_ns, steady.wall_ns / 1e9]))

    def facts(self) -> MachineFacts | None:
        """What there is to say; `None` where nothing was sampled."""
        hosts, steps = self._hosts, np.concatenate(self._steps, axis=1)
        _, at_ns, walls_s = steps
        if self._replay.run.window and len(at_ns):
            hosts = [h.select((at_ns.min() <= h.at_ns) & (h.at_ns <= at_ns.max())) for h in hosts]
        sampled = tuple(_host_facts(host) for host in hosts if len(host))
        if not sampled:
            return None
        troubles = [_Trouble(host, *cause) for host in self._hosts for cause in _causes(host)]
        inside = [trouble.holds(at_ns) for trouble in troubles]
        sampled_at = np.any([host.place_of(at_ns) >= 0 for host in self._hosts], axis=0)
        outside_s = _by_turns(steps[:, sampled_at & ~np.any(inside, axis=0)])
        causes = [
            trouble.facts(steps[:, those], outside_s, float(walls_s.sum()))
            for trouble, those in zip(troubles, inside, strict=True)
            if those.any()
        ]
        causes.sort(key=lambda each: (-each.lost_fraction, -each.fraction))
        return MachineFacts(hosts=sampled, causes=tuple(causes))


def _sampled(series: MachineSeries, device: int | None) -> dict[str, Column]:
    """What was sampled of a host, or of one of its devices, by name of the column."""
    columns = (
        {name: series.column(name) for name in _OF_HOST}
        if device is None
        else {name: series.device(device, name) for name in _OF_DEVICE}
    )
    present = {name: column[~np.isnan(column)] for name, column in columns.items()}
    return {name: column for name, column in present.items() if len(column)}


def _means(series: MachineSeries, device: int | None = None) -> dict[str, float]:
    return {name: float(column.mean()) for name, column in _sampled(series, device).items()}


def _worst(series: MachineSeries, device: int | None = None) -> dict[str, float]:
    return {
        name: float(column.min() if name in _LEAST_IS_WORST else column.max())
        for name, column in _sampled(series, device).items()
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
                **msgspec.structs.asdict(device),
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
    return of_link(speed, str(summary.run.hardware.get("device_name", ""))) if speed else ""

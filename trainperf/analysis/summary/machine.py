"""The machine and the steps, joined by their clock: what made which steps slower, and energy.

The stretches of time of each cause (`machine_causes`) divide the steady steps into those inside and
those outside of any stretch of any cause; medians of the two are compared.  Constant memory: steps
are counted in bins of their duration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from trainperf.analysis.run.machine import MachineSeries
from trainperf.analysis.summary.machine_causes import (
    MOST_WINDOWS,
    CauseStretches,
    has_reason,
    inside_of,
    joined,
    mean_of,
    means_of,
    merged,
    others_cpus,
    stretches_of,
    who_is_in,
    windows_of,
)
from trainperf.analysis.summary.machine_facts import (
    CauseFacts,
    DeviceFacts,
    Energy,
    HostFacts,
    MachineFacts,
)
from trainperf.core.artifacts.machine import (
    HOST_COLUMNS,
    POWER_BRAKE_BIT,
    POWER_CAP_BIT,
    THERMAL_BITS,
    device_column,
)
from trainperf.core.findings import LIMITS
from trainperf.core.readings import EFFECTIVE_TOKENS_PER_S, STEP_MEAN_S
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.steps.block import Column, StepBlock
from trainperf.meters.fold import Reading


class MachineFold:
    """Fed with the steps of the run's lowest rank in the pass that makes its summary.

    Args:
        series: Of all hosts and attempts.
        window: Whether only some steps are read: what the machine did before and after them is
            left out then.
    """

    def __init__(self, series: Sequence[MachineSeries], *, window: bool = False) -> None:
        self._series = series
        self._window = window
        self._reached: dict[int, tuple[float, float]] = {}
        """Attempt to the nanoseconds of its fit that its steps are from and to."""
        self._stretches = [each for host in series for each in stretches_of(host)]
        self._outside: Distribution | None = None
        self._steady_s = 0.0
        self._energies = [_energy_j(each) for each in series]
        self._spent_j, self._metered = 0.0, 0

    def observe(self, block: StepBlock, attempt: int) -> None:
        """Take the next steps of an attempt, by its place in the run."""
        if len(block):
            self._reach(block, attempt)
        steady = block.steady()
        if not self._series or not len(steady):
            return
        begins, walls_ns = steady.start_ns, steady.wall_ns
        middle, walls_s = begins + walls_ns / 2, walls_ns / 1e9
        sampled = np.zeros(len(steady), dtype=bool)
        for series in self._series:
            if series.attempt == attempt:
                sampled |= (middle >= series.at_ns[0]) & (middle <= series.at_ns[-1])
        stretches = [each for each in self._stretches if each.series.attempt == attempt]
        held = [each.observe(middle, steady.index, walls_s) for each in stretches]
        causes = np.sum(held, axis=0) if held else np.zeros(len(steady))
        for each, inside in zip(stretches, held, strict=True):
            if (alone := inside & (causes == 1)).any():
                each.alone = merged(each.alone, walls_s[alone])
        outside = walls_s[sampled & (causes == 0)]
        if len(outside):
            self._outside = merged(self._outside, outside)
        self._steady_s += float(walls_s.sum())
        self._meter(begins, begins + walls_ns, attempt)

    def _reach(self, block: StepBlock, attempt: int) -> None:
        since, until = self._reached.get(attempt, (np.inf, -np.inf))
        end_ns = float((block.start_ns + block.wall_ns).max())
        self._reached[attempt] = min(since, float(block.start_ns.min())), max(until, end_ns)

    def _meter(self, begins: Column, ends: Column, attempt: int) -> None:
        """Add the energy of steps that every host has sampled to their ends.

        Where the power of a host's devices is not known, that of the others is not the step's.
        """
        present = [
            (series, joules)
            for series, joules in zip(self._series, self._energies, strict=True)
            if series.attempt == attempt and series.header.devices
        ]
        if not present:
            return
        whole = np.ones(len(begins), dtype=bool)
        spent = np.zeros(len(begins))
        for series, joules in present:
            if joules is None:
                return
            whole &= (begins >= series.at_ns[0]) & (ends <= series.at_ns[-1])
            at_end, at_begin = (np.interp(at, series.at_ns, joules) for at in (ends, begins))
            spent += at_end - at_begin
        self._spent_j += float(spent[whole].sum())
        self._metered += int(whole.sum())

    def facts(self, *, tokens_per_step: float | None) -> MachineFacts | None:
        """What there is to say; `None` where nothing was sampled."""
        read = self._read()
        if not read:
            return None
        causes = [each for each in map(self._cause, self._by_cause()) if each is not None]
        causes.sort(key=lambda each: (-each.lost_fraction, -each.fraction))
        return MachineFacts(
            hosts=tuple(map(_host, _by_host(read))),
            causes=tuple(causes),
            energy=self._energy(tokens_per_step),
        )

    def _read(self) -> list[MachineSeries]:
        """The series; of a window their samples in it."""
        if not self._window:
            return list(self._series)
        read = []
        for series in self._series:
            since, until = self._reached.get(series.attempt, (np.inf, -np.inf))
            inside = (series.at_ns > since) & (series.at_ns <= until)
            if inside.any():
                at_ns, values = series.at_ns[inside], series.values[inside]
                read.append(replace(series, at_ns=at_ns, values=values))
        return read

    def _span(self, series: MachineSeries) -> tuple[float, float]:
        """The nanoseconds of an attempt that energy is told of."""
        since, until = float(series.at_ns[0]), float(series.at_ns[-1])
        if not self._window:
            return since, until
        first, last = self._reached.get(series.attempt, (until, since))
        return max(since, first), min(until, last)

    def _by_cause(self) -> list[list[CauseStretches]]:
        """The stretches of each cause; of one that was there in several attempts those of each."""
        causes: dict[tuple[object, ...], list[CauseStretches]] = {}
        for each in self._stretches:
            header = each.series.header
            key = (each.cause, header.host, header.rank, each.device)
            causes.setdefault(key, []).append(each)
        return list(causes.values())

    def _cause(self, parts: Sequence[CauseStretches]) -> CauseFacts | None:
        inside, outside = joined(each.inside for each in parts), self._outside
        if inside is None or not self._steady_s:
            return None
        inside_s = sum(float(each.seconds.sum()) for each in parts)
        typical_s = None if outside is None or outside.n < LIMITS.steps else outside.value()
        alone = joined(each.alone for each in parts)
        by_itself = 0 if alone is None else alone.n
        judged = inside if alone is None or by_itself < LIMITS.steps else alone
        slower, shown, lost_s = None, False, 0.0
        if typical_s and judged.n >= LIMITS.steps:
            slower = (judged.value() or typical_s) / typical_s - 1
            shown = judged.quantile(25.0) > typical_s
            lost_s = max(0.0, inside_s - inside.n * typical_s)
            if judged.n < inside.n:
                # What it cost by itself, of all that these steps took.
                lost_s = min(lost_s, inside_s * max(0.0, slower) / (1 + slower))
        windows = [window for each in parts for window in windows_of(each, typical_s)]
        longest = sorted(windows, key=lambda window: -window.seconds)[:MOST_WINDOWS]
        return CauseFacts(
            cause=parts[0].cause,
            host=parts[0].series.header.host,
            device=parts[0].device,
            fraction=min(1.0, inside_s / self._steady_s),
            steps=inside.n,
            slower=slower,
            lost_fraction=min(lost_s / self._steady_s, 0.99),
            shown=shown,
            with_others=1 - by_itself / inside.n,
            values=means_of([(each, inside_of(each)) for each in parts], outside=True),
            who=who_is_in(parts),
            windows=tuple(sorted(longest, key=lambda window: window.first_step)),
        )

    def _energy(self, tokens_per_step: float | None) -> Energy | None:
        spans = []
        for series, joules in zip(self._series, self._energies, strict=True):
            since, until = self._span(series)
            if joules is not None and since < until:
                at_begin, at_end = np.interp([since, until], series.at_ns, joules)
                spans.append((float(at_end - at_begin), series))
        if not spans:
            return None
        whole_j = sum(joules for joules, _ in spans)
        lasted = {series.attempt: self._span(series) for _, series in spans}.values()
        seconds = sum(until - since for since, until in lasted) / 1e9
        step_j = self._spent_j / self._metered if self._metered else None
        return Energy(
            joules=whole_j,
            mean_w=whole_j / seconds if seconds else 0.0,
            step_j=step_j,
            token_j=step_j / tokens_per_step if step_j and tokens_per_step else None,
            devices=max(
                sum(len(series.header.devices) for _, series in spans if series.attempt == attempt)
                for attempt in {series.attempt for _, series in spans}
            ),
            counted=all(_counts(series) for _, series in spans),
        )


def tokens_per_step(readings: Mapping[str, Reading]) -> float | None:
    """Effective tokens of a mean steady step; `None` where they were not counted."""
    rate, step_s = readings[EFFECTIVE_TOKENS_PER_S].value, readings[STEP_MEAN_S].value
    return rate * step_s if rate and step_s else None


def _by_host(series: Sequence[MachineSeries]) -> list[list[MachineSeries]]:
    """The series of each host; one that was there in several attempts has as many."""
    hosts: dict[tuple[str, int], list[MachineSeries]] = {}
    for each in series:
        hosts.setdefault((each.header.host, each.header.rank), []).append(each)
    return list(hosts.values())


def _host(attempts: Sequence[MachineSeries]) -> HostFacts:
    """One host over its attempts; what it is, and what it cannot tell, is that of the latest."""
    columns = {name: _over(attempts, name) for name in HOST_COLUMNS if name != "sampler_s"}
    columns["others_cpus"] = np.concatenate([others_cpus(each) for each in attempts])
    sampled = {name: column[~np.isnan(column)] for name, column in columns.items()}
    sampled = {name: column for name, column in sampled.items() if len(column)}
    span_s = sum(each.span_s for each in attempts)
    samplers = [each.column("sampler_s") for each in attempts]
    sampler_s = sum(float(each[-1] - each[0]) for each in samplers)
    header = attempts[-1].header
    return HostFacts(
        rank=header.rank,
        host=header.host,
        cpus=header.cpus,
        samples=sum(map(len, attempts)),
        span_s=span_s,
        sampler_cpus=sampler_s / span_s if span_s else None,
        means={name: float(column.mean()) for name, column in sampled.items()},
        worst={
            name: float(column.min() if name == "memory_free" else column.max())
            for name, column in sampled.items()
        },
        devices=tuple(_device(attempts, place) for place in range(len(header.devices))),
        reasons=header.reasons,
    )


def _over(attempts: Sequence[MachineSeries], name: str) -> Column:
    return np.concatenate([each.column(name) for each in attempts])


def _device(attempts: Sequence[MachineSeries], place: int) -> DeviceFacts:
    device = attempts[-1].header.devices[place]
    clocks, heat, power, busy = (
        _over(attempts, device_column(place, name))
        for name in ("sm_mhz", "celsius", "power_w", "busy")
    )
    bits = {"thermal": THERMAL_BITS, "power brake": POWER_BRAKE_BIT, "power cap": POWER_CAP_BIT}
    shares = {
        name: float(np.concatenate([has_reason(each, place, bit) for each in attempts]).mean())
        for name, bit in bits.items()
    }
    return DeviceFacts(
        name=device.name,
        sm_mhz=mean_of(clocks),
        least_mhz=None if np.isnan(clocks).all() else float(np.nanmin(clocks)),
        most_mhz=device.most_mhz,
        power_w=mean_of(power),
        limit_w=device.limit_w,
        celsius=mean_of(heat),
        hottest=None if np.isnan(heat).all() else float(np.nanmax(heat)),
        busy=mean_of(busy),
        throttled={name: fraction for name, fraction in shares.items() if fraction},
    )


def _energy_j(series: MachineSeries) -> Column | None:
    """Joules so far at each sample, of all devices; `None` where power is not always known."""
    devices = range(len(series.header.devices))
    if not devices or len(series) < 2:
        return None
    whole = np.zeros(len(series))
    for device in devices:
        if _counts(series):
            whole[1:] += np.cumsum(series.device(device, "energy_j")[1:])
            continue
        watts = series.device(device, "power_w")
        if np.isnan(watts).any():
            return None
        seconds = np.diff(series.at_ns) / 1e9
        whole[1:] += np.cumsum(seconds * (watts[1:] + watts[:-1]) / 2)
    return whole


def _counts(series: MachineSeries) -> bool:
    """Whether all its devices count energy, from the first sample to the last."""
    devices = range(len(series.header.devices))
    return not any(np.isnan(series.device(device, "energy_j")[1:]).any() for device in devices)

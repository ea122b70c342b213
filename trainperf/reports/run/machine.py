"""The machine beside the loop, in words: its numbers and its table."""

from collections.abc import Callable, Iterator, Sequence

from trainperf.analysis.summary.machine_schema import CauseFacts, HostFacts, MachineFacts
from trainperf.analysis.summary.schema import Summary
from trainperf.core.choice import texts_of
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.table import Table, or_unknown
from trainperf.core.formatting.units import fine_share, plural, rate, share, size


_MOST_HOSTS = 8
"""That have rows of their own."""
_MOST_CAUSES = 8
"""That are listed, those that lost most."""


def _number(value: float) -> str:
    return f"{value:.2f}"


_Row = tuple[str, str, Callable[[float], str]]
_ROWS: tuple[_Row, ...] = (
    ("cpu_busy", "CPUs busy", _number),
    ("cpu_own", "of them with this training", _number),
    ("others_cpus", "with others", _number),
    ("waited", "training thread without a CPU", fine_share),
    ("cpu_pressure", "some task waits for a CPU", fine_share),
    ("memory_pressure", "some task waits for memory", fine_share),
    ("io_pressure", "some task waits for a disk", fine_share),
    ("cpu_stolen", "stolen by other virtual machines", _number),
    ("memory_free", "memory free", size),
    ("swapped", "swapped", rate),
    ("disk_read", "read from disks", rate),
    ("disk_written", "written to disks", rate),
)
"""Column of the host, its label, and its words."""
_IF_ANY = ("cpu_stolen", "memory_free", "swapped", "disk_read", "disk_written")
"""Columns of the host that are left out where they are 0."""
_DEVICE_ROWS: tuple[_Row, ...] = (
    ("sm_mhz", "clock", "{:,.0f} MHz".format),
    ("power_w", "power", "{:.0f} W".format),
    ("celsius", "temperature", "{:.0f} °C".format),
    ("busy", "busy", share),
)
"""Column of a device, its label, and its words."""
_IN_A_LINE = ("cpu_busy", "others_cpus", "memory_free", "sm_mhz", "power_w", "celsius")


def machine_line(summary: Summary) -> str:
    """What the machines do, over all hosts and devices; empty without samples."""
    hosts, means = summary.hosts, [host.means for host in summary.hosts]
    means += [device.means for host in hosts for device in host.devices]
    number = f"{plural(len(hosts), 'host')}: " if len(hosts) > 1 else ""
    values = {name: [each[name] for each in means if name in each] for name in _IN_A_LINE}
    spans = [
        (label, map(words, (min(values[column]), max(values[column]))))
        for column, label, words in (*_ROWS, *_DEVICE_ROWS)
        if values.get(column)
    ]
    return number + " · ".join(f"{label} {'–'.join(dict.fromkeys(span))}" for label, span in spans)


def of_machine(machine: MachineFacts) -> list[Table]:
    """What the devices and hosts did, and which steps that made slower."""
    several = len(machine.hosts) > 1
    rows = tuple(
        (f"{plain(host.host)}: {label}" if several else label, mean, worst)
        for host in machine.hosts[:_MOST_HOSTS]
        for label, mean, worst in _rows(host)
    )
    title, notes = "The machine beside the loop", _notes(machine.hosts)
    beside = Table(title=title, head=("", "mean", "worst"), rows=rows, notes=notes)
    slower = Table(
        title="When something else was going on",
        head=("steps", "what", "slower by"),
        rows=tuple(map(_cause, machine.causes[:_MOST_CAUSES])),
        words=2,
        notes=("medians, against the steps in which nothing of that was going on",),
    )
    return [beside, slower] if machine.causes else [beside]


def _rows(host: HostFacts) -> Iterator[tuple[str, str, str]]:
    for place, device in enumerate(host.devices):
        name = f"GPU {place}" if len(host.devices) > 1 else "GPU"
        for column, label, words in _DEVICE_ROWS:
            if column in device.means:
                yield f"{name} {label}", words(device.means[column]), words(device.worst[column])
    for column, label, words in _ROWS:
        if column in host.means and (host.worst[column] or column not in _IF_ANY):
            yield label, words(host.means[column]), words(host.worst[column])


def _notes(hosts: Sequence[HostFacts]) -> tuple[str, ...]:
    """Of the first host, for the others are like it."""
    host = hosts[0]
    cpus, more = f", {host.cpus} CPUs" if host.cpus else "", len(hosts) - _MOST_HOSTS
    return texts_of(
        f"{plural(host.samples, 'sample')} on {plain(host.host)}{cpus}",
        *(
            plain(device.name)
            + (f", {device.most_mhz:,.0f} MHz at most" if device.most_mhz else "")
            + (f", power limit {device.limit_w:.0f} W" if device.limit_w else "")
            for device in host.devices
        ),
        *(f"not sampled: {plain(why)}" for why in dict.fromkeys(host.reasons.values())),
        more > 0 and f"{more} further hosts are in summary.json",
    )


def _cause(cause: CauseFacts) -> tuple[str, str, str]:
    device = f" (GPU {cause.device})" if cause.device is not None else ""
    who = f": {', '.join(map(plain, cause.who))}" if cause.who else ""
    number = "" if cause.lasted else f"{cause.steps:,} of "
    steps = f"{number}{cause.first_step:,}–{cause.last_step:,}"
    return steps, f"{cause.cause}{device}{who}", or_unknown(cause.slower, share)

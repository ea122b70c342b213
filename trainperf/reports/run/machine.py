"""The machine beside the loop, in words: its numbers and its table."""

from collections.abc import Callable, Iterable, Iterator

from trainperf.analysis.summary.schema import CauseFacts, DeviceFacts, HostFacts, Summary
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.table import Table, or_unknown
from trainperf.core.formatting.units import fine_share, plural, rate, share, size


_MOST_HOSTS = 8
"""That have rows of their own."""
_MOST_CAUSES = 8
"""That are listed, those that lost most."""
_ROWS: tuple[tuple[str, str, str], ...] = (
    ("cpu_busy", "CPUs busy", "number"),
    ("cpu_own", "of them with this training", "number"),
    ("others_cpus", "with others", "number"),
    ("cpu_stolen", "stolen by other virtual machines", "if any"),
    ("waited", "training thread without a CPU", "share"),
    ("cpu_pressure", "some task waits for a CPU", "share"),
    ("memory_pressure", "some task waits for memory", "share"),
    ("io_pressure", "some task waits for a disk", "share"),
    ("memory_free", "memory free", "bytes"),
    ("swapped", "swapped", "rate"),
    ("disk_read", "read from disks", "rate"),
    ("disk_written", "written to disks", "rate"),
)
"""Column of the host, its label, and its kind."""
_DEVICE_ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("sm_mhz", "clock", "{:,.0f} MHz".format),
    ("power_w", "power", "{:.0f} W".format),
    ("celsius", "temperature", "{:.0f} °C".format),
    ("busy", "busy", share),
)
"""Column of a device, its label, and its words."""


def machine_line(summary: Summary) -> str:
    """What the machines do, over all hosts and devices; empty without samples."""
    hosts = () if summary.machine is None else summary.machine.hosts
    devices = [device.means for host in hosts for device in host.devices]
    means = [host.means for host in hosts]
    parts = {
        "CPUs busy": _span([each.get("cpu_busy") for each in means], "{:.2f}".format),
        "with others": _span([each.get("others_cpus") for each in means], "{:.2f}".format),
        "memory free": _span([each.get("memory_free") for each in means], size),
        "GPU clock": _span([device.get("sm_mhz") for device in devices], "{:,.0f}".format, " MHz"),
        "power": _span([device.get("power_w") for device in devices], "{:.0f}".format, " W"),
        "temperature": _span([device.get("celsius") for device in devices], "{:.0f}".format, " °C"),
    }
    number = f"{plural(len(hosts), 'host')}: " if len(hosts) > 1 else ""
    return number + " · ".join(f"{name} {value}" for name, value in parts.items() if value)


def _span(values: Iterable[float | None], say: Callable[[float], str], unit: str = "") -> str:
    """The least and the most of what is known, once where both read the same."""
    present = [value for value in values if value is not None]
    if not present:
        return ""
    return "–".join(dict.fromkeys(map(say, (min(present), max(present))))) + unit


def of_machine(summary: Summary) -> list[Table]:
    """What the devices and hosts did, and which steps that made slower; empty without samples."""
    machine = summary.machine
    if machine is None:
        return []
    several = len(machine.hosts) > 1
    rows = [
        (f"{plain(host.host)}: {label}" if several else label, *values)
        for host in machine.hosts[:_MOST_HOSTS]
        for label, *values in _host_rows(host)
    ]
    beside = Table(
        title="The machine beside the loop",
        head=("", "mean", "worst"),
        rows=tuple(rows),
        notes=tuple(_notes(summary)),
    )
    if not machine.causes:
        return [beside]
    slower = Table(
        title="When something else was going on",
        head=("steps", "what", "slower by"),
        rows=tuple(map(_cause, machine.causes[:_MOST_CAUSES])),
        words=2,
        notes=("medians, against the steps in which nothing of that was going on",),
    )
    return [beside, slower]


def _host_rows(host: HostFacts) -> Iterator[tuple[str, str, str]]:
    for place, device in enumerate(host.devices):
        name = f"GPU {place}" if len(host.devices) > 1 else "GPU"
        yield from ((f"{name} {label}", mean, worst) for label, mean, worst in _device_rows(device))
    for column, label, kind in _ROWS:
        if column in host.means and (host.worst[column] or kind in ("number", "share")):
            yield label, _worded(host.means[column], kind), _worded(host.worst[column], kind)


def _device_rows(device: DeviceFacts) -> Iterator[tuple[str, str, str]]:
    for column, label, words in _DEVICE_ROWS:
        if column in device.means:
            yield label, words(device.means[column]), words(device.worst[column])


def _worded(value: float, kind: str) -> str:
    if kind == "share":
        return fine_share(value)
    if kind == "bytes":
        return size(value)
    return rate(value) if kind == "rate" else f"{value:.2f}"


def _notes(summary: Summary) -> Iterator[str]:
    machine = summary.machine
    if machine is None:
        return
    for host in machine.hosts[:1]:
        cpus = f", {host.cpus} CPUs" if host.cpus else ""
        yield f"{plural(host.samples, 'sample')} on {plain(host.host)}{cpus}"
        for device in host.devices:
            limits = [f"{device.most_mhz:,.0f} MHz at most"] if device.most_mhz else []
            limits += [f"power limit {device.limit_w:.0f} W"] if device.limit_w else []
            yield ", ".join([plain(device.name), *limits])
        for why in dict.fromkeys(host.reasons.values()):
            yield f"not sampled: {plain(why)}"
    if len(machine.hosts) > _MOST_HOSTS:
        yield f"{len(machine.hosts) - _MOST_HOSTS} further hosts are in summary.json"


def _cause(cause: CauseFacts) -> tuple[str, str, str]:
    device = f" (GPU {cause.device})" if cause.device is not None else ""
    who = f": {', '.join(map(plain, cause.who))}" if cause.who else ""
    number = "" if cause.lasted else f"{cause.steps:,} of "
    return (
        f"{number}{cause.first_step:,}–{cause.last_step:,}",
        f"{cause.cause}{device}{who}",
        or_unknown(cause.slower, share),
    )

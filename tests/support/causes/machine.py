"""Machines that make steps slower."""

from support.accounts import Seen, audit_of, light, loading, on_gpu, region, seen, step
from support.causes.case import CauseCase as Case

from trainperf.analysis.summary.schema import CauseFacts, MachineFacts
from trainperf.core.machine.backends import CUDA, MPS, Backend


def trouble(
    cause: str,
    *,
    slower: float | None = 0.12,
    lost: float = 0.04,
    shown: bool = True,
    fraction: float = 0.3,
    steady: int = 200,
    device: Backend = CUDA,
    **values: float,
) -> Seen:
    """Steps of 100 ms, of which 40 were slower while the machine did so."""
    facts = CauseFacts(
        cause=cause,
        host="a",
        fraction=fraction,
        steps=40,
        first_step=40,
        last_step=79,
        slower=slower,
        lost_fraction=lost,
        shown=shown,
        values=values,
        who=("ffmpeg (99)",) if cause == "host shared" else (),
    )
    machine = MachineFacts(hosts=(), causes=(facts,))
    return seen(
        step(forward=100, device=on_gpu()),
        machine=machine,
        steps=steady,
        steady_steps=steady,
        device=device,
    )


def harmless(cause: str, **values: float) -> tuple[Seen, ...]:
    """The same on a machine whose trouble costs nothing, by chance only, or in too few steps."""
    return (
        trouble(cause, slower=0.04, **values),
        trouble(cause, lost=0.009, **values),
        trouble(cause, shown=False, **values),
        trouble(cause, steady=19, **values),
        seen(step(forward=100)),
    )


HOT = {"sm_mhz": 1305.0, "outside_sm_mhz": 1980.0, "celsius": 88.0, "power_w": 300.0}


def threaded(threads: int = 1, cores: int = 4, **known: object) -> Seen:
    """A step of 100 ms, most of it products, on eight CPUs, of four cores if nothing else."""
    settings = {"host_cores": cores, "host_cpus": 8}
    rows = (
        region("mm", 60, ideal=20, kind="matmul", line="net.py:7", calls=6),
        region("mm", 30, ideal=10, part="backward", kind="matmul", line="net.py:7", calls=6),
    )
    fields = {"cpus": 8.0, "model_threads": threads, "forward": 60, "backward": 40, **known}
    account = step(*rows, **fields)
    return seen(account, settings=settings, documents=audit_of(*rows), light=light())


def pinned(own: str | None, near: str | None) -> Seen:
    """CPUs of the process, and those near its device."""
    return seen(step(forward=10), settings={"cpu_mask": own, "device_cpus": near})


CASES = (
    Case(
        "idle_cores",
        "a thread on four cores",
        threaded(),
        0.75 * 0.090,
        "more_threads",
        (
            threaded(4),
            threaded(3),
            threaded(8, cores=64),  # of a host of which a container has eight CPUs
            threaded(others_cpus=2.5),
            threaded(loader=loading(2, 10, computes_s=0.25)),
            threaded(threads_s={"writer": 0.25}),
            threaded(cpus=2.0),
            threaded(device=on_gpu()),
        ),
        words=(
            "the model computes with 1 thread; 4 cores are free for it",
            "Compute with 4 threads",
        ),
    ),
    Case(
        "idle_cores",
        "two threads, and a worker that computes",
        threaded(2, cpus=16.0, loader=loading(1, 10, computes_s=0.1)),
        90e-3 * (1 - 2 / 7),
        "more_threads",
        words=("with 2 threads; 7 cores are free", "16 CPUs for this rank"),
    ),
    Case(
        "far_cpus",
        "pinned to the other socket",
        pinned("0-15", "16-31"),
        None,
        "near_cpus",
        (pinned("0-31", "16-31"), pinned("16", "16-31"), pinned("0-15", None), pinned(None, "1")),
        words=("may run on CPUs 0-15, and its device is near 16-31", "taskset -c 16-31"),
    ),
    Case(
        "device_throttled",
        "4 % of the time is what hot steps take longer",
        trouble("thermal", **HOT),
        0.004,
        "cool_device",
        harmless("thermal", **HOT),
        words=(
            "steps 40–79 were 12 % slower: the GPU lowered its clock (thermal)",
            "1,305 MHz meanwhile\n1,980 MHz otherwise",
            "88 °C",
        ),
    ),
    Case(
        "device_throttled",
        "no fan helps a power supply",
        trouble("power brake", **HOT),
        0.004,
        "power_device",
        words=("(power brake)",),
    ),
    Case(
        "device_throttled",
        "hot all along: nothing tells what a step takes otherwise",
        trouble("thermal", slower=None, fraction=0.9, sm_mhz=1200.0),
        None,
        "cool_device",
        (trouble("thermal", slower=None, fraction=0.4, sm_mhz=1200.0),),
        shows={"severity": "medium"},
    ),
    Case(
        "device_shared",
        "two others compute there",
        trouble("device shared", others=2.0, others_busy=0.4),
        0.004,
        "own_device",
        harmless("device shared", others=2.0),
        words=("2 other jobs on it", "40 % of its multiprocessors' time"),
    ),
    Case(
        "host_shared",
        "a neighbour keeps twelve CPUs busy",
        trouble("host shared", others_cpus=12.0, waited=0.3),
        0.004,
        "own_host",
        harmless("host shared", others_cpus=12.0),
        words=("ffmpeg (99) kept 12.0 CPUs busy", "had no CPU 30 % of that time"),
    ),
    Case(
        "host_shared",
        "all along, and the training thread lacks a CPU for a fifth of the time",
        trouble("host shared", slower=None, fraction=1.0, others_cpus=12.0, waited=0.2),
        None,
        "own_host",
        (trouble("host shared", slower=None, fraction=1.0, others_cpus=12.0, waited=0.09),),
    ),
    Case(
        "host_pressure",
        "tasks wait for memory",
        trouble("memory", memory_pressure=0.3, swapped=5e7),
        0.004,
        "room_in_memory",
        harmless("memory", memory_pressure=0.3),
        words=("the host was short of memory",),
        # No *0 B left* where the free memory is not known.
        shows={"evidence": ("tasks waited for memory 30 % of the time", "50.0 MB/s swapped")},
    ),
    Case(
        "host_pressure",
        "a device that shares it holds the model there",
        trouble("memory", swapped=5e7, device=MPS),
        0.004,
        "leave_room",
        words=("the host was short of memory", "a smaller micro-batch"),
    ),
    Case(
        "host_pressure",
        "where pressure is not counted, swapping is",
        trouble("memory", swapped=5e7),
        0.004,
        "room_in_memory",
        words=("the host was short of memory\n50.0 MB/s swapped",),
    ),
    Case(
        "host_pressure",
        "a disk",
        trouble("disk", io_pressure=0.6),
        0.004,
        "room_in_disk",
        words=("waited for a disk 60 % of the time",),
    ),
)

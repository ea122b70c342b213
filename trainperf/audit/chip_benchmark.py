"""The device that computes: its name, its cache, and its limits where there is no data sheet.

The benchmark is a matmul per precision, a copy, a sum.  The best of several runs counts: a peak is
what was reached once.  Takes about a second, and holds some hundred megabytes while it does.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import torch

from trainperf.accelerators import accelerator_of
from trainperf.core.machine.chips import Chip, chip_of
from trainperf.core.machine.clocks import monotonic_ns


SOURCE = "measured on this machine: the best of several large products, copies and sums"

PRECISIONS = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""What a product is timed in, everywhere; a GPU that has TF32 in that, too."""

BUDGET_S = 0.6
"""For a measurement; what it allocates and repeats at least comes on top, some tenths of a second.

Four times as long found the same peaks, within 1 %."""

_ROUNDS = 2
"""So that a moment in which others use the machine does not hit all runs of one kind."""


def chip_here(device: torch.device) -> Chip:
    """The table's row of this device; a measured one if it has none.

    What the row lacks, the time of a launch, is measured.
    """
    listed = chip_of(device_name(device)) if device.type != "cpu" else None
    if listed is None:
        return probe(device)
    return msgspec.structs.replace(listed, launch_s=_launch(device, 0.1))


def probe(device: torch.device, *, budget_s: float = BUDGET_S) -> Chip:
    """Measure peaks, bandwidth and the time of a launch, in about the time given.

    On a busy machine that is what the others leave: floors made of it are too high then.

    Args:
        device: Where to measure.
        budget_s: For all of it; less of it is a worse best.
    """
    with torch.no_grad():
        rounds = [_measure(device, budget_s / _ROUNDS) for _ in range(_ROUNDS)]
    return best_of(rounds)


def best_of(chips: Sequence[Chip]) -> Chip:
    """One chip of several measurements of it: the best of each figure."""
    launches = [chip.launch_s for chip in chips if chip.launch_s is not None]
    return msgspec.structs.replace(
        chips[0],
        flops_per_s=_of_each([chip.flops_per_s for chip in chips], max),
        memory_bytes_per_s=max(chip.memory_bytes_per_s for chip in chips),
        launch_s=min(launches) if launches else None,
        product_s=_of_each([chip.product_s for chip in chips], min),
    )


def _of_each(
    figures: Sequence[dict[str, float]], best: Callable[[Iterable[float]], float]
) -> dict[str, float]:
    """The best value of each key that any of them has."""
    names = dict.fromkeys(name for named in figures for name in named)
    return {name: best(named[name] for named in figures if name in named) for name in names}


def _measure(device: torch.device, budget_s: float) -> Chip:
    dtypes = dict(PRECISIONS)
    if accelerator_of(device).has_tf32:
        dtypes["tf32"] = torch.float32
    each_s = budget_s / (len(dtypes) + 2)
    rates = {}
    for name, dtype in dtypes.items():
        with _products_of_fp32("tf32" if name == "tf32" else "ieee"):
            rates[name] = _product(dtype, device, each_s)
    return Chip(
        name=device_name(device),
        flops_per_s=rates,
        memory_bytes_per_s=_bandwidth(device, each_s),
        link_bytes_per_s=None,
        launch_s=_launch(device, each_s),
        product_s={
            name: _small_product(dtype, device)
            for name, dtype in PRECISIONS.items()
            if device.type == "cpu"
        },
        source=SOURCE,
    )


@contextmanager
def _products_of_fp32(precision: str) -> Iterator[None]:
    """What CUDA makes of fp32, whatever the user has chosen: a peak in TF32 is none in fp32."""
    switch = torch.backends.cuda.matmul
    # Torch 2.9 has the newer one, and reading the older one is an error once both were used.
    newer = hasattr(switch, "fp32_precision")
    name = "fp32_precision" if newer else "allow_tf32"
    before = getattr(switch, name)
    setattr(switch, name, precision if newer else precision == "tf32")
    try:
        yield
    finally:
        setattr(switch, name, before)


def _product(dtype: torch.dtype, device: torch.device, budget_s: float) -> float:
    """FLOP/s of the fastest square product that the budget allows to be repeated."""
    best = 0.0
    size, spent_s = 256, 0.0
    while spent_s < budget_s and size <= 8192:
        ones = torch.ones(size, size, dtype=dtype, device=device)
        product = partial(torch.mm, ones, ones, out=torch.empty_like(ones))
        least_s, took_s = fastest(product, device, budget_s / 4)
        best = max(best, 2 * size**3 / least_s)
        spent_s += took_s
        # The next one takes eight times as long: it has to fit three times.
        if 24 * least_s > budget_s - spent_s:
            break
        size *= 2
    return best


def _small_product(dtype: torch.dtype, device: torch.device) -> float:
    """Seconds of a product so small that its arithmetic takes next to none of them."""
    # Smaller ones are computed by other kernels than those of a network.
    small = torch.ones(64, 64, dtype=dtype, device=device)
    return fastest(partial(torch.mm, small, small), device, 0.01)[0]


def _bandwidth(device: torch.device, budget_s: float) -> float:
    """Bytes per second of a copy or of a sum, the faster: a CPU may read before a write."""
    # Beyond the caches; on accelerators more, since they are larger and faster.
    size = 1 << 27 if device.type == "cpu" else 1 << 30
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    copy_s, _ = fastest(lambda: target.copy_(source), device, budget_s / 2)
    sum_s, _ = fastest(source.sum, device, budget_s / 2)
    return max(2 * size / copy_s, size / sum_s)


def _launch(device: torch.device, budget_s: float) -> float:
    """Host time of a call that computes next to nothing; the device is not waited for."""
    tiny = torch.ones(1, device=device)

    def hundred() -> None:
        for _ in range(100):
            tiny.add_(1.0)

    return fastest(hundred, device, budget_s / 4)[0] / 100


def fastest(
    act: Callable[[], object], device: torch.device, budget_s: float
) -> tuple[float, float]:
    """The shortest of three runs or more after one to warm up, and what all of them took.

    Fewer where they take several times the budget.
    """
    drain = accelerator_of(device).synchronize
    act()
    begin = monotonic_ns()
    runs_ns: list[int] = []
    spent_s = 0.0
    while spent_s <= 3 * budget_s and (len(runs_ns) < 3 or spent_s < budget_s):
        drain()
        start = monotonic_ns()
        act()
        drain()
        runs_ns.append(monotonic_ns() - start)
        spent_s = (monotonic_ns() - begin) / 1e9
    return (min(runs_ns) or 1) / 1e9, spent_s


_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def device_name(device: torch.device) -> str:
    """As the driver or the operating system calls it; what the table of chips is asked for."""
    return cpu_name() if device.type == "cpu" else accelerator_of(device).name()


def cache_bytes(device: torch.device) -> int | None:
    """The device's last-level cache, on a CPU with the caches before it; `None` if not known."""
    if device.type == "cpu":
        return cpu_cache_bytes(_CPUS)
    return accelerator_of(device).cache_bytes()


def computing(kinds: Iterable[str]) -> str:
    """Of the device types that a step used, the one that computed: an accelerator before a CPU."""
    others = sorted(set(kinds) - {"cpu"})
    return others[0] if others else "cpu"


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model, with its architecture where the system does not say."""
    lines = info.read_text().splitlines() if info.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def cpu_cache_bytes(cpus: Path) -> int | None:
    """Caches of the second level and above, each counted once however many cores share it."""
    sizes: dict[tuple[str, str], int] = {}
    for cache in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        facts = (cache / name for name in ("level", "shared_cpu_list", "size"))
        level, shared, size = (f.read_text().strip() if f.is_file() else "" for f in facts)
        if level.isdigit() and int(level) >= 2 and size[:-1].isdigit():
            sizes[level, shared] = int(size[:-1]) * _UNITS.get(size[-1], 1)
    return sum(sizes.values()) or None

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
from trainperf.core.groups import grouped
from trainperf.core.machine.chips import Chip, chip_of
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.machine.surroundings import cpu_model


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
    names = [*PRECISIONS, *(["tf32"] if accelerator_of(device).features().tf32 else [])]
    each_s = budget_s / (len(names) + 2)
    with torch.no_grad():
        return Chip(
            name=device_name(device),
            flops_per_s={name: _product(name, device, each_s) for name in names},
            memory_bytes_per_s=_bandwidth(device, each_s),
            link_bytes_per_s=None,
            launch_s=_launch(device, each_s),
            product_s=_small_products_s() if device.type == "cpu" else {},
            source=SOURCE,
        )


def best_of(chips: Sequence[Chip]) -> Chip:
    """One chip of several measurements of it: the best of each figure."""
    return msgspec.structs.replace(
        chips[0],
        flops_per_s=_of_each([chip.flops_per_s for chip in chips], max),
        memory_bytes_per_s=max(chip.memory_bytes_per_s for chip in chips),
        launch_s=min((c.launch_s for c in chips if c.launch_s is not None), default=None),
        product_s=_of_each([chip.product_s for chip in chips], min),
    )


def _of_each(
    figures: Sequence[dict[str, float]], best: Callable[[Iterable[float]], float]
) -> dict[str, float]:
    """The best value of each key that any of them has."""
    values = grouped(figure for named in figures for figure in named.items())
    return {name: best(several) for name, several in values.items()}


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


def _product(name: str, device: torch.device, budget_s: float) -> float:
    """FLOP/s of the fastest square product that the budget allows to be repeated."""
    best, size, least_s = 0.0, 256, 0.0
    with _products_of_fp32("tf32" if name == "tf32" else "ieee"):
        # The next one takes eight times as long as the one before: it has to fit three times.
        while size <= 8192 and 24 * least_s <= budget_s:
            dtype = PRECISIONS.get(name, torch.float32)
            ones = torch.ones(size, size, dtype=dtype, device=device)
            product = partial(torch.mm, ones, ones, out=torch.empty_like(ones))
            least_s = fastest_s(product, device, budget_s / 4)
            best = max(best, 2 * size**3 / least_s)
            size *= 2
    return best


def _small_products_s() -> dict[str, float]:
    """Of products on the CPU so small that their arithmetic takes next to none of the time."""
    # Smaller ones are computed by other kernels than those of a network.
    small = {name: torch.ones(64, 64, dtype=dtype) for name, dtype in PRECISIONS.items()}
    return {name: fastest_s(partial(torch.mm, x, x), x.device, 0.01) for name, x in small.items()}


def _bandwidth(device: torch.device, budget_s: float) -> float:
    """Bytes per second of a copy or of a sum, the faster: a CPU may read before a write."""
    # Beyond the caches; on accelerators more, since they are larger and faster.
    size = 1 << 27 if device.type == "cpu" else 1 << 30
    source = torch.ones(size // 4, device=device)
    copy = partial(torch.empty_like(source).copy_, source)
    copy_s, sum_s = (fastest_s(act, device, budget_s / 2) for act in (copy, source.sum))
    return max(2 * size / copy_s, size / sum_s)


def _launch(device: torch.device, budget_s: float) -> float:
    """Host time of a call that computes next to nothing; only the last of many is waited for."""
    return fastest_s(partial(torch.ones(1, device=device).add_, 1.0), device, budget_s / 4)


def fastest_s(act: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """Seconds of *act* in the fastest of the runs that fit into the budget, after one to warm up.

    A run is as many calls as reading the clock needs to be small against, and ends on an idle
    device.
    """
    from torch.utils.benchmark import Timer  # noqa: PLC0415 a quarter of a second, after the fit

    accelerator = accelerator_of(device)

    def drained_s() -> float:
        accelerator.synchronize()
        return monotonic_ns() / 1e9

    threads = torch.get_num_threads()
    timer = Timer("act()", timer=drained_s, globals={"act": act}, num_threads=threads)
    return min(timer.blocked_autorange(min_run_time=budget_s).times)


_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def device_name(device: torch.device) -> str:
    """As the driver or the operating system calls it; what the table of chips is asked for."""
    if device.type == "cpu":
        return cpu_model() or platform.machine()
    return accelerator_of(device).name()


def cache_bytes(device: torch.device) -> int | None:
    """The device's last-level cache, on a CPU with the caches before it; `None` if not known."""
    if device.type == "cpu":
        return cpu_cache_bytes(_CPUS)
    return accelerator_of(device).features().cache_bytes


def computing(kinds: Iterable[str]) -> str:
    """Of the device types that a step used, the one that computed: an accelerator before a CPU."""
    others = sorted(set(kinds) - {"cpu"})
    return others[0] if others else "cpu"


def cpu_cache_bytes(cpus: Path) -> int | None:
    """Caches of the second level and above, each counted once however many cores share it."""
    sizes: dict[tuple[str, str], int] = {}
    for cache in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        facts = (cache / name for name in ("level", "shared_cpu_list", "size"))
        level, shared, size = (f.read_text().strip() if f.is_file() else "" for f in facts)
        if level.isdigit() and int(level) >= 2 and size[:-1].isdigit():
            sizes[level, shared] = int(size[:-1]) * _UNITS.get(size[-1], 1)
    return sum(sizes.values()) or None

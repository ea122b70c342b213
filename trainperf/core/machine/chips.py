"""Table of chips: peak rates from the vendors' data sheets, one row per chip.

Peaks are *dense*: data sheets like to print the sparse figure, twice as large.  An unknown chip has
no row, and no guess is made: measure it with `trainperf.audit.chip_benchmark`.
"""

import re

import msgspec


GB = 10**9
TERA = 10**12


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rates of a chip, the basis of all floors."""

    name: str
    flops_per_s: dict[str, float]
    """Dense peak per precision: `fp32 tf32 fp16 bf16 fp8`.  One that is missing is unknown."""
    memory_bytes_per_s: float
    """Of the memory that the last-level cache stands before, reads and writes together."""
    link_bytes_per_s: float | None
    """Between host and device, in one direction; `None` where there is no such link."""
    launch_s: float | None = None
    """Host time to launch one operator; data sheets have none, a probe measures it."""
    product_s: dict[str, float] = msgspec.field(default_factory=dict)
    """Time of a small matrix product per precision where the host computes it, measured: choosing
    and calling its kernel, and next to no arithmetic."""
    source: str
    """Where the figures are from."""


def chip_of(device_name: str) -> Chip | None:
    """The row of a device, by the name that its driver gives it; `None` for an unknown one."""
    words = set(re.findall(r"[a-z0-9]+", device_name.lower()))
    if words & _OTHER_PRODUCTS:
        return None
    return next((chip for wanted, chip in _ROWS if wanted <= words), None)


# A laptop's chip, a cut-down one or a slice of one shares the name, not the figures.
_OTHER_PRODUCTS = frozenset({"ti", "laptop", "d", "super", "max", "mobile", "mig", "grid", "vgpu"})


_PCIE3, _PCIE4, _PCIE5 = 16.0, 32.0, 64.0
"""Sixteen lanes, one direction, GB/s."""

_A100_SHEET = "NVIDIA A100 Tensor Core GPU data sheet"
_H100_SHEET = "NVIDIA H100 Tensor Core GPU data sheet, tensor figures halved: they are sparse"
_H200_SHEET = "NVIDIA H200 Tensor Core GPU data sheet, tensor figures halved: they are sparse"
_V100_SHEET = "NVIDIA V100 Tensor Core GPU data sheet"
_GEFORCE = "tensor figures with FP32 accumulation, as PyTorch computes, without sparsity"

_A100 = "fp32 19.5 tf32 156 fp16 312 bf16 312"
_NVL = "fp32 60 tf32 417.5 fp16 835.5 bf16 835.5 fp8 1670.5"
_H100_SXM = "fp32 67 tf32 494.7 fp16 989.4 bf16 989.4 fp8 1978.9"


def _row(
    words: str, name: str, tflops: str, memory: float, link: float, source: str
) -> tuple[frozenset[str], Chip]:
    """A row in the data sheet's TFLOP/s and GB/s; *words* are all in the driver's name of it."""
    peaks = tflops.split()
    chip = Chip(
        name=name,
        flops_per_s={
            precision: float(peak) * TERA
            for precision, peak in zip(peaks[::2], peaks[1::2], strict=True)
        },
        memory_bytes_per_s=memory * GB,
        link_bytes_per_s=link * GB,
        source=source,
    )
    return frozenset(words.split()), chip


_ROWS = (
    _row("a100 40gb", "A100 40GB", _A100, 1555, _PCIE4, _A100_SHEET),
    _row("a100 sxm4 80gb", "A100 80GB SXM", _A100, 2039, _PCIE4, _A100_SHEET),
    _row("a100 pcie 80gb", "A100 80GB PCIe", _A100, 1935, _PCIE4, _A100_SHEET),
    _row(
        "h100 pcie",
        "H100 PCIe",
        "fp32 51 tf32 378 fp16 756.5 bf16 756.5 fp8 1513",
        2000,
        _PCIE5,
        _H100_SHEET,
    ),
    _row("h100 nvl", "H100 NVL", _NVL, 3900, _PCIE5, _H100_SHEET),
    _row("h100 hbm3", "H100 SXM", _H100_SXM, 3350, _PCIE5, _H100_SHEET),
    _row("h200 nvl", "H200 NVL", _NVL, 4800, _PCIE5, _H200_SHEET),
    _row("h200", "H200 SXM", _H100_SXM, 4800, _PCIE5, _H200_SHEET),
    _row(
        "b200",
        "B200 SXM",
        "fp32 75 tf32 1125 fp16 2250 bf16 2250 fp8 4500",
        8000,
        _PCIE5,
        "NVIDIA HGX B200 data sheet, an eighth of the board, tensor figures halved: sparse",
    ),
    _row(
        "l4",
        "L4",
        "fp32 30.3 tf32 60 fp16 121 bf16 121 fp8 242.5",
        300,
        _PCIE4,
        "NVIDIA L4 Tensor Core GPU data sheet, tensor figures halved: they are sparse",
    ),
    _row(
        "l40s",
        "L40S",
        "fp32 91.6 tf32 183 fp16 362.05 bf16 362.05 fp8 733",
        864,
        _PCIE4,
        "NVIDIA L40S data sheet, the figures without sparsity",
    ),
    _row("t4", "T4", "fp32 8.1 fp16 65", 320, _PCIE3, "NVIDIA T4 Tensor Core GPU product brief"),
    _row("v100s", "V100S PCIe", "fp32 16.4 fp16 130", 1134, _PCIE3, _V100_SHEET),
    _row("v100 pcie", "V100 PCIe", "fp32 14 fp16 112", 900, _PCIE3, _V100_SHEET),
    _row("v100 sxm2", "V100 SXM2", "fp32 15.7 fp16 125", 900, _PCIE3, _V100_SHEET),
    _row(
        "rtx 3090",
        "RTX 3090",
        "fp32 35.6 tf32 35.6 fp16 71.2 bf16 71.2",
        936,
        _PCIE4,
        f"NVIDIA Ampere GA102 GPU architecture white paper; {_GEFORCE}",
    ),
    _row(
        "rtx 4090",
        "RTX 4090",
        "fp32 82.6 tf32 82.6 fp16 165.2 bf16 165.2 fp8 330.3",
        1008,
        _PCIE4,
        f"NVIDIA Ada GPU architecture white paper; {_GEFORCE}",
    ),
    _row(
        "rtx 5090",
        "RTX 5090",
        "fp32 104.8 tf32 104.8 fp16 209.5 bf16 209.5 fp8 419",
        1792,
        _PCIE5,
        f"NVIDIA RTX Blackwell GPU architecture white paper; {_GEFORCE}",
    ),
    _row(
        "mi250x",
        "MI250X (one of its two dies)",
        "fp32 47.9 fp16 191.5 bf16 191.5",
        1638.4,
        _PCIE4,
        "AMD Instinct MI250X data sheet, halved: PyTorch sees each die as a device",
    ),
    # After the larger one: the driver may name both in one word each.
    _row(
        "mi250",
        "MI250 (one of its two dies)",
        "fp32 45.25 fp16 181.05 bf16 181.05",
        1638.4,
        _PCIE4,
        "AMD Instinct MI250 data sheet, halved: PyTorch sees each die as a device",
    ),
    _row(
        "mi300x",
        "MI300X",
        "fp32 163.4 tf32 653.7 fp16 1307.4 bf16 1307.4 fp8 2614.9",
        5300,
        _PCIE5,
        "AMD Instinct MI300X data sheet",
    ),
)

CHIPS = tuple(chip for _, chip in _ROWS)
"""Every chip with a row."""

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


def _chip(name: str, tflops: dict[str, float], memory: float, link: float, source: str) -> Chip:
    """A row, in the data sheet's TFLOP/s and GB/s."""
    return Chip(
        name=name,
        flops_per_s={precision: peak * TERA for precision, peak in tflops.items()},
        memory_bytes_per_s=memory * GB,
        link_bytes_per_s=link * GB,
        source=source,
    )


_PCIE3, _PCIE4, _PCIE5 = 16.0, 32.0, 64.0
"""Sixteen lanes, one direction, GB/s."""

_A100 = {"fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}
_A100_SHEET = "NVIDIA A100 Tensor Core GPU data sheet"
_H100_SHEET = "NVIDIA H100 Tensor Core GPU data sheet, tensor figures halved: they are sparse"
_H200_SHEET = "NVIDIA H200 Tensor Core GPU data sheet, tensor figures halved: they are sparse"
_H100_SXM = {"fp32": 67.0, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9}
_NVL = {"fp32": 60.0, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1670.5}
_GEFORCE = "tensor figures with FP32 accumulation, as PyTorch computes, without sparsity"

_ROWS: tuple[tuple[frozenset[str], Chip], ...] = (
    (
        frozenset({"a100", "40gb"}),
        _chip("A100 40GB", _A100, 1555.0, _PCIE4, _A100_SHEET),
    ),
    (
        frozenset({"a100", "sxm4", "80gb"}),
        _chip("A100 80GB SXM", _A100, 2039.0, _PCIE4, _A100_SHEET),
    ),
    (
        frozenset({"a100", "pcie", "80gb"}),
        _chip("A100 80GB PCIe", _A100, 1935.0, _PCIE4, _A100_SHEET),
    ),
    (
        frozenset({"h100", "pcie"}),
        _chip(
            "H100 PCIe",
            {"fp32": 51.0, "tf32": 378.0, "fp16": 756.5, "bf16": 756.5, "fp8": 1513.0},
            2000.0,
            _PCIE5,
            _H100_SHEET,
        ),
    ),
    (
        frozenset({"h100", "nvl"}),
        _chip("H100 NVL", _NVL, 3900.0, _PCIE5, _H100_SHEET),
    ),
    (
        frozenset({"h100", "hbm3"}),
        _chip("H100 SXM", _H100_SXM, 3350.0, _PCIE5, _H100_SHEET),
    ),
    (
        frozenset({"h200", "nvl"}),
        _chip("H200 NVL", _NVL, 4800.0, _PCIE5, _H200_SHEET),
    ),
    (
        frozenset({"h200"}),
        _chip("H200 SXM", _H100_SXM, 4800.0, _PCIE5, _H200_SHEET),
    ),
    (
        frozenset({"b200"}),
        _chip(
            "B200 SXM",
            {"fp32": 75.0, "tf32": 1125.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0},
            8000.0,
            _PCIE5,
            "NVIDIA HGX B200 data sheet, an eighth of the board, tensor figures halved: sparse",
        ),
    ),
    (
        frozenset({"l4"}),
        _chip(
            "L4",
            {"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5},
            300.0,
            _PCIE4,
            "NVIDIA L4 Tensor Core GPU data sheet, tensor figures halved: they are sparse",
        ),
    ),
    (
        frozenset({"l40s"}),
        _chip(
            "L40S",
            {"fp32": 91.6, "tf32": 183.0, "fp16": 362.05, "bf16": 362.05, "fp8": 733.0},
            864.0,
            _PCIE4,
            "NVIDIA L40S data sheet, the figures without sparsity",
        ),
    ),
    (
        frozenset({"t4"}),
        _chip(
            "T4",
            {"fp32": 8.1, "fp16": 65.0},
            320.0,
            _PCIE3,
            "NVIDIA T4 Tensor Core GPU product brief",
        ),
    ),
    (
        frozenset({"v100s"}),
        _chip(
            "V100S PCIe",
            {"fp32": 16.4, "fp16": 130.0},
            1134.0,
            _PCIE3,
            "NVIDIA V100 Tensor Core GPU data sheet",
        ),
    ),
    (
        frozenset({"v100", "pcie"}),
        _chip(
            "V100 PCIe",
            {"fp32": 14.0, "fp16": 112.0},
            900.0,
            _PCIE3,
            "NVIDIA V100 Tensor Core GPU data sheet",
        ),
    ),
    (
        frozenset({"v100", "sxm2"}),
        _chip(
            "V100 SXM2",
            {"fp32": 15.7, "fp16": 125.0},
            900.0,
            _PCIE3,
            "NVIDIA V100 Tensor Core GPU data sheet",
        ),
    ),
    (
        frozenset({"rtx", "3090"}),
        _chip(
            "RTX 3090",
            {"fp32": 35.6, "tf32": 35.6, "fp16": 71.2, "bf16": 71.2},
            936.0,
            _PCIE4,
            f"NVIDIA Ampere GA102 GPU architecture white paper; {_GEFORCE}",
        ),
    ),
    (
        frozenset({"rtx", "4090"}),
        _chip(
            "RTX 4090",
            {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3},
            1008.0,
            _PCIE4,
            f"NVIDIA Ada GPU architecture white paper; {_GEFORCE}",
        ),
    ),
    (
        frozenset({"rtx", "5090"}),
        _chip(
            "RTX 5090",
            {"fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "bf16": 209.5, "fp8": 419.0},
            1792.0,
            _PCIE5,
            f"NVIDIA RTX Blackwell GPU architecture white paper; {_GEFORCE}",
        ),
    ),
    (
        frozenset({"mi250x"}),
        _chip(
            "MI250X (one of its two dies)",
            {"fp32": 47.9, "fp16": 191.5, "bf16": 191.5},
            1638.4,
            _PCIE4,
            "AMD Instinct MI250X data sheet, halved: PyTorch sees each die as a device",
        ),
    ),
    # After the larger one: the driver may name both in one word each.
    (
        frozenset({"mi250"}),
        _chip(
            "MI250 (one of its two dies)",
            {"fp32": 45.25, "fp16": 181.05, "bf16": 181.05},
            1638.4,
            _PCIE4,
            "AMD Instinct MI250 data sheet, halved: PyTorch sees each die as a device",
        ),
    ),
    (
        frozenset({"mi300x"}),
        _chip(
            "MI300X",
            {"fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9},
            5300.0,
            _PCIE5,
            "AMD Instinct MI300X data sheet",
        ),
    ),
)

CHIPS = tuple(chip for _, chip in _ROWS)
"""Every chip with a row."""

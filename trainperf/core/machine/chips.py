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
    for wanted, chip in ROWS:
        if wanted <= words and not (words - wanted) & _OTHER_PRODUCTS:
            return None if any(map(_VIRTUAL.fullmatch, words)) else chip
    return None


# A laptop's chip, a cut-down one or a slice of one shares the name, not the figures.
_OTHER_PRODUCTS = frozenset({"ti", "laptop", "d", "super", "max", "mobile", "mig", "grid", "vgpu"})
_VIRTUAL = re.compile(r"\d+[abcq]\d?")
"""Size and kind of a virtual GPU, as in `A10-8Q`."""


_PCIE3, _PCIE4, _PCIE5 = 16.0, 32.0, 64.0
"""Sixteen lanes, one direction, GB/s."""
_C2C = 450.0
"""NVLink-C2C between Grace and Hopper, one direction, GB/s."""

_A100_SHEET = "NVIDIA A100 Tensor Core GPU data sheet"
_H100_SHEET = "NVIDIA H100 Tensor Core GPU data sheet, tensor figures halved: they are sparse"
_H200_SHEET = "NVIDIA H200 Tensor Core GPU data sheet, tensor figures halved: they are sparse"
_V100_SHEET = "NVIDIA V100 Tensor Core GPU data sheet"
_GH200_SHEET = "NVIDIA GH200 Grace Hopper data sheet, tensor figures halved: they are sparse"
_GEFORCE = "tensor figures with FP32 accumulation, as PyTorch computes, without sparsity"
_AMPERE = f"NVIDIA Ampere GA102 GPU architecture white paper; {_GEFORCE}"
_ADA = f"NVIDIA Ada GPU architecture white paper; {_GEFORCE}"
_BLACKWELL = f"NVIDIA RTX Blackwell GPU architecture white paper; {_GEFORCE}"

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


ROWS = (
    _row("a100 40gb", "A100 40GB", _A100, 1555, _PCIE4, _A100_SHEET),
    _row("a100 sxm4 80gb", "A100 80GB SXM", _A100, 2039, _PCIE4, _A100_SHEET),
    _row(
        "a100 pg509 200",
        "A100 PG509-200",
        _A100,
        1555,
        _PCIE4,
        f"{_A100_SHEET}: this 40 GB board has none of its own, and the figures of A100 40GB SXM",
    ),
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
    _row("gh200 480gb", "GH200 96GB", _H100_SXM, 4000, _C2C, _GH200_SHEET),
    _row("gh200 144g", "GH200 144GB", _H100_SXM, 4900, _C2C, _GH200_SHEET),
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
        "v100 dgxs",
        "V100 DGX Station",
        "fp32 15.7 fp16 125",
        900,
        _PCIE3,
        "NVIDIA DGX Station data sheet, a quarter of its 500 tensor TFLOP/s; the rest as V100 SXM2",
    ),
    _row(
        "a10",
        "A10",
        "fp32 31.2 tf32 62.5 fp16 125 bf16 125",
        600,
        _PCIE4,
        "NVIDIA A10 data sheet, the figures without sparsity",
    ),
    _row(
        "a10g",
        "A10G",
        "fp32 35 tf32 35 fp16 70 bf16 70",
        600,
        _PCIE4,
        "NVIDIA A10G data sheet (AWS G5), the figures without sparsity",
    ),
    _row(
        "a30",
        "A30",
        "fp32 10.3 tf32 82 fp16 165 bf16 165",
        933,
        _PCIE4,
        "NVIDIA A30 data sheet, the figures without sparsity",
    ),
    _row(
        "a40",
        "A40",
        "fp32 37.4 tf32 74.8 fp16 149.7 bf16 149.7",
        696,
        _PCIE4,
        "NVIDIA A40 data sheet, the figures without sparsity",
    ),
    _row(
        "rtx a4000",
        "RTX A4000",
        "fp32 19.2 tf32 38.35 fp16 76.7 bf16 76.7",
        448,
        _PCIE4,
        "NVIDIA RTX A4000 data sheet, tensor figures halved: they are sparse",
    ),
    _row(
        "rtx a5000",
        "RTX A5000",
        "fp32 27.8 tf32 55.55 fp16 111.1 bf16 111.1",
        768,
        _PCIE4,
        "NVIDIA RTX A5000 data sheet, tensor figures halved: they are sparse",
    ),
    _row(
        "rtx a6000",
        "RTX A6000",
        "fp32 38.7 tf32 77.4 fp16 154.8 bf16 154.8",
        768,
        _PCIE4,
        "NVIDIA Ampere GA102 GPU architecture white paper, the figures without sparsity",
    ),
    _row(
        "rtx 6000 ada",
        "RTX 6000 Ada",
        "fp32 91.1 tf32 182.1 fp16 364.2 bf16 364.2 fp8 728.5",
        960,
        _PCIE4,
        "NVIDIA RTX 6000 Ada data sheet, tensor figures halved: they are sparse",
    ),
    _row(
        "rtx 2080 ti",
        "RTX 2080 Ti",
        "fp32 13.4 fp16 53.8",
        616,
        _PCIE3,
        f"NVIDIA Turing GPU architecture white paper, the reference board; {_GEFORCE}",
    ),
    _row("rtx 3070", "RTX 3070", "fp32 20.3 tf32 20.3 fp16 40.6 bf16 40.6", 448, _PCIE4, _AMPERE),
    _row("rtx 3090", "RTX 3090", "fp32 35.6 tf32 35.6 fp16 71.2 bf16 71.2", 936, _PCIE4, _AMPERE),
    _row("rtx 3090 ti", "RTX 3090 Ti", "fp32 40 tf32 40 fp16 80 bf16 80", 1008, _PCIE4, _AMPERE),
    _row(
        "rtx 4070 ti",
        "RTX 4070 Ti",
        "fp32 40.1 tf32 40.1 fp16 80.2 bf16 80.2 fp8 160.4",
        504.2,
        _PCIE4,
        _ADA,
    ),
    _row(
        "rtx 4080",
        "RTX 4080",
        "fp32 48.7 tf32 48.7 fp16 97.5 bf16 97.5 fp8 194.9",
        716.8,
        _PCIE4,
        _ADA,
    ),
    _row(
        "rtx 4090",
        "RTX 4090",
        "fp32 82.6 tf32 82.6 fp16 165.2 bf16 165.2 fp8 330.3",
        1008,
        _PCIE4,
        _ADA,
    ),
    _row(
        "rtx 5070",
        "RTX 5070",
        "fp32 30.9 tf32 30.9 fp16 61.7 bf16 61.7 fp8 123.5",
        672,
        _PCIE5,
        _BLACKWELL,
    ),
    _row(
        "rtx 5070 ti",
        "RTX 5070 Ti",
        "fp32 43.9 tf32 43.9 fp16 87.9 bf16 87.9 fp8 175.8",
        896,
        _PCIE5,
        _BLACKWELL,
    ),
    _row(
        "rtx 5080",
        "RTX 5080",
        "fp32 56.3 tf32 56.3 fp16 112.6 bf16 112.6 fp8 225.1",
        960,
        _PCIE5,
        _BLACKWELL,
    ),
    _row(
        "rtx 5090",
        "RTX 5090",
        "fp32 104.8 tf32 104.8 fp16 209.5 bf16 209.5 fp8 419",
        1792,
        _PCIE5,
        _BLACKWELL,
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
    # Without its TF32 (653.7): torch computes in it on ROCm only behind a variable of hipBLASLt's.
    _row(
        "mi300x",
        "MI300X",
        "fp32 163.4 fp16 1307.4 bf16 1307.4 fp8 2614.9",
        5300,
        _PCIE5,
        "AMD Instinct MI300X data sheet",
    ),
)
"""Every chip, after the words that are all in the driver's name of it."""

"""The table of chips: found by the driver's name, dense, sourced, silent where it knows none."""

import pytest

from trainperf.core.machine.chips import ROWS, chip_of


CHIPS = [chip for _, chip in ROWS]

DERIVED = (
    ("A100 40GB", 108, 1.41, 2048),
    ("A100 80GB SXM", 108, 1.41, 2048),
    ("A100 80GB PCIe", 108, 1.41, 2048),
    ("H100 PCIe", 114, 1.62, 4096),
    ("H100 NVL", 132, 1.545, 4096),
    ("H100 SXM", 132, 1.83, 4096),
    ("H200 SXM", 132, 1.83, 4096),
    ("H200 NVL", 132, 1.545, 4096),
    ("B200 SXM", 148, 1.855, 8192),
    ("L4", 58, 2.04, 1024),
    ("L40S", 142, 2.49, 1024),
    ("T4", 40, 1.59, 1024),
    ("V100 SXM2", 80, 1.53, 1024),
    ("V100 PCIe", 80, 1.37, 1024),
    ("V100S PCIe", 80, 1.597, 1024),
    ("V100 DGX Station", 80, 1.53, 1024),
    ("A100 PG509-200", 108, 1.41, 2048),
    ("GH200 96GB", 132, 1.83, 4096),
    ("GH200 144GB", 132, 1.83, 4096),
    ("A10", 72, 1.695, 1024),
    ("A10G", 80, 1.71, 512),
    ("A30", 56, 1.44, 2048),
    ("A40", 84, 1.74, 1024),
    ("RTX A4000", 48, 1.56, 1024),
    ("RTX A5000", 64, 1.695, 1024),
    ("RTX A6000", 84, 1.8, 1024),
    ("RTX 6000 Ada", 142, 2.505, 1024),
    ("RTX 2080 Ti", 68, 1.545, 512),
    ("RTX 3070", 46, 1.725, 512),
    ("RTX 3090", 82, 1.695, 512),
    ("RTX 3090 Ti", 84, 1.86, 512),
    ("RTX 4070 Ti", 60, 2.61, 512),
    ("RTX 4080", 76, 2.505, 512),
    ("RTX 4090", 128, 2.52, 512),
    ("RTX 5070", 48, 2.512, 512),
    ("RTX 5070 Ti", 70, 2.452, 512),
    ("RTX 5080", 84, 2.617, 512),
    ("RTX 5090", 170, 2.407, 512),
    ("MI250X (one of its two dies)", 110, 1.7, 1024),
    ("MI250 (one of its two dies)", 104, 1.7, 1024),
    ("MI300X", 304, 2.1, 2048),
)
"""Units of a chip, their boost clock in GHz, and what each does in a cycle in fp16, dense."""


@pytest.mark.parametrize(
    ("device", "chip"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA B200", "B200 SXM"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe"),
        ("Tesla V100-DGXS-32GB", "V100 DGX Station"),
        ("NVIDIA A100-PG509-200", "A100 PG509-200"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144GB"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti"),
        ("NVIDIA GeForce RTX 4080", "RTX 4080"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("AMD Instinct MI250X", "MI250X (one of its two dies)"),
        ("AMD Instinct MI250", "MI250 (one of its two dies)"),
        ("AMD Instinct MI250X/MI250", "MI250X (one of its two dies)"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_chip_is_found_by_its_drivers_name(device: str, chip: str) -> None:
    """The very string that torch reports."""
    assert chip_of(device).name == chip


@pytest.mark.parametrize(
    "device",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 3070 Ti",
        "NVIDIA GeForce RTX 3090 Ti Laptop GPU",
        "NVIDIA GeForce RTX 3080",
        "NVIDIA RTX 6000",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "NVIDIA A10-8Q",
        "NVIDIA A40-1B4",
        "NVIDIA RTX A6000-48Q",
        "NVIDIA L40",
        "NVIDIA H20",
        "Intel(R) Xeon(R) Processor @ 2.50GHz",
        "",
    ],
)
def test_a_chip_that_shares_only_the_name_has_no_row(device: str) -> None:
    """A wrong peak would be a wrong MFU: unknown is the better answer."""
    assert chip_of(device) is None


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_every_row_is_dense_ordered_and_sourced(chip: object) -> None:
    """Halving the precision never makes a peak smaller, and doubles it at most sixteenfold."""
    peaks = chip.flops_per_s
    order = [peaks[name] for name in ("fp32", "tf32", "fp16", "fp8") if name in peaks]
    assert order == sorted(order)
    assert peaks.get("bf16", peaks["fp16"]) == peaks["fp16"]
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(2 * peaks["fp16"], rel=0.02)
    assert 3e11 <= chip.memory_bytes_per_s <= 8e12
    assert chip.source


@pytest.mark.parametrize(("name", "units", "ghz", "each"), DERIVED)
def test_a_dense_peak_is_units_times_clock_times_what_each_does_in_a_cycle(
    name: str, units: int, ghz: float, each: int
) -> None:
    """In fp16; a sparse figure copied from a data sheet would be twice that."""
    (chip,) = (one for one in CHIPS if one.name == name)

    assert chip.flops_per_s["fp16"] == pytest.approx(units * ghz * 1e9 * each, rel=0.01)


def test_every_row_has_its_peak_derived() -> None:
    """A new row comes with its units and its clock."""
    assert {row[0] for row in DERIVED} == {chip.name for chip in CHIPS}


def test_the_ridge_of_an_a100_is_where_the_textbook_has_it() -> None:
    """312 TFLOP/s over 1.555 TB/s: 201 FLOP per byte."""
    chip = chip_of("NVIDIA A100-SXM4-40GB")

    assert chip.flops_per_s["bf16"] / chip.memory_bytes_per_s == pytest.approx(200.6, abs=0.1)

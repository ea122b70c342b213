"""The rules on products: their precision, their sizes, the order of their images."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.audits import CHIP, evidence_of, product, use

from trainperf.analysis.rules import Rule
from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.operators.channels_last import channels_last
from trainperf.analysis.rules.operators.matmul_precision import matmul_precision
from trainperf.analysis.rules.operators.matmul_shapes import matmul_shapes, odd_sizes
from trainperf.core.artifacts.audit import AttentionTime, MeasuredChip, OperatorUse
from trainperf.core.findings import Finding


H100 = "NVIDIA H100 80GB HBM3"
T4 = "Tesla T4"


def found(rule: Rule, evidence: Evidence) -> Finding:
    """The finding that must be there."""
    finding = rule(evidence)
    assert finding is not None
    return finding


def on_cpu(path: Path, *uses: OperatorUse) -> Evidence:
    """20 ms of forward and nothing else."""
    return evidence_of(path, uses, forward=20.0)


def test_double_precision_can_save_all_but_the_floor_of_fp32(tmp_path: Path) -> None:
    """Fifteen milliseconds of a GFLOP: one at a teraflop a second."""
    double = product("mm", 15.0, flops=10**9, precision="fp64", dtypes=("fp64", "fp64"))
    rest = use("relu", 4.995)

    finding = found(matmul_precision, on_cpu(tmp_path, double, rest))
    assert finding.fraction == pytest.approx(14 / 20, rel=0.01)
    assert "float32" in finding.action


def test_fp32_is_left_alone_where_nothing_is_faster(tmp_path: Path) -> None:
    """The planted chip does bf16 no faster."""
    assert matmul_precision(on_cpu(tmp_path, product("mm", 20.0, flops=10**9))) is None


FAST = msgspec.structs.replace(
    CHIP,
    flops_per_s={"fp32": 1e12, "bf16": 4e12},
    memory_bytes_per_s=10e9,
    launch_s=5e-6,
    product_s={"fp32": 8e-6, "bf16": 20e-6},
)
"""Four times the peak in bf16, and more than twice the price of a call."""


def faster(path: Path, *uses: OperatorUse, **phases_ms: float) -> Evidence:
    """On a CPU that multiplies fast in bf16; 20 ms of forward, if nothing else is said."""
    return evidence_of(path, uses, chip=FAST, **(phases_ms or {"forward": 20.0}))


def test_a_cpu_with_fast_bf16_is_told_to_use_it(tmp_path: Path) -> None:
    """Of 20 ms, 10 are arithmetic at the peak: a quarter of those is left, the other 10 stay."""
    finding = found(matmul_precision, faster(tmp_path, product("bmm", 19.995, flops=10**10)))

    assert finding.fraction == pytest.approx(7.5 / 20, rel=0.01)
    assert finding.action == 'Trainer(precision="bf16-mixed")'


def test_the_bound_is_the_peak_and_half_of_all_else_however_little_is_forecast(
    tmp_path: Path,
) -> None:
    """Of 20 ms, 16 of products take 2.5 at the peak; the other 4 take 2."""
    evidence = faster(tmp_path, product("bmm", 16.0, flops=10**10), use("relu", 3.995))

    finding = found(matmul_precision, evidence)
    assert finding.fraction == pytest.approx(7.5 / 20, rel=0.01)
    assert finding.gain_upper_bound == pytest.approx(20 / 4.5, rel=0.01)
    (shown,) = (it for it in evidence.summary.findings if it.id == finding.id)
    assert shown.gain_upper_bound == finding.gain_upper_bound


def test_attention_gains_what_it_gained_when_it_was_timed_in_both(tmp_path: Path) -> None:
    """Products save 7.5 ms; attention's own kernels, untimed nothing, timed 2.5 less or 5 more."""
    heads = ((8, 4, 64, 32),) * 3
    name = "_scaled_dot_product_flash_attention_for_cpu"
    fused = product(name, 5.0, flops=5 * 10**9, shapes=heads)
    evidence = faster(tmp_path, product("bmm", 14.995, flops=10**10), fused)

    def timed(**seconds: float) -> Evidence:
        chip = MeasuredChip(chip=FAST, attention=(AttentionTime(shapes=heads, seconds=seconds),))
        return replace(evidence, documents=replace(evidence.documents, chip=chip))

    assert found(matmul_precision, evidence).fraction == pytest.approx(7.5 / 20, rel=0.01)
    better = found(matmul_precision, timed(fp32=5e-3, bf16=2.5e-3))
    assert better.fraction == pytest.approx(10 / 20, rel=0.01)
    worse = found(matmul_precision, timed(fp32=5e-3, bf16=10e-3))
    assert worse.fraction == pytest.approx(2.5 / 20, rel=0.01)
    assert matmul_precision(timed(fp32=5e-3, bf16=13e-3)) is None


def test_python_around_products_is_no_gain_of_bf16(tmp_path: Path) -> None:
    """A thousand calls in a phase of 20 ms, 2 of which they compute."""
    thin = product("bmm", 2.0, flops=10**10, calls=1000)

    assert matmul_precision(faster(tmp_path, thin)) is None


def test_small_products_gain_nothing_where_a_call_in_bf16_takes_longer(tmp_path: Path) -> None:
    """A hundred of 40 µs: 20 µs each for the call, and more than that to convert."""
    thin = product("mm", 4.0, flops=8 * 10**6, calls=100, shapes=((16, 512), (512, 512)))

    assert matmul_precision(faster(tmp_path, thin, use("relu", 0.5), forward=4.5)) is None


def test_inputs_weights_and_their_gradients_are_converted(tmp_path: Path) -> None:
    """A quarter of 20 ms is left; weight, input, their gradients and eight launches are added."""
    wide = product("mm", 19.995, flops=2 * 10**10, calls=10, shapes=((512, 512), (512, 1024)))
    elements = 512 * 512 + 512 * 1024
    each_s = 2 * (6 * elements / 10e9 + 4 * 5e-6) + 12e-6

    finding = found(matmul_precision, faster(tmp_path, wide))
    assert finding.fraction == pytest.approx((15e-3 - 10 * each_s) / 20e-3, rel=0.01)


def test_what_backward_multiplies_was_converted_with_forward(tmp_path: Path) -> None:
    """The same product there has its inputs, and its gradient is counted with the forward."""
    wide = product("mm", 19.995, flops=2 * 10**10, part="backward", shapes=((512,) * 2,) * 2)

    finding = found(matmul_precision, faster(tmp_path, wide, backward=20.0))
    assert finding.fraction == pytest.approx(3 / 4, rel=0.01)


def test_one_precision_is_advised_bounded_and_compared(tmp_path: Path) -> None:
    """On an H100 TF32, though bf16 is faster still; a T4's bf16 is none."""
    with_tf32 = evidence_of(tmp_path / "a", [product("mm", flops=10**11)], device="cuda", chip=H100)
    with_fp16 = evidence_of(tmp_path / "b", [product("mm", flops=10**11)], device="cuda", chip=T4)

    peaks = found(matmul_precision, with_tf32).evidence[0]
    assert peaks.endswith("67 TFLOP/s in fp32, 495 TFLOP/s in tf32")
    finding = found(matmul_precision, with_fp16)
    assert finding.evidence[0].endswith("65 TFLOP/s in fp16")
    assert finding.action.endswith("it has no bf16")


def test_a_bf16_that_is_hardly_faster_is_not_denied(tmp_path: Path) -> None:
    """Only fp16 has twice the peak; rates below a TFLOP/s keep their digits."""
    rates = {"fp32": 4e10, "bf16": 6e10, "fp16": 16e10}
    chip = msgspec.structs.replace(CHIP, flops_per_s=rates)
    evidence = evidence_of(
        tmp_path, [product("bmm", 19.995, flops=5 * 10**8)], chip=chip, forward=20.0
    )

    finding = found(matmul_precision, evidence)
    assert "less than twice" in finding.action
    assert finding.evidence[0] == "planted: 0.04 TFLOP/s in fp32, 0.16 TFLOP/s in fp16"


@pytest.mark.parametrize(
    ("chip", "word"), [(H100, "set_float32_matmul_precision"), (T4, "16-mixed")]
)
def test_tensor_cores_are_named_by_what_the_chip_has(tmp_path: Path, chip: str, word: str) -> None:
    """TF32 first, since it changes least; a T4 has neither it nor bf16."""
    evidence = evidence_of(tmp_path, [product("mm", flops=10**11)], device="cuda", chip=chip)

    finding = found(matmul_precision, evidence)
    assert word in finding.action
    assert finding.gain_upper_bound is None


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16", "fp8"])
def test_products_on_tensor_cores_are_left_alone(tmp_path: Path, precision: str) -> None:
    """Whichever way."""
    one = product("mm", flops=10**13, precision=precision)

    assert matmul_precision(evidence_of(tmp_path, [one], device="cuda", chip=H100)) is None


# -- sizes ----------------------------------------------------------------------------------------


HEAD = product(
    "mm",
    shapes=((4096, 768), (768, 50257)),
    dtypes=("bf16", "bf16"),
    precision="bf16",
    flops=10**13,
    line="gpt.py:99",
)


def test_a_vocabulary_is_padded_to_whole_tiles(tmp_path: Path) -> None:
    """The one of GPT-2: 50,257 becomes 50,304."""
    finding = found(matmul_shapes, evidence_of(tmp_path, [HEAD, EVEN], device="cuda", chip=H100))

    assert finding.action.startswith("vocab_size=50304 instead of 50257")
    assert finding.where == "gpt.py:99"


EVEN = product(
    "mm", shapes=((4096, 768), (768, 3072)), precision="bf16", flops=10**12, memory_bytes=10**10
)


def test_on_a_cpu_sizes_make_no_difference(tmp_path: Path) -> None:
    """Nor are even sizes anything to say."""
    assert matmul_shapes(on_cpu(tmp_path, product("mm", 20.0, shapes=HEAD.shapes))) is None
    even = evidence_of(tmp_path / "2", [EVEN], device="cuda", chip=H100)
    assert matmul_shapes(even) is None


@pytest.mark.parametrize(
    ("name", "precision", "shapes", "odd"),
    [
        ("mm", "bf16", ((64, 100), (100, 64)), (100,)),
        ("addmm", "fp16", ((10,), (64, 64), (64, 10)), (10,)),
        ("bmm", "tf32", ((8, 30, 64), (8, 64, 32)), (30,)),
        ("mm", "fp8", ((64, 72), (72, 64)), (72,)),
        ("mm", "tf32", ((64, 100), (100, 64)), ()),
        ("mm", "fp32", ((63, 63), (63, 63)), ()),
        ("convolution", "bf16", ((8, 3, 7, 7), (5, 3, 3, 3)), ()),
    ],
)
def test_sizes_are_odd_by_the_steps_of_their_precision(
    name: str, precision: str, shapes: tuple[tuple[int, ...], ...], odd: tuple[int, ...]
) -> None:
    """Sixteen bytes: 4 of TF32, 8 of half precision, 16 of fp8; fp32 has none."""
    assert odd_sizes(product(name, precision=precision, shapes=shapes)) == odd


# -- images ---------------------------------------------------------------------------------


def convolutions(*, last: bool | None, precision: str = "bf16") -> list[OperatorUse]:
    """One of forward and one of backward, as slow as memory allows; and products beside them."""
    kinds = {"precision": precision, "memory_bytes": 10**9, "line": "net.py:3"}
    return [
        product("convolution", channels_last=last, **kinds),
        product("convolution_backward", channels_last=False, part="backward", **kinds),
    ]


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_images_on_tensor_cores_want_their_channels_last(tmp_path: Path, precision: str) -> None:
    """Forward and backward of the same line."""
    uses = convolutions(last=False, precision=precision)

    finding = found(channels_last, evidence_of(tmp_path, uses, device="cuda", chip=H100))
    assert "channels_last" in finding.action
    assert finding.where == "net.py:3"


@pytest.mark.parametrize(
    ("last", "precision", "device"),
    [
        (True, "bf16", "cuda"),
        (False, "fp32", "cuda"),
        (False, "bf16", "cpu"),
        (None, "bf16", "cuda"),
    ],
)
def test_other_convolutions_are_left_alone(
    tmp_path: Path, *, last: bool | None, precision: str, device: str
) -> None:
    """Channels last already; no tensor cores; a CPU; no images."""
    chip = H100 if device == "cuda" else CHIP
    uses = convolutions(last=last, precision=precision)

    assert channels_last(evidence_of(tmp_path, uses, device=device, chip=chip)) is None

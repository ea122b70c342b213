"""Matrix products in another precision: what a chip would save by it.

The arithmetic of a product gets faster as the peaks are.  What keeps it from the peak of one
precision keeps it from that of the other, too: calls, threads that wake up, memory.  Under autocast
the conversions of input and weight are added, and on a host the longer call of a product.

Worked example: the arithmetic of a product takes 8 ms in fp32, at 1 TFLOP/s.  At 4 TFLOP/s in bf16
it takes 2 ms; its conversions move 6 bytes of 40 million elements at 60 GB/s, twice: 8 ms.  It
saves 8 - 2 - 8 = -2 ms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from trainperf.analysis.roofline.roofline import launch_s_of
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.machine.chips import Chip


_WEIGHT = {"mm": -1, "addmm": -1, "convolution": 1}
"""Which of its tensors is the weight, in products that have one; the input is before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Products of a chip, and what was timed of them."""

    chip: Chip
    on_host: bool
    """Whether the host itself computes them."""
    attention_s: Mapping[tuple[tuple[int, ...], ...], Mapping[str, float]] = field(
        default_factory=dict
    )
    """Shapes of fused attention to its seconds in each precision, timed on a host."""

    def faster_than_fp32(self) -> str | None:
        """A precision with at least twice the peak of fp32, the least different one.

        Twice is worth the digits (TF32 of an A100: eight times).
        """
        peaks = self.chip.flops_per_s
        slow = peaks.get("fp32", 0.0)
        names = ("tf32", "bf16", "fp16")
        return next((name for name in names if peaks.get(name, 0.0) >= 2 * slow > 0), None)

    def saved_s(self, use: OperatorUse, compute_s: float, precision: str) -> float:
        """Seconds that all its calls save in *precision*: below zero where they take longer.

        Args:
            use: A product, in the precision that it has now.
            compute_s: What its arithmetic takes now.
            precision: The other one.
        """
        peaks, now = self.chip.flops_per_s, use.precision
        if now not in peaks or precision not in peaks:
            return 0.0
        if self.on_host and use.is_fused_attention:
            timed = self.attention_s.get(use.shapes[:3], {}) if use.part == "forward" else {}
            return (
                use.calls * (timed[now] - timed[precision]) if {now, precision} <= {*timed} else 0.0
            )
        # Convolutions were measured from 0.7 to 1.3 times as fast in bf16 on a CPU, whatever the
        # peaks.
        gains = not (self.on_host and "convolution" in use.short_name)
        arithmetic_s = compute_s * (1 - peaks[now] / peaks[precision]) if gains else 0.0
        call_s = self.chip.product_s.get(precision, 0.0) - self.chip.product_s.get(now, 0.0)
        converted_s = self._conversions_s(use) if precision in ("fp16", "bf16") else 0.0
        return arithmetic_s - use.calls * (max(0.0, call_s) + converted_s)

    def in_single_s(self, use: OperatorUse, run_s: float, *, arithmetic: bool) -> float:
        """Seconds that all its calls take in fp32, if in fp64 they take *run_s*.

        Calls stay; of the rest half is left, as of the bytes, or what the peaks say.

        Args:
            use: An operator in fp64.
            run_s: Seconds of its calls now.
            arithmetic: Whether that is what it takes longest for.
        """
        peaks, calls_s = self.chip.flops_per_s, min(run_s, use.calls * launch_s_of(self.chip))
        by_peaks = arithmetic and {"fp32", "fp64"} <= {*peaks}
        left = peaks["fp64"] / peaks["fp32"] if by_peaks else 0.5
        return calls_s + left * (run_s - calls_s)

    def _conversions_s(self, use: OperatorUse) -> float:
        """Of weight and input, and in backward of their gradients, for one call.

        Products without a weight (attention's) get the results of others in the same precision.
        """
        times, place = {"forward": 2, "recompute": 1}.get(use.part, 0), _WEIGHT.get(use.short_name)
        if not times or place is None or len(use.shapes) < 2:
            return 0.0
        elements = sum(prod(use.shapes[index]) for index in (place - 1, place))
        # Four bytes are read and two written, or the other way round; a call, and autograd's node.
        return times * (6 * elements / self.chip.memory_bytes_per_s + 4 * launch_s_of(self.chip))

"""More occupancy is not faster: eight values per thread with few threads against one with many."""

import torch
from torch import Tensor

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import paired
from recipes.cases.verdicts import Judgement, needs_cuda, verdict
from recipes.claims.bench import ClaimBench
from recipes.claims.published import OCCUPANCY


NOTE = "no finding is about this; `trainperf.benchmark` decides it, on a device."

THREADS, EACH = 256, 8
SHARED_BYTES = 46 * 1024
"""Asked for and not used, so that few blocks fit on a multiprocessor."""

SOURCE = """
extern "C" __global__ void scale_NAME(const float* x, float* y, int n) {
    int first = blockIdx.x * blockDim.x * EACH + threadIdx.x;
    float values[EACH];
    #pragma unroll
    for (int k = 0; k < EACH; k++) {
        int at = first + k * blockDim.x;
        values[k] = at < n ? x[at] : 0.0f;
    }
    #pragma unroll
    for (int k = 0; k < EACH; k++) {
        int at = first + k * blockDim.x;
        if (at < n) y[at] = values[k] * 2.0f;
    }
}
"""


def occupancy(bench: ClaimBench) -> Case:
    """The same scaling of a vector by two kernels that are compiled here."""
    claim = "A kernel of lower occupancy is not slower, if each thread has several loads in flight."
    if bench.device == "cpu":
        why = "a CPU core runs one or two threads: it has no occupancy"
        return Case(
            name="occupancy",
            claim=claim,
            before_note=NOTE,
            published=OCCUPANCY,
            **needs_cuda(why),
        )
    if not hasattr(torch.cuda, "_compile_kernel"):
        return Case(
            name="occupancy",
            claim=claim,
            before_note=NOTE,
            published=OCCUPANCY,
            verdict="cannot tell",
            reason="this torch compiles no kernels of one's own",
        )
    x = bench.random(bench.pick(1 << 20, 1 << 27))
    full, few = _Kernel("one", each=1, shared=0), _Kernel("eight", each=EACH, shared=SHARED_BYTES)
    rows = paired(
        {"full occupancy, 1 load each": full, "low occupancy, 8 loads each": few},
        x,
        seconds=bench.seconds,
    )
    return Case(
        name="occupancy",
        claim=claim,
        before_note=NOTE,
        published=OCCUPANCY,
        change=("- one load per thread", "+ eight loads per thread, 46 KiB of shared memory"),
        measured=(
            *rows,
            _occupancy("occupancy, 1 load each", 0),
            _occupancy("occupancy, 8 loads each", SHARED_BYTES),
        ),
        **_at_least_as_fast(rows[1]),
    )


def _at_least_as_fast(row: MeasuredRow) -> Judgement:
    """*Not slower* holds where it is faster, and where it is equal."""
    equal = verdict(row, "equal")
    return equal if equal["verdict"] == "holds" else verdict(row, "faster")


class _Kernel:
    """A kernel compiled from source, on blocks of a size."""

    def __init__(self, name: str, *, each: int, shared: int) -> None:
        source = SOURCE.replace("NAME", name).replace("EACH", str(each))
        self._kernel = torch.cuda._compile_kernel(source, f"scale_{name}")  # noqa: SLF001 - no other
        self._each, self._shared = each, shared

    def __call__(self, x: Tensor) -> Tensor:
        """The first values of the result, to be compared."""
        result = torch.empty_like(x)
        blocks = -(-x.numel() // (THREADS * self._each))
        grid, block = (blocks, 1, 1), (THREADS, 1, 1)
        self._kernel(grid, block, [x, result, x.numel()], shared_mem=self._shared)
        return result[:8]


def _occupancy(what: str, shared: int) -> MeasuredRow:
    """Threads that fit on a multiprocessor by the shared memory, over the most that it holds."""
    device = torch.cuda.get_device_properties(0)
    most = device.max_threads_per_multi_processor
    blocks = device.shared_memory_per_multiprocessor // shared if shared else most // THREADS
    return MeasuredRow(what=what, value=min(1.0, blocks * THREADS / most), unit="%")

"""A trace of two training steps in which the length of everything is planted."""

from typing import Any

from support.traces import MS, Launches, event, mark, step_mark

from trainperf.traces.event_table import Kind


ENGINE = ("1", "2")
"""The thread on which backward runs."""

GEMM = "ampere_bf16_s16816gemm_bf16_128x64"


def planted_steps(count: int = 2) -> list[dict[str, Any]]:
    """Steps of 100 ms: 20 loader, a copy, forward, backward, all-reduce, optimizer, 8 waiting."""
    launches = Launches()
    events: list[dict[str, Any]] = []
    for number in range(count):
        events += _step(launches, number + 1, number * 100 * MS)
    return events


def _step(launches: Launches, number: int, t: int) -> list[dict[str, Any]]:
    copied = {"kind": Kind.MEMCPY, "call": "cudaMemcpyAsync", "bytes": 1_000}
    reduced = {"stream": 20, "on": ENGINE, "elements": 500, "dtype": "Float", "group": "0"}
    reduced |= {"collective": "allreduce"}
    return [
        step_mark(number, t, 100 * MS),
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, 20 * MS),
        event("aten::to", t + 20 * MS, MS),
        *launches("Memcpy HtoD (Pinned -> Device)", t + 20 * MS, t + 21 * MS, 2 * MS, **copied),
        event("aten::linear", t + int(21.5 * MS), 10 * MS, sequence=number),
        event("aten::mm", t + int(21.7 * MS), 5 * MS, shapes="[[8, 8], [8, 8]]", sequence=number),
        *launches(GEMM, t + 22 * MS, t + 26 * MS, 14 * MS),
        event(
            "autograd::engine::evaluate_function: MmBackward0",
            t + 40 * MS,
            20 * MS,
            thread=ENGINE,
            sequence=number,
        ),
        *launches("volta_sgemm_128x64_nt", t + 41 * MS, t + 42 * MS, 20 * MS, on=ENGINE),
        *launches(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL", t + 50 * MS, t + 55 * MS, 15 * MS, **reduced
        ),
        mark("Optimizer.step#SGD.step", t + 72 * MS, 8 * MS),
        *launches("multi_tensor_apply_kernel", t + 73 * MS, t + 74 * MS, 6 * MS),
        event("aten::item", t + 82 * MS, 8 * MS),
        event("aten::_local_scalar_dense", t + 82 * MS, 8 * MS - 10),
        event("cudaStreamSynchronize", t + 82 * MS, 8 * MS - 20, kind=Kind.RUNTIME),
    ]

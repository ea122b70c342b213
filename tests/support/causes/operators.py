"""Operators: attention, updates, chains, launches, precision, recomputing."""

from collections.abc import Mapping

import msgspec
from support.accounts import (
    GIB,
    MODELLED,
    Seen,
    audit_of,
    light,
    on_gpu,
    region,
    seen,
    step,
)
from support.audits import CHIP
from support.causes.case import CauseCase as Case
from support.causes.host import CONVOLVES, switched

from trainperf.analysis.diagnosis.account import Basis, DeviceAccount, Region
from trainperf.analysis.diagnosis.cause import Use
from trainperf.core.artifacts.audit import AttentionTime, MeasuredChip
from trainperf.core.loop_kind import HUGGING_FACE, INFERENCE, LIGHTNING, OUTSIDE, PLAIN, LoopKind
from trainperf.core.machine.chips import Chip, chip_of
from trainperf.core.steps.records import Scalar
from trainperf.traces.results import Operator, RankTrace, TraceStep, TraceTotals


MB = 10**6


def pairs(*, ms: float, calls: int = 12_000, **known: object) -> Seen:
    """Steps of 100 ms, of which two were captured: one operator took so many of them."""
    operator = Operator(name="aten::sub", calls=2 * calls, self_cpu_s=2 * ms / 1e3)
    trace = RankTrace(
        file="x",
        steps=(TraceStep(step=1, step_s=0.1),) * 2,
        totals=TraceTotals(steps=2, step_s=0.1),
        top_cpu_operators=(operator,),
    )
    return seen(step(forward=40, backward=50, other=10), traces=(trace,), **known)


FORWARD = region("addmm", 1, ideal=1, kind="matmul", line="net.py:5")
BACKWARD = region("mm", 30, ideal=30, part="backward", kind="matmul", line="net.py:9")
UPDATE = region("_fused_adamw_", 10, ideal=10, part="optimizer", line="fit.py:3")


def sixty(
    *rows: Region,
    device: DeviceAccount | None = None,
    basis: Basis = "audited",
    micro_batches: int = 1,
    between: float = 0,
    **known: object,
) -> Seen:
    """Sixty milliseconds: these operators, 30 of products in backward, 10 of fused update."""
    every = (FORWARD, *rows, BACKWARD, UPDATE)
    kind = "cpu" if device is None else "cuda"
    account = step(
        *every,
        forward=20,
        backward=30,
        optimizer=10,
        between=between,
        device=device,
        regions_basis=basis,
    )
    documents = audit_of(*every, device=kind, micro_batches=micro_batches)
    return seen(account, **{"documents": documents, "light": light(), **known})


FAST = msgspec.structs.replace(
    CHIP,
    flops_per_s={"fp32": 1e12, "bf16": 4e12},
    product_s={"fp32": 8e-6, "bf16": 20e-6},
)
"""Four times the peak in bf16, and 12 µs more for a call."""


def of_experts(
    ms: float,
    *,
    python: float,
    ideal: float = 2,
    siblings: str = "Net.experts",
    flops: int = 10**6,
) -> Region:
    """Operators of a loop over experts, with so much before their calls."""
    inside = {"module": "Net.experts.3.up", "line": "net.py:12", "siblings": siblings}
    needs = {"ideal": ideal, "flops": flops, "calls": 64}
    return region("addmm", ms, python=python, kind="matmul", **needs, **inside)


def of_tables(ms: float, *, python: float) -> Region:
    """Operators of a loop over tables of unlike lengths."""
    inside = {"module": "Net.tables.3", "line": "net.py:12", "siblings": "Net.tables"}
    return region("embedding", ms, python=python, ideal=1, calls=64, **inside)


def room(number: int, capacity: float | None = 64) -> dict[str, Scalar]:
    """Micro-batches of an update, and memory in GiB."""
    return {
        "accumulate_grad_batches": number,
        "gradient_bytes": GIB,
        "device_memory_bytes": None if capacity is None else capacity * GIB,
    }


def of_samples(ms: float, *, python: float = 8, passes: int = 64, **fields: object) -> Region:
    """Operators of a model that is called for each of 64 samples."""
    inside = {"module": "Net.up", "line": "net.py:12", "repeated": "Net", "passes": passes}
    needs = {"kind": "matmul", "flops": 10**6, "calls": 64, "ideal": 2}
    return region("addmm", ms, python=python, **{**inside, **needs, **fields})


def one_by_one(*rows: Region, samples: float = 64, **known: object) -> Seen:
    """Sixty milliseconds with room for all samples at once."""
    besides = {
        "readings": {"resident_peak_bytes": 6 * GIB, "samples_per_s": samples / 0.06},
        "settings": room(1),
        **known,
    }
    return sixty(*rows, **besides)


# -- copies, casts, constants ------------------------------------


def copy(name: str, ms: float = 15, **fields: object) -> Region:
    """Fifteen of sixty milliseconds."""
    return region(name, ms, kind="copy", **{"line": "net.py:20", **fields})


def cast(ms: float = 15, **fields: object) -> Region:
    """From fp32 to bf16, if nothing else is said."""
    return copy("_to_copy", ms, **{"result_dtype": "bf16", **fields})


def under_autocast(compute: float, *, autocast: bool = True) -> Seen:
    """Conversions of 15 ms, and products in bf16: in fp32 they take four times as long."""
    half = region("bmm", 20, kind="matmul", precision="bf16", compute=compute, ideal=compute)
    settings = {"autocast": "bfloat16"} if autocast else {}
    return sixty(cast(), half, settings=settings, light=light(FAST))


IN_BUCKETS = {"ddp_gradient_as_bucket_view": False}

COPIES = (
    Case(
        "layout_copies",
        "12 and 3 ms, at the line that weighs most",
        sixty(copy("clone", 12), copy("copy_", 3, line="net.py:30", dtypes=("fp32", "fp32"))),
        0.015,
        "one_layout",
        (
            sixty(copy("clone", 5.5)),
            sixty(copy("cat")),
            sixty(copy("clone", constant=True)),
            sixty(copy("clone", composed=True)),
            sixty(cast()),
            sixty(copy("copy_", dtypes=("fp32", "int64"))),
            sixty(copy("copy_", part="backward", module=""), settings=IN_BUCKETS),
        ),
        words=("copies to another memory layout take 25 % of the step", "net.py:20: 12.0 ms per"),
        shows={"where": "net.py:20", "confidence": "medium", "bounded": True},
    ),
    Case(
        "layout_copies",
        "beside DDP too, in a module",
        sixty(copy("copy_", part="backward"), settings=IN_BUCKETS),
        0.015,
        "one_layout",
    ),
    Case(
        "layout_copies",
        "a `_to_copy` that keeps the dtype moves or reorders",
        sixty(cast(result_dtype="fp32")),
        0.015,
        "one_layout",
    ),
    Case(
        "layout_copies",
        "without a trace the times on a device are a model, which is no bound",
        sixty(copy("clone"), device=on_gpu(), basis=MODELLED),
        0.015,
        "one_layout",
        words=("modelled from the floors of step 30",),
        shows={"confidence": "low", "bounded": False},
    ),
    Case(
        "layout_copies",
        "a trace has the times",
        sixty(copy("clone"), device=on_gpu(), basis="traced"),
        0.015,
        "one_layout",
        words=("device times from the trace, operators from step 30",),
        shows={"bounded": True},
    ),
    Case(
        "autocast_casts",
        "a tensor that is made in one dtype and used in another",
        sixty(cast()),
        0.015,
        "convert_once",
        (
            sixty(cast(5.5)),
            sixty(cast(result_dtype="fp32")),
            sixty(cast(constant=True)),
            sixty(cast(part="optimizer")),
        ),
        words=("fp32 to bf16",),
    ),
    Case(
        "autocast_casts",
        "a mask of truth values",
        sixty(cast(dtypes=("bool",), result_dtype="fp32")),
        0.015,
        "keep_dtype",
        words=("bool to fp32", "register_buffer"),
    ),
    Case(
        "autocast_casts",
        "weights, in each of four micro-batches",
        sixty(cast(calls=4), micro_batches=4),
        0.015,
        "weights_in_half",
        words=("in every micro-batch",),
    ),
    Case(
        "autocast_casts",
        "a cast that is made once is not the micro-batches'",
        sixty(cast(), micro_batches=4),
        0.015,
        "convert_once",
    ),
    Case(
        "autocast_casts",
        "of autocast they are the price: 15 ms, where its products would lose 14.7",
        under_autocast(4.9),
        0.015,
        "fp32_instead",
        words=("by the peaks of this chip its conversions take longer than the products save",),
    ),
    Case(
        "autocast_casts",
        "a price that pays: three times 5.1 ms",
        under_autocast(5.1),
        0.015,
        "convert_once",
    ),
    Case(
        "autocast_casts",
        "an autocast that is not on is not taken away",
        under_autocast(4.9, autocast=False),
        0.015,
        "convert_once",
    ),
    Case(
        "constant_rebuilt",
        "a table of sines is made from numbers in every forward",
        sixty(region("sin", 15, constant=True, line="net.py:40")),
        0.015,
        "register_buffer",
        (
            sixty(region("sin", 15)),
            sixty(region("ones_like", 15, constant=True, part="backward")),
            sixty(region("sin", 5.5, constant=True)),
        ),
        shows={"where": "net.py:40"},
    ),
)


# -- chains and attention ------------------------------------


def link(ms: float = 12, **fields: object) -> Region:
    """One of a chain: all it moves passes on inside; fused it takes 2 ms instead of 3."""
    moved = {"read_bytes": MB, "written_bytes": MB, "inner_bytes": 2 * MB, **fields}
    return region("mul", ms, python=0.1, ideal=3, fused=2, **moved)


SCORES = (2, 4, 128, 128)
SMALL_SCORES = (2, 4, 16, 16)
QK = region("bmm", 2, kind="matmul", compute=1, shapes=((8, 128, 16), (8, 16, 128)))
SOFTMAX = region("_softmax", 5, kind="reduction", shapes=(SCORES,), line="net.py:50")
AV = region("bmm", 2, kind="matmul", compute=1, shapes=((8, 128, 128), (8, 128, 16)))
SCALE = region("mul", 3, shapes=(SCORES,))
EAGER = (QK, SCALE, SOFTMAX, AV)
"""Twelve milliseconds, two of which are arithmetic at the peak."""


def unfused(name: str) -> tuple[Region, ...]:
    """`scaled_dot_product_attention` that found no kernel, and something that tells why."""
    safe = region("_safe_softmax", 5, kind="reduction", shapes=(SCORES,))
    return (QK, safe, AV, region(name, 3, shapes=(SCORES,)))


CHAINS = (
    Case(
        "elementwise_chain",
        "12.1 ms, of which one kernel needs 2",
        sixty(link()),
        0.0101,
        "fuse_chain",
        (
            sixty(link(7.8)),
            sixty(link(inner_bytes=0)),
            sixty(link(inner_bytes=MB // 4)),
            sixty(link(part="optimizer")),
            sixty(link(part="backward")),  # gradients that are summed: no formula made them
            sixty(link(calls=610)),  # 19.8 µs each, less than a compiled call takes
            sixty(link(constant=True)),
            sixty(link(kind="reduction")),
            sixty(link(in_call=100)),
            sixty(link(calls=700)),  # 3 ms are less work than so many launches
        ),
        words=("1.91 MiB of the 1.91 MiB they move pass between them",),
    ),
    Case(
        "attention",
        "of 12 ms the arithmetic of its products stays: 2 ms",
        sixty(*EAGER),
        0.010,
        "fused_attention",
        (
            *(sixty(*EAGER[:place], *EAGER[place + 1 :]) for place in (0, 2, 3)),
            sixty(
                region("bmm", 2, kind="matmul", shapes=((8, 16, 16), (8, 16, 16))),
                region("_softmax", 10, kind="reduction", shapes=(SMALL_SCORES,)),
                region("bmm", 2, kind="matmul", shapes=((8, 16, 16), (8, 16, 16))),
            ),
            sixty(QK, region("_softmax", 3, kind="reduction", shapes=(SCORES,)), AV),
        ),
        words=(
            "12.0 ms of 60.0 ms per step, with scores of 2 × 4 × 128 × 128 in memory",
            'attn_implementation="sdpa"',
        ),
        shows={"where": "net.py:50"},
    ),
    Case(
        "attention",
        "a fused call that drops, on a CPU",
        sixty(*unfused("bernoulli_")),
        0.010,
        "no_dropout_in_attention",
        words=("attn_pdrop=0.0",),
    ),
    Case(
        "attention",
        "a fused call that is not fused for another reason",
        sixty(*unfused("where")),
        0.010,
        "fusible_attention",
        words=("SDPBackend.FLASH_ATTENTION",),
    ),
)


# -- updates and launches ------------------------------------


def updated(name: str, ms: float = 10, *more: Region, **known: object) -> Seen:
    """Sixty milliseconds with an update that one kernel would make in one."""
    update = region(name, ms, fused=1, part="optimizer", calls=800, line="fit.py:3")
    account = step(update, *more, forward=20, backward=30, optimizer=10)
    return seen(account, **known)


def launching(
    ms: float, *rows: Region, device: DeviceAccount | None = None, **known: object
) -> Seen:
    """Sixty milliseconds, so many of them in these operators and all others in one product."""
    every = (*rows, region("mm", 60 - ms, kind="matmul", ideal=60 - ms))
    kind = "cpu" if device is None else "cuda"
    given = {"documents": audit_of(*every, device=kind), "light": light(), **known}
    return seen(step(*every, forward=60, device=device), **given)


def tiny(ms: float, calls: int, *, device: DeviceAccount | None = None, **fields: object) -> Seen:
    """Operators that compute a tenth of what they take, all from their own lines."""
    spent = {"ms": 0.1 * ms / calls, "python": 0.9 * ms / calls, **fields}
    rows = [region("add", line=f"net.py:{place}", **spent) for place in range(calls)]
    return launching(ms, *rows, device=device)


def looping(ms: float, calls: int = 400, **fields: object) -> Seen:
    """One line calls an operator again and again; one kernel does 400 calls in a millisecond."""
    needs = {"ideal": calls / 400, "fused": calls / 400}
    loop = region("sigmoid", 0.1 * ms, python=0.9 * ms, calls=calls, **needs, **fields)
    return launching(ms, loop)


FUSED = region("_fused_adamw_", 6, part="optimizer")

UPDATES = (
    Case(
        "optimizer_not_fused",
        "10 ms tensor by tensor, and one for the traffic",
        updated("mul_", loop=PLAIN),
        0.009,
        "fused_optimizer",
        (updated("_foreach_mul_", 4, FUSED), updated("mul_", 6.9)),
        words=("foreach=False", "10.0 ms of 60.0 ms per step in 800 operators", "fused=True"),
    ),
    Case(
        "optimizer_not_fused",
        "lists of tensors are torch's default on a GPU",
        updated("_foreach_mul_"),
        0.009,
        "fused_optimizer",
        words=("lists of tensors (foreach)",),
    ),
    Case(
        "optimizer_not_fused",
        "an optimizer of one's own has no fused=",
        updated("mul_", settings={"optimizers": "Lion"}),
        0.009,
        "foreach_update",
        words=("torch._foreach_mul_",),
    ),
    Case(
        "equal_modules",
        "experts take 14 ms, and 2 would do",
        sixty(of_experts(6, python=8), of_experts(1, python=1, siblings="")),
        0.012,
        "one_product",
        (
            sixty(of_experts(4, python=3.9)),
            sixty(of_experts(6, python=8, ideal=3.6)),  # which do what they can
            sixty(of_experts(6, python=8, siblings="")),
            sixty(of_experts(6, python=8), device=on_gpu(host_bound=0.0)),
            sixty(of_tables(6, python=8)),
            sixty(of_tables(6, python=8), of_experts(1, python=1, siblings="")),
        ),
        words=(
            "a Python loop over equal modules takes 23 % of the step",
            "Compute all modules of Net.experts at once",
            "14.0 ms of 60.0 ms per step in 64 calls, for work of 2.00 ms",
        ),
        shows={"where": "net.py:12"},
    ),
    Case(
        "equal_modules",
        "beside tables, which no product computes",
        sixty(of_experts(6, python=8), of_tables(6, python=8)),
        0.012,
        "one_product",
        words=("Compute all modules of Net.experts at once",),
    ),
    Case(
        "equal_modules",
        "what is around products that do what they can is part of the loop",
        sixty(of_experts(6, python=0, ideal=6), of_experts(6, python=8, flops=0)),
        0.012,
        "one_product",
    ),
    Case(
        "equal_passes",
        "12 of 14 ms are no work of 64 samples: in one call a 64th of them",
        one_by_one(of_samples(6), of_samples(4, python=0, ideal=3, calls=3)),
        0.012 * 63 / 64,
        "one_pass",
        (
            one_by_one(of_samples(5, python=2)),
            one_by_one(of_samples(6, python=1)),  # calls that do what they can
            one_by_one(of_samples(6, passes=1, repeated="")),
            one_by_one(of_samples(6, kind="pointwise", flops=0)),  # a norm, a dropout
            one_by_one(of_samples(6), device=on_gpu(host_bound=0.0)),
            one_by_one(of_samples(6), settings=room(1, None)),
            one_by_one(of_samples(6, written_bytes=48 * GIB)),
            one_by_one(of_samples(6), settings=room(64), samples=512),  # micro-batches of eight
            one_by_one(of_samples(6), settings={**room(64), "batch_size": 1}),
        ),
        words=(
            "Net is called 64 times, which could be once: 23 % of the step",
            "14.0 ms of 60.0 ms per step in 64 calls, for work of 2.00 ms",
            "Call Net once for all 64",
        ),
        shows={"where": "net.py:12"},
    ),
    Case(
        "equal_passes",
        "what is done with each result counts, and the gaps between passes with a backward each",
        one_by_one(
            of_samples(6),
            of_samples(1, python=7, ideal=0, flops=0, module=None, line="fit.py:9"),
            settings=room(64),
            between=32,
            samples=64 * 60 / 92,
        ),
        (0.012 + 0.008 + 0.032) * 63 / 64,
        "one_pass",
        words=("and 32.0 ms between them", "at fit.py:9 one batch instead of the loop"),
        shows={"where": "fit.py:9"},
    ),
    Case(
        "launch_bound",
        "20 ms of 1,500 operators, no work of which has to stay",
        tiny(20, 1500),
        0.020,
        "compile_step",
        (
            tiny(17, 1500),
            tiny(20, 99),
            # `nn.GRU` on a CPU: no Python runs between its calls.
            tiny(20, 1500, in_call=500),
            tiny(20, 1500, read_bytes=35_000),  # 3.5 of the 13.3 µs of each
        ),
        words=("1,500 tiny operators keep the step busy launching",),
    ),
    Case(
        "launch_bound",
        "a device that waits for them",
        tiny(20, 1500, device=on_gpu()),
        0.020,
        "compile_step",
        (tiny(20, 1500, device=on_gpu(host_bound=0.49)),),
    ),
    Case(
        "launch_bound",
        "one operator does what a loop of 400 calls does: a millisecond stays",
        looping(20),
        0.019,
        "one_operator",
        (
            looping(12.9),
            looping(20, 99),
            looping(20, in_call=8),
            looping(20, read_bytes=400 * 60_000),  # 6 µs each, which is more than a launch
            looping(12, 599, read_bytes=599 * 60_000),  # and calls of 20 µs
        ),
        words=(
            "a Python loop launches 400 tiny operators in a step",
            "at net.py:7 one operator over all rows",
        ),
    ),
    Case(
        "launch_bound",
        "calls of 15 µs with 6 of work, which one operator does at once",
        looping(15, 1000, read_bytes=1000 * 60_000),
        0.0125,
        "one_operator",
    ),
)


def marks(bound: float, settings: Mapping[str, Scalar] | None = None, **waits: float) -> Seen:
    """A device of steps of 50 ms."""
    return seen(step(forward=50, device=on_gpu(host_bound=bound, **waits)), settings=settings)


def accumulating(
    number: int = 8,
    *,
    used: float = 6,
    loop: LoopKind = PLAIN,
    bound: float = 1.0,
    capacity: float | None = 64,
) -> Seen:
    """Updates of 48 ms on a device; 4 GiB of what is used are the model and its update."""
    return seen(
        step(forward=24, backward=24, device=on_gpu(host_bound=bound)),
        loop=loop,
        readings={"memory_peak_bytes": used * GIB, "samples_per_s": 8 / 0.048},
        settings=room(number, capacity),
    )


def tiny_micro_batches(**known: object) -> Seen:
    """Eight micro-batches of tiny operators: 20 of 60 ms."""
    each = {"ms": 2 / 150, "python": 18 / 150, "calls": 8}
    rows = [region("add", line=f"net.py:{place}", **each) for place in range(150)]
    held = {"resident_peak_bytes": 6 * GIB}
    product = region("mm", 40, kind="matmul", ideal=40)
    documents = audit_of(*rows, product, micro_batches=8)
    seen_besides = {"documents": documents, "readings": held, "settings": room(8), **known}
    return launching(20, *rows, **seen_besides)


def of_work(flops: int, *, world_size: int = 1) -> Seen:
    """Steps of 50 ms in which a device waits for the host, with so much work."""
    documents = audit_of(region("mm", 1, flops=flops), device="cuda")
    account = step(forward=50, device=on_gpu(host_bound=1.0))
    return seen(account, documents=documents, world_size=world_size)


COMPILED, ON_CPU = Use(change="compile_step"), Use(change="compute_on_cpu")

WAITING = (
    *(
        Case("launch_bound", says, sees, None, "compile_step", shows={"changes": changes})
        for says, sees, changes in (
            ("work of 20 ms for one slow core", of_work(2 * 10**8), (COMPILED, ON_CPU)),
            ("work of 30 ms for it", of_work(3 * 10**8), (COMPILED,)),
            ("ranks would not reach each other", of_work(10**8, world_size=2), (COMPILED,)),
            ("nobody knows the work", marks(1.0), (COMPILED,)),
        )
    ),
    Case(
        "launch_bound",
        "the device had caught up in every step",
        marks(1.0),
        None,
        "compile_step",
        (
            marks(0.49),
            marks(1.0, data_s=0.006),
            seen(step(forward=50)),
            seen(step(forward=50, device=on_gpu(), judged=False)),
        ),
        words=("the device waits for the host in 100 % of the steps",),
        shows={"severity": "medium", "confidence": "medium"},
    ),
    Case(
        "launch_bound",
        "of batches of many shapes each would be recorded as a graph of its own",
        marks(1.0, settings={"shapes_vary": True}),
        None,
        "compile_dynamic",
        words=("with dynamic=True or batches of a few fixed lengths",),
    ),
    Case(
        "launch_bound",
        "the last batch of each epoch is shorter, and no other",
        marks(1.0, settings={"shapes_vary": False}),
        None,
        "compile_step",
        words=('mode="reduce-overhead"',),
    ),
    Case(
        "launch_bound",
        "a capture says how long: 20 of 50 ms",
        marks(0.0, host_s=0.020),
        0.020,
        "compile_step",
        (marks(0.0, host_s=0.0049),),
        words=("the device is idle 40 % of the time because launches come too late",),
        shows={"confidence": "high"},
    ),
    Case(
        "launch_bound",
        "12,000 short calls take 30 of the 100 ms of a captured step",
        pairs(ms=30),
        0.030,
        "one_operator",
        (pairs(ms=19), pairs(ms=30, calls=252), pairs(ms=30, documents=audit_of())),
        words=(
            "a Python loop launches 12,000 tiny operators",
            "sub 12,000 times in a captured step",
        ),
        shows={"bounded": False},
    ),
    Case(
        "launch_bound",
        "eight micro-batches of one row, on 64 GiB of which 6 are used",
        accumulating(loop=HUGGING_FACE),
        None,
        "larger_micro_batches",
        (accumulating(loop=HUGGING_FACE, bound=0.49),),
        words=("TrainingArguments(per_device_train_batch_size=8, gradient_accumulation_steps=1)",),
    ),
    *(
        Case("launch_bound", says, sees, None, "compile_step")
        for says, sees in (
            ("one micro-batch cannot be fewer", accumulating(1)),
            ("eight times 7 GiB do not fit", accumulating(used=11)),
            ("what fits into an unknown memory nobody knows", accumulating(capacity=None)),
        )
    ),
    Case(
        "small_micro_batches",
        "18 of 20 ms around the calls of eight micro-batches: for one an eighth of it",
        tiny_micro_batches(loop=HUGGING_FACE),
        0.018 * 7 / 8,
        "larger_micro_batches",
        (
            tiny_micro_batches(settings=room(1)),
            tiny_micro_batches(settings=room(8, None)),
            tiny_micro_batches(device=on_gpu()),
        ),
        words=(
            "8 micro-batches pay for 1,201 calls, where one would fit",
            "18.0 ms of it around the calls",
            "gradient_accumulation_steps=1",
        ),
    ),
    Case(
        "launch_bound",
        "an audit of eight micro-batches of 150 tiny operators",
        tiny_micro_batches(loop=LIGHTNING),
        0.020,
        "larger_micro_batches",
        words=(
            "1,200 tiny operators keep the step busy launching",
            "a micro-batch 8 times as large, without accumulate_grad_batches",
        ),
    ),
)


# -- precision ------------------------------------

H100, T4 = chip_of("NVIDIA H100 80GB HBM3"), chip_of("Tesla T4")


def twenty(
    *rows: Region, chip: Chip | None = FAST, device: DeviceAccount | None = None, **known: object
) -> Seen:
    """Twenty milliseconds of forward on a chip."""
    account = step(*rows, forward=20, device=device)
    return seen(account, **{"light": None if chip is None else light(chip), **known})


def product(name: str = "bmm", ms: float = 20, *, compute: float = 10, **fields: object) -> Region:
    """Ten of twenty milliseconds are arithmetic at the peak of fp32."""
    counted = {"kind": "matmul", "flops": round(compute * 1e9), **fields}
    return region(name, ms, compute=compute, ideal=compute, **counted)


HEADS = ((8, 4, 64, 32),) * 3
FLASH = product("_scaled_dot_product_flash_attention_for_cpu", 5, compute=5, shapes=HEADS)


def timed(**seconds: float) -> Seen:
    """Attention timed alone in both precisions, beside 15 ms of products."""
    chip = MeasuredChip(chip=FAST, attention=(AttentionTime(shapes=HEADS, seconds=seconds),))
    return twenty(product(ms=15), FLASH, documents={"chip": chip} if seconds else {})


def saves(says: str, sees: Seen, saved_ms: float, *words: str, change: str = "bf16") -> Case:
    """A forecast for products."""
    return Case("matmul_precision", says, sees, saved_ms / 1e3, f"{change}_products", words=words)


WIDE = product("mm", compute=20, calls=10, shapes=((512, 512), (512, 1024)))
CONVERT_S = 2 * (6 * (512 * 512 + 512 * 1024) / 10e9 + 4 * 5e-6) + 12e-6
"""Weight, input, their gradients and eight launches; and 12 µs more for the call."""
THIN = product("mm", 4, compute=0.8, calls=100, shapes=((16, 512), (512, 512)))
CUBE = ((512,) * 2,) * 2

PRECISION = (
    Case(
        "matmul_precision",
        "15 ms of a GFLOP in fp64: one in fp32",
        twenty(
            region("mm", 15, ideal=10, precision="fp64", dtypes=("fp64",), flops=10**9), chip=CHIP
        ),
        0.010,
        "single_precision",
        (twenty(region("mm", 1.9, precision="fp64"), chip=CHIP), twenty(chip=None)),
        words=("75 % of the step computes in double precision", "dtype=torch.float32"),
    ),
    Case(
        "matmul_precision",
        "of 10 ms of arithmetic a quarter is left, the other 10 stay; a call takes 12 µs more",
        twenty(product(), loop=LIGHTNING),
        0.0075 - 12e-6,
        "bf16_products",
        (
            twenty(product(), chip=CHIP),  # it does bf16 no faster
            twenty(product(calls=1000)),
            twenty(THIN),
            twenty(product("convolution")),
            timed(fp32=5e-3, bf16=11.5e-3),
        ),
        words=('Trainer(precision="bf16-mixed")', "1 TFLOP/s in fp32, 4 in bf16"),
    ),
    saves("attention that nobody timed gains nothing", timed(), 7.5 - 0.012),
    saves("attention timed 2.5 ms faster", timed(fp32=5e-3, bf16=2.5e-3), 10 - 0.012),
    saves("attention timed 5 ms slower", timed(fp32=5e-3, bf16=10e-3), 2.5 - 0.012),
    saves(
        "inputs, weights and their gradients are converted",
        twenty(WIDE),
        15 - 10 * CONVERT_S * 1e3,
    ),
    saves(
        "what backward multiplies was converted with forward",
        twenty(product("mm", compute=20, part="backward", shapes=CUBE)),
        15 - 0.012,
    ),
    Case(
        "matmul_precision",
        "tf32 changes least, though bf16 is faster still; beside a device calls cost nothing",
        twenty(product(), chip=H100, device=on_gpu()),
        0.010 * (1 - 67 / 494.7),
        "tf32_products",
        tuple(
            twenty(product(precision=kind), chip=H100, device=on_gpu())
            for kind in ("tf32", "bf16", "fp16", "fp8")
        ),
        words=("67 TFLOP/s in fp32, 495 in tf32", 'set_float32_matmul_precision("high")'),
    ),
    saves(
        "a T4 has neither tf32 nor bf16",
        twenty(product(), chip=T4, device=on_gpu(), loop=LIGHTNING),
        10 * (1 - 8.1 / 65),
        'Trainer(precision="16-mixed")',
        change="fp16",
    ),
    saves(
        "a bf16 that is hardly faster is not taken; rates below a TFLOP/s keep their digits",
        twenty(
            product(),
            chip=msgspec.structs.replace(
                CHIP, flops_per_s={"fp32": 4e10, "bf16": 6e10, "fp16": 16e10}
            ),
        ),
        7.5,
        "planted: 0.04 TFLOP/s in fp32, 0.16 in fp16",
        change="fp16",
    ),
)


# -- what is learned, kept and computed twice ------------------------------------


def halved(name: str, dtype: str) -> Seen:
    """An operator of the forward computes in it."""
    row = region(name, 1, dtypes=(dtype,), line="fit.py:8")
    return seen(step(row, forward=20), documents=audit_of(row))


def checkpointed(
    used: float = 6, *rows: Region, loop: LoopKind = PLAIN, **settings: Scalar
) -> Seen:
    """Forward takes 30 of 100 ms of a model of 1 GiB; 64 GiB are there."""
    given = {"gradient_checkpointing": True, "gradient_bytes": GIB, **settings}
    return seen(
        step(*rows, forward=30, backward=70),
        loop=loop,
        readings={"resident_peak_bytes": used * GIB},
        settings={"device_memory_bytes": 64 * GIB, **given},
    )


def answering(nodes: float | None) -> Seen:
    """Graphs of so many nodes, of 2 µs each, in three calls per batch of 20 ms."""
    known = {"graph_node_s": 2e-6, "answer_calls": 3.0, "answer_graph_bytes": 3e6}
    settings = {} if nodes is None else {"answer_graph_nodes": nodes, **known}
    return seen(step(forward=20), loop=INFERENCE, settings=settings)


AGAIN = region("addmm", 12, part="recompute", kind="matmul", line="net.py:5")

LEARNED = (
    Case(
        "half_sensitive",
        "a loss in bf16 is a matter of digits",
        halved("_log_softmax", "bf16"),
        None,
        "loss_in_fp32",
        (
            halved("_log_softmax", "fp32"),
            halved("addmm", "bf16"),
            halved("native_layer_norm", "bf16"),
        ),
        words=("the loss is computed in bf16",),
        shows={"where": "fit.py:8", "severity": "medium"},
    ),
    Case(
        "half_sensitive",
        "a norm in fp16 can overflow",
        halved("native_layer_norm", "fp16"),
        None,
        "sums_in_fp32",
        words=("fp16 overflows beyond 65,504",),
        shows={"severity": "low"},
    ),
    Case(
        "recompute",
        "4 GiB of model and update, and 2 of all else: twenty times that is 44 of 64",
        checkpointed(loop=HUGGING_FACE),
        0.030,
        "keep_activations",
        (
            checkpointed(7),  # 3 GiB might become 60
            checkpointed(gradient_checkpointing=False),
            checkpointed(attention="eager"),
            checkpointed(gradient_bytes=None),
            checkpointed(6, FORWARD),  # an audit that saw none
        ),
        words=(
            "up to 30.0 ms of 100 ms per step",
            "6.00 GiB of 64.0 GiB at the peak",
            "TrainingArguments(gradient_checkpointing=False)",
        ),
    ),
    Case(
        "recompute",
        "an audit knows what is computed twice, and where",
        checkpointed(6, FORWARD, AGAIN, loop=OUTSIDE),
        0.012,
        "keep_activations",
        words=("model.gradient_checkpointing_disable()",),
        shows={"where": "net.py:5"},
    ),
    Case(
        "convolution_search",
        "cuDNN searches for each new size",
        switched(cudnn_benchmark=True, shapes_vary=True, **CONVOLVES),
        None,
        "no_cudnn_benchmark",
        (
            switched(cudnn_benchmark=True, **CONVOLVES),
            switched(cudnn_benchmark=True, shapes_vary=True, convolution_format="contiguous"),
        ),
        words=("while the sizes of batches vary", "each new size"),
    ),
    Case(
        "gradients_on",
        "three calls of 500 nodes of 2 µs take 3 of 20 ms, and memory that nobody bounds",
        answering(500),
        None,
        "inference_mode",
        (answering(None), answering(0)),
        words=("500 nodes per call of the model", "about 3.00 ms of 20.0 ms (15 %)"),
    ),
)

CASES = (*COPIES, *CHAINS, *UPDATES, *WAITING, *PRECISION, *LEARNED)

"""Trainings that are wrong or end."""

import msgspec
from support.accounts import GIB, MIB, Seen, audit_of, on_gpu, region, seen, step
from support.causes.case import CauseCase as Case

from trainperf.analysis.diagnosis.cause import Use
from trainperf.core.artifacts.memory import Holder, MemoryLedger, OutOfMemory
from trainperf.core.loop_kind import HUGGING_FACE, INFERENCE
from trainperf.core.steps.records import Scalar
from trainperf.meters.fold import Reading


LEDGER = MemoryLedger(
    device="cuda",
    parameters_bytes=4 * GIB,
    gradients_bytes=4 * GIB,
    optimizer_state_bytes={"exp_avg": 4 * GIB, "exp_avg_sq": 4 * GIB},
    activations_bytes=20 * GIB,
    capacity_bytes=80 * GIB,
)


def ended(reason: str = "OutOfMemoryError", **memory: object) -> Seen:
    """After three steps, on a GPU of 80 GiB."""
    known = {"memory": msgspec.structs.replace(LEDGER, **memory)} if memory else {}
    few = {"steps": 3, "steady_steps": 0, "end_reason": reason}
    return seen(step(forward=10, device=on_gpu()), documents=known, **few)


def failed(during: str, requested: int, *, workspace: bool = False, **memory: object) -> Seen:
    """By an allocation of which the ledger knows."""
    last = OutOfMemory(
        during=during,
        workspace=workspace,
        requested_bytes=requested,
        allocated_bytes=memory.pop("allocated", None),
        where="model.py:31",
    )
    return ended(out_of_memory=last, **memory)


ran_out = Case(
    "out_of_memory",
    "20 GiB of activations, and 2 more were asked for",
    failed("forward", 2 * GIB),
    None,
    "shrink_activations",
    (ended("ValueError"), ended("ValueError", step=1)),
    words=("in forward: activations filled it", "2.00 GiB more was requested"),
    shows={"where": "model.py:31", "urgent": True, "confidence": "high"},
)

OUT_OF_MEMORY = (
    ran_out,
    Case(
        "out_of_memory",
        "the ledger was not made, but 70 GiB were allocated and 16 of them are static",
        failed("backward", 2 * GIB, activations_bytes=None, allocated=70 * GIB),
        None,
        "shrink_activations",
    ),
    Case(
        "out_of_memory",
        "the update asked for its state",
        failed("optimizer", 60 * GIB),
        None,
        "shrink_optimizer_state",
        words=("in the update: optimizer state filled it",),
    ),
    Case(
        "out_of_memory",
        "parameters are largest",
        failed("forward", GIB, activations_bytes=None, parameters_bytes=40 * GIB),
        None,
        "shrink_parameters",
    ),
    Case(
        "out_of_memory",
        "gradients are largest",
        failed("forward", GIB, activations_bytes=None, gradients_bytes=40 * GIB),
        None,
        "shrink_gradients",
    ),
    Case(
        "out_of_memory",
        "a library asked for its workspace",
        failed("forward", GIB, workspace=True),
        None,
        "shrink_workspace",
    ),
    Case(
        "out_of_memory",
        "nobody looked at the memory: only the exception's name is known",
        ended(),
        None,
        "shrink_activations",
        shows={"confidence": "medium", "urgent": True},
    ),
)


def held(count: int, graphs: int, size_bytes: int, name: str = "Model.kept") -> dict[str, object]:
    """A list that gathered so much."""
    holder = Holder(
        kind="list",
        name=name,
        where="train.py:7",
        count=count,
        graphs=graphs,
        size_bytes=size_bytes,
    )
    return {"memory": msgspec.structs.replace(LEDGER, held=(holder,))}


def growing(
    per_step: float,
    *,
    noise: float = 0.0,
    step_s: float = 0.1,
    steps: int = 400,
    documents: dict[str, object] | None = None,
) -> Seen:
    """A run of 100 ms a step on a machine with 61 of 64 GiB left, whose memory grows."""
    slope = Reading(value=per_step, unit="B", low=per_step - noise, high=per_step + noise)
    return seen(
        step(forward=1e3 * step_s),
        steps=steps,
        steady_steps=steps,
        readings={
            "memory_slope_bytes_per_step": slope,
            "resident_peak_bytes": 3 * GIB,
            "step_mean_s": step_s,
        },
        settings={"device_memory_bytes": 64 * GIB},
        documents=documents,
    )


GROWTH = (
    Case(
        "leak",
        "a MiB per step, and 61 GiB left: 62,464 steps of 100 ms, which is within a day",
        growing(MIB, noise=MIB / 2),
        None,
        "find_the_leak",
        (
            growing(0.0),
            growing(-MIB),
            growing(MIB, noise=1.1 * MIB),
            growing(0.079 * MIB),  # 31.6 MiB are an allocator's
            growing(10_000, steps=4600),  # full in 7.6 days
            growing(10 * MIB, steps=299),
            growing(10 * MIB, step_s=0.07),
        ),
        words=("memory is full in 62,500 steps (41,600–124,900)", "no container was found"),
        shows={"urgent": True, "confidence": "medium", "where": ""},
    ),
    Case(
        "leak",
        "a list has something of each step, and enough of it",
        growing(MIB, documents=held(400, 0, 400 * MIB)),
        None,
        "clear_what_gathers",
        words=("memory grows with every step in Model.kept",),
        shows={"where": "train.py:7", "confidence": "high"},
    ),
    Case(
        "leak",
        "a list of a tenth of the growth cannot explain it",
        growing(MIB, documents=held(400, 0, 40 * MIB)),
        None,
        "find_the_leak",
        shows={"where": ""},
    ),
    Case(
        "leak",
        "nor can one with something of a fifth of the steps",
        growing(MIB, documents=held(80, 0, 400 * MIB)),
        None,
        "find_the_leak",
        shows={"where": ""},
    ),
    Case(
        "leak",
        "a graph of each step is a leak whose cause is shown",
        growing(MIB, documents=held(400, 400, MIB)),
        None,
        "detach",
        words=("Model.kept keeps the autograd graph of every step", "1.00 MiB per step"),
        shows={"urgent": True, "severity": "high", "where": "train.py:7"},
    ),
    Case(
        "leak",
        "short, but a warm-up is no question where the list is found",
        growing(100 * MIB, steps=200, documents=held(200, 200, MIB)),
        None,
        "detach",
        shows={"urgent": True, "severity": "high"},
    ),
    Case(
        "leak",
        "a list of losses: some kilobytes per step fill no memory for weeks",
        growing(4096, documents=held(400, 400, 1600)),
        None,
        "detach",
        shows={"urgent": False, "severity": "medium"},
    ),
    Case(
        "leak",
        "where memory was not measured it is neither urgent nor harmless",
        seen(step(forward=100), documents=held(200, 200, 1600)),
        None,
        "detach",
        (
            seen(step(forward=100), documents=held(99, 99, 1600)),
            seen(step(forward=100), documents=held(200, 99, 1600)),  # the others are detached
            seen(step(forward=100), documents=held(200, 200, 1600), steps=19),
            seen(step(forward=100)),
        ),
        shows={"urgent": False, "severity": "medium"},
    ),
)


def gpu(peak: float, reserved: float = 79, *, memory: object = None, **readings: float) -> Seen:
    """One of 80 GiB that came to these peaks, in GiB."""
    return seen(
        step(forward=50, device=on_gpu()),
        steady_steps=400,
        readings={
            "memory_peak_bytes": peak * GIB,
            "memory_reserved_peak_bytes": reserved * GIB,
            "fragmentation_bytes": (reserved - peak) * GIB,
            **readings,
        },
        settings={"device_memory_bytes": 80 * GIB},
        documents={"memory": memory},
    )


LIMITED = (
    Case(
        "memory_limit",
        "74 of 80 GiB are more than 92 %",
        gpu(74, memory=LEDGER),
        None,
        "leave_room",
        (gpu(73), gpu(64), gpu(79, memory=failed("forward", GIB).facts.documents.memory)),
        words=("74.0 GiB of 80.0 GiB", "half the micro-batch, twice as many of them saves up to"),
        shows={"severity": "medium"},
    ),
    Case(
        "memory_limit",
        "from 97 % on it is severe",
        gpu(78),
        None,
        "leave_room",
        shows={"severity": "high"},
    ),
    Case(
        "memory_limit",
        "30 of 70 GiB that are reserved are holes, of 80",
        gpu(40, 70),
        None,
        "expandable_segments",
        (
            gpu(33, 63),  # 17 GiB are free for what comes
            gpu(57, 70),  # 13 of them: less than a fifth
        ),
        words=("the run uses 88 % of", "70.0 GiB reserved, 30.0 GiB of it unused"),
        shows={"severity": "medium"},
    ),
    Case(
        "memory_limit",
        "the allocator started over in one of eight steps",
        gpu(70, alloc_retries=50),
        None,
        "room_for_allocator",
        (gpu(70, alloc_retries=2), gpu(70), gpu(70, alloc_retries=0)),
        words=("70.0 GiB of 80.0 GiB", "the allocator retried 50 times"),
        shows={"severity": "high"},
    ),
    Case(
        "memory_limit",
        "in one of a hundred",
        gpu(70, alloc_retries=4),
        None,
        "room_for_allocator",
        shows={"severity": "medium"},
    ),
    Case(
        "memory_limit",
        "each remedy that applies is told, the one for the retries first",
        gpu(76, alloc_retries=4),
        None,
        "room_for_allocator",
        shows={"changes": (Use(change="room_for_allocator"), Use(change="leave_room"))},
    ),
    Case(
        "driver_allocations",
        "in steps of ever other shapes",
        gpu(40, device_allocs=1280),
        None,
        "expandable_segments",
        (gpu(40, device_allocs=79), gpu(40), gpu(40, device_allocs=0)),
        words=("the allocator asks the driver for memory 3.2 times a step", "1,280 times in 400"),
        shows={"severity": "medium"},
    ),
)


def learned(**settings: Scalar) -> Seen:
    """A training of a plain loop of which this is known."""
    return seen(step(forward=10), settings=settings)


def scheduled(stepped: int, updates: int, passes: int, **known: object) -> Seen:
    """A schedule that was stepped so often."""
    counted = {"scheduler_steps": stepped, "updates": updates, "micro_batches": passes}
    return seen(step(forward=10), settings={"schedulers": "StepLR", **counted}, **known)


def answers(loop: object = INFERENCE, *, by: str = "", **settings: Scalar) -> Seen:
    """An inference loop, with the operator that an audit of a step saw to draw."""
    audit = audit_of(region(by, 1.0)) if by else None
    return seen(step(forward=10), loop=loop, settings=settings, documents=audit)


ACCELERATED = {"software": {"accelerate": "1.15"}, "world_size": 2}

WRONG = (
    Case(
        "zero_grad",
        "no gradient was zeroed between the first updates",
        learned(gradients_zeroed=False),
        None,
        "zero_grad",
        (learned(gradients_zeroed=True), learned()),
        shows={"urgent": True, "severity": "high"},
    ),
    Case(
        "scheduler_per_micro_batch",
        "a step with each of four micro-batches",
        scheduled(400, 100, 400),
        None,
        "schedule_per_update",
        (
            scheduled(100, 100, 400),
            scheduled(2, 100, 100),
            scheduled(40, 10, 40),
            scheduled(200, 100, 200, **ACCELERATED),
            learned(),
        ),
        words=("StepLR: 400 steps in 100 updates",),
        shows={"urgent": True},
    ),
    Case(
        "scheduler_per_micro_batch",
        "twice an update, of one micro-batch each",
        scheduled(200, 100, 100),
        None,
        "schedule_once",
    ),
    Case(
        "scheduler_per_micro_batch",
        "Accelerate steps twice for two ranks, and not four times",
        scheduled(400, 100, 200, **ACCELERATED),
        None,
        "schedule_once",
    ),
    Case(
        "train_mode",
        "its dropout drops in answers",
        answers(train_mode="Dropout, BatchNorm2d", answers_drawn=True),
        None,
        "eval_mode",
        (answers(), answers(HUGGING_FACE, train_mode="Dropout")),
        words=("in train mode: Dropout, BatchNorm2d", "depend on random numbers"),
        shows={"urgent": True},
    ),
    Case(
        "dropout_left_on",
        "an answer drops in eval mode",
        answers(
            by="native_dropout",
            answers_drawn=True,
            answers_drawn_in="Net.head",
            answers_drawn_at="net.py:9",
        ),
        None,
        "dropout_by_mode",
        (
            answers(by="native_dropout"),
            answers(by="native_dropout", answers_drawn=False),
            answers(by="native_dropout", answers_drawn=True, train_mode="Dropout"),
            answers(by="multinomial", answers_drawn=True),  # a generator of text
            answers(by="normal_", answers_drawn=True),  # one of images
            answers(answers_drawn=True),  # no step was audited
        ),
        words=("dropout is left on in eval mode, in Net.head",),
        shows={"urgent": True, "where": "net.py:9"},
    ),
    Case(
        "dropout_left_on",
        "as the host does it: a mask of its own",
        answers(by="bernoulli_", answers_drawn=True),
        None,
        "dropout_by_mode",
        words=("dropout is left on in eval mode\n",),
        shows={"where": ""},
    ),
)

CASES = (*OUT_OF_MEMORY, *GROWTH, *LIMITED, *WRONG)

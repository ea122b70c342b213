"""Several ranks: late ones, reductions, one process for several devices."""

import msgspec
from support.accounts import GIB, MIB, Seen, meeting, on_gpu, seen, step, with_summary
from support.causes.case import CauseCase as Case
from support.causes.host import OWNER, lines

from trainperf.analysis.diagnosis.account import DeviceAccount
from trainperf.analysis.diagnosis.cause import Use
from trainperf.analysis.summary.machine_schema import DeviceFacts, HostFacts, MachineFacts
from trainperf.analysis.summary.schema import (
    LateRank,
    PlainCode,
    StallingCall,
    SyncPoint,
)
from trainperf.core.artifacts.lines import SENDS_BUFFERS
from trainperf.core.loop_kind import HUGGING_FACE, LIGHTNING, PLAIN, LoopKind
from trainperf.core.machine.backends import CUDA, Backend
from trainperf.core.steps.records import Scalar
from trainperf.meters.fold import Reading
from trainperf.traces.results import Collective, RankTrace, Straggler, TraceTotals


# -- late ranks ------------------------------------


def point(
    even: float,
    *late: LateRank,
    at: str = "backward",
    skew: float | None = None,
    host: str = "",
) -> SyncPoint:
    """Milliseconds that a step would save there if all were as fast as the typical rank."""
    return SyncPoint(
        point=at,
        n=188,
        wait_s=(even / 1e3, 0.001),
        transfer_s=0.001,
        skew_s=(even if skew is None else skew) / 1e3,
        lost_s=even / 1e3,
        late_fraction=0.97,
        even_s=even / 1e3,
        named_s=even / 1e3 if late else 0.0,
        late=late,
        host=host,
    )


def lags(rank: int, ms: float = 20, cause: str | None = "data_wait") -> LateRank:
    """A rank that comes after the others again and again."""
    return LateRank(
        rank=rank, late_s=ms / 1e3, cause=cause, cause_s=None if cause is None else ms / 1e3
    )


def late(
    *points: SyncPoint, device: DeviceAccount | None = None, loop: LoopKind = PLAIN, **known: object
) -> Seen:
    """Two ranks, steps of 100 ms."""
    account = step(
        data_wait=20,
        forward=40,
        backward=40,
        device=device,
        meetings={"backward": meeting(21, 1, data_wait=20)},
    )
    of_job = {
        "device": Backend(name="cpu") if device is None else CUDA,
        "ranks": 2,
        "world_size": 2,
        **known,
    }
    return seen(account, synchronisation=points, loop=loop, **of_job)


def waited(wait_s: float, *ranks: int) -> Seen:
    """By a capture: in each of two steps of 100 ms the others wait for a rank."""
    found = tuple(
        Straggler(step=number, rank=rank, wait_s=wait_s, transfer_s=0.001)
        for number in (1, 2)
        for rank in ranks
    )
    return seen(step(forward=100, device=on_gpu(communication_s=0.02)), stragglers=found)


LATE = (
    Case(
        "straggler",
        "rank 1 makes its batches in 20 ms more",
        late(point(20, lags(1))),
        0.020,
        "faster_loader_of_rank",
        (
            late(point(9.9)),
            late(point(12, skew=0.5)),  # a few steps with a long wait are no habit
            seen(step(forward=100)),
            waited(0.001, 1),
        ),
        words=(
            "20 % of the step is lost to stragglers; rank 1, data wait",
            "rank 1 late by 20.0 ms at backward, 97 % of steps: 20.0 ms in data wait",
            "a step would take 80.0 ms instead of 100 ms",
        ),
        shows={"confidence": "high"},
    ),
    Case(
        "straggler",
        "now this rank, now that",
        late(point(20)),
        0.020,
        "even_work",
        words=("not always the same rank", "batches of equal length"),
        shows={"confidence": "medium"},
    ),
    Case(
        "straggler",
        "two of them do what the others do not",
        late(point(20, lags(3, cause="callbacks"), lags(4, cause="callbacks"))),
        0.020,
        "look_at_rank",
        words=("find what ranks 3–4 do in callbacks that the others do not",),
    ),
    Case(
        "straggler",
        "rank 0 is late in a function of the user's, where its samples are",
        late(point(20, lags(0, cause="callbacks")), **lines("callbacks")),
        0.020,
        "look_at_rank",
        words=(
            "rank 0, callbacks, in on_batch_end",
            "find what rank 0 does in on_batch_end that the others do not",
            "on_batch_end (hooks.py:3): 70 % of that in 60 samples",
        ),
        shows={"where": "hooks.py:3"},
    ),
    Case(
        "straggler",
        "late in backward, and in forward too, where nobody waits: it has more work",
        late(
            point(20, lags(1, cause="backward")),
            readings={"phase_forward_s": Reading(value=0.03, unit="s", per_rank=(0.02, 0.04))},
        ),
        0.020,
        "even_work",
        words=("forward takes 40.0 ms there and 20.0 ms on the others",),
    ),
    Case(
        "straggler",
        "rank 1 left no file: the second value is rank 2's",
        late(
            point(20, lags(2, cause="backward")),
            ranks=(0, 2),
            readings={"phase_forward_s": Reading(value=0.03, unit="s", per_rank=(0.02, 0.04))},
        ),
        0.020,
        "even_work",
    ),
    Case(
        "straggler",
        "late in backward alone: a piece of code of its own",
        late(
            point(20, lags(1, cause="backward")),
            readings={"phase_forward_s": Reading(value=0.02, unit="s", per_rank=(0.02, 0.023))},
        ),
        0.020,
        "look_at_rank",
    ),
    Case(
        "straggler",
        "another rank is late: the samples are not its own",
        late(point(20, lags(1, cause="callbacks")), **lines("callbacks")),
        0.020,
        "look_at_rank",
        words=("find what rank 1 does in callbacks that the others do not",),
    ),
    Case(
        "straggler",
        "no phase of the host explains it",
        late(point(20, lags(1, cause=None))),
        0.020,
        "compare_hosts",
        words=("no host phase explains it: a slower device?",),
    ),
    Case(
        "straggler",
        "on a CPU it is lost at both points",
        late(point(20, lags(0)), point(20, lags(0), at="loop")),
        0.040,
        "faster_loader_of_rank",
    ),
    Case(
        "straggler",
        "behind a device's back it is the same delay",
        late(point(20, lags(0)), point(20, lags(0), at="loop"), device=on_gpu()),
        0.020,
        "faster_loader_of_rank",
    ),
    Case(
        "straggler",
        "a Trainer's ranks gather token counts before forward",
        late(
            point(20, lags(1), at="other"),
            loop=HUGGING_FACE,
            settings={"loop": "huggingface", "average_tokens_across_devices": True},
        ),
        0.020,
        "faster_loader_of_rank",
        words=("at the gather of token counts before forward",),
    ),
    Case(
        "straggler",
        "by a capture: 10 ms in each of two steps",
        waited(0.010, 3),
        0.010,
        "look_at_rank",
        words=("the other ranks wait for rank 3", "up to 10.0 ms in collectives, late in 2 of 2"),
    ),
)


# -- reductions ------------------------------------

FOURFOLD: dict[str, Scalar] = {"allreduces_per_step": 4.0, "micro_batches_per_step": 4.0}


def reduces(
    tail: float,
    *,
    device: DeviceAccount | None = None,
    loop: LoopKind = PLAIN,
    bus: float | None = None,
    **settings: Scalar,
) -> Seen:
    """Milliseconds of 100 in which even the last rank waits, after 40 of backward."""
    account = step(
        forward=60, backward=40, device=device, meetings={"backward": meeting(tail, tail)}
    )
    kind = Collective(kind="all_reduce", count=9, total_s=0.05, bus_bytes_per_s=bus)
    totals = TraceTotals(steps=3, step_s=0.1, comm_s=0.06)
    rank = RankTrace(file="x", totals=totals, collectives=(kind,))
    return seen(
        account,
        ranks=2,
        world_size=2,
        loop=loop,
        settings=settings,
        traces=(rank,) if bus else (),
    )


def shrinks(
    says: str, change: str, action: str, loop: LoopKind = PLAIN, **settings: Scalar
) -> Case:
    """A tail of 30 ms, by what DDP was told."""
    sees = reduces(30, loop=loop, **settings)
    return Case("allreduce_tail", says, sees, 0.030, change, words=(action,))


def linked(links: int, **settings: Scalar) -> Seen:
    """The same on a host whose devices have so many links of NVLink."""
    devices = (DeviceFacts(name="NVIDIA H200"), DeviceFacts(name="NVIDIA H200", nvlinks=links))
    host = HostFacts(rank=0, host="a", cpus=8, samples=9, means={}, worst={}, devices=devices)
    account, facts = reduces(30, **settings)
    return Seen(account, with_summary(facts, machine=MachineFacts(hosts=(host,))))


SLOW_LINK: dict[str, Scalar] = {
    "backend": "gloo",
    "GLOO_SOCKET_IFNAME": "eth0",
    "gloo_bytes_per_s": 125e6,
    "fastest_interface": "eth1",
    "fastest_bytes_per_s": 1.25e9,
    "local_world_size": 1,
}


def gathering(capacity: float) -> Seen:
    """FSDP on devices of so many GiB, in a capture that shows 50 of 100 ms."""
    sees = reduces(
        30,
        device=on_gpu(communication_s=0.05),
        fsdp_reshard=True,
        gradient_bytes=4 * GIB,
        device_memory_bytes=capacity * GIB,
    )
    return Seen(sees.account, with_summary(sees.facts, readings=TEN_GIB))


def sends(buffers: float, sampled: str = "", **settings: Scalar) -> Seen:
    """DDP of 100 MiB, and its buffers; what samples saw in most of its forward."""
    told = {"ddp_broadcast_buffers": True, "buffer_bytes": buffers, "gradient_bytes": 100 * MIB}
    sees = reduces(1, **told | settings)
    line = msgspec.structs.replace(OWNER, fraction=0.75)
    host = PlainCode(line=line, low=0.7, high=0.8, names=(sampled,)) if sampled else None
    return Seen(sees.account, with_summary(sees.facts, **lines("forward", host=host)))


def sends_objects(
    fraction: float, inside: float, name: str = "all_gather_object", ranks: int = 2
) -> Seen:
    """Of 40 ms between update and forward so much in the call, and in the function around it."""
    call = StallingCall(
        name=f"torch.distributed.{name}", where="train.py:72", fraction=fraction, inside=inside
    )
    account = step(forward=20, backward=40, between=40)
    return seen(account, world_size=ranks, **lines("between", None, stalls=(call,)))


TEN_GIB = {"memory_peak_bytes": Reading(value=10 * GIB, unit="B")}
HALF = "send half the bytes: model.register_comm_hook(None, default_hooks.bf16_compress_hook)"

REDUCTIONS = (
    Case(
        "no_sync",
        "three of four are redundant; on a CPU they may be all of backward",
        reduces(8, **FOURFOLD),
        0.030,
        "no_sync",
        (
            reduces(30, allreduces_per_step=1.0, micro_batches_per_step=4.0),
            reduces(30, allreduces_per_step=1.0, micro_batches_per_step=1.0),
            reduces(30, allreduces_per_step=2.0, micro_batches_per_step=1.0),
            reduces(30, allreduces_per_step=1.1, micro_batches_per_step=1.2),
            reduces(30, micro_batches_per_step=4.0),
            reduces(30),
        ),
        words=(
            "75 % of the all-reduces are in micro-batches that do not update",
            "4 all-reduces for 4 micro-batches per step",
            "with model.no_sync(): ",
        ),
    ),
    Case(
        "no_sync",
        "two models in turn: six of eight are redundant",
        reduces(8, allreduces_per_step=8.0, micro_batches_per_step=4.0),
        0.030,
        "no_sync",
    ),
    Case(
        "no_sync",
        "the buckets before the last one took as long at most",
        reduces(6, ddp_buckets=2, **FOURFOLD),
        0.75 * 0.012,
        "no_sync",
    ),
    Case(
        "no_sync",
        "on a device they are bounded by their tail",
        reduces(20, device=on_gpu(), **FOURFOLD),
        0.75 * 0.020,
        "no_sync",
    ),
    Case(
        "no_sync",
        "or by what a capture saw of communication",
        reduces(20, device=on_gpu(communication_s=0.06), **FOURFOLD),
        0.75 * 0.060,
        "no_sync",
    ),
    Case(
        "no_sync",
        "Lightning has its wrapped module elsewhere",
        reduces(8, loop=LIGHTNING, **FOURFOLD),
        0.030,
        "no_sync",
        words=("with self.trainer.model.no_sync(): ",),
    ),
    Case(
        "allreduce_tail",
        "30 of 100 ms, in crumbs",
        reduces(30, ddp_buckets=60, gradient_bytes=65_280),
        0.030,
        "larger_buckets",
        (reduces(9.9), reduces(30, **FOURFOLD)),
        words=(
            "30 % of the step is communication that nothing hides",
            "30.0 ms of 100 ms per step after backward",
            "60 buckets of 1.06 KiB on average",
            "DistributedDataParallel(bucket_cap_mb=25) or larger",
        ),
    ),
    Case(
        "allreduce_tail",
        "12 ms of the last of nine buckets: what backward hides of the others is no loss",
        reduces(12, ddp_buckets=9),
        0.012,
        "reduce_less",
    ),
    *(
        shrinks(
            f"every parameter is used, {loop.name}",
            "no_unused_parameters",
            action,
            loop,
            ddp_unused_bytes=0,
        )
        for loop, action in (
            (PLAIN, "DistributedDataParallel(find_unused_parameters=False)"),
            (LIGHTNING, "DDPStrategy(find_unused_parameters=False)"),
            (HUGGING_FACE, "TrainingArguments(ddp_find_unused_parameters=False)"),
        )
    ),
    shrinks(
        "one bucket of 200 MB, as it was told to",
        "smaller_buckets",
        "DistributedDataParallel(bucket_cap_mb=25): what is reduced while",
        ddp_buckets=1,
        gradient_bytes=200_000_000,
        ddp_bucket_cap_mb=500.0,
    ),
    shrinks(
        "one table of 200 MB is one bucket whatever it is told",
        "reduce_less",
        "accumulate more",
        ddp_buckets=1,
        gradient_bytes=200_000_000,
        ddp_bucket_cap_mb=25.0,
    ),
    shrinks(
        "the same are left out in every step, and searched for in each",
        "reduce_less",
        "accumulate more",
        ddp_unused_bytes=64,
        ddp_static_graph=False,
    ),
    shrinks(
        "sockets, and InfiniBand is switched off",
        "use_infiniband",
        "take NCCL_IB_DISABLE out of the environment",
        nccl_ways="NET/Socket, P2P",
        NCCL_IB_DISABLE="1",
    ),
    shrinks(
        "sockets, beside an interface ib0",
        "use_infiniband",
        "pass /dev/infiniband on",
        nccl_ways="NET/Socket, P2P",
        infiniband=True,
    ),
    *(
        shrinks(says, "reduce_less", "accumulate more", **settings)
        for says, settings in (
            ("InfiniBand is used", {"nccl_ways": "NET/IB, P2P", "infiniband": True}),
            ("there is no other network", {"nccl_ways": "NET/Socket, P2P", "infiniband": False}),
            ("it is off, and no log says what is used", {"NCCL_IB_DISABLE": "1"}),
            ("no link joins these devices", {"nccl_ways": "SHM"}),
            ("ranks of one host send over none", {**SLOW_LINK, "local_world_size": 2}),
            ("it is the fastest", {**SLOW_LINK, "gloo_bytes_per_s": 1.25e9}),
            ("NCCL reads another variable", {**SLOW_LINK, "backend": "nccl"}),
            ("it is not known what sends", {**SLOW_LINK, "backend": None}),
            ("gloo chose its interface itself", {**SLOW_LINK, "gloo_bytes_per_s": None}),
        )
    ),
    shrinks(
        "the host's memory, and links are switched off",
        "use_links",
        "unless it was set because P2P does not work here",
        nccl_ways="SHM",
        NCCL_P2P_DISABLE="1",
    ),
    *(
        Case("allreduce_tail", says, linked(links, nccl_ways=ways, **set_), 0.030, change, (), said)
        for says, links, ways, set_, change, said in (
            (
                "the host's memory, beside NVLink",
                18,
                "SHM",
                {},
                "use_nvlink",
                ("a device has 18 active links of NVLink", "NCCL_P2P_LEVEL unset or NVL"),
            ),
            ("NVLink is off", 18, "SHM", {"NCCL_P2P_DISABLE": "1"}, "use_links", ()),
            ("NVLink is used", 18, "P2P", {}, "reduce_less", ()),
            ("there is no NVLink", 0, "SHM", {}, "reduce_less", ()),
        )
    ),
    Case(
        "allreduce_tail",
        "gloo was told the slower of two interfaces: what it gains depends on where they lead",
        reduces(30, **SLOW_LINK),
        0.030,
        "faster_interface",
        words=("GLOO_SOCKET_IFNAME=eth1, a link of 1.25 GB/s", "gloo sends over eth0"),
        shows={
            "changes": (
                Use(change="faster_interface", values={"name": "eth1", "rate": "1.25 GB/s"}),
                Use(change="reduce_less", values={"megabytes": 25, "kind": ""}),
            )
        },
    ),
    Case(
        "allreduce_tail",
        "FSDP gathers twice what would stay: 8 GiB on each of two ranks, beside 10 of 80",
        gathering(80),
        0.050,
        "keep_gathered",
        words=("reshard_after_forward=False",),
    ),
    Case("allreduce_tail", "it fits no more", gathering(22), 0.050, "reduce_less"),
    Case(
        "broadcast_buffers",
        "64 MiB of masks before every forward",
        sends(64 * MIB),
        None,
        "no_broadcast",
        (
            sends(9 * MIB),  # less than a tenth of the gradients
            sends(64 * MIB, ddp_broadcast_buffers=False),
            sends(MIB / 2, gradient_bytes=MIB),
            reduces(30),
        ),
        words=("DDP sends 64.0 MiB of buffers before every forward", "broadcast_buffers=False"),
    ),
    Case(
        "broadcast_buffers",
        "60 ms of forward, of which samples saw three quarters in DDP's own code",
        sends(64 * MIB, sampled=SENDS_BUFFERS),
        0.045,
        "no_broadcast",
        words=("on_batch_end (hooks.py:3): 75 % of that",),
        shows={"confidence": "high"},
    ),
    Case(
        "broadcast_buffers",
        "the same of few bytes",
        sends(MIB / 8, sampled=SENDS_BUFFERS),
        0.045,
        "no_broadcast",
        (sends(MIB / 8, sampled="time.sleep"),),
        words=("DDP sends 128 KiB of buffers",),
    ),
    Case(
        "broadcast_buffers",
        "what samples saw there is other code",
        sends(64 * MIB, sampled="time.sleep"),
        None,
        "no_broadcast",
    ),
    Case(
        "object_collectives",
        "8 of 100 ms, and half of the 24 in which both ranks do the work of two",
        sends_objects(0.2, 0.8),
        0.020,
        "send_no_objects",
        (sends_objects(0.1, 0.1), sends_objects(0.1, 0.9, "synchronize")),
        words=(
            "torch.distributed.all_gather_object at train.py:72",
            "8.00 ms per step in these calls",
            "12.0 ms per step in what every rank does for all",
            "all_gather_into_tensor",
        ),
        shows={"where": "train.py:72"},
    ),
    Case(
        "object_collectives",
        "what one rank gathers it alone works on",
        sends_objects(0.2, 0.8, "gather_object"),
        0.008,
        "send_no_objects",
    ),
    shrinks("some is not", "reduce_less", "accumulate more micro-batches", ddp_unused_bytes=64),
    shrinks(
        "200 MB in nine buckets are as DDP makes them",
        "bucket_views",
        HALF,
        ddp_buckets=9,
        gradient_bytes=200_000_000,
        ddp_gradient_as_bucket_view=False,
    ),
    shrinks(
        "a Trainer's arguments have no bucket views",
        "bucket_views",
        "a larger gradient_accumulation_steps: gradients are then sent less often",
        HUGGING_FACE,
        ddp_gradient_as_bucket_view=False,
    ),
    Case(
        "allreduce_tail",
        "on a device what is hidden is promised by a capture only, with its link",
        reduces(30, device=on_gpu(communication_s=0.05), bus=2e9),
        0.050,
        "reduce_less",
        words=(
            "50 % of the step is communication that nothing hides",
            "all-reduces move 2.00 GB/s over the slowest link",
        ),
    ),
    Case("allreduce_tail", "else not", reduces(30, device=on_gpu()), 0.030, "reduce_less"),
)


# -- captures, and one process for all ------------------------------------


def communicates(
    exposed_s: float | None, *, tail_s: float = 0.0, kind: Collective | None = None
) -> Seen:
    """Sixty of 100 ms in a capture."""
    totals = TraceTotals(
        steps=3, step_s=0.1, comm_s=0.06, comm_exposed_s=exposed_s, allreduce_tail_s=tail_s
    )
    kinds = (kind or Collective(kind="all_gather", count=9, total_s=0.1),)
    rank = RankTrace(file="x", totals=totals, collectives=kinds)
    device = None if exposed_s is None else on_gpu(communication_s=exposed_s)
    return seen(step(forward=100, device=device), traces=(rank,))


SMALL = Collective(kind="all_reduce", count=4000, total_s=0.5, many_small=True)


def wrapped(devices: int, wrapper: str = "DataParallel", loop: LoopKind = PLAIN) -> Seen:
    """One process with a wrapper."""
    settings = {"wrapper": wrapper, "data_parallel_devices": devices}
    return seen(step(forward=100), settings=settings, loop=loop)


CAPTURED = (
    Case(
        "allreduce_tail",
        "50 of 60 ms next to no kernel",
        communicates(0.05),
        0.05,
        "overlap_communication",
        # Of collectives on the host nobody knows what hides them.
        (communicates(0.0049), communicates(None), seen(step(forward=100))),
        words=("no computation hides 50.0 ms of 60.0 ms", "start all_gather before"),
        shows={"confidence": "high"},
    ),
    Case(
        "allreduce_tail",
        "much of it after backward",
        communicates(0.05, tail_s=0.03),
        0.05,
        "reduce_less",
        words=("30.0 ms of it after backward has ended",),
    ),
    Case(
        "allreduce_tail",
        "many small messages",
        communicates(0.05, kind=SMALL),
        0.05,
        "larger_messages",
        words=("all_reduce runs many times per step on little data",),
    ),
    Case(
        "data_parallel",
        "four devices",
        wrapped(4),
        None,
        "distributed",
        (wrapped(4, "DistributedDataParallel"), seen(step(forward=100))),
        words=("DataParallel drives 4 devices from one process",),
        shows={"severity": "high"},
    ),
    Case(
        "data_parallel",
        "four devices, as a number in the line to write",
        wrapped(4),
        None,
        "distributed",
        words=("torchrun --nproc-per-node=4 SCRIPT, and in it DistributedDataParallel(model)",),
    ),
    Case(
        "data_parallel",
        "four devices under Lightning",
        wrapped(4, loop=LIGHTNING),
        None,
        "distributed",
        words=('Trainer(strategy="ddp", devices=4), and no wrapper in the module',),
    ),
    Case(
        "data_parallel",
        "no second device",
        wrapped(1),
        None,
        "no_wrapper",
        words=("train the model itself",),
        shows={"severity": "low"},
    ),
)

# -- the same work on all of them ------------------------------------


def alike(*same: str, ranks: int = 2, spent_s: float = 10.0, loop: LoopKind = PLAIN) -> Seen:
    """Ten seconds of steps, and validations that take so long on each rank."""
    return seen(
        step(forward=100, pauses_s={"validation": spent_s}, fit_s=10.0 + spent_s),
        loop=loop,
        ranks=ranks,
        world_size=ranks,
        gaps={"validation": 5},
        same_inputs=same,
    )


SAME = (
    Case(
        "same_batches",
        "both ranks were given the same",
        alike("training", "validation"),
        None,
        "divide_batches",
        (alike("validation"), alike()),
        words=(
            "all 2 ranks train on the same batches",
            "in three calls of the model its inputs were equal on all 2 ranks",
            "sampler.set_epoch(epoch)",
            "split_dataset_by_node",
        ),
        shows={"urgent": True, "severity": "high"},
    ),
    Case(
        "same_batches",
        "under Lightning a sampler is put in where there is none",
        alike("training", loop=LIGHTNING),
        None,
        "divide_batches",
        words=("Trainer(use_distributed_sampler=True)",),
    ),
    Case(
        "same_validation",
        "each of two could take a half",
        alike("validation"),
        5.0,
        "divide_validation",
        # A half of a tenth less a little.
        (alike("training"), alike(), alike("validation", spent_s=10 * 0.099 / 0.901)),
        words=(
            "each of 2 ranks validates the same samples",
            "10.0 s in 5 pauses",
            "DistributedSampler(dataset, shuffle=False)",
        ),
    ),
    Case(
        "same_validation",
        "each of eight could take an eighth",
        alike("validation", ranks=8, loop=LIGHTNING),
        8.75,
        "divide_validation",
        words=("each of 8 ranks validates the same samples", "sync_dist=True"),
    ),
)

CASES = (*LATE, *REDUCTIONS, *CAPTURED, *SAME)

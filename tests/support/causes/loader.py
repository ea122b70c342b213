"""The way of a batch: workers, loader, copies, padding."""

from collections.abc import Mapping

import msgspec
from support.accounts import Seen, loading, on_gpu, region, seen, step
from support.causes.case import CauseCase as Case
from support.light import make_audit

from trainperf.analysis.diagnosis.account import Claim, DeviceAccount, LoaderAccount
from trainperf.analysis.diagnosis.workers import loader_workers
from trainperf.analysis.summary.schema import HostShare, RecurringSteps
from trainperf.core.artifacts.lines import (
    WORKER_MAKING,
    Place,
    Sample,
    SampledLines,
    SampledStack,
    SampledWorker,
)
from trainperf.core.loop_kind import HUGGING_FACE, INFERENCE, LIGHTNING, OUTSIDE, PLAIN, LoopKind
from trainperf.core.machine.backends import MPS
from trainperf.core.steps.records import Scalar
from trainperf.recording.run_identity import LIBRARIES


def waits(
    wait: float,
    rest: float,
    loader: LoaderAccount | None = None,
    *,
    cpus: float | None = 8.0,
    threads: int = 1,
    others: float = 0.0,
    device: DeviceAccount | None = None,
    **known: object,
) -> Seen:
    """Milliseconds of a step for which it waits for data, and in which it computes."""
    account = step(
        data_wait=wait,
        forward=rest,
        loader=loader,
        device=device,
        cpus=cpus,
        model_threads=threads,
        others_cpus=others,
    )
    return seen(account, **known)


def alone(making: float, rest: float, **known: object) -> Seen:
    """The training thread makes its batches itself."""
    return waits(making, rest, loading(0, making), **known)


def handing(making: float, transport: float, wait: float, rest: float) -> Seen:
    """Batches of two workers wait to be taken over for longer than they are made."""
    lines = sampled(3, 3, iterable=False, handing_s=6.5)
    account = loading(2, making, transport=transport)
    return waits(wait, rest, account, documents={"lines": lines})


def wants(cause: str, change: str, says: str, sees: Seen, lost_ms: float, *words: str) -> Case:
    """A wait, by what helps."""
    return Case(cause, says, sees, lost_ms / 1e3, change, words=words)


def sampled(
    *making_s: float, iterable: bool = True, batches: tuple[int, ...] = (), **fields: float
) -> SampledLines:
    """Workers that made batches for so many of ten seconds."""
    workers = tuple(
        SampledWorker(
            worker=number,
            of=len(making_s),
            dataset=1,
            iterable=iterable,
            making_s=each,
            waiting_s=10 - each,
            samples=40,
            cost_s=0.0,
            batches=batches[number] if batches else None,
            **fields,
        )
        for number, each in enumerate(making_s)
    )
    return SampledLines(
        taken=0, every=1, cost_s=0, places=(), stacks=(), samples=(), workers=workers
    )


def delivering(
    *making_s: float,
    iterable: bool = True,
    shards: int | None = None,
    batches: tuple[int, ...] = (),
    **fields: float,
) -> Seen:
    """A wait of 60 of 80 ms for workers that made batches for so many of ten seconds."""
    lines = sampled(*making_s, iterable=iterable, batches=batches, **fields)
    workers = loader_workers(lines, None)
    idle = 0 if workers is None else len(making_s) - workers.at_work
    account = loading(len(making_s), 80, idle=idle)
    settings = {"dataset_shards": shards}
    return waits(60, 20, account, settings=settings, documents={"lines": lines})


def sharded(shards: int, workers: int = 4) -> Seen:
    """The same wait for workers that nobody saw, of a dataset that says how many shards it has."""
    settings = {"num_workers": workers, "dataset_shards": shards}
    account = loading(workers, 80, idle=max(0, workers - shards))
    return waits(60, 20, account, settings=settings)


def unread(
    samples: int,
    of: int = 50,
    *,
    workers: int = 0,
    makes: str = "['depth']",
    fields: dict[str, int] | None = None,
    wait: float = 60,
) -> Seen:
    """A wait in a step of 80 ms, samples of it at a line that makes a field, and a batch of 4 MiB.

    By default nothing reads 1 MiB of it.
    """
    lines = sampled(*[10.0] * (workers or 1), iterable=False)
    slot = WORKER_MAKING if workers else "data_wait"
    places = (
        Place("data.py", 40, "Rows.__getitem__"),
        Place("data.py", 41, "Rows.__getitem__", makes),
    )
    lines = msgspec.structs.replace(
        lines,
        places=places,
        stacks=tuple(SampledStack(slot, (at,), 1, "", not workers) for at in (0, 1)),
        samples=tuple(Sample(int(at < samples), 50, 1000) for at in range(of)),
    )
    audit = msgspec.structs.replace(
        make_audit(step=12), batch_bytes=4 << 20, unread=fields or {"['depth']": 1 << 20}
    )
    account = loading(workers, 80 * workers) if workers else loading(0, wait)
    return waits(wait, 80 - wait, account, documents={"lines": lines, "audit": audit})


def growing_workers(*grown_mib: int, over_s: float = 60.0) -> Seen:
    """Workers whose own memory grew by so much from 100 MiB."""
    lines = delivering(*[5.0] * len(grown_mib)).facts.documents.lines
    workers = tuple(
        msgspec.structs.replace(worker, own_bytes=(100 << 20, (100 + mib) << 20), between_s=over_s)
        for worker, mib in zip(lines.workers, grown_mib, strict=True)
    )
    return waits(0, 20, documents={"lines": msgspec.structs.replace(lines, workers=workers)})


WAITS = (
    Case(
        "worker_memory",
        "two workers of a loader, 40 and 60 MiB in a minute",
        growing_workers(40, 60),
        None,
        "samples_in_arrays",
        (growing_workers(20, 20), growing_workers(40, 60, over_s=20.0), growing_workers(40, 0, 0)),
        words=("each of 2 workers of the loader grows by 50.0 MiB a minute", "lists"),
    ),
    Case(
        "idle_workers",
        "60 of 80 ms, and one worker of four delivers",
        delivering(10, 0, 0.1, 0),
        0.060,
        "share_the_data",
        (delivering(10, 9, 10, 9), delivering(10, 0, 0, 0, iterable=False)),
        words=("3 of the loader's 4 workers deliver nothing", "num_shards=4"),
    ),
    Case(
        "idle_workers",
        "workers have counted their batches: the third made one in a long time",
        delivering(10, 0, 9, 0, batches=(40, 0, 1, 0)),
        0.060,
        "share_the_data",
        (delivering(10, 2, 10, 2, batches=(40, 4, 40, 4)),),
        words=(
            "3 of the loader's 4 workers deliver next to nothing",
            "batches: worker 0: 40, worker 1: 0, worker 2: 1, worker 3: 0",
        ),
    ),
    Case(
        "idle_workers",
        "the dataset has shards for two: that one of these delivers nothing it does not explain",
        delivering(10, 0, 0.1, 0, shards=2),
        0.060,
        "share_the_data",
        words=("3 of the loader's 4 workers deliver nothing\n",),
    ),
    Case(
        "idle_workers",
        "spawned where nobody sees them, for a dataset of one shard",
        sharded(1),
        0.060,
        "share_the_data",
        (sharded(4), sharded(8)),
        words=("3 of the loader's 4 workers deliver nothing: the dataset has 1 shard",),
    ),
    Case(
        "unread_fields",
        "31 of 50 samples in the loop's own loader make a field that is not read",
        unread(31),
        0.0372,
        "leave_out_fields",
        (
            unread(5),  # 6 of 80 ms
            unread(31, makes="['image']"),  # which is read
            unread(0),
            unread(31, wait=6),
            unread(4, 6),
            unread(5, fields={"['depth']": 3 << 20}),  # they cost little, by samples
        ),
        words=(
            "62 % of making a batch computes batch['depth'], which no operator of the step reads",
            "1.00 MiB of 4.00 MiB",
            "Leave batch['depth'] out of the batch",
        ),
        shows={"where": "data.py:41", "confidence": "medium"},
    ),
    Case(
        "unread_fields",
        "in workers, whose making goes from 80 to 30.4 ms",
        unread(31, workers=2),
        0.0496,
        "leave_out_fields",
        (unread(4, workers=2),),
        shows={"bounded": False},
    ),
    Case(
        "unread_fields",
        "no line tells, and they are three of four MiB",
        unread(31, makes="", fields={"[1]": 2 << 20, "[2]": 1 << 20}),
        None,
        "leave_out_fields",
        (unread(31, makes="", fields={"['attention_mask']": 2 << 20}),),  # half of it
        words=("no operator of the step reads batch[1] and 1 other field, most of the batch",),
        shows={"severity": "low", "where": "", "confidence": "low"},
    ),
    wants(
        "data_wait",
        "cheaper_sample",
        "one of four works, of a dataset that is no stream: more of them are never advised",
        delivering(10, 0, 0, 0, iterable=False),
        60,
    ),
    wants(
        "data_wait",
        "no_workers",
        "batches of two workers wait to be taken over for longer than they are made",
        handing(48, 60, 60, 20),
        60,
        "mainly for transport",
        "DataLoader(num_workers=0)",
    ),
    wants(
        "data_wait",
        "send_less",
        "they take longer to make than the step",
        handing(50, 60, 35, 35),
        35,
        "mainly for transport",
    ),
    wants(
        "data_wait",
        "cheaper_sample",
        "spawned workers, which a callback cannot see into",
        waits(30, 20, loading(8, 400), settings={"num_workers": 8, "worker_start": "spawn"}),
        30,
        "workers are spawned: what they do is seen under `trainperf run` only",
    ),
    *(
        wants(
            "data_wait",
            "its_own_workers",
            f"{library} makes the batches, and is not told to become a DataLoader",
            waits(60, 25, None, settings={"loader_library": library}),
            60,
            f"Have {library} make more batches at once",
            f"{library} makes the batches",
        )
        for library in dict.fromkeys(LIBRARIES.values())
    ),
    Case(
        "data_wait",
        "60 of 85 ms, and three workers make a batch every 25",
        alone(60, 25),
        0.060,
        "more_workers",
        (
            alone(8.4, 76.6),
            # Less than a worker's round trip, and below a fifth of the step: how loaders are.
            alone(0.19, 1.16),
            # The device hides it.
            waits(25, 25, loading(0, 25), device=on_gpu(data_s=0.002)),
            # Nobody has sent a request yet.
            waits(30, 20, None, loop=INFERENCE),
        ),
        words=(
            "71 % of the step is spent waiting for data",
            "DataLoader(num_workers=3, persistent_workers=True)",
            "num_workers=0: 60.0 ms per step to make batches in this process",
        ),
        shows={"confidence": "medium"},
    ),
    wants(
        "data_wait",
        "more_workers",
        "of forty workers there are CPUs for seven beside a thread",
        alone(400, 10),
        400,
        "num_workers=7,",
    ),
    wants(
        "data_wait",
        "workers_and_threads",
        "of two CPUs one each",
        alone(12, 8, cpus=2.0, threads=2),
        12,
        "num_workers=1,",
        "torch.set_num_threads(1)",
    ),
    wants(
        "data_wait",
        "cheaper_sample",
        "one thread less takes twice as long, and a worker saves 3 of 20 ms",
        alone(3, 17, cpus=2.0, threads=2),
        3,
        "__getitem__ and collate_fn",
    ),
    wants(
        "data_wait",
        "cheaper_sample",
        "one CPU is not shared by a loader that needs nine of them",
        alone(90, 10, cpus=1.0, device=on_gpu(data_s=0.09)),
        90,
    ),
    wants(
        "data_wait",
        "cheaper_sample",
        "other processes have the CPU that a worker needs",
        alone(30, 30, cpus=2.0, others=1.4),
        30,
        "other processes kept 1.4 of",
    ),
    wants(
        "data_wait",
        "more_workers",
        "six of seven parts of the making are slept through: ten workers fit into one CPU",
        waits(40, 4, loading(0, 40, asleep=0.9), cpus=2.0),
        40,
        "num_workers=10,",
        "90 % of that asleep, so that workers share CPUs",
    ),
    wants(
        "data_wait",
        "more_workers",
        "two workers give a batch every 50 ms, 40 are needed",
        waits(10, 40, loading(2, 100)),
        10,
        "num_workers=3,",
    ),
    wants(
        "data_wait",
        "cheaper_sample",
        "eight workers on eight CPUs",
        waits(30, 20, loading(8, 400)),
        30,
    ),
    wants(
        "data_wait",
        "some_workers",
        "a loader that is not known is told no numbers of it",
        waits(30, 20),
        30,
        "the loader's settings are unknown",
    ),
    Case(
        "data_wait",
        "25 of 50 ms waited, 10 lost on the device",
        waits(25, 25, loading(0, 25), device=on_gpu(data_s=0.010)),
        0.010,
        "more_workers",
        words=("the device idled for data 20 % of the step",),
        shows={"confidence": "high"},
    ),
    Case(
        "data_wait",
        "from outside it may be the loop's own code",
        alone(50, 20, loop=OUTSIDE, device=on_gpu(data_s=0.05)),
        0.050,
        "more_workers",
        shows={"confidence": "medium"},
    ),
    *(
        Case(
            "data_wait",
            f"rank 0 loads for all, {loop.name}",
            waits(
                12,
                20,
                loading(0, 12),
                loop=loop,
                ranks=2,
                settings={"loader": "DataLoaderDispatcher"},
            ),
            0.012,
            "own_loaders",
            words=(action, "on the rank that waits longest"),
        )
        for loop, action in (
            (PLAIN, "DataLoaderConfiguration(dispatch_batches=False)"),
            (HUGGING_FACE, 'TrainingArguments(accelerator_config={"dispatch_batches": False})'),
        )
    ),
    Case(
        "data_hidden",
        "half of the step, and the device does not notice",
        waits(25, 25, loading(0, 25), device=on_gpu(data_s=0.0002)),
        0.0,
        "leave_the_loader",
        (
            waits(4.5, 45.5, loading(0, 4.5), device=on_gpu(data_s=0.0002)),
            waits(18, 32, loading(0, 18), device=on_gpu(data_s=0.0048)),
            waits(25, 25, loading(0, 25)),
        ),
        shows={"severity": "low"},
    ),
)


# -- workers and epochs ------------------------------------


def crowded(  # noqa: PLR0913 what is counted
    waited: float,
    *,
    cpus: float,
    threads: int = 1,
    workers: int = 0,
    ranks: int = 1,
    ran: float = 0.2,
    workers_waited: float | None = None,
    workers_ran: float | None = 4.0,
    stall: float = 0.0,
    inside: tuple[int, float] | None = None,
) -> Seen:
    """A rank of steps of 20 ms, and what its device stalls for data.

    Inside each worker so many threads compute, which lack a CPU for so much of ten seconds.
    """
    host = HostShare(
        ranks=ranks,
        cpus_per_rank=cpus,
        threads=threads,
        workers=workers,
        waited_fraction=waited,
        ran_fraction=ran,
        workers_waited_fraction=workers_waited,
        workers_ran=workers_ran if workers else None,
    )
    device = on_gpu(data_s=stall / 1e3) if stall else None
    computed = (workers_ran or 0.0) * (20 + stall)
    account = step(
        forward=20,
        data_wait=stall,
        cpus=cpus,
        device=device,
        model_threads=threads,
        loader=loading(workers, computed, computes_s=computed / 1e3) if workers else None,
    )
    lines = None
    if inside is not None:
        each, lacked_s = inside
        cpu_s = {"ran_s": 10.0 - lacked_s, "lacked_cpu_s": lacked_s}
        lines = sampled(*[9.0] * workers, threads=each, **cpu_s)
    return seen(account, host=host, ranks=ranks, documents={"lines": lines})


def epochs(
    between_s: float = 5.0,
    number: int = 10,
    loop: LoopKind = LIGHTNING,
    settings: Mapping[str, Scalar] | None = None,
    validation_s: float = 0.0,
    **readings: float,
) -> Seen:
    """Ten seconds of steps, and so many between epochs and in as many validations."""
    pauses = {"epoch_boundary": between_s, "validation": validation_s}
    return seen(
        step(forward=50, pauses_s=pauses),
        gaps={"epoch_boundary": number, "validation": number},
        loop=loop,
        settings={"num_workers": 4, **(settings or {})},
        readings=readings,
    )


def returning(every: int = 20, **settings: Scalar) -> Seen:
    """From outside: every 20th step waits 200 ms more; 640 samples are 20 batches of 32."""
    slow = RecurringSteps(
        every=every,
        steps=10,
        of_steps=200,
        slow_s=0.21,
        typical_s=0.01,
        lost_s=2.0,
        phase="data_wait",
        phase_fraction=1.0,
        line=None,
    )
    given = {"num_workers": 2, "dataset_samples": 640, "batch_size": 32, **settings}
    return seen(step(data_wait=11, forward=9), loop=OUTSIDE, slow_steps=slow, settings=given)


CROWDS = (
    Case(
        "oversubscription",
        "a rank of eight has a quarter of a CPU, and waits for half of its time",
        crowded(0.5, cpus=0.25, ranks=8),
        0.010,
        "more_cpus",
        (
            crowded(0.4, cpus=1.0, ranks=8),  # they fit: somebody else has the CPUs
            crowded(0.09, cpus=0.25),
            # More workers than CPUs that only wait for a disk, that keep up, or that sleep.
            crowded(0.02, cpus=4.0, workers=8, workers_waited=0.05),
            crowded(0.02, cpus=4.0, workers=8, workers_waited=0.8),
            crowded(0.03, cpus=2.0, workers=15, workers_waited=0.6, workers_ran=0.4, stall=20),
        ),
        words=(
            "8 ranks with 1 thread each on 2 CPUs: a training thread waits for one 50 %",
            "ask for 8 CPUs or more",
        ),
    ),
    Case(
        "oversubscription",
        "32 workers of a rank on four CPUs, which steps wait for",
        crowded(0.03, cpus=4.0, workers=32, workers_waited=0.8, stall=20),
        0.020,
        "fewer_workers",
        words=("DataLoader(num_workers=2)", "workers wait for a CPU 80 % of the time"),
    ),
    Case(
        "oversubscription",
        "eight workers of sixteen threads on sixteen CPUs, which steps wait for",
        crowded(0.03, cpus=16.0, workers=8, workers_ran=4.0, stall=20, inside=(16, 6.0)),
        0.020,
        "one_thread_in_workers",
        (
            crowded(0.03, cpus=16.0, workers=8, workers_ran=4.0, stall=20, inside=(1, 6.0)),
            # So many threads on paper that find a CPU.
            crowded(0.03, cpus=16.0, workers=8, workers_ran=4.0, stall=20, inside=(16, 1.0)),
            crowded(0.03, cpus=64.0, workers=2, workers_ran=4.0, stall=20, inside=(16, 6.0)),
        ),
        words=(
            "1 thread and 8 workers of 16 threads on 16 CPUs: workers wait for a CPU 60 %",
            "each of 8 workers computes with 16 threads",
            "torch.set_num_threads(1)",
        ),
    ),
    Case(
        "oversubscription",
        "as many workers as CPUs: one is left to the thread that launches",
        crowded(0.3, cpus=2.0, workers=2, workers_waited=0.6, stall=1),
        0.0063,
        "fewer_workers",
        words=("DataLoader(num_workers=1), as the rank has 2 CPUs",),
    ),
    Case(
        "oversubscription",
        "eight threads on four CPUs",
        crowded(0.3, cpus=4.0, threads=8),
        0.006,
        "fewer_threads",
        words=("torch.set_num_threads(4)",),
    ),
    Case(
        "workers_compete",
        "a worker computes most of the time on CPUs that the model's threads use",
        crowded(0.3, cpus=2.0, threads=2, workers=1, workers_ran=0.4),
        0.006,
        "cheaper_sample",
        (
            crowded(0.05, cpus=2.0, threads=2, workers=1, workers_ran=0.4),  # nobody lacks one
            crowded(0.3, cpus=2.0, threads=2, workers=1, workers_ran=0.1),
            crowded(0.3, cpus=4.0, threads=2, workers=1, workers_ran=0.8),  # there is a CPU for it
            crowded(0.3, cpus=2.0, threads=2, workers=1, workers_ran=0.8, inside=(4, 6.0)),
            crowded(0.3, cpus=2.0, threads=2, workers=1, workers_ran=0.8, stall=5),  # of a device
        ),
        words=(
            "30 % of the step goes to the loader, whose workers compute on the model's CPUs",
            "6.00 ms of 20.0 ms are the workers' computing",
            "cache or preprocess what __getitem__ and collate_fn computes",
        ),
    ),
    Case(
        "workers_compete",
        "two workers have a CPU each: each thread lacks one as long as the other",
        crowded(0.3, cpus=2.0, threads=2, workers=2, workers_ran=0.4),
        0.004,
        "cheaper_sample",
    ),
    Case(
        "oversubscription",
        "a thread lacks a CPU for longer than a worker computes",
        crowded(0.5, cpus=2.0, threads=2, workers=1, workers_ran=0.2),
        0.006,
        "fewer_threads",
        (crowded(0.3, cpus=2.0, threads=2, workers=2, workers_ran=1.2),),
    ),
    Case(
        "epoch_start",
        "5 of 15 s are between ten epochs",
        epochs(),
        5.0,
        "persistent_workers",
        (
            epochs(0.4),
            epochs(number=1),
            epochs(settings={"persistent_workers": True}),
            epochs(settings={"num_workers": 0}),
            epochs(loop=PLAIN),  # nobody knows what the user does there
        ),
        words=(
            "500 ms in each of 10 epochs: 5.00 s between epochs and 0 s for their first batches",
            "DataLoader(persistent_workers=True)",
        ),
    ),
    Case(
        "epoch_start",
        "and as much in each of ten validations, whose workers end, too",
        epochs(validation_s=8.0, settings={"validation_workers": 4}),
        10.0,
        "persistent_workers",
        words=("43 % of the fit", "5.00 s in 10 validations"),
    ),
    *(
        Case(
            "epoch_start", why, epochs(validation_s=8.0, settings=known), 5.0, "persistent_workers"
        )
        for why, known in (
            ("a validation without workers", {"validation_workers": 0}),
            ("whose workers stay", {"validation_workers": 4, "validation_persistent": True}),
            ("of which nobody knows", {}),
        )
    ),
    Case(
        "epoch_start",
        "a third of all steps' time is waiting, of steady ones nothing",
        epochs(0.01, data_wait_fraction=0.0, data_wait_all_fraction=1 / 3),
        0.01 + 10 / 3,
        "persistent_workers",
    ),
    Case(
        "epoch_start",
        "from outside slow steps come with the loader's epoch",
        returning(),
        2.0,
        "persistent_workers",
        (
            returning(batch_size=16),
            returning(persistent_workers=True),
            returning(num_workers=0),
            returning(dataset_samples=0),
        ),
        words=("200 ms more in one step of 20",),
    ),
)


# -- tensors, copies, padding ------------------------------------


def copies(
    moved: float = 10,
    *,
    tensors: int = 40,
    size: int = 20_000,
    host: float = 1,
    device: DeviceAccount | None = None,
    **known: object,
) -> Seen:
    """Milliseconds of a step of 50 in which its device copies."""
    device = device or on_gpu(copies_s=moved / 1e3)
    readings = {"h2d_bytes": size, "h2d_tensors": tensors, "h2d_bytes_per_s": 1e3 * size / moved}
    return seen(step(h2d=host, forward=50 - host, device=device), readings=readings, **known)


LARGE = {"tensors": 3, "size": 20_000_000}
PAGEABLE, PINNED = {"pin_memory": False}, {"pin_memory": True}


def updating(where: str, ms: float = 20.0) -> Seen:
    """Steps of 100 ms beside a device, with an update of weights that are there."""
    account = step(forward=100 - ms, optimizer=ms, device=on_gpu())
    return seen(account, settings={"optimizer_device": where})


COPIES = (
    Case(
        "offloaded_update",
        "20 of 100 ms on the host, beside a device",
        updating("cpu"),
        0.020,
        "update_on_device",
        (updating("cuda"), updating("cpu", 1.0)),
        words=("20 % of the step updates weights on the CPU",),
        # The device waits meanwhile, and not for launches.
        shows={"claim": Claim(owns_s={"optimizer": 0.02}, removes_s=0.02, device={"host_s": 0.02})},
    ),
    Case(
        "many_small_tensors",
        "forty of 500 bytes take 10 of 50 ms",
        copies(),
        0.010,
        "join_copies",
        (
            copies(tensors=12),
            copies(size=200 << 20),
            copies(settings={"accumulate_grad_batches": 8}),
            copies(1),
        ),
        words=("copying 40 small tensors", "500 B per tensor, at 2.00 MB/s", "collate_fn"),
    ),
    Case(
        "transfer",
        "20 MB from pageable memory",
        copies(settings=PAGEABLE, loop=LIGHTNING, **LARGE),
        0.010,
        "pin_memory",
        (copies(4.9, host=1, **LARGE), copies(4.9, host=10, device=DeviceAccount(copies_s=0.002))),
        words=("Lightning then copies without blocking", "19.1 MiB per step at 2.00 GB/s"),
    ),
    Case(
        "transfer",
        "a plain loop is told not to block",
        copies(settings=PAGEABLE, **LARGE),
        0.010,
        "pin_memory",
        words=("batch.to(device, non_blocking=True)",),
    ),
    Case(
        "transfer",
        "memory that is pinned already",
        copies(settings=PINNED, **LARGE),
        0.010,
        "send_smaller",
    ),
    Case(
        "transfer",
        "2 ms on the device, and 10 that the host is held up, which the device waits for",
        copies(2, host=10, **LARGE),
        0.010,
        "send_smaller",
    ),
    Case(
        "transfer",
        "nothing has to be pinned on a device that has the host's memory",
        seen(step(h2d=5, forward=20, device=DeviceAccount()), settings=PAGEABLE, device=MPS),
        0.005,
        "send_smaller",
        words=("make on the device what can be made there",),
    ),
    Case(
        "transfer",
        "on a CPU nothing is copied: it is the hooks'",
        seen(step(h2d=5, forward=20)),
        0.005,
        "hooks_of_transfer",
    ),
)

SOFTMAX_40 = region("_scaled_dot_product_flash_attention_for_cpu", 20)
OTHERS_60 = region("mul", 30)


def padded(
    lengths: Mapping[int, int] | None = None,
    *,
    wasted: float = 0.5,
    longest_tokens: int = 0,
    loop: LoopKind = PLAIN,
    **settings: Scalar,
) -> Seen:
    """Half of the tokens of a step of 50 ms are padding."""
    account = step(SOFTMAX_40, OTHERS_60, forward=20, backward=20, optimizer=5, callbacks=5)
    readings = {
        "padding_fraction": wasted,
        "effective_tokens_per_s": 10_000,
        "padded_tokens_per_s": 20_000,
    }
    return seen(
        account,
        readings=readings,
        sequence_lengths=lengths or {},
        longest_tokens=longest_tokens,
        loop=loop,
        settings=settings,
        software={"transformers": "5.23.0"},
    )


def _tokens(lengths: Mapping[int, int]) -> int:
    return sum(length * number for length, number in lengths.items())


SORTED, OWN_WIDTH = {32: 100, 64: 100, 120: 100}, {24: 300, 40: 50, 64: 50}
SHORT = {32: 20_000, **dict.fromkeys(range(48, 609, 16), 1)}
SHORT_TOKENS = sum((edge - 7.5) * number for edge, number in SHORT.items())

SQUARED = 0.5 + 0.4 * 0.25
"""Half of the tokens; and of the 40 % that grow with the square a quarter more."""

PADDING = (
    Case(
        "padding",
        "nothing is known of lengths: half of 40 ms, and what attention saves with shorter rows",
        padded(),
        SQUARED * 0.040,
        "pack",
        (padded(wasted=0.19), seen(step(forward=50))),
        words=("10,000 of 20,000 tokens/s are effective",),
    ),
    Case(
        "padding",
        "most of them fit twice into a row, which stays as long",
        padded({32: 80, 128: 20}, sequence_length=128),
        0.020,
        "pack_rows",
        words=("one row of 128 tokens",),
    ),
    Case(
        "padding",
        "rows are four tenths wider than the longest of their batch",
        padded({32: 80, 128: 20}, sequence_length=128, longest_tokens=6144),
        0.020,
        "pad_to_longest",
        words=("to the longest sequence of each batch",),
    ),
    Case(
        "padding",
        "packed rows are not to be sorted by length",
        padded({80: 50, 96: 20, 128: 30}, sequence_length=128, packed_rows=True),
        0.020,
        "pack_more",
        words=("several sequences share a row already",),
    ),
    *(
        Case("padding", says, sees, SQUARED * 0.040, change, words=words)
        for says, sees, change, words in (
            (
                "two never share a row, but rows of one length need no padding",
                padded({80: 50, 96: 20, 128: 30}, sequence_length=128),
                "similar_lengths",
                ("a batch_sampler that sorts by length",),
            ),
            (
                "a Trainer has an option for it",
                padded({80: 50, 96: 20, 128: 30}, sequence_length=128, loop=HUGGING_FACE),
                "similar_lengths",
                ('TrainingArguments(train_sampling_strategy="group_by_length"',),
            ),
            (
                "not even the longest needs the row",
                padded({64: 50, 96: 50}, sequence_length=192),
                "pad_less",
                ("to 96 tokens instead of 192", "longest ≤ 96, median ≤ 64 tokens"),
            ),
            (
                "neighbours are alike already, and padded to the whole context",
                padded(SORTED, sequence_length=128, longest_tokens=round(1.05 * _tokens(SORTED))),
                "pad_to_longest",
                (),
            ),
            (
                "batches are as wide as their own longest sequence",
                padded(OWN_WIDTH, sequence_length=64, longest_tokens=2 * _tokens(OWN_WIDTH)),
                "similar_lengths",
                (),
            ),
        )
    ),
    Case(
        "padding",
        "short sequences are not as long as the edge of their bin",
        padded(SHORT, sequence_length=608, longest_tokens=round(1.85 * SHORT_TOKENS)),
        SQUARED * 0.040,
        "similar_lengths",
    ),
)

CASES = (*WAITS, *CROWDS, *COPIES, *PADDING)

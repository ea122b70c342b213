"""Host code: callbacks, logging, metrics, values read back, Python in the step."""

from support.accounts import Seen, audit_of, on_gpu, region, seen, step
from support.causes.case import CauseCase as Case

from trainperf.analysis.diagnosis.account import OWN, Claim, DeviceAccount, Region
from trainperf.analysis.summary.schema import (
    LineShare,
    PhaseLines,
    PlainCode,
    StallingCall,
)
from trainperf.core.loop_kind import HUGGING_FACE, INFERENCE, LIGHTNING, OUTSIDE
from trainperf.traces.results import RankTrace, SyncSite, TraceStep, TraceTotals


AHEAD = on_gpu(host_bound=0.0)
"""A device that has work left when the host returns."""

OWNER = LineShare(where="hooks.py:3", function="on_batch_end", fraction=0.7, samples=60)


def lines(slot: str, owner: LineShare | None = OWNER, **more: object) -> dict[str, object]:
    """Samples of a slot."""
    rows = () if owner is None else (owner,)
    return {"lines": (PhaseLines(slot=slot, samples=60, owner=owner, lines=rows, **more),)}


# -- hooks, loops, and what nobody named ------------------------------------


def hooks(spent: float, **known: object) -> Seen:
    """Milliseconds of a step of 100."""
    threads_s = known.pop("threads_s", {})
    return seen(step(callbacks=spent, forward=100 - spent, threads_s=threads_s), **known)


def loops(spent: float, device: DeviceAccount | None = None, **known: object) -> Seen:
    """Milliseconds after the last hook, of 50."""
    return seen(step(loop=spent, forward=50 - spent, device=device), loop=LIGHTNING, **known)


def beside(spent: float, *, cpus: float | None = 2.0, threads: int = 2, others: float = 0) -> Seen:
    """A thread beside a model that computes with some threads, in steps of 50 ms."""
    account = step(
        forward=50,
        threads_s={"prefetch": spent / 1e3},
        cpus=cpus,
        model_threads=threads,
        others_cpus=others,
    )
    return seen(account)


WORKING = {"forward": 4.0, "backward": 4.0, "optimizer": 1.0}
"""Milliseconds of a step that has all its work in phases."""

FETCH = LineShare(where="loop.py:9", function="fetch", fraction=0.9, samples=50)
IN_OTHER, IN_BETWEEN = lines("other")["lines"], lines("between", FETCH)["lines"]


def unnamed(spent: float, *, slot: str = "other", **known: object) -> Seen:
    """Milliseconds outside of every phase, beside nine in phases."""
    threads_s = known.pop("threads_s", {})
    return seen(step(**WORKING, **{slot: spent}, threads_s=threads_s), **known)


def unbracketed(spent: float, rest: float, **known: object) -> Seen:
    """The same of one that brackets its update only."""
    return seen(step(optimizer=rest, other=spent), **known)


HOOKS = (
    Case(
        "callbacks",
        "10 of 50 ms, most of it in one hook",
        seen(
            step(callbacks=10, forward=40),
            actions_s={"Slow.on_train_batch_end": 0.01, "Cheap.a": 0.000025},
            **lines("callbacks"),
        ),
        0.010,
        "rarer_callback",
        (hooks(9.9),),
        words=("Lighten Slow.on_train_batch_end", "Slow.on_train_batch_end: 10.0 ms per step"),
        shows={"where": "hooks.py:3"},
    ),
    Case(
        "callbacks",
        "what they hand to a thread goes with them, and one of little work has no word",
        hooks(40, threads_s={"tensorboard": 0.02, "idle": 0.0049}),
        0.040,
        "rarer_callback",
        words=("a thread of tensorboard computes 20.0 ms per step meanwhile", "no hook was timed"),
    ),
    Case(
        "loop",
        "10 of 50 ms after the last hook",
        loops(10, settings={"prog_bar_metrics": "loss"}),
        0.010,
        "log_rarely",
        (
            loops(4.9),
            loops(30, AHEAD),
            loops(30, settings={"callbacks": "ModelSummary", "loggers": ""}),
        ),
        words=("on the progress bar: loss", "prog_bar=False"),
    ),
    Case(
        "busy_thread",
        "both CPUs compute, and a thread takes 10 of 50 ms",
        beside(10),
        0.0,
        "quiet_thread",
        (
            beside(4.9),
            beside(10, cpus=3.0),
            beside(10, threads=1),
        ),
        words=("prefetch computes 10.0 ms per step beside the training",),
    ),
    Case(
        "busy_thread",
        "the third CPU is another process's",
        beside(10, cpus=3.0, others=1.0),
        0.0,
        "quiet_thread",
    ),
    Case(
        "unnamed_time",
        "11 of 20 ms, and no line was seen in most of it",
        unnamed(11),
        0.011,
        "name_it",
        (unnamed(0.9), unbracketed(1, 20)),
        words=("55 % of the step is outside every phase", 'monitor.phase("callbacks")'),
        shows={"confidence": "medium"},
    ),
    Case(
        "unnamed_time",
        "a line: what it does decides what to do with it",
        unnamed(11, **lines("other")),
        0.011,
        "lighten",
        words=(
            "mostly in on_batch_end",
            "hooks.py:3: if training does not depend on it",
            "if it does (clipping, averaging weights, building the batch), replace the loop",
        ),
        shows={"where": "hooks.py:3", "confidence": "high"},
    ),
    Case(
        "unnamed_time",
        "what it hands to a logger's thread goes with it",
        unnamed(11, threads_s={"tensorboard": 0.003}),
        0.011,
        "name_it",
        words=("a thread of tensorboard computes 3.00 ms per step meanwhile",),
    ),
    Case(
        "unnamed_time",
        "a Trainer's own code is in a callback",
        unnamed(11, loop=HUGGING_FACE),
        0.011,
        "name_it",
        words=("move what you suspect into a hook of a callback",),
    ),
    Case(
        "unnamed_time",
        "two places, each with the line that is most of it",
        seen(step(**WORKING, other=11, between=5), lines=(*IN_OTHER, *IN_BETWEEN)),
        0.016,
        "lighten",
        words=(
            "mostly in on_batch_end and fetch",
            "70 % of 11.0 ms outside every phase, in 60 samples",
            "90 % of 5.00 ms between the update and the next forward, in 50 samples",
        ),
        shows={"where": "hooks.py:3", "confidence": "high"},
    ),
    Case(
        "unnamed_time",
        "of two places one is too short for a word, and keeps its line for itself",
        seen(step(**WORKING, other=11, between=2), lines=IN_BETWEEN),
        0.011,
        "name_it",
        words=("50 % of the step is outside every phase", "no line was seen in most of it"),
        shows={"where": "", "confidence": "medium"},
    ),
    Case(
        "unnamed_time",
        "from outside between update and forward, as far as no loader was seen there",
        unnamed(11, slot="between", loop=OUTSIDE),
        0.011,
        "name_it",
        words=("between the update and the next forward",),
    ),
    Case(
        "unnamed_time",
        "of an inference loop nothing is missing",
        seen(step(forward=9, other=11), loop=INFERENCE),
        0.011,
        "name_it",
    ),
    Case(
        "unnamed_time",
        "a loop that brackets its update only may do its work there",
        unbracketed(11, 9),
        None,
        "bracket",
        words=("not bracketed: forward, backward",),
        shows={"severity": "medium"},
    ),
    Case(
        "unnamed_time",
        "of an imported log it is what the log does not divide",
        unbracketed(11, 9, settings={"imported_from": "tensorboard"}),
        None,
        "measure_more",
        words=("not divided in the log",),
    ),
)


# -- lines of an audited step ------------------------------------


def used(name: str, line: str, ms: float, **fields: object) -> Region:
    """An operator from a line outside of every module."""
    return region(name, ms, **{"module": None, "line": line, **fields})


BEFORE = (
    used("addmm", "net.py:10", 20, kind="matmul", flops=10**6),
    used("relu_backward", "net.py:11", 0, part="backward"),
    used("mm", "net.py:10", 40, part="backward", kind="matmul", flops=10**6),
)
"""Twenty milliseconds forward, forty backward."""


def audited(
    *rows: Region,
    before: tuple[Region, ...] = (),
    device: DeviceAccount | None = None,
    **known: object,
) -> Seen:
    """A step as long as these regions and the model's, and a millisecond of anything else."""
    every = (*before, *BEFORE, *rows)
    slots = dict.fromkeys(("forward", "backward"), 0.0)
    for each in every:
        slots[each.slot] += 1e3 * each.seconds
    slots |= {slot: known.pop(slot) for slot in ("forward", "loop") if slot in known}
    documents = audit_of(*every, device="cpu" if device is None else "cuda")
    account = step(*every, other=1, device=device, **slots)
    return seen(account, documents=documents, **known)


READ = used("_local_scalar_dense", "train.py:21", 1, python=9, calls=100)
VALUES = (
    used("max", "train.py:20", 5, python=5, calls=100),
    READ,
    used("add", "train.py:22", 10, python=10, calls=60),
)
"""Forty milliseconds of a Python loop over a hundred values."""

ELSEWHERE = (
    used("add", "other.py:22", 20, calls=100),
    used("add", "train.py:90", 20, calls=100),
)
SORT = used("sort", "train.py:31", 15, python=1, calls=4)
METRIC = (SORT, used("sum", "train.py:32", 4))
"""Twenty milliseconds of counting, without a gradient."""

LOGGED = used("clone", "train.py:50", 2, python=28, calls=40, logs=True)
PRINT = used("log_softmax", "train.py:41", 2, python=30)
"""Thirty milliseconds in which no operator runs."""


def settings_read(**settings: object) -> Seen:
    """On a device, by its settings."""
    return audited(device=on_gpu(), settings=settings)


def traced(idle_s: float, sync_s: float, *rows: Region, **known: object) -> Seen:
    """A trace in which the device idles so long while the host waits, of a step of 100 ms."""
    waited = TraceStep(step=0, step_s=0.1, sync_s=sync_s)
    site = SyncSite(call="aten::item", count=4, total_s=2 * sync_s, stack=("train.py(21): step",))
    totals = TraceTotals(steps=2, step_s=0.1)
    rank = RankTrace(file="rank0", steps=(waited,) * 2, totals=totals, sync_sites=(site,))
    account = step(forward=100, device=on_gpu(value_s=idle_s))
    return seen(account, traces=(rank,), documents=audit_of(*rows, device="cuda"), **known)


SCALER = {"grad_scaler": "GradScaler", "optimizer_fused": False}
SHOWN = {"prog_bar_metrics": "loss", "callbacks": "ThroughputMonitor, TrainPerf", **SCALER}
FILTER = {"logging_nan_inf_filter": True}
BACK = used("_to_copy", "train.py:8", 0, kind="copy", place="link", calls=3)

LINES = (
    Case(
        "hidden_syncs",
        "40 of 101 ms, at the line that reads; loops elsewhere are none of it",
        audited(*VALUES, *ELSEWHERE),
        0.040,
        "tensor_operations",
        (
            audited(used("_local_scalar_dense", "train.py:21", 30)),
            audited(*(used(r.use.short_name, r.use.line or "", 1, calls=100) for r in VALUES)),
        ),
        words=("100 values read one by one per step", "torch.where(scores > 0"),
        shows={"where": "train.py:21"},
    ),
    Case(
        "hidden_syncs",
        "on a device each read is named, and only a trace can say what it costs",
        audited(READ, device=on_gpu()),
        None,
        "read_later",
        (
            audited(device=on_gpu()),
            audited(used("_to_copy", "", 0, kind="copy", place="link"), device=on_gpu()),
            traced(0.001, 0.02),
        ),
        words=("100 reads per step make the host wait", "train.py:21: _local_scalar_dense"),
        shows={"where": "train.py:21", "severity": "medium"},
    ),
    Case(
        "hidden_syncs",
        "a copy to the host in forward is a wait",
        audited(BACK, device=on_gpu()),
        None,
        "read_later",
        words=("train.py:8: _to_copy, 3 times per step",),
    ),
    Case(
        "hidden_syncs",
        "progress bar, monitor and scaler each have a line",
        traced(0.03, 0.02, settings=SHOWN),
        0.020,
        "quiet_progress_bar",
        # Without seconds nobody knows whether the device has work left meanwhile.
        (settings_read(**SHOWN), traced(0.0049, 0.02, settings=SHOWN)),
        words=(
            "the device idles 20 % of the step while the host waits for a value",
            "prog_bar=True reads loss",
            "ThroughputMonitor waits",
            "GradScaler reads a flag",
        ),
    ),
    Case(
        "hidden_syncs",
        "a scaler alone wants a fused optimizer",
        traced(0.03, 0.02, settings=SCALER),
        0.020,
        "fused_for_scaler",
        (settings_read(**SCALER),),
    ),
    Case(
        "hidden_syncs",
        "a fused optimizer skips without reading: something else does",
        traced(0.03, 0.02, settings={**SCALER, "optimizer_fused": True}),
        0.020,
        "read_later",
    ),
    Case(
        "hidden_syncs",
        "a Trainer's filter reads the loss",
        traced(0.03, 0.02, settings=FILTER, loop=HUGGING_FACE),
        0.020,
        "no_nan_filter",
        (settings_read(**FILTER),),
        words=(
            "logging_nan_inf_filter=True reads the loss in every micro-batch",
            "logging_nan_inf_filter=False",
        ),
    ),
    Case(
        "hidden_syncs",
        "a monitor alone is left out",
        traced(0.03, 0.02, settings={"callbacks": "ThroughputMonitor"}),
        0.020,
        "no_throughput_monitor",
        (settings_read(callbacks="ThroughputMonitor"),),
        words=("leave ThroughputMonitor out of the callbacks",),
    ),
    *(
        Case(
            "hidden_syncs",
            f"the device idles {idle:g} s, the host waits {sync:g}: the lesser is lost",
            traced(idle, sync, READ),
            min(idle, sync),
            "read_later",
            words=("aten::item at train.py(21): step: 4 times",),
        )
        for idle, sync in ((0.03, 0.02), (0.01, 0.05))
    ),
    Case(
        "metrics_every_batch",
        "20 of 81 ms after the model, that no gradient flows through",
        audited(*METRIC),
        0.020,
        "rarer_metric",
        (
            # Augmentation comes before the model; a loss has a gradient; a teacher has products.
            audited(before=METRIC),
            audited(SORT, used("gather", "train.py:31", 5, part="backward")),
            audited(SORT, used("addmm", "train.py:31", 20, kind="matmul", flops=10**6)),
            audited(used("sort", "train.py:31", 6)),
        ),
        words=("a metric in every batch takes 25 % of the step", "train.py:31: 16.0 ms per step"),
        shows={"where": "train.py:31"},
    ),
    Case(
        "metrics_every_batch",
        "20 of 81 ms of a package of metrics, wherever it is called",
        audited(used("sort", "site-packages/torchmetrics/auroc.py:31", 20)),
        0.020,
        "rarer_metric",
        # A module that sorts targets before the loss does it for the loss.
        (audited(before=(used("sort", "site-packages/matching/auroc.py:31", 20),)),),
    ),
    Case(
        "python_in_step",
        "30 of 93 ms before an operator of the audited step",
        audited(PRINT),
        0.030,
        "python_out_of_step",
        (
            audited(PRINT, forward=23),  # the audited step was interrupted there
            audited(used("add", "net.py:12", 5, python=50, calls=100)),  # that is launching
            audited(PRINT, **lines("forward")),  # samples of many steps saw something else
        ),
        words=("30.0 ms per step pass before log_softmax at train.py:41",),
        shows={"where": "train.py:41"},
    ),
    Case(
        "logging",
        "30 ms in forward and 9 in the loop, of 100",
        audited(LOGGED, loop=9, settings={"log_every_n_steps": 1}),
        0.039,
        "log_less",
        (
            audited(used("clone", "train.py:50", 0.5, python=0.5, logs=True)),
            audited(loop=30),  # that it is logging is not known
        ),
        words=(
            "30.0 ms per step in the 40 operators that it calls",
            "9.00 ms after the last hook, log_every_n_steps=1",
        ),
        shows={"where": "train.py:50"},
    ),
)


def python(
    low: float,
    share: float = 0.4,
    *,
    slot: str = "forward",
    device: DeviceAccount | None = None,
    runs: str = "time.sleep",
) -> Seen:
    """Samples see a sleep, or another function, in so much of 60 of 100 ms."""
    line = LineShare(where="train.py:12", function="slow", fraction=share, samples=90)
    code = PlainCode(line=line, low=low, high=share + 0.1, names=(runs, "Python"))
    account = step(**{slot: 60.0, "backward": 40.0}, device=device)
    return seen(account, **lines(slot, None, host=code))


# -- switches, the collector, ourselves ------------------------------------

PRODUCTS = (
    region("mm", 6, ideal=5),
    region("mm", 12, ideal=10, part="backward"),
)

LOOKED_AT = (
    region("mm", 6, python=4, ideal=5),
    region("mm", 12, python=8, ideal=10, part="backward"),
    region("isnan", 3, python=1, part="backward"),
)


CONVOLVES = {"convolution_format": "contiguous", "device": on_gpu()}


def switched(
    *rows: Region, device: DeviceAccount | None = None, **settings: bool | str | None
) -> Seen:
    """Steps of 20 + 30 + 10 ms."""
    account = step(*rows, forward=20, backward=30, optimizer=10, device=device)
    return seen(account, settings=settings)


def collected(
    paused_s: float, unusual: int = 10, called_ms: float = 0.0, **readings: float
) -> Seen:
    """Of a fit of ten seconds, in unusual steps; so many milliseconds of a step by hand."""
    known = {"gc_s": paused_s, "step_s": 0.05, **readings}
    by_hand = StallingCall(name="gc.collect", where="loop.py:7", fraction=called_ms / 50)
    return seen(step(forward=50), readings=known, excluded={"gc": unusual}, collects=(by_hand,))


def stalling(
    device: DeviceAccount | None = None,
    slot: str = "other",
    work: float = 30,
    **calls_ms: float,
) -> Seen:
    """Calls, by their last names, and milliseconds of 20 in a slot beside work on a device."""
    calls = tuple(
        StallingCall(name=f"torch.cuda.{name}", where=f"loop.py:{7 + at}", fraction=spent_ms / 20)
        for at, (name, spent_ms) in enumerate(calls_ms.items())
    )
    account = step(**{"forward": work, slot: 20}, device=device or on_gpu())
    return seen(account, **lines(slot, None, stalls=calls))


def overhead(us: float) -> Seen:
    """Of a step of 20 ms."""
    ms = us / 1e3
    return seen(step(forward=20 - ms, **{OWN: ms}))


SWITCHES = (
    Case(
        "python_in_step",
        "24 of 100 ms, 18 at least and 30 at most",
        python(0.3),
        0.024,
        "python_out_of_step",
        (python(0.16), python(0.3, device=AHEAD)),
        words=("slow in forward takes 24 % of the step", "18 % to 30 %", "time.sleep"),
        shows={"where": "train.py:12", "confidence": "high"},
    ),
    Case(
        "python_in_step",
        "where a device waits for the host",
        python(0.3, slot="other", device=on_gpu()),
        0.024,
        "python_out_of_step",
        words=("slow in the loop",),
        shows={"confidence": "medium"},
    ),
    Case(
        "python_in_step",
        "of a list of arrays, value by value",
        python(0.3, slot="other", runs="torch.tensor"),
        0.024,
        "one_array",
        words=("running there: torch.tensor", "Make tensors of one array, not of lists, in slow"),
    ),
    Case(
        "python_in_step",
        "of a file that is written between two steps",
        python(0.3, slot="between", runs="json.dump"),
        0.024,
        "write_rarely",
        words=("slow in the loop", "Write less often in slow"),
    ),
    Case(
        "debug_modes",
        "nobody knows what anomaly detection costs without an audit",
        switched(detect_anomaly=True),
        None,
        "no_detect_anomaly",
        (switched(detect_anomaly=False, deterministic=False), switched()),
        words=("detect anomaly is on in training",),
        shows={"severity": "high"},
    ),
    Case(
        "debug_modes",
        "4 + 8 ms around operators, and 1 + 3 of a look at a gradient",
        switched(*LOOKED_AT, detect_anomaly=True),
        0.016,
        "no_detect_anomaly",
        (switched(*LOOKED_AT, detect_anomaly=False),),
    ),
    Case(
        "debug_modes",
        "of what anomaly detection adds inside of calls nothing is known",
        switched(*PRODUCTS, detect_anomaly=True),
        None,
        "no_detect_anomaly",
    ),
    Case(
        "debug_modes",
        "several switches are one cause, the dearest first",
        switched(detect_anomaly=True, deterministic=True),
        None,
        "no_detect_anomaly",
        words=(" and deterministic are on in training",),
    ),
    Case(
        "debug_modes",
        "Python is traced",
        switched(python_tracer="cProfile"),
        None,
        "no_python_tracer",
        (switched(python_tracer=None),),
        words=("python tracer is on in training", "cProfile is told of every call"),
        shows={"severity": "high"},
    ),
    Case(
        "debug_modes",
        "every kernel is waited for, where there are kernels",
        switched(launch_blocking=True, device=on_gpu()),
        None,
        "no_launch_blocking",
        (switched(launch_blocking=True),),
        shows={"severity": "high"},
    ),
    Case(
        "debug_modes",
        "a profiler that was left on",
        switched(autograd_profiler=True),
        None,
        "no_autograd_profiler",
        words=("ScheduledProfile",),
    ),
    Case(
        "debug_modes",
        "kernels that sum in a fixed order",
        switched(deterministic=True),
        None,
        "no_deterministic",
        shows={"severity": "low"},
    ),
    Case(
        "debug_modes",
        "convolutions in a fixed order, where cuDNN has them",
        switched(cudnn_deterministic=True, **CONVOLVES),
        None,
        "no_cudnn_deterministic",
        (
            switched(cudnn_deterministic=True, convolution_format="contiguous"),
            switched(cudnn_deterministic=True, device=on_gpu()),  # no convolution in the model
        ),
        words=("cudnn deterministic is on in training",),
    ),
    Case(
        "garbage",
        "0.6 of 10 s",
        collected(0.6),
        0.6,
        "freeze_garbage",
        (
            collected(0.49),
            collected(0.6, 4),  # a few in a short fit: the start of a process has some
            collected(0.6, 0, first_step_s=0.55),  # the first step may have held it
        ),
    ),
    Case(
        "garbage",
        "most of it where a line asks for it",
        collected(0.6, called_ms=2.9),
        0.6,
        "rare_collect",
        words=(
            "600 ms of pauses inside steps, 3.00 ms per step",
            "gc.collect at loop.py:7: 97 % of them",
            "no gc.collect() in the loop",
        ),
        shows={"where": "loop.py:7"},
    ),
    Case(
        "garbage",
        "little of it is asked for",
        collected(0.6, called_ms=1.4),
        0.6,
        "freeze_garbage",
        shows={"where": ""},
    ),
    Case(
        "device_calls",
        "8 of 50 ms in which memory goes back to the driver",
        stalling(synchronize=2, empty_cache=6),
        0.008,
        "keep_cache",
        (stalling(empty_cache=4.9),),
        words=(
            "torch.cuda.empty_cache and torch.cuda.synchronize take 16 % of the step",
            "torch.cuda.empty_cache at loop.py:8: 6.00 ms per step",
        ),
        shows={"where": "loop.py:8"},
    ),
    Case(
        "device_calls",
        "a wait in every step",
        stalling(synchronize=12),
        0.012,
        "no_synchronize",
        shows={"severity": None},
    ),
    Case(
        "device_calls",
        "a device works for 20 of 25 ms, while the host waits: the other five are lost at most",
        stalling(synchronize=20, work=5, device=AHEAD),
        0.005,
        "no_synchronize",
        words=(
            "torch.cuda.synchronize take 80 % of the step",
            "the device works meanwhile: 5.00 ms per step are lost at most",
        ),
        shows={
            "severity": "medium",
            "claim": Claim(owns_s={"other": 0.02}, removes_s=0.025 - 0.02),
        },
    ),
    Case(
        "device_calls",
        "by a capture the device is idle for three of them",
        stalling(synchronize=20, work=5, device=on_gpu(host_bound=0, host_s=0.002, value_s=0.001)),
        0.003,
        "no_synchronize",
        words=("3.00 ms per step are lost at most",),
        shows={"severity": None},
    ),
    Case(
        "device_calls",
        "what waits where the model computes takes nothing from its operators",
        stalling(synchronize=15, slot="backward", device=AHEAD),
        0.015,
        "no_synchronize",
        shows={"severity": "medium", "claim": Claim(removes_s=0.015)},
    ),
    Case(
        "own_cost",
        "2.1 ms of 20, more than a tenth",
        overhead(2100),
        0.0021,
        "measure_less",
        (overhead(590),),
        shows={"severity": "low"},
    ),
    Case(
        "own_cost",
        "0.7 ms are a note: there is nothing to gain",
        overhead(700),
        0.0,
        "measure_less",
        words=("700 µs of 20.0 ms per step",),
    ),
)

CASES = (*HOOKS, *LINES, *SWITCHES)

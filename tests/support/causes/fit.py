"""Causes of the whole fit: pauses, slow steps, changes over time, compiling."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from support.accounts import GIB, Seen, on_gpu, seen, step, with_summary
from support.causes.broken import held
from support.causes.case import CauseCase as Case
from support.causes.machine import trouble

from trainperf.analysis.diagnosis.cause import Use
from trainperf.analysis.summary.schema import (
    HostShare,
    LineShare,
    Moved,
    PhaseLines,
    PlainCode,
    RecurringSteps,
    RunChange,
)
from trainperf.core.artifacts.compilation import Compilation, Compiled, CompiledStep, GraphBreak
from trainperf.core.artifacts.lines import DATASET_MAP, DATASET_MAP_IN_PROCESSES, TOKENIZING
from trainperf.core.loop_kind import HUGGING_FACE, LIGHTNING, PLAIN, LoopKind
from trainperf.core.steps.records import Scalar
from trainperf.meters.fold import Reading


OWNER = LineShare(where="train.py:88", function="evaluate", fraction=0.8, samples=50)


def seen_in(slot: str) -> dict[str, object]:
    """Samples of a pause, or of a phase."""
    return {"lines": (PhaseLines(slot=slot, samples=50, owner=OWNER, lines=(OWNER,)),)}


# -- pauses ------------------------------------


def paused(
    kind: str,
    spent_s: float = 10.0,
    number: int = 20,
    loop: LoopKind = LIGHTNING,
    settings: Mapping[str, Scalar] | None = None,
    **known: object,
) -> Seen:
    """A hundred steps of 100 ms, and so many seconds of pauses."""
    account = step(forward=100, pauses_s={kind: spent_s}, fit_s=10.0 + spent_s)
    gaps = {kind: number} if spent_s else {}
    return seen(account, loop=loop, settings=settings, steps=100, gaps=gaps, **known)


def fewer(change: str, often: int, part: str, **values: object) -> Use:
    """The n-th part of all pauses is left."""
    parts = {"fewer": often, "part": part, **values}
    return Use(change=change, values=parts, realises=1 - 1 / often)


GRAPH = {"validation_grad": True}


def validated(batches: int, size: int, loads: float = 0.0, **settings: Scalar) -> Seen:
    """Ten validations of a second each, beside batches of 32 that take 40 ms and their backward."""
    lines = PhaseLines(
        slot="validation", samples=50, owner=OWNER, lines=(OWNER,), loader_fraction=loads
    )
    return paused(
        "validation",
        number=10,
        loop=HUGGING_FACE if "evaluation_keeps_logits" in settings else PLAIN,
        settings={"validation_batches": batches, "validation_batch_size": size, **settings},
        readings={
            "samples_per_s": 320.0,
            "step_mean_s": 0.1,
            "phase_data_wait_s": 0.004,
            "phase_forward_s": 0.036,
        },
        host=HostShare(ranks=1, cpus_per_rank=2.0, threads=2, workers=0),
        lines=(lines,),
    )


def left_by_the_other(sees: Seen) -> Seen:
    """The same on two ranks that validate the same samples: one half is claimed already."""
    run = replace(sees.facts.run, same_inputs=("validation",), ranks=(0, 1), world_size=2)
    readings = {**sees.facts.summary.readings, "samples_per_s": Reading(value=640.0, unit="")}
    return Seen(sees.account, with_summary(sees.facts, run=run, readings=readings))


def saves(change: str, fraction: float, **values: object) -> Use:
    """So much of a validation."""
    return Use(change=change, values=values, realises=pytest.approx(fraction))


PAUSES = (
    Case(
        "validation",
        "half of the fit, 19 times as much as a twentieth beside the same steps",
        paused("validation", **seen_in("validation")),
        10.0,
        "validate_less",
        (
            paused("validation", 10 * 0.19 / 0.81),
            paused("validation", 0.0),
            paused("checkpoint"),
        ),
        words=(
            "validation takes 50 % of the fit",
            "10.0 s in 20 pauses: 500 ms each, one in 5 steps",
            "evaluate (train.py:88): 80 % of that in 50 samples",
            "Trainer(limit_val_batches=0.053), or 19 × less often",
            "check_val_every_n_epoch or val_check_interval",
        ),
        shows={"where": "train.py:88", "changes": (fewer("validate_less", 19, "0.053"),)},
    ),
    Case(
        "validation",
        "a fifth of the fit: 2.5 s beside ten, of which 0.53 may stay",
        paused("validation", 2.5),
        2.5,
        "validate_less",
        words=("validation takes 20 % of the fit",),
        shows={"changes": (fewer("validate_less", 5, "0.2"),)},
    ),
    Case(
        "validation",
        "a loop of one's own",
        paused("validation", loop=PLAIN),
        10.0,
        "validate_less",
        words=("validate 19 × less often, or on 1/19 of the batches",),
    ),
    Case(
        "validation",
        "a Trainer",
        paused("validation", loop=HUGGING_FACE),
        10.0,
        "validate_less",
        words=(
            'TrainingArguments(eval_strategy="steps", eval_steps=…) with 19 × as many steps',
            "1/19 of the rows in eval_dataset",
        ),
    ),
    Case(
        "validation",
        "a second of eleven, a part of which is the graph's",
        paused("validation", 1.0, settings=GRAPH),
        1.0,
        "validate_without_grad",
        (
            paused("validation", 1.0, settings={"validation_grad": False}),
            paused("validation", 1.0),
            paused("validation", 10 * 0.049 / 0.951, settings=GRAPH),
            paused("validation", 0.0, settings=GRAPH),
        ),
        shows={"changes": (Use(change="validate_without_grad"),)},
    ),
    Case(
        "validation",
        "half of the fit with its graphs: leaving them out costs nothing, and comes first",
        paused("validation", settings=GRAPH),
        10.0,
        "validate_without_grad",
        shows={
            "changes": (Use(change="validate_without_grad"), fewer("validate_less", 19, "0.053"))
        },
    ),
    Case(
        "validation",
        "a batch as large as in training takes 100 ms instead of 40: its lines",
        validated(10, 32),
        10.0,
        "cheaper_lines",
        words=("evaluate (train.py:88): one call for all of a batch",),
        shows={
            "changes": (
                saves("cheaper_lines", 0.6, name=OWNER.name),
                fewer("validate_less", 19, "0.053"),
            )
        },
    ),
    Case(
        "validation",
        "the same where each of two ranks took 200 ms for it, and half of that is claimed",
        left_by_the_other(validated(10, 32)),
        10.0,
        "cheaper_lines",
        shows={
            "changes": (
                saves("cheaper_lines", 0.8, name=OWNER.name),
                fewer("validate_less", 19, "0.053"),
            )
        },
    ),
    Case(
        "validation",
        "the same where half of it is the loader's",
        validated(10, 64, loads=0.5),
        10.0,
        "workers_of_validation",
        words=("num_workers=2, persistent_workers=True",),
        shows={
            "changes": (
                saves("workers_of_validation", 0.1, number=2),
                fewer("validate_less", 19, "0.053"),
            )
        },
    ),
    Case(
        "validation",
        "200 batches of one that take 5 ms: 40 / 32 ms are enough for a sample",
        validated(200, 1),
        10.0,
        "larger_validation_batches",
        words=("batch_size=32 in its DataLoader, as in training, not 1",),
        shows={
            "changes": (
                saves("larger_validation_batches", 0.75, size=1, samples=32),
                fewer("validate_less", 19, "0.053"),
            )
        },
    ),
    Case(
        "validation",
        "a Trainer joins all logits",
        validated(10, 32, evaluation_keeps_logits=True),
        10.0,
        "keep_no_logits",
        words=("preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)",),
        shows={
            "changes": (
                saves("keep_no_logits", 0.48, name="evaluate (train.py:88)"),
                fewer("validate_less", 19, "0.053"),
            )
        },
    ),
    Case(
        "validation",
        "25 batches that take what batches take",
        validated(25, 32),
        10.0,
        "validate_less",
        shows={"changes": (fewer("validate_less", 19, "0.053"),)},
    ),
    Case(
        "checkpoint",
        "a third of the fit, 9.5 times as much as a twentieth beside the same steps",
        paused("checkpoint", 5.0, 50),
        5.0,
        "checkpoint_less",
        (
            paused("checkpoint", 10 * 0.09 / 0.91),
            paused("checkpoint", 0.0),
            paused("checkpoint", 10 * 0.09 / 0.91, settings={"wrapper": "FSDPModule"}),
        ),
        words=(
            "ModelCheckpoint(every_n_train_steps=…) with 10 × as many steps in between",
            "AsyncCheckpointIO()",
        ),
        shows={"changes": (fewer("checkpoint_less", 10, "0.1"),)},
    ),
    Case(
        "checkpoint",
        "of a sharded model the whole state may be gathered",
        paused("checkpoint", 5.0, 50, PLAIN, {"wrapper": "FSDPModule"}),
        5.0,
        "checkpoint_less",
        shows={
            "changes": (
                fewer("checkpoint_less", 10, "0.1"),
                Use(change="sharded_checkpoint"),
            )
        },
    ),
    Case(
        "checkpoint",
        "a loop of one's own",
        paused("checkpoint", 5.0, 50, PLAIN),
        5.0,
        "checkpoint_less",
        words=("save 10 × less often", "torch.distributed.checkpoint.async_save"),
    ),
    Case(
        "checkpoint",
        "a Trainer that saves by the epoch is told to save by the step",
        paused("checkpoint", 10.0, 2, HUGGING_FACE, {"save_strategy": "epoch"}),
        10.0,
        "checkpoint_less",
        words=('TrainingArguments(save_strategy="steps", save_steps=…) with 19 × as many steps',),
    ),
)


OF_THE_SCRIPT = tuple(
    Case(
        kind,
        f"four fifths of what a fit stands still for are one function: {label}",
        paused(kind, 10.0, 5, **seen_in(kind)),
        8.0,
        "lighten_pause",
        (
            paused(kind, 10.0, 5),  # a framework's own work, or a wait
            paused(kind, 1.2, 5, **seen_in(kind)),  # 0.96 s of 11.2
            paused(kind, 10.0, 5, **seen_in("validation")),
        ),
        words=(f"{label} takes 40 % of the fit, in evaluate", "8.00 s in 5 pauses: 1.60 s each"),
        shows={
            "where": "train.py:88",
            "changes": (fewer("lighten_pause", 13, "0.077", name="evaluate"),),
        },
    )
    for kind, label in (("epoch_boundary", "epoch boundary"), ("shutdown", "shutdown"))
)


# -- before the fit ------------------------------------


def prepared(spent_s: float, fit_s: float = 20.0, loading_s: float = 5.0, **lines: object) -> Seen:
    """A script that works so long before a fit of so many seconds."""
    before_s = {"before_fit": spent_s, "imports": loading_s, "unseen": 1.0}
    account = step(forward=100, fit_s=fit_s, before_s=before_s)
    return seen(account, **(lines or seen_in("before_fit")))


def in_python(fraction: float) -> dict[str, object]:
    """Samples of a script of which so much is no tensor operation, in two lines of a function."""
    lines = (replace(OWNER, fraction=0.5), replace(OWNER, where="train.py:91", fraction=0.3))
    code = PlainCode(
        line=replace(OWNER, fraction=fraction), low=fraction, high=fraction, names=("Python",)
    )
    at = PhaseLines(slot="before_fit", samples=50, owner=OWNER, lines=lines, host=code)
    return {"lines": (at,)}


def mapped(
    spent_s: float,
    fit_s: float = 20.0,
    slot: str = DATASET_MAP,
    own_s: float = 1.0,
    **known: object,
) -> Seen:
    """The same where most of it has a name; the script's own has none."""
    before_s = {slot: spent_s, "before_fit": own_s, "imports": 5.0, "loading_weights": 0.5}
    account = step(forward=100, fit_s=fit_s, before_s={**before_s, "unseen": 0.5})
    host = HostShare(ranks=1, cpus_per_rank=2.0, threads=2, workers=0)
    return seen(account, host=host, **seen_in(slot), **known)


def started(startup_s: float, **lines: object) -> Seen:
    """A fit of twenty seconds that takes so long more to start."""
    account = step(
        forward=100,
        fit_s=20.0 + startup_s,
        before_s={"imports": 5.0},
        pauses_s={"startup": startup_s},
    )
    return seen(account, **(lines or seen_in("startup")))


BEFORE = (
    Case(
        "before_first_step",
        "a fit whose startup is mostly a function of the script",
        started(40.0),
        32.0,
        "prepare_cheaper",
        (
            started(40.0, lines=()),  # a framework, a device or other ranks may be waited for
            started(12.0),  # 9.6 s before a fit that goes on for 20
        ),
        words=("32.0 s of the script's own work before the first step, 49 % of all it takes",),
        shows={"where": "train.py:88"},
    ),
    Case(
        "before_first_step",
        "half of what the script takes is its own work before the first step",
        prepared(26.0),
        26.0,
        "prepare_cheaper",
        (
            prepared(9.9, fit_s=20.0),  # nobody turns away
            prepared(9.9, fit_s=5.0, lines=()),  # nor is there a line to name
            prepared(1.9, fit_s=1.0, loading_s=0.0),  # or anything to wait for
            prepared(26.0, fit_s=100.0),  # a fifth of 132 s are 26.4
            prepared(0.0, loading_s=60.0),
            seen(step(forward=100, fit_s=20.0), **seen_in("before_fit")),
        ),
        words=(
            "26.0 s of the script's own work before the first step, 50 % of all it takes",
            "32.0 s before the fit, 5.00 s of them loading modules",
            "evaluate (train.py:88): 80 % of that in 50 samples",
        ),
        shows={"where": "train.py:88"},
    ),
    Case(
        "before_first_step",
        "3.4 s before a fit of 2.4: whoever starts it again waits for its own Python",
        prepared(3.4, 2.4, 1.0, **in_python(0.9)),
        3.4,
        "prepare_cheaper",
        words=(
            "3.40 s of the script's own work before the first step, 44 % of all it takes",
            "train.py:88 50 %, train.py:91 30 %",
            "look words up in a dict or a set, not in a list",
        ),
        shows={
            "changes": (
                Use(change="prepare_cheaper", values={"name": OWNER.name}),
                Use(change="keep_prepared", values={"name": "evaluate"}),
            )
        },
    ),
    Case(
        "before_first_step",
        "as long, in calls of its own that nobody can name: a list may be searched there",
        prepared(3.4, 2.4, 1.0, **in_python(0.4)),
        3.4,
        "prepare_cheaper",
        (prepared(3.4, 7.0, 1.0, **in_python(0.9)),),  # training takes more than twice as long
    ),
    Case(
        "before_first_step",
        "a map in one process of two CPUs, before a fit of 20 s, that the next start need not do",
        mapped(25.0),
        26.0,
        "map_in_processes",
        (
            mapped(8.9, fit_s=20.0),
            mapped(25.0, slot=DATASET_MAP_IN_PROCESSES),  # nothing is left to be done about it
        ),
        words=(
            "25.0 s of it Dataset.map in one process",
            "the next start finds it in datasets' cache, unless the dataset was made in memory",
        ),
        shows={
            "changes": (Use(change="map_in_processes", values={"number": 2}, realises=25 / 26 / 2),)
        },
    ),
    Case(
        "before_first_step",
        "a map in processes that every rank does",
        mapped(25.0, slot=DATASET_MAP_IN_PROCESSES, world_size=2, prepared_ranks=2),
        26.0,
        "prepare_once",
        words=("the next start finds it in datasets' cache",),
        shows={"changes": (Use(change="prepare_once"),)},
    ),
    Case(
        "before_first_step",
        "the same in processes on seven of eight ranks, of a function that cannot be hashed",
        mapped(
            25.0,
            slot=DATASET_MAP_IN_PROCESSES,
            settings={"datasets_cache": "a function could not be hashed"},
            world_size=8,
            prepared_ranks=7,
        ),
        26.0,
        "let_datasets_cache",
        words=(
            "25.0 s of it Dataset.map in processes, not cached: a function could not be hashed",
            "on 7 of 8 ranks",
        ),
        shows={
            "changes": (
                Use(
                    change="let_datasets_cache",
                    values={"why": "a function could not be hashed"},
                ),
                Use(change="prepare_once"),
            )
        },
    ),
    Case(
        "before_first_step",
        "what is found in a cache is no part of what the script itself makes anew",
        mapped(25.0, slot=DATASET_MAP_IN_PROCESSES, own_s=16.0),
        16.0,
        "keep_prepared",
    ),
    Case(
        "before_first_step",
        "tokenising has no cache to ask",
        mapped(25.0, slot=TOKENIZING),
        26.0,
        "keep_prepared",
        words=("50 % of all it takes, 25.0 s of it tokenizing",),
    ),
)


# -- steps ------------------------------------


def in_no_log() -> Reading:
    """One that a log cannot have."""
    return Reading(value=None, unit="s", n=0, reason="not covered: the log holds means")


def unsettled(
    steps: int, state: str = "finished", steady: int = 0, **readings: float | Reading
) -> Seen:
    """A run without steady steps."""
    return seen(step(fit_s=1.0), steps=steps, steady_steps=steady, state=state, readings=readings)


def recurring(
    *, every: int = 50, lost_s: float = 2.0, phase: str = "callbacks", **more: object
) -> Seen:
    """Of two hundred steps of 100 ms four take 600."""
    settings = more.pop("settings", {})
    slow = RecurringSteps(
        **{
            "every": every,
            "steps": 4,
            "of_steps": 200,
            "slow_s": 0.6,
            "typical_s": 0.1,
            "lost_s": lost_s,
            "phase": phase,
            "phase_fraction": 0.9,
            "line": OWNER,
            **more,
        }
    )
    return seen(step(forward=100), slow_steps=slow, settings=settings)


def spread(iqr_ms: float, waits: float = 0.0, callbacks: float = 0.0) -> Seen:
    """Steps of 20 ms whose middle half is so wide, and the part of them that waits for data."""
    readings = {"step_s": 0.020, "step_iqr_s": iqr_ms / 1e3, "step_p95_s": 0.030}
    return seen(
        step(forward=20 - callbacks, callbacks=callbacks),
        readings={**readings, "data_wait_fraction": waits},
    )


def overflowing(lost: float, steps: int) -> Seen:
    """Of steps of 50 ms."""
    rate = Reading(value=lost, unit="1", n=steps)
    return seen(step(forward=50), readings={"overflow_rate": rate, "loss_scale": 1024.0})


STEPS = (
    Case(
        "no_steady_state",
        "five steps settle nothing",
        unsettled(5),
        None,
        "train_longer",
        (
            unsettled(5, "killed"),
            unsettled(300, "running"),
            unsettled(300, steady=30),
            unsettled(300, step_mean_s=0.1),
        ),
        words=("5 steps are too few for a steady state",),
    ),
    Case(
        "no_steady_state",
        "three hundred steps went by and the warm-up did not end",
        unsettled(300),
        None,
        "find_what_changes",
        words=("the step time never settled",),
        shows={"severity": "low"},
    ),
    Case(
        "no_steady_state",
        "means in a log that do not settle; a log with one mean never could",
        unsettled(300, step_s=in_no_log()),
        None,
        "log_more",
        (unsettled(300, step_mean_s=in_no_log()),),
        words=("the means in the log are too few, or too far apart",),
    ),
    Case(
        "overflow",
        "a fifth of 150 updates, each of which costs a step",
        overflowing(0.2, 150),
        0.010,
        "stop_overflows",
        (overflowing(10 / 150, 150), overflowing(0.024, 2000), overflowing(0.0, 150)),
        words=("20 % of the updates overflow and are skipped", "loss scale now 1,024"),
    ),
    Case(
        "slow_steps",
        "every fiftieth step takes half a second more",
        recurring(),
        2.0,
        "do_less_often",
        (
            recurring(lost_s=0.59),
            recurring(every=8, phase="data_wait", settings={"num_workers": 8}),
        ),
        words=("every 50th step takes 600 ms instead of 100 ms", "evaluate"),
        shows={"where": "train.py:88"},
    ),
    Case(
        "slow_steps",
        "the latest hundred of two hundred were looked at: the others are like them",
        recurring(of_steps=100, line=None),
        4.0,
        "find_slow_steps",
        words=("what every 50th step does",),
    ),
    Case(
        "noisy_run",
        "the middle half spans a quarter of the median",
        spread(5.0),
        None,
        "quiet_machine",
        (spread(4.9), spread(5.0, waits=0.1)),  # a loader brings batches in bursts
        words=("their middle half spans 25 % of the median",),
        shows={"confidence": "low", "severity": "low"},
    ),
)


# -- changes over time ------------------------------------


def level(
    phase: str = "loop",
    *moved: Moved,
    lost_s: float = 2.0,
    alike: bool = False,
    since: int = 100,
    until: int = 160,
    beside: Seen | None = None,
    **known: object,
) -> Seen:
    """From one step to another they take 120 ms instead of 100."""
    new = RunChange(
        from_step=since,
        until_step=until,
        begins_s=0.1,
        ends_s=0.12,
        lost_s=lost_s,
        phase=phase,
        phase_ends_s=0.02,
        alike=alike,
        moved=moved,
    )
    known |= {} if beside is None else {"machine": beside.facts.summary.machine}
    return seen(step(forward=100), long_term=(new,), **known)


def drifting(phase: str = "loop", *moved: Moved, lost_s: float = 2.0, **known: object) -> Seen:
    """Steps of 100 ms become steps of 140."""
    drift = RunChange(
        begins_s=0.1,
        ends_s=0.14,
        lost_s=lost_s,
        phase=phase,
        phase_begins_s=0.01,
        phase_ends_s=0.05,
        alike=bool(known.pop("alike", False)),
        moved=moved,
    )
    return seen(step(forward=100), long_term=(drift,), **known)


def waiting_longer(loads: float) -> Seen:
    """Data wait grows, with so much of its samples in a loader."""
    seen_at = PhaseLines(slot="data_wait", samples=50, owner=None, lines=(), loader_fraction=loads)
    return drifting("data_wait", lines=(seen_at,))


LONGER = Moved(fact="tokens_padded", before=1000, after=1200)
WAITS = Moved(fact="waited_ns", before=1e6, after=2e7)
FULLER = Moved(fact="device_used_bytes", before=0.91 * 24 * GIB, after=0.99 * 24 * GIB)
OF_24_GIB = {"settings": {"device_memory_bytes": 24 * GIB}}


def because(phase: str, change: str, says: str, sees: Seen, *words: str) -> Case:
    """A change over time, put down to something."""
    return Case("slower_since", f"{phase}: {says}", sees, 2.0, change, words=words)


TIME = (
    Case(
        "slower_since",
        "sixty steps take 20 ms longer, and what seems to wait in the loop is not known",
        level(),
        2.0,
        "loop_does_more",
        (
            level(lost_s=0.19),
            # The machine was seen to be why just these steps are slower.
            level(since=40, until=80, beside=trouble("thermal", slower=0.2)),
        ),
        words=("steps 100 to 159 take 20 % longer: loop, +20.0 ms",),
    ),
    because(
        "forward",
        "larger_batches",
        "batches got larger with it",
        level("forward", LONGER),
        "tokens of a batch grew with it: 1,000 to 1,200 (+20 %)",
        "before and after step 100",
    ),
    because(
        "forward",
        "slower_machine",
        "all phases alike",
        level("forward", alike=True),
        "forward, backward and optimizer alike, +20.0 ms",
    ),
    because(
        "forward",
        "leave_room",
        "all phases alike, and the device's memory passed 97 %",
        level("forward", FULLER, alike=True, readings={"memory_peak_bytes": 20 * GIB}, **OF_24_GIB),
        "alike, +20.0 ms, as the device's memory became full",
        "of the device's 24.0 GiB: 91 % before and 99 % after; tensors held 20.0 GiB at most",
        "a smaller micro-batch",
    ),
    because("forward", "leave_room", "bit by bit", drifting("forward", FULLER, **OF_24_GIB)),
    because(
        "forward",
        "slower_machine",
        "fuller, and not full",
        level(
            "forward",
            Moved(fact="device_used_bytes", before=20 * GIB, after=23 * GIB),
            alike=True,
            **OF_24_GIB,
        ),
    ),
    because(
        "forward",
        "slower_machine",
        "full all along",
        level(
            "forward",
            Moved(fact="device_used_bytes", before=23.6 * GIB, after=23.7 * GIB),
            alike=True,
            **OF_24_GIB,
        ),
    ),
    because(
        "forward",
        "larger_batches",
        "batches got larger, and filled it",
        level("forward", LONGER, FULLER, **OF_24_GIB),
    ),
    because("data_wait", "slower_data", "its own name", level("data_wait", LONGER)),
    because("data_wait", "slower_data", "and no memory's", level("data_wait", FULLER, **OF_24_GIB)),
    because("callbacks", "hook_does_more", "a hook", level("callbacks")),
    because("backward", "something_changed", "nothing tells", level("backward")),
    Case(
        "slower_since",
        "a logger that rewrites its file",
        drifting(settings={"loggers": "CSVLogger"}),
        2.0,
        "append_to_log",
        (drifting(lost_s=0.19, settings={"loggers": "CSVLogger"}), seen(step(forward=100))),
        words=("grows from 10.0 ms to 50.0 ms per step", "CSVLogger", "40 % longer"),
    ),
    because(
        "callbacks",
        "clear_what_gathers",
        "a list was found that has something of each step",
        drifting("callbacks", documents=held(200, 0, 1)),
        "callbacks grows",
        "list Model.kept holds 200 tensors or arrays",
        "clear Model.kept after use",
    ),
    because("forward", "find_what_gathers", "the model itself", drifting("forward")),
    because(
        "data_wait",
        "find_what_gathers",
        "the loop's own code, by where it was seen",
        waiting_longer(0.1),
    ),
    because(
        "data_wait",
        "slower_data",
        "its loader",
        waiting_longer(0.9),
    ),
    because("loop", "slower_machine", "it waits for CPUs", drifting("loop", WAITS)),
    because("forward", "larger_batches", "batches", drifting("forward", LONGER)),
)


# -- compiling ------------------------------------

WAS_128 = "dimension 1 of rows was 128, then 136"
SIZE = "tensor 'rows' size mismatch at index 1. expected 128, actual 136"


def compiled(
    *reasons: tuple[int, str | None],
    walls_s: Mapping[int, float] | None = None,
    gave_up: bool = False,
) -> Compilation:
    """One function, compiled in these steps; each takes 1.05 s if nothing else is said."""
    graphs = tuple(
        Compiled(
            function="forward",
            where="model.py:12",
            step=at,
            seconds=1.0,
            reason=reason,
            gave_up=gave_up and place == len(reasons) - 1,
        )
        for place, (at, reason) in enumerate(reasons)
    )
    walls_s = walls_s or {at: 1.05 for at, _ in reasons}
    steps = tuple(CompiledStep(step=at, wall_s=wall_s) for at, wall_s in walls_s.items())
    return Compilation(graphs=len(graphs), compiled=graphs, steps=steps)


def compiling(
    document: Compilation | None, fit_s: float = 20.0, *, steps: int = 200, **known: object
) -> Seen:
    """Steps of 50 ms."""
    state = known.pop("state", "finished")
    return seen(
        step(forward=50, fit_s=fit_s),
        steps=steps,
        state=state,
        readings={"step_s": 0.05, **known},
        documents={"compilation": document},
    )


def again(*reasons: str) -> Compilation:
    """Once for each reason, a step of 1.05 s each."""
    return compiled((0, None), *((3 + 40 * place, reason) for place, reason in enumerate(reasons)))


def broken(*breaks: tuple[str, str]) -> Seen:
    """A graph that ends there."""
    made = tuple(GraphBreak(reason=reason, where=where, times=2) for reason, where in breaks)
    return compiling(Compilation(graphs=2, breaks=made))


LIBRARY = "/x/lib/python3.11/site-packages/transformers/modeling_utils.py:4769"


def breaks(change: str, *reasons: tuple[str, str], words: tuple[str, ...] = ()) -> Case:
    """A break has no bound: what one graph would gain is not known before there is one."""
    return Case("graph_breaks", reasons[0][0], broken(*reasons), None, change, words=words)


OF_DDP = (
    ("DDPOptimizer intentional graph-break", "torch/_dynamo/backends/distributed.py:0"),
    ("Dynamo does not trace `DistributedDataParallel._inside_ddp_forward`", "contextlib.py:105"),
    ("cannot trace set_runtime_stats_and_log", "torch/nn/parallel/distributed.py:1757"),
)


def cut(times: int, **settings: Scalar) -> Seen:
    """DDP's cuts into one graph; 3 MB of gradients are two buckets."""
    made = GraphBreak(reason=OF_DDP[0][0], where=OF_DDP[0][1], times=times)
    account = step(forward=50)
    document = Compilation(graphs=1, breaks=(made,))
    told = {"gradient_bytes": 3e6, "ddp_buckets": times}
    return seen(account, settings=told | settings, documents={"compilation": document})


def graphs(
    *reasons: str, recorded: int = 0, unrecorded: int | None = None, device: bool = True
) -> Seen:
    """Two graphs, and why torch recorded no CUDA graph of some."""
    left_out = len(reasons) if unrecorded is None else unrecorded
    entries = compiled((0, None)).compiled
    document = Compilation(
        graphs=2,
        recorded=recorded,
        unrecorded=left_out,
        compiled=tuple(replace(entry, unrecorded=why) for entry in entries for why in reasons),
    )
    account = step(forward=50, device=on_gpu() if device else None)
    return seen(account, documents={"compilation": document})


def left_out(change: str, reason: str) -> Case:
    """One graph, for one reason."""
    says = f"skipping cudagraphs due to {reason}"
    words = ("records no CUDA graph of 1 graph", says)
    return Case("cuda_graphs", reason, graphs(says), None, change, words=words)


def given(**settings: Scalar) -> Seen:
    """What was asked of the compiler, and what it did."""
    return seen(step(forward=50), settings=settings)


ONCE_12_S = compiled((0, None), walls_s={0: 12.05})
FIRST_15_S = {"first_step_s": 15.05}

COMPILING = (
    Case(
        "recompiles",
        "four steps of 1.05 s instead of 0.05",
        compiling(again(SIZE, SIZE, SIZE, SIZE)),
        4.0,
        "dynamic_shapes",
        (
            compiling(again(SIZE)),
            # Modules of one class are compiled once each, in the first step.
            compiling(compiled((0, None), (0, SIZE), (0, SIZE), (3, SIZE))),
            compiling(compiled((0, None), (3, SIZE), (9, SIZE), walls_s={3: 0.15, 9: 0.15})),
            compiling(None),
        ),
        words=(
            "recompilation takes 20 % of the fit",
            "torch._dynamo.mark_dynamic(rows, 1)",
            WAS_128,
        ),
        shows={"where": "model.py:12", "bounded": True},
    ),
    Case(
        "recompiles",
        "a number, called as in the code, and the line that reads it",
        compiling(
            again(*["L['self'].level == 3    # x * self.level  # /net/model.py:14 in f"] * 2)
        ),
        2.0,
        "same_guards",
        words=("forward: self.level was 3 when it was compiled, and has changed", "as a tensor"),
        shows={"where": "model.py:14"},
    ),
    Case(
        "recompiles",
        "another grad mode",
        compiling(again(*["GLOBAL_STATE changed: grad_mode"] * 2)),
        2.0,
        "one_grad_mode",
        words=("call it under one grad mode",),
    ),
    Case(
        "recompiles",
        "where torch gave up new shapes run uncompiled, at a price that nobody knows",
        compiling(compiled((0, None), (3, SIZE), (9, SIZE), (12, SIZE), gave_up=True)),
        3.0,
        "dynamic_shapes",
        words=("torch gave up on forward in step 12",),
        shows={"bounded": False},
    ),
    Case(
        "first_step",
        "12 s to compile, of which two hundred steps of 50 ms have saved 21.5 ms each",
        compiling(ONCE_12_S, 24.0),
        12.0 - 4.3,
        "compile_long_runs",
        (
            compiling(compiled((0, None), walls_s={0: 4.05}), 24.0),  # paid back by step 187
            compiling(ONCE_12_S, 24.0, state="running"),
            compiling(compiled((0, None), walls_s={0: 0.95}), 4.0, steps=20),  # half a second
            compiling(ONCE_12_S, 80.0),
            compiling(ONCE_12_S, 24.0, steps=559),
        ),
        words=(
            "compiling takes 32 % of the fit beyond what it saves",
            "pays off after 559 steps\nthis fit had 200",
        ),
    ),
    Case(
        "first_step",
        "recompilations are not counted again",
        compiling(
            compiled((0, None), (3, SIZE), (9, SIZE), walls_s={0: 9.05, 3: 9.0, 9: 9.0}), 30.0
        ),
        9.0 - 4.3,
        "compile_long_runs",
    ),
    Case(
        "first_step",
        "a first step of 15 s in which it compiles has the speed of the others to show for it",
        compiling(compiled((0, None), walls_s={0: 15.05}), 30.0, **FIRST_15_S),
        15.0 - 4.3,
        "compile_long_runs",
        (compiling(compiled((0, None), walls_s={0: 15.05}), 30.0, steps=698, **FIRST_15_S),),
        words=("compiling takes 36 % of the fit beyond what it saves",),
    ),
    Case(
        "first_step",
        "15 s more than the others, half of the fit",
        compiling(None, 30.0, **FIRST_15_S),
        15.0,
        "pay_once",
        (
            compiling(None, 30.0, first_step_s=9.0),
            compiling(None, 200.0, **FIRST_15_S),
            compiling(None, 30.0, state="running", **FIRST_15_S),
        ),
        words=("the first step takes 50 % of the fit",),
    ),
    Case(
        "first_step",
        "a compilation that explains two of fifteen seconds does not silence it",
        compiling(compiled((0, None), walls_s={0: 2.05}), 30.0, **FIRST_15_S),
        15.0,
        "pay_once",
    ),
    Case(
        "first_step",
        "9 s of 10 in which steps wait for data, and 0.1 of it in steady ones",
        compiling(
            None,
            30.0,
            data_wait_fraction=0.0,
            data_wait_all_fraction=0.9,
            **FIRST_15_S,
        ),
        9.0,
        "first_batch_sooner",
        words=("the first batch takes 30 % of the fit", "a sort by length"),
    ),
    Case(
        "graph_breaks",
        "a print",
        broken(("cannot trace builtin `print`", "model.py:15")),
        None,
        "no_print_in_graph",
        (compiling(again()), compiling(None), broken(*OF_DDP)),
        words=("compiled code breaks at 1 place",),
        shows={"where": "model.py:15", "severity": "medium"},
    ),
    breaks("tensor_branch", ("Tensor.item() with capture_scalar_outputs=False", "a.py:3")),
    breaks("tensor_branch", ("data-dependent branching", "a.py:3")),
    breaks("no_break", ("something new", "a.py:3")),
    breaks(
        "ignore_logging",
        ("logging.Logger methods are not supported", LIBRARY),
        words=("all inside transformers", "ignore_logging_functions", "layer.compile()"),
    ),
    breaks(
        "compile_parts",
        ("step_unsupported", LIBRARY),
        words=(
            "transformers/modeling_utils.py:4769: step_unsupported",
            "another version or setting of transformers",
        ),
    ),
    breaks(
        "no_print_in_graph",
        ("step_unsupported in a package, and", LIBRARY),
        ("cannot trace builtin `print`", "/home/me/model.py:15"),
        words=("compiled code breaks at 2 places\n",),
    ),
    Case(
        "not_compiled",
        "the option was lost on its way",
        given(compile_option=True, compiled=False),
        None,
        "compile_it",
        (
            given(compile_option=True, compiled=True),
            given(compile_option=True),
            given(compiled=False),
            given(compiled=False, TORCHDYNAMO_DISABLE="1"),
        ),
    ),
    Case(
        "not_compiled",
        "the option was given, and the environment says otherwise",
        given(compile_option=True, compiled=False, TORCHDYNAMO_DISABLE="1"),
        None,
        "no_switch",
        words=("TORCHDYNAMO_DISABLE=1 in the environment", "take TORCHDYNAMO_DISABLE out"),
    ),
    Case(
        "not_compiled",
        "another object is called than the compiled one",
        given(compiled=True, ran_compiled=False),
        None,
        "call_compiled",
        (given(compiled=True, ran_compiled=True), given(compiled=False, ran_compiled=False)),
        words=("the model was given to torch.compile, and nothing was compiled",),
    ),
    left_out("one_device", "cpu device (primals_1)"),
    left_out("one_device", "multiple devices: device(type='cuda', index=0), device(type='cpu')"),
    left_out("no_mutation", "mutated inputs (2 instances)"),
    left_out("fixed_shapes", "graph with symbolic shapes inputs"),
    left_out("another_mode", "incompatible ops"),
    Case(
        "cuda_graphs",
        "38 of two graphs, forward and backward apart, are more than eight of each",
        graphs(recorded=38),
        None,
        "fixed_shapes",
        (
            graphs(recorded=32),
            graphs("skipping cudagraphs due to cpu device", device=False),
            graphs(),
            compiling(None),
        ),
        words=("38 CUDA graphs were recorded, one for each shape", "pad to a few lengths"),
    ),
    Case(
        "ddp_pieces",
        "twelve, where two buckets are usual",
        cut(12),
        None,
        "larger_buckets",
        (cut(8), cut(12, gradient_bytes=60e6), compiling(None)),
        words=("DDP cuts a compiled graph into 12 pieces", "12 buckets of 244 KiB on average"),
    ),
)

CASES = (*PAUSES, *OF_THE_SCRIPT, *BEFORE, *STEPS, *TIME, *COMPILING)

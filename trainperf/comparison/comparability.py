"""Comparability of two runs: whether they are one experiment, what was changed, what to compare.

Step time decides where a step is the same work in both runs; elsewhere the rate of tokens or
samples does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.compared_run import Repeats
from trainperf.comparison.results import Difference
from trainperf.comparison.variables import THREADS, as_without, variables
from trainperf.core.findings import LIMITS
from trainperf.core.loop_kind import NOT_TOLD, STEP_CLOCK, imported_from
from trainperf.core.machine.surroundings import NEW_FACTS, PACKAGES, VARIABLES
from trainperf.core.readings import EFFECTIVE_TOKENS_PER_S, SAMPLES_PER_S, STEP_MEAN_S, STEP_S
from trainperf.core.steps.records import Scalar


SAME_SIZE = LIMITS.worth
"""Relative difference in parameters up to which it is the same model, its vocabulary padded; and
in a step's work up to which a run is a repeat: texts have chance lengths."""

CHANCE = 3.0
"""Standard errors by which repeats may differ in a step's mean work."""

_CHANGES: dict[str, str] = {
    name: change
    for change, names in {
        "loader": "loader loader_library num_workers worker_start prefetch_factor "
        "persistent_workers pin_memory",
        "model size": "parameters trainable_parameters parameter_tensors gradient_bytes vocabulary",
        "optimizer": "optimizers optimizer_fused optimizer_foreach",
        "precision": "precision autocast grad_scaler",
        "matmul precision": "float32_matmul_precision matmul_allow_tf32 cudnn_allow_tf32",
        "dataset": "dataset dataset_samples dataset_shards datasets_cache",
        "batch": "batch_size accumulate_grad_batches micro_batches_per_step sequence_length "
        "shapes_vary",
        "ranks": "world_size local_world_size strategy wrapper allreduces_per_step collectives "
        "backend",
        "torch": "torch cuda cudnn nccl triton torchvision torchaudio",
        "threads": f"threads {' '.join(sorted(THREADS))}",
    }.items()
    for name in names.split()
}
"""Fact to the change it belongs to: facts that go together are one change."""

_NO_CHANGE = frozenset(
    {"seed", "max_steps", "max_epochs", "log_every_n_steps", "scheduler_steps", "updates"}
    | {"micro_batches", "host_cpus", "cpu_mask", "host", STEP_CLOCK}
)
"""Facts that change neither the work of a step nor its speed."""

_NEW_FACTS = frozenset(
    {"local_world_size", "collectives", "dataset_samples", "shapes_vary", "ran_compiled"}
    | {"buffer_bytes", "fsdp_reshard", "nccl_ways", "infiniband", "gloo_bytes_per_s"}
    | {"fastest_interface", "fastest_bytes_per_s", "device_cpus", "backend"}
    | {"dataset_shards", "datasets_cache", "loader_library", "worker_start"}
    | {*NEW_FACTS, *VARIABLES}
)
"""Which older runs lack: what one side does not say is no change."""

_MEASURED = frozenset({"frozen_modules", "frozen_s", "frozen_part", "frozen_slot", "frozen_again"})
"""Facts that a run has found out by measuring: no setting, and another number each time."""

_OF_LOGS = frozenset({"imported_from", "loop"})
"""Facts that say how a run was read, where only one was read from a log."""

_BESIDES_CODE = frozenset(
    {*PACKAGES, *VARIABLES, "python", "torch", "cuda", "cudnn", "nccl", "driver", "kernel"}
    | {"cpu_model", "cpu_governor", "cpu_count", "threads", "device_name", "device_memory_bytes"}
)
"""Facts that are neither the code nor a setting of it."""

UNCOMMITTED = " with uncommitted changes"

SAME_WORK = 0.005
"""Relative difference in what a step works through up to which steps are the same work."""

_WORK = {EFFECTIVE_TOKENS_PER_S: "effective tokens", SAMPLES_PER_S: "samples"}
"""Rates that count the same work in any shape of batch, the best one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidingReading:
    """What the verdict stands on."""

    name: str | None
    """The reading; `None` where there is nothing to compare."""
    why: str
    """Why it is that one, or why there is none."""
    per_rank: bool = False
    """Whether it is divided by the number of ranks: how well more of them scale."""


def deciding_reading(before: Repeats, after: Repeats) -> DecidingReading:
    """The reading that compares two runs fairly."""
    runs = (before[0].summary, after[0].summary)
    pairs = [(old.summary, new.summary) for old, new in zip(before, after, strict=False)]
    tokens_differ = _token_obstacle(*runs)
    rates = [
        name for name in _WORK if _in_both(name, runs) and not (tokens_differ and "token" in name)
    ]
    if runs[0].run.world_size != runs[1].run.world_size:
        return _of_rates(rates, tokens_differ, "the number of ranks differs", per_rank=True)
    counted = [pair for pair in pairs if all(_in_both(rate, pair) for rate in rates[:1])]
    if not all(_same_work(rates, pair) for pair in counted):
        return _of_rates(rates, tokens_differ, "a step is not the same work in both")
    of_logs = any(imported_from(run.run.config) for run in runs)
    name = STEP_S if _in_both(STEP_S, runs) or not of_logs else STEP_MEAN_S
    if not _in_both(name, runs):
        return DecidingReading(name=None, why=_why_none(name, runs))
    mean = "; the log has means, so the mean is compared" if name == STEP_MEAN_S else ""
    return DecidingReading(name=name, why=f"a step is the same work in both{mean}")


def _why_none(name: str, runs: Sequence[Summary]) -> str:
    """Why one of the runs has no such reading."""
    lacking = next(run for run in runs if run.value(name) is None)
    reading = lacking.readings.get(name)
    why = (reading.reason if reading is not None else None) or "no step time"
    return f"{lacking.run.name}: {why}" if imported_from(lacking.run.config) else why


def _of_rates(
    rates: list[str], tokens_differ: str | None, why: str, *, per_rank: bool = False
) -> DecidingReading:
    if rates:
        what = f"{_WORK[rates[0]]} per second{' and rank' if per_rank else ''} are compared"
        return DecidingReading(name=rates[0], why=f"{why}: {what}", per_rank=per_rank)
    why = tokens_differ or f"{why}, and neither tokens nor samples were counted"
    return DecidingReading(name=None, why=why)


def _in_both(name: str, runs: Sequence[Summary]) -> bool:
    return all(run.value(name) is not None for run in runs)


def no_repeat(side: Repeats) -> str | None:
    """Why a run given as a repeat is none of the first of its side; `None` if all are."""
    first = side[0].summary
    for run in side[1:]:
        repeat = run.summary
        # Steps of packed texts have more or fewer rows by chance, and so has their mean.
        chance = CHANCE * math.hypot(side[0].samples_error, run.samples_error)
        # Tokens of texts of unlike length differ by chance, and so does the first batch's width.
        counts = [name for name in (SAMPLES_PER_S,) if _in_both(name, (first, repeat))]
        tolerance = max(SAME_SIZE, chance)
        whys = (
            obstacle(first, repeat),
            _token_obstacle(first, repeat),
            first.run.world_size != repeat.run.world_size and "the number of ranks differs",
            counts
            and not _same_work(counts, (first, repeat), tolerance)
            and "a step is not the same work in both",
        )
        if why := next(filter(None, whys), None):
            return f"{repeat.run.name} is not a repeat of {first.run.name}: {why}"
    return None


def _same_work(rates: list[str], runs: Sequence[Summary], tolerance: float = SAME_WORK) -> bool:
    """Whether a mean step works through as much; where nothing was counted, by its shape."""
    if not rates:
        names = ("batch_size", "accumulate_grad_batches", "sequence_length")
        shapes = [[run.run.config.get(name) for name in names] for run in runs]
        return shapes[0] == shapes[1]
    # Tokens or samples of a mean step.
    before, after = ((run.value(rates[0]) or 0.0) * (run.value(STEP_MEAN_S) or 0.0) for run in runs)
    return abs(after / before - 1) <= tolerance


def differences(before: Summary, after: Summary) -> tuple[Difference, ...]:
    """Every fact that differs, except those that make no difference to a step.

    What the log of an imported run does not hold is no change.
    """
    old, new = _facts(before), _facts(after)
    logs = [imported_from(run.run.config) for run in (before, after)]
    return tuple(
        Difference(
            name=name,
            before=old.get(name),
            after=new.get(name),
            change=_CHANGES.get(name, name),
            besides_code=name in _BESIDES_CODE,
        )
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
        and name not in _NO_CHANGE
        and not (name in _NEW_FACTS and None in (old.get(name), new.get(name)))
        and not (logs[0] and name not in old)
        and not (logs[1] and name not in new)
        and not (name in _OF_LOGS and not all(logs))
        and not as_without(name, old, new)
    )


def code_version(summary: Summary) -> str:
    """The commit of the script, with a word if it was changed since; empty where unknown."""
    commit, dirty = (summary.run.environment.get(name) for name in ("git_commit", "git_dirty"))
    if not isinstance(commit, str):
        return ""
    return f"{commit[:10]}{UNCOMMITTED}" if dirty else commit[:10]


def obstacle(before: Summary, after: Summary) -> str | None:
    """Why the two are not runs of one experiment; `None` if they are."""
    facts = [_facts(run) for run in (before, after)]
    samples = [each.get("dataset_samples") for each in facts]
    for name, what in (("device_name", "hardware"), ("model", "model"), ("dataset", "task")):
        old, new = (each.get(name) for each in facts)
        # A dataset of another class with as many is the same data, e.g. kept in memory now.
        same = name == "dataset" and samples[0] is not None and samples[0] == samples[1]
        if old != new and None not in (old, new) and not same:
            return f"the {what} differs: {old} and {new}"
    if (why := _told_by_logs(before, after)) is not None:
        return why
    if before.run.device != after.run.device:
        return f"the hardware differs: {before.run.device} and {after.run.device}"
    sizes = [each.get("parameters") for each in facts]
    counted = sorted(size for size in sizes if isinstance(size, int) and size)
    if len(counted) == 2 and counted[1] > counted[0] * (1 + SAME_SIZE):
        return f"the model differs: {counted[0]:,} and {counted[1]:,} parameters"
    return None


def _told_by_logs(before: Summary, after: Summary) -> str | None:
    """Why steps of logs are not the same time, or are not known to be of the same device."""
    clocks = [run.run.config.get(STEP_CLOCK) for run in (before, after)]
    if None not in clocks and clocks[0] != clocks[1]:
        return f"a step is not the same time in both: {clocks[0]}; and {clocks[1]}"
    silent = [run for run in (before, after) if run.run.device == NOT_TOLD]
    if len(silent) == 1:
        return f"the log of {silent[0].run.name} does not tell its device"
    return None


def _token_obstacle(before: Summary, after: Summary) -> str | None:
    """Why their tokens are not the same unit; `None` if they are."""
    old, new = before.run.notes.get("tokens"), after.run.notes.get("tokens")
    if old != new and None not in (old, new):
        return f"tokens are counted differently: by {old} and by {new}"
    return None


def _facts(summary: Summary) -> Mapping[str, Scalar]:
    run = summary.run
    versions: dict[str, Scalar] = dict(run.software)
    facts = {**run.hardware, **versions, "world_size": run.world_size, **run.config}
    facts |= variables(summary)
    return {name: value for name, value in facts.items() if name not in _MEASURED}

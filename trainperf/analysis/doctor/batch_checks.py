"""Checks of what an update holds in memory, and of the batch that it adds up to."""

from trainperf.analysis.diagnosis.detectors.memory import LEAST_S, LEAST_STEPS, long_enough
from trainperf.analysis.doctor.base import (
    AUDIT,
    Case,
    Check,
    answer,
    measured,
    missing,
    only,
    shown,
)
from trainperf.core.formatting.units import count, size
from trainperf.core.readings import (
    MEMORY_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    OPTIMIZER_STEPS_PER_S,
    RESIDENT_PEAK_BYTES,
    SAMPLES_PER_S,
)


def _samples(case: Case) -> tuple[float, float]:
    """Of an update: as configured, and as recorded."""
    facts, batch = case.facts, case.facts.number("batch_size") or 0.0
    recorded = (facts.value(SAMPLES_PER_S) or 0.0) / (facts.value(OPTIMIZER_STEPS_PER_S) or 1.0)
    return batch * facts.micro_batches * facts.run.world_size, recorded


_PER_UPDATE = (
    (
        "batches of {facts.settings[batch_size]} × {facts.micro_batches} × "
        "{facts.run.world_size} ranks"
    ),
    lambda case: f"{count(_samples(case)[1])} samples recorded per update",
)


def _held(case: Case) -> str:
    """What an audit counted."""
    ledger = case.facts.documents.memory
    most = ledger.activations_bytes if ledger else None
    passing = "" if most is None else f", {size(most)} of activations at most"
    return f"{size(ledger.static_bytes)} of model and optimizer{passing}" if ledger else ""


BATCH_CHECKS: tuple[Check, ...] = (
    Check(
        id="peak_memory",
        about="""Peak memory is not raised by activations kept, temporaries or logging references.

        Fails on `out_of_memory`, `leak` and `memory_limit`.  Unknown without an audit or device
        memory.

        Wrong where: the peak was reached before the first step, in loading a checkpoint for
        instance.
        To confirm: `memory` of the summary: what holds how much.
        """,
        causes=(
            "out_of_memory",
            "leak",
            "memory_limit",
        ),
        looks=[
            answer(
                "unknown",
                "memory was not measured",
                action="{loop.measures[memory]}",
                when=lambda case: (
                    case.facts.documents.memory is None
                    and missing(MEMORY_PEAK_BYTES, RESIDENT_PEAK_BYTES)(case)
                ),
            ),
            answer(
                "unknown",
                "too short to tell a leak from a warm-up",
                action=f"run for {LEAST_STEPS} steady steps and {LEAST_S:.0f} s",
                when=lambda case: not long_enough(case.facts),
            ),
            *measured(MEMORY_SLOPE_BYTES_PER_STEP, "{loop.measures[memory]}"),
            # The resident set sees growth only: what it is made of, an audit tells.
            answer(
                "unknown",
                shown(RESIDENT_PEAK_BYTES, "{} resident; no tensor was counted", size),
                action=AUDIT,
                when=lambda case: (
                    case.facts.documents.memory is None and missing(MEMORY_PEAK_BYTES)(case)
                ),
            ),
            answer(
                "pass",
                _held,
                shown(MEMORY_PEAK_BYTES, "peak {}", size),
                "nothing that matters grows from step to step",
            ),
        ],
    ),
    Check(
        id="accumulation",
        about="""DDP global batch, accumulation and scheduler steps agree.

        Fails on `no_sync`, `scheduler_per_micro_batch`, `data_parallel`, `zero_grad` and
        `same_batches`, and when the samples recorded per update are a quarter or more off batch ×
        micro-batches × ranks.  Unknown without sample counts.

        Wrong where: batches end short, so that samples per update differ by themselves.
        To confirm: samples per update in the records against batch × micro-batches × ranks.
        """,
        causes=(
            "no_sync",
            "scheduler_per_micro_batch",
            "data_parallel",
            "zero_grad",
            "same_batches",
        ),
        of_training=True,
        looks=[
            *measured(SAMPLES_PER_S, "{loop.measures[samples]}"),
            *measured(OPTIMIZER_STEPS_PER_S, "{loop.measures[samples]}"),
            # A text says that accumulation changed from update to update.
            answer(
                "unknown",
                "batch_size or accumulation is unknown, or varies between updates",
                action="load with a DataLoader of a fixed batch_size",
                when=lambda case: (
                    not _samples(case)[0]
                    or isinstance(case.facts.settings.get("accumulate_grad_batches"), str)
                ),
            ),
            # Short last batches explain less than a quarter, a forgotten factor is at least two.
            answer(
                "fail",
                *_PER_UPDATE,
                action="make batch_size × accumulation × ranks the batch you mean, and the "
                "learning rate's schedule count updates",
                when=lambda case: abs(_samples(case)[1] / _samples(case)[0] - 1) > 0.25,
            ),
            answer(
                "pass",
                *_PER_UPDATE,
                only(
                    "{facts.settings[schedulers]} steps with the updates",
                    lambda case: case.facts.settings.get("schedulers"),
                ),
            ),
        ],
    ),
)
"""In the order in which they are shown."""

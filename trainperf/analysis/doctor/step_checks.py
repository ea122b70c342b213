"""Checks of a step's timing, and of how it gets its batch."""

from trainperf.analysis.diagnosis.detectors.lines import is_read
from trainperf.analysis.diagnosis.detectors.loader import lost_to_loader_s
from trainperf.analysis.doctor.base import (
    AUDIT,
    Case,
    Check,
    answer,
    failed_by,
    imported,
    measured,
    missing,
    on_host,
    only,
    reason,
    shown,
    unfinished,
)
from trainperf.analysis.summary.machine import link_words
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, plural, share, size, words
from trainperf.core.loop_kind import STEP_CLOCK
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    DATA_WAIT_FRACTION,
    FIRST_STEP_S,
    H2D_BYTES,
    H2D_FRACTION,
    H2D_S,
    H2D_TENSORS,
    HOST_BOUND_FRACTION,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_S,
    phase_reading,
)


_COPYING_S = phase_reading("h2d")


_EVENTS = (DATA_STALL_FRACTION, H2D_S, HOST_BOUND_FRACTION, ALLREDUCE_TAIL_S)
"""Readings that come from timing events of the device."""


def _reads(case: Case) -> str:
    """The lines that read values in the audited step; empty where none does."""
    rows = sorted(filter(is_read, case.facts.uses), key=lambda row: -row.calls)
    return "; ".join(f"{row.line}: {plural(row.calls, 'read')} per step" for row in rows[:3])


def _calls_traced(case: Case) -> str:
    """What the traces counted on the rank where it is most."""
    totals = [rank.totals for rank in case.facts.traces]
    items, syncs = max((each.item_calls or 0.0, each.sync_calls or 0.0) for each in totals)
    return f"{count(items)} .item() and {count(syncs)} synchronising calls per traced step"


_WAITED = shown(DATA_WAIT_FRACTION, "{} of the step in the loader's next()", share)


_PAST_WARM_UP = "run past the warm-up with {loop.measures[data wait]}"


_NO_COPY = "the batch is copied to no device (CPU)"


_COPIED = (
    shown(H2D_BYTES, "{} per step", size),
    lambda case: link_words(case.facts.summary),
    shown(H2D_FRACTION, "{} of the step", share),
    shown(H2D_S, "the copy takes {}", duration),
    shown(_COPYING_S, "its call {}", duration),
)


STEP_CHECKS: tuple[Check, ...] = (
    Check(
        id="warmed_up",
        about="""Timings are warmed up and synchronised or event-based.

        Fails with fewer than 20 steady steps, and on a GPU when no timing event was read.

        Wrong where: the run is a short one on purpose: nothing is wrong with the training.
        To confirm: `steady_steps` of the summary.
        """,
        looks=[
            *unfinished(
                "{facts.run.steady_steps:,} steady steps of {facts.run.steps:,}",
                f"run on: {LIMITS.steps} steady steps are the least to judge by",
                lambda case: case.facts.run.steady_steps < LIMITS.steps and not imported(case),
            ),
            answer(
                "unknown",
                lambda case: str(case.facts.settings.get(STEP_CLOCK) or "the log names no clock"),
                action="{loop.everything}",
                when=imported,
            ),
            answer(
                "fail",
                "no timing event was read on {case.facts.run.device}: only the host's clock is "
                "known",
                action="{loop.everything}: its events time the device without waiting for it",
                when=lambda case: missing(*_EVENTS)(case) and not on_host(case),
            ),
            answer(
                "pass",
                shown(STEP_S, "{} per step", duration),
                "{facts.run.steady_steps:,} steady steps of {facts.run.steps:,}",
                shown(STEP_IQR_S, "middle half within {}", duration),
                only(
                    "on a CPU an operator has run when it returns: the host's clock is exact",
                    on_host,
                ),
                only(
                    lambda case: (
                        "device times from timing events: "
                        + ", ".join(name for name in _EVENTS if not missing(name)(case))
                    ),
                    lambda case: not on_host(case),
                ),
            ),
        ],
    ),
    Check(
        id="steady_state",
        about="""Steady-state, not first step, is reported.

        Fails when the warm-up was never seen to end, or when the first step counts as steady.

        Wrong where: lengths or shapes differ so much that no warm-up can be seen to end.
        To confirm: the reading `step_iqr_s`, and a longer run.
        """,
        looks=[
            answer(
                "unknown",
                "no step was recorded",
                action="run some steps",
                when=lambda case: not case.facts.run.steps,
            ),
            *unfinished(
                lambda case: (
                    f"{reason(case.facts, STEP_S)} in {plural(case.facts.run.steps, 'step')}"
                ),
                "run until the warm-up is over: the report says when",
                missing(STEP_S, STEP_MEAN_S),
            ),
            answer(
                "fail",
                "all {facts.run.steps:,} steps count, the first one too",
                action="exclude the first steps: they compile, allocate and tune themselves",
                when=lambda case: case.facts.run.steady_steps == case.facts.run.steps,
            ),
            answer(
                "pass",
                shown(STEP_S, "{} per steady step", duration),
                shown(FIRST_STEP_S, "first step {}", duration),
                lambda case: (
                    "excluded: "
                    + ", ".join(
                        f"{steps:,} {words(tag)}"
                        for tag, steps in case.facts.summary.excluded.items()
                    )
                ),
            ),
        ],
    ),
    Check(
        id="hot_path",
        about="""No `.item()`, print or CPU copy in the hot path.

        Fails on `hidden_syncs` and `python_in_step`, and when a line of yours reads a value in the
        audited step: on a CPU too, where it costs little, because the same script stops a GPU.
        Unknown without an audit or a trace.

        Wrong where: the value is needed in the step; the check still counts it.
        To confirm: `trainperf.smoke.assert_no_sync(step, batch)`.
        """,
        causes=("hidden_syncs", "python_in_step"),
        looks=[
            answer(
                "fail",
                _reads,
                only("on a CPU they cost little; on a GPU each one stops the step", on_host),
                action="{loop.kept}",
                when=_reads,
            ),
            answer(
                "pass",
                only(
                    "your code reads no value in the audited step",
                    lambda case: case.facts.documents.audit,
                ),
                only(_calls_traced, lambda case: case.facts.traces),
                when=lambda case: case.facts.documents.audit or case.facts.traces,
            ),
            answer("unknown", "no step was audited or traced", action=AUDIT),
        ],
    ),
    Check(
        id="loader",
        about="""The DataLoader does not make the device wait.

        Fails on `data_wait` and `epoch_start`, and on every other cause that costs the step time in
        the loader.  A wait of a tenth of the step without a cause is for requests, or shorter than
        what a worker takes to hand a batch over.  Unknown without enough steady steps.

        Wrong where: the batches of the measured steps were in the page cache, and later ones are
        not.
        To confirm: `trainperf try --only free_loader SCRIPT`.
        """,
        causes=("data_wait", "epoch_start"),
        looks=[
            lambda case: failed_by(
                [
                    finding
                    for finding in case.facts.summary.findings
                    if finding.resource == "loader" and finding.fraction
                ]
            ),
            *measured(DATA_WAIT_FRACTION, _PAST_WARM_UP),
            answer(
                "unknown",
                "too few steady steps",
                action=_PAST_WARM_UP,
                when=lambda case: not case.account.judged,
            ),
            answer(
                "pass",
                _WAITED,
                lambda case: (
                    "no DataLoader: the loop waits for requests"
                    if case.account.loader is None
                    else "getting a batch from a worker would take longer"
                ),
                when=lambda case: (
                    case.account.share(lost_to_loader_s(case.account)) >= LIMITS.notable
                ),
            ),
            answer("pass", _WAITED, when=on_host),
            answer(
                "unknown",
                "what the device lost to the loader was not measured",
                action="{loop.everything}",
                when=missing(DATA_STALL_FRACTION),
            ),
            answer(
                "pass", _WAITED, shown(DATA_STALL_FRACTION, "the device idled for data {}", share)
            ),
        ],
    ),
    Check(
        id="pinned_transfer",
        about="""H2D uses pinned memory and `non_blocking`.

        Fails with `pin_memory=False`, and when the call takes 90 % of the copy's time or more.
        Unknown without a DataLoader or timing events.

        Wrong where: `pin_memory` is configured and a collate function returns tensors that cannot
        be pinned.
        To confirm: the reading `h2d_bytes_per_s` against the link's rate; a trace.
        """,
        first=[
            answer("not_applicable", _NO_COPY, when=on_host),
            answer(
                "not_applicable",
                "the device has the host's memory",
                when=lambda case: case.facts.run.backend.unified,
            ),
        ],
        looks=[
            answer(
                "unknown",
                "the loader's pin_memory is unknown",
                action="load with torch.utils.data.DataLoader",
                when=lambda case: case.facts.number("pin_memory") is None,
            ),
            answer(
                "fail",
                "pin_memory=False",
                *_COPIED,
                action="DataLoader(pin_memory=True), and batch.to(device, non_blocking=True)",
                when=lambda case: not case.facts.number("pin_memory"),
            ),
            answer(
                "unknown",
                "the copy was not timed on both clocks",
                action="{loop.measures[h2d]}",
                when=lambda case: missing(_COPYING_S)(case) or not case.facts.value(H2D_S),
            ),
            answer(
                "fail",
                "pin_memory=True",
                *_COPIED,
                action="batch.to(device, non_blocking=True): the host waits for each copy",
                when=lambda case: (
                    (case.facts.value(_COPYING_S) or 0.0) >= 0.9 * (case.facts.value(H2D_S) or 0.0)
                ),
            ),
            answer("pass", "pin_memory=True", *_COPIED),
        ],
    ),
    Check(
        id="batch_tensors",
        about="""The batch is not many small tensors.

        Fails on `many_small_tensors`.  Not applicable without a device beside the host.

        Wrong where: the tensors are large: then their number costs nothing.
        To confirm: the readings `h2d_tensors` and `h2d_bytes`.
        """,
        causes=("many_small_tensors",),
        looks=[
            answer(
                "pass",
                shown(H2D_TENSORS, "{} tensors per step", count),
                shown(H2D_BYTES, "{} per step", size),
                when=lambda case: not missing(H2D_TENSORS)(case),
            ),
            answer("not_applicable", _NO_COPY, when=on_host),
            answer(
                "unknown", "the batch's tensors were not counted", action="{loop.measures[h2d]}"
            ),
        ],
    ),
)
"""In the order in which they are shown."""

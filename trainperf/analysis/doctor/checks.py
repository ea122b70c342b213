"""Checks of a run: what should hold before anybody trusts a number or changes a line.

First what some of them have to compute, then the table, in the order in which they are shown.
"""

from collections.abc import Callable, Mapping
from statistics import fmean

from trainperf.analysis.diagnosis.account import total_s
from trainperf.analysis.diagnosis.detectors.compiler import excess_s, recompiled_late
from trainperf.analysis.diagnosis.detectors.lines import reads
from trainperf.analysis.diagnosis.detectors.loader import lost_to_loader_s
from trainperf.analysis.diagnosis.detectors.memory import LEAST_S, LEAST_STEPS, long_enough
from trainperf.analysis.diagnosis.of_capture import account_of as account_of_trace
from trainperf.analysis.diagnosis.tried import line_to_write, sentence
from trainperf.analysis.doctor.base import (
    AUDIT,
    Case,
    Check,
    answer,
    failed_by,
    measured,
    missing,
    only,
    operators_seen,
    reason,
    shown,
    unfinished,
)
from trainperf.analysis.summary.captures import disagreements
from trainperf.analysis.summary.loss_parity import TOLERANCE
from trainperf.analysis.summary.machine import link_words
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import (
    count,
    duration,
    plural,
    scale_factor,
    share,
    size,
    words,
)
from trainperf.core.loop_kind import NO_INFERENCE, STEP_CLOCK, imported_from
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    DATA_WAIT_FRACTION,
    EFFECTIVE_TOKENS_PER_S,
    FIRST_STEP_S,
    H2D_BYTES,
    H2D_FRACTION,
    H2D_S,
    H2D_TENSORS,
    HOST_BOUND_FRACTION,
    LOSS_SCALE,
    MEMORY_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    OPTIMIZER_STEPS_PER_S,
    OVERFLOW_RATE,
    PADDING_FRACTION,
    PHASE_H2D_S,
    RECOMPILES,
    RESIDENT_PEAK_BYTES,
    SAMPLES_PER_S,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_S,
)
from trainperf.traces.results import RankTrace


def _on_host(case: Case) -> bool:
    return case.facts.host_computes


def _imported(case: Case) -> bool:
    return bool(imported_from(case.facts.settings))


# -- the step that was timed, audited or traced -------------------------------------------------

_EVENTS = (DATA_STALL_FRACTION, H2D_S, HOST_BOUND_FRACTION, ALLREDUCE_TAIL_S)
"""Readings that come from timing events of the device."""


def _reads(case: Case) -> str:
    """The lines that read values in the audited step; empty where none does."""
    audit = case.facts.documents.audit
    rows = sorted(reads(audit.operators if audit else ()), key=lambda row: -row.calls)
    return "; ".join(f"{row.line}: {plural(row.calls, 'read')} per step" for row in rows[:3])


def _calls_traced(case: Case) -> str:
    """What the traces counted on the rank where it is most."""
    totals = [rank.totals for rank in case.facts.traces]
    items, syncs = max((each.item_calls or 0.0, each.sync_calls or 0.0) for each in totals)
    return f"{count(items)} .item() and {count(syncs)} synchronising calls per traced step"


def _copies(case: Case) -> str:
    rows = [region for region in case.account.regions if region.use.kind == "copy"]
    part, calls = case.account.share(total_s(rows)), sum(row.use.calls for row in rows)
    return f"{plural(calls, 'copy call')} take {share(part)} of the step"


_FUSED = ("launch_bound", "elementwise_chain")
"""Causes in all small operators of a step, whose changes fuse them."""
_SMALL = (*_FUSED, "attention", "optimizer_not_fused")


def _fusing(case: Case) -> list[TrialResult]:
    """Trials of it that came to a speed-up."""
    trials = () if case.facts.documents.trials is None else case.facts.documents.trials.trials
    return [t for t in trials if t.kind == "change" and t.counts and {*_SMALL} & {*t.rules}]


def _launching(case: Case) -> str:
    """The share of launches, by an audit or a trace; empty without either."""
    parts, measured = case.summary.dimensions, case.account.regions or case.facts.traces
    launch = parts.launch if parts is not None and measured else None
    return "" if launch is None else f"{share(launch)} of the step is launch overhead"


def _on_tensor_cores(case: Case) -> float:
    """Share of kernel time in kernels named like those of tensor cores, over the traced steps."""
    steps = [step.tensor_core_fraction for rank in case.facts.traces for step in rank.steps]
    return fmean([each for each in steps if each is not None] or [0.0])


# -- precision ----------------------------------------------------------------------------------

_NOT_TRIED = TrialResult(id="", kind="change", title="", verdict="not applicable")


def _half(config: Mapping[str, object]) -> str:
    """The lower precision that a run computes in; empty for fp32 or more."""
    named = (str(config.get(name) or "") for name in ("autocast", "precision"))
    return next((name for name in named if "16" in name or "transformer-engine" in name), "")


def _computes_in_half(case: Case) -> bool:
    return bool(_half(case.facts.settings))


def _autocast(case: Case) -> TrialResult:
    """The trial of autocast that came to something, in the run in fp32."""
    used, trials = _half(case.facts.settings), _in_fp32(case).trials
    own = [
        trial
        for trial in (() if trials is None else trials.trials)
        if trial.id.startswith("autocast_") and (trial.counts or trial.verdict == "loss differs")
    ]
    alike = (trial for trial in own if not used or ("bf16" in trial.id) == ("bf" in used))
    return next(alike, _NOT_TRIED)


def _in_fp32(case: Case) -> Summary:
    """The run in fp32: the baseline, where there is one."""
    return (case.baseline or case.evidence).summary


def _pays(case: Case) -> bool:
    """Whether autocast was faster, and took no more memory where that was measured."""
    trial = _autocast(case)
    most = trial.memory_before or trial.memory_after or 0
    return trial.verdict == "faster" and (trial.memory_after or 0) <= most


_TRIED = (
    lambda case: sentence(_autocast(case)),
    lambda case: (
        "loss "
        + _without_and_with(
            _autocast(case).loss_before, _autocast(case).loss_after, "{:.4g}".format
        )
    ),
    lambda case: (
        "peak memory "
        + _without_and_with(_autocast(case).memory_before, _autocast(case).memory_after, size)
    ),
)


def _without_and_with(
    before: float | None, after: float | None, unit: Callable[[float], str]
) -> str:
    """E.g. `3.00 GiB without and 2.00 GiB with it`."""
    if before is None or after is None:
        return "not measured"
    return f"{unit(before)} without and {unit(after)} with it"


_WORK = ("model", "parameters", "batch_size", "sequence_length", "accumulate_grad_batches")


def _is_unlike(case: Case) -> bool:
    """Whether the baseline is no run in fp32, or one of another model or batch, or other ranks."""
    runs = (_in_fp32(case).run, case.summary.run)
    before, after = ([run.world_size, *map(run.config.get, _WORK)] for run in runs)
    return bool(_half(runs[0].config)) or before != after


def _is_better(case: Case) -> bool:
    """Whether its step is shorter by the intervals, and its peak lower where both are known."""
    before, after = _in_fp32(case), case.summary
    old, new = before.readings[STEP_S], after.readings[STEP_S]
    less, more = after.value(MEMORY_PEAK_BYTES), before.value(MEMORY_PEAK_BYTES)
    # Where an interval is missing, its value stands for both ends.
    faster = (new.high or new.value or 0.0) < (old.low or old.value or 0.0)
    return faster and (less is None or more is None or less < more)


_COMPARED = (
    lambda case: (
        "a step takes "
        + _without_and_with(_in_fp32(case).value(STEP_S), case.summary.value(STEP_S), duration)
    ),
    lambda case: (
        "peak memory "
        + _without_and_with(
            _in_fp32(case).value(MEMORY_PEAK_BYTES), case.summary.value(MEMORY_PEAK_BYTES), size
        )
    ),
)


# -- batches, memory, graphs --------------------------------------------------------------------


def _samples(case: Case) -> tuple[float, float]:
    """Of an update: as configured, and as recorded."""
    facts, batch = case.facts, case.facts.number("batch_size") or 0.0
    recorded = (facts.value(SAMPLES_PER_S) or 0.0) / (facts.value(OPTIMIZER_STEPS_PER_S) or 1.0)
    return batch * facts.micro_batches * facts.world_size, recorded


_PER_UPDATE = (
    "batches of {facts.settings[batch_size]} × {facts.micro_batches} × {facts.world_size} ranks",
    lambda case: f"{count(_samples(case)[1])} samples recorded per update",
)


def _held(case: Case) -> str:
    """What an audit counted."""
    ledger = case.facts.documents.memory
    most = ledger.activations_bytes if ledger else None
    passing = "" if most is None else f", {size(most)} of activations at most"
    return f"{size(ledger.static_bytes)} of model and optimizer{passing}" if ledger else ""


def _compilation(case: Case) -> Compilation:
    """What is known of compiling; without it the graphs that steps built."""
    built = Compilation(graphs=round(case.facts.value(RECOMPILES) or 0.0))
    return case.facts.documents.compilation or built


def _recompiling(case: Case) -> float:
    """Share of the fit that steps with a recompilation took beyond a steady one."""
    document = _compilation(case)
    steps = {graph.step for graph in recompiled_late(document) if graph.step is not None}
    return case.account.share_of_fit(excess_s(document, case.facts, steps))


def _graphs(case: Case) -> str:
    document = _compilation(case)
    spent = "" if document.compile_s is None else f" in {duration(document.compile_s)}"
    return f"{plural(document.graphs, 'graph')}{spent}"


# -- what a trace shows of the first finding ----------------------------------------------------


_NO_CHANGE = Finding(
    id="", title="no change is suggested", advice="", evidence=(), action="", fraction=0.0
)


def _first(case: Case) -> Finding:
    """The first that gains something, or an unknown amount that matters."""
    unknown = (None, "high"), (None, "medium")
    asking = (f for f in case.summary.findings if f.fraction or (f.fraction, f.severity) in unknown)
    return next(asking, _NO_CHANGE)


def _resource(case: Case) -> str:
    """Of the first; empty where it is about no operators in particular: padding looks like work."""
    first = _first(case)
    return "" if first.resource == "operators" and not first.where else first.resource


def _traced_share(case: Case) -> float | None:
    """The largest share of a step that any rank's latest trace has of what the first is about."""
    ranks = case.evidence.captures[-1].ranks
    shares = [_traced(rank, _resource(case)) for rank in ranks]
    return max((part for part in shares if part is not None), default=None)


def _traced(rank: RankTrace, resource: str) -> float | None:
    """Share of a traced step; `None` where the trace cannot tell."""
    account, totals = account_of_trace(rank), rank.totals
    device, exposed_s = account.device, totals.comm_exposed_s
    seconds = {
        "loader": account.spent("data_wait") if device is None else device.data_s or 0.0,
        "communication": (totals.comm_s if exposed_s is None else exposed_s) or 0.0,
        "operators": account.spent("forward") or None,
        "host": None if device is None else (device.host_s or 0.0) + (device.value_s or 0.0),
    }.get(resource)
    return None if seconds is None else account.share(seconds)


_DIRECTION = (
    lambda case: (
        f"{_first(case).title}; "
        f"the trace shows {share(_traced_share(case) or 0.0)} of the step there"
    ),
    lambda case: case.evidence.captures[-1].answer,
)


def _verdict(case: Case) -> str:
    """Of the losses; empty without a baseline."""
    return "" if case.parity is None else case.parity.verdict


# -- the table ----------------------------------------------------------------------------------

_WAITED = shown(DATA_WAIT_FRACTION, "{} of the step in the loader's next()", share)
_PAST_WARM_UP = "run past the warm-up with {loop.measures[data wait]}"
_NO_COPY = "the batch is copied to no device (CPU)"
_COPIED = (
    shown(H2D_BYTES, "{} per step", size),
    lambda case: link_words(case.summary),
    shown(H2D_FRACTION, "{} of the step", share),
    shown(H2D_S, "the copy takes {}", duration),
    shown(PHASE_H2D_S, "its call {}", duration),
)
_BASELINE = "--baseline a run in fp32"
_STAY = "stay in fp32, or find out what is converted: lower precision does not pay here"

CHECKS: tuple[Check, ...] = (
    Check(
        id="warmed_up",
        about="""Timings are warmed up and synchronised or event-based.

        Fails with fewer than 20 steady steps, and on a GPU when no timing event was read.

        Wrong where: the run is a short one on purpose: nothing is wrong with the training.
        To confirm: `steady_steps` of the summary.
        """,
        looks=[
            *unfinished(
                "{facts.steady_steps:,} steady steps of {facts.steps:,}",
                f"run on: {LIMITS.steps} steady steps are the least to judge by",
                lambda case: case.facts.steady_steps < LIMITS.steps and not _imported(case),
            ),
            answer(
                "unknown",
                lambda case: str(case.facts.settings.get(STEP_CLOCK) or "the log names no clock"),
                action="{loop.everything}",
                when=_imported,
            ),
            answer(
                "fail",
                "no timing event was read on {case.summary.run.device}: only the host's clock is "
                "known",
                action="{loop.everything}: its events time the device without waiting for it",
                when=lambda case: missing(*_EVENTS)(case) and not _on_host(case),
            ),
            answer(
                "pass",
                shown(STEP_S, "{} per step", duration),
                "{facts.steady_steps:,} steady steps of {facts.steps:,}",
                shown(STEP_IQR_S, "middle half within {}", duration),
                only(
                    "on a CPU an operator has run when it returns: the host's clock is exact",
                    _on_host,
                ),
                only(
                    lambda case: (
                        "device times from timing events: "
                        + ", ".join(name for name in _EVENTS if not missing(name)(case))
                    ),
                    lambda case: not _on_host(case),
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
                when=lambda case: not case.facts.steps,
            ),
            *unfinished(
                lambda case: f"{reason(case.facts, STEP_S)} in {plural(case.facts.steps, 'step')}",
                "run until the warm-up is over: the report says when",
                missing(STEP_S, STEP_MEAN_S),
            ),
            answer(
                "fail",
                "all {facts.steps:,} steps count, the first one too",
                action="exclude the first steps: they compile, allocate and tune themselves",
                when=lambda case: case.facts.steady_steps == case.facts.steps,
            ),
            answer(
                "pass",
                shown(STEP_S, "{} per steady step", duration),
                shown(FIRST_STEP_S, "first step {}", duration),
                lambda case: (
                    "excluded: "
                    + ", ".join(
                        f"{steps:,} {words(tag)}" for tag, steps in case.facts.excluded.items()
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
                only("on a CPU they cost little; on a GPU each one stops the step", _on_host),
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
                finding
                for finding in case.summary.findings
                if finding.resource == "loader" and finding.fraction
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
            answer("pass", _WAITED, when=_on_host),
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
        first=[answer("not_applicable", _NO_COPY, when=_on_host)],
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
                when=lambda case: missing(PHASE_H2D_S)(case) or not case.facts.value(H2D_S),
            ),
            answer(
                "fail",
                "pin_memory=True",
                *_COPIED,
                action="batch.to(device, non_blocking=True): the host waits for each copy",
                when=lambda case: (
                    (case.facts.value(PHASE_H2D_S) or 0.0) >= 0.9 * (case.facts.value(H2D_S) or 0.0)
                ),
            ),
            answer("pass", "pin_memory=True", *_COPIED),
        ],
    ),
    Check(
        id="batch_tensors",
        about="""The batch is not many small tensors.

        Fails on `many_small_tensors`.  Unknown without a GPU or a look into the loader.

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
            answer(
                "pass",
                "{facts.documents.loader.tensors:,.0f} tensors per batch of the loader",
                when=lambda case: case.facts.documents.loader,
            ),
            answer("not_applicable", _NO_COPY, when=_on_host),
            answer(
                "unknown", "the batch's tensors were not counted", action="{loop.measures[h2d]}"
            ),
        ],
    ),
    Check(
        id="layouts",
        about="""Layouts do not cause repeated `contiguous()`.

        Fails on `layout_copies`.  Unknown without an audit.

        Wrong where: the audited step is unlike the others.
        To confirm: an audit of another step (`--audit-at`).
        """,
        causes=("layout_copies",),
        looks=[operators_seen, answer("pass", _copies)],
    ),
    Check(
        id="small_operators",
        about="""Small ops could not be batched or fused to any gain.

        Fails on a trial of fusing them that was faster, and on `launch_bound`,
        `elementwise_chain`, `attention` and `optimizer_not_fused`, but not on one of them whose
        trials were all equal or slower.  Unknown without a trial of all of them, an audit, a trace
        or a GPU.

        Wrong where: no trial, audit or trace looked: the check says unknown then, never pass.
        To confirm: `trainperf try --only compile SCRIPT`.
        """,
        causes=_SMALL,
        first=[
            answer(
                "fail",
                lambda case: "; ".join(map(sentence, _fusing(case))),
                action=lambda case: next(
                    line_to_write(trial) for trial in _fusing(case) if trial.verdict == "faster"
                ),
                when=lambda case: any(trial.verdict == "faster" for trial in _fusing(case)),
            ),
        ],
        looks=[
            # A trial that is about the update, or about attention, leaves the other operators open.
            answer(
                "pass",
                lambda case: "; ".join(map(sentence, _fusing(case))),
                when=lambda case: any(
                    {*_FUSED} & {*trial.rules} and trial.verdict != "undecided"
                    for trial in _fusing(case)
                ),
            ),
            answer(
                "pass",
                only(
                    "{facts.documents.audit.calls:,} operator calls per step",
                    lambda case: case.account.regions,
                ),
                shown(HOST_BOUND_FRACTION, "host-bound in {} of the steps", share),
                _launching,
                when=lambda case: (
                    case.account.regions
                    or _launching(case)
                    or not missing(HOST_BOUND_FRACTION)(case)
                ),
            ),
            operators_seen,
        ],
    ),
    Check(
        id="tensor_cores",
        about="""Matmul and convolution shapes use tensor cores.

        Fails on `matmul_precision`.  Unknown without an audit or a telling
        trace.

        Wrong where: kernels are told by their names in a trace: a heuristic.
        To confirm: an audit; the profiler of the vendor.
        """,
        causes=("matmul_precision",),
        looks=[
            answer("not_applicable", "a CPU has no tensor cores", when=_on_host),
            answer(
                "not_applicable",
                "the step has no contraction",
                when=lambda case: (
                    case.account.regions
                    and not any(region.use.matmul_flops for region in case.account.regions)
                ),
            ),
            answer(
                "pass",
                "most contractions in {facts.documents.audit.precision}: neither another precision "
                f"nor other sizes would gain {share(LIMITS.notable)}",
                when=lambda case: case.account.regions,
            ),
            answer(
                "pass",
                lambda case: (
                    f"{share(_on_tensor_cores(case))} of kernel time looks like tensor cores"
                ),
                when=lambda case: _on_tensor_cores(case) >= LIMITS.mostly,
            ),
            operators_seen,
        ],
    ),
    Check(
        id="mixed_precision",
        about="""AMP/bf16 really reduces step time and memory.

        Fails on `autocast_casts` and `half_sensitive`, and when, against the same training in fp32,
        the step is not faster by the intervals or peak memory is not lower; a trial of autocast in
        the fp32 run decides on both before the comparison does.  A run in fp32 passes where such a
        trial of its own was faster and took no more memory.  Unknown without a trial and a baseline
        in fp32.

        Wrong where: the baseline differs in more than its precision.
        To confirm: `trainperf try --only autocast_bf16 SCRIPT` in the run in fp32.
        """,
        causes=("autocast_casts", "half_sensitive"),
        of_training=True,
        first=[
            answer(
                "unknown",
                "the log does not tell the precision",
                action="{loop.everything}",
                when=lambda case: _imported(case) and not _computes_in_half(case),
            ),
            answer(
                "pass",
                *_TRIED,
                lambda case: f"to keep it: {_autocast(case).apply}",
                when=lambda case: not _computes_in_half(case) and _pays(case),
            ),
            answer(
                "unknown",
                *_TRIED,
                action="trainperf try --only autocast_bf16 --minutes 5 SCRIPT",
                when=lambda case: (
                    not _computes_in_half(case) and _autocast(case).verdict == "undecided"
                ),
            ),
            answer(
                "not_applicable",
                "the run computes in fp32",
                *_TRIED,
                when=lambda case: not _computes_in_half(case) and _autocast(case).id,
            ),
            answer(
                "not_applicable",
                "the run computes in fp32",
                when=lambda case: not _computes_in_half(case),
            ),
        ],
        looks=[
            answer(
                "unknown",
                "no run in fp32 to compare with",
                action=_BASELINE,
                when=lambda case: case.baseline is None,
            ),
            answer(
                "unknown",
                "the baseline computes in lower precision too, or is of another model or batch",
                action=_BASELINE,
                when=_is_unlike,
            ),
            answer("pass", *_TRIED, when=_pays),
            answer(
                "fail",
                *_TRIED,
                action=_STAY,
                when=lambda case: _autocast(case).verdict not in ("undecided", "not applicable"),
            ),
            answer(
                "unknown",
                "one of the two has no steady state",
                action="train both past the warm-up",
                when=lambda case: (
                    None in (_in_fp32(case).value(STEP_S), case.summary.value(STEP_S))
                ),
            ),
            answer("pass", *_COMPARED, when=_is_better),
            answer("fail", *_COMPARED, action=_STAY),
        ],
    ),
    Check(
        id="overflows",
        about="""GradScaler does not overflow often.

        Fails on `overflow`.  Unknown without a GradScaler's counts.

        Wrong where: the scaler is custom, and its skips are counted elsewhere.
        To confirm: the readings `overflow_rate` and `loss_scale`.
        """,
        causes=("overflow",),
        of_training=True,
        looks=[
            *measured(OVERFLOW_RATE, "{loop.measures[scaler]}"),
            answer(
                "pass",
                shown(OVERFLOW_RATE, "{} of the updates overflowed", share),
                shown(LOSS_SCALE, "loss scale {}", scale_factor),
            ),
        ],
    ),
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

        Fails on `no_sync`, `scheduler_per_micro_batch`, `data_parallel` and `zero_grad`, and when
        the samples recorded per update are a quarter or more off batch × micro-batches × ranks.
        Unknown without sample counts.

        Wrong where: batches end short, so that samples per update differ by themselves.
        To confirm: samples per update in the records against batch × micro-batches × ranks.
        """,
        causes=("no_sync", "scheduler_per_micro_batch", "data_parallel", "zero_grad"),
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
    Check(
        id="profiler_evidence",
        about="""Profiler evidence supports the current direction.

        Fails when records and trace disagree, or the trace shows less than half of what the first
        finding claims in the resource that it is about.  Unknown without a trace.

        Wrong where: the trace is of steps that are unlike the steady ones.
        To confirm: a second capture of other steps.
        """,
        looks=[
            answer(
                "fail",
                lambda case: "; ".join(disagreements(case.summary.traces)),
                action="find out which of the two is wrong before you act on either",
                when=lambda case: disagreements(case.summary.traces),
            ),
            # An audit is a profile of the operators, and of nothing else.
            answer(
                "pass",
                lambda case: f"{_first(case).title}; the audited step names the operators",
                when=lambda case: (
                    not case.evidence.captures
                    and case.facts.documents.audit
                    and _resource(case) == "operators"
                ),
            ),
            answer(
                "unknown",
                "no trace was recorded",
                action="{loop.capture} records a trace",
                when=lambda case: not case.evidence.captures,
            ),
            answer(
                "pass",
                "no change is suggested",
                _DIRECTION[1],
                when=lambda case: not _first(case).id,
            ),
            answer(
                "not_applicable",
                lambda case: f"{_first(case).title}: a trace has no share to hold against that",
                when=lambda case: _traced_share(case) is None,
            ),
            # A trace of a few steps supports a share that it sees at least half of.
            answer(
                "fail",
                *_DIRECTION,
                action="look at the trace before you act: trainperf trace",
                when=lambda case: (
                    (_traced_share(case) or 0.0) < (_first(case).fraction or LIMITS.notable) / 2
                ),
            ),
            answer("pass", *_DIRECTION),
        ],
    ),
    Check(
        id="compile_split",
        about="""`torch.compile` separates first from steady.

        Fails when compiled code has no steady step yet, on `first_step` and `recompiles`, and where
        one recompilation takes as much of the fit. Unknown without graph counts.

        Wrong where: graphs were compiled before the fit began.
        To confirm: `TORCH_LOGS=recompiles`, and the reading `first_step_s`.
        """,
        causes=("recompiles", "first_step"),
        first=[
            answer(
                "unknown",
                lambda case: reason(case.facts, RECOMPILES),
                action="{loop.everything} counts graphs",
                when=lambda case: (
                    case.facts.documents.compilation is None
                    and missing(RECOMPILES)(case)
                    and case.facts.settings.get("compiled") is not False
                ),
            ),
            answer(
                "not_applicable",
                "nothing was compiled in this fit",
                when=lambda case: (
                    case.facts.documents.compilation is None and not case.facts.value(RECOMPILES)
                ),
            ),
        ],
        looks=[
            answer(
                "fail",
                lambda case: f"recompilation takes {share(_recompiling(case))} of the fit",
                _graphs,
                action="compile for all shapes at once: torch.compile(…, dynamic=True) or "
                "mark_dynamic",
                when=lambda case: _recompiling(case) >= LIMITS.notable,
            ),
            answer(
                "fail",
                _graphs,
                action="run past the compilation: no step is steady yet",
                when=missing(STEP_S),
            ),
            answer(
                "pass",
                _graphs,
                shown(FIRST_STEP_S, "first step {}", duration),
                shown(STEP_S, "steady {}", duration),
            ),
        ],
    ),
    Check(
        id="dynamic_shapes",
        about="""Dynamic shapes do not cause recompiles or padding waste.

        Fails on `recompiles` and `padding`.  Unknown without graph counts or a mask.

        Wrong where: the run is too short to have met all shapes.
        To confirm: the readings `recompiles` and `padding_fraction` of a longer run.
        """,
        causes=("recompiles", "padding"),
        looks=[
            answer(
                "unknown",
                lambda case: reason(case.facts, RECOMPILES),
                action="{loop.everything} counts both",
                when=lambda case: (
                    case.facts.documents.compilation is None
                    and missing(RECOMPILES, PADDING_FRACTION)(case)
                ),
            ),
            answer(
                "pass",
                shown(RECOMPILES, "{} graphs built inside steps", count),
                lambda case: f"{len(_compilation(case).recompiled):,} graphs compiled again",
                shown(PADDING_FRACTION, "{} of the tokens is padding", share),
                only("padding was not measured", missing(PADDING_FRACTION)),
            ),
        ],
    ),
    Check(
        id="throughput_unit",
        about="""Throughput is effective tokens/s or the right unit.

        Fails for sequences without a mask, and when only updates are counted.  Unknown without
        steps.

        Wrong where: the mask is not the one that the loss uses.
        To confirm: `run.notes` of the summary names the mask that was counted.
        """,
        looks=[
            answer(
                "pass",
                shown(
                    EFFECTIVE_TOKENS_PER_S, "{} effective tokens/s", lambda rate: count(round(rate))
                ),
                lambda case: f"counted by {case.summary.run.notes.get('tokens', 'mask')}",
                shown(PADDING_FRACTION, "padding of {} is not counted", share),
                when=lambda case: not missing(EFFECTIVE_TOKENS_PER_S)(case),
            ),
            answer(
                "unknown",
                "the log does not tell which tokens count",
                action="{loop.tokens}",
                when=lambda case: (
                    _imported(case)
                    and (case.facts.number("sequence_length") or missing(SAMPLES_PER_S)(case))
                ),
            ),
            answer(
                "fail",
                "sequences of {facts.settings[sequence_length]:,} tokens, but no mask: padding "
                "would count as work",
                action="{loop.tokens} says which tokens count",
                when=lambda case: case.facts.number("sequence_length"),
            ),
            answer(
                "pass",
                shown(SAMPLES_PER_S, "{} samples/s; the batch has no known tokens", count),
                when=lambda case: not missing(SAMPLES_PER_S)(case),
            ),
            answer(
                "unknown",
                lambda case: reason(case.facts, SAMPLES_PER_S),
                action="run past the warm-up",
                when=missing(OPTIMIZER_STEPS_PER_S),
            ),
            answer(
                "fail",
                shown(
                    OPTIMIZER_STEPS_PER_S,
                    "only updates are counted, {}/s: they grow when batches shrink",
                    count,
                ),
                action="make samples the batch's first dimension, or {loop.tokens}",
            ),
        ],
    ),
    Check(
        id="answers",
        about="""Answers come from eval mode, without an autograd graph.

        Fails on `train_mode`, `dropout_left_on` and `gradients_on`.  Unknown where no forward was
        looked at, as of a compiled model.

        Wrong where: a model changes its mode between the forwards that were looked at.
        To confirm: `trainperf.smoke.assert_inference(model, request)`.
        """,
        causes=("train_mode", "dropout_left_on", "gradients_on"),
        looks=[
            answer(
                "not_applicable",
                NO_INFERENCE.partition(": ")[2],
                when=lambda case: case.facts.loop.trains,
            ),
            answer(
                "unknown",
                "no forward was looked at: the model is compiled, the loop calls another method of "
                "it, or monitor.watch(model) is missing",
                action="trainperf.smoke.assert_inference(model, request) looks at one",
                when=lambda case: case.facts.number("answers_looked_at") is None,
            ),
            answer(
                "pass",
                "{facts.settings[answers_looked_at]} forwards looked at, in eval mode",
                "autograd: {facts.settings[grad_mode]}; no answer has a graph",
            ),
        ],
    ),
    Check(
        id="loss_parity",
        about="""Loss still matches the baseline.

        Fails when the losses at equal work are more than 2 % apart, and more than noise explains.
        Unknown without a baseline.

        Wrong where: seeds or the order of the data differ: equal work is then not the same work.
        To confirm: `trainperf compare` of repeats with several seeds.
        """,
        of_training=True,
        looks=[
            answer(
                "unknown",
                "no baseline was given",
                action="--baseline the run before the change",
                when=lambda case: not _verdict(case),
            ),
            answer(
                "unknown",
                "{case.parity.why}",
                action="train both runs further, on the same data",
                when=lambda case: _verdict(case) == "unknown",
            ),
            answer(
                "fail",
                "{case.parity.why}",
                f"tolerance {share(TOLERANCE)}",
                action="undo the change, or prove it right before you go on",
                when=lambda case: _verdict(case) == "differs",
            ),
            answer("pass", "{case.parity.why}", f"tolerance {share(TOLERANCE)}"),
        ],
    ),
)
"""In the order in which they are shown."""

"""Detectors of the whole fit: pauses, slow steps, changes over time, compiling."""

import math
import re
from collections import Counter
from collections.abc import Collection

from trainperf.analysis.diagnosis.account import WORK, Claim, StepAccount, of_pause
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.detectors.loader import first_batches_s
from trainperf.analysis.diagnosis.detectors.machine import explained
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.schema import Moved, NewLevel
from trainperf.core.artifacts.compilation import Compilation, Compiled, GraphBreak
from trainperf.core.artifacts.memory import Holder
from trainperf.core.findings import LIMITS, Level
from trainperf.core.formatting.units import (
    count,
    duration,
    plural,
    share,
    size,
    step_range,
    times,
    words,
)
from trainperf.core.readings import (
    FIRST_STEP_S,
    LOSS_SCALE,
    OVERFLOW_RATE,
    SAMPLES_PER_S,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_P95_S,
    STEP_S,
)
from trainperf.meters.fold import not_covered


AIM = 0.05
"""Of the fit: so much a pause may take."""


def _sampled(facts: Facts, slot: str) -> tuple[str, ...]:
    line = facts.owner(slot)
    if line is None:
        return ()
    return (f"{line.name}: {share(line.fraction)} of that in {line.samples} samples",)


def _where(facts: Facts, slot: str) -> str:
    line = facts.owner(slot)
    return "" if line is None else line.where


# -- pauses ---------------------------------------------------------------------------------------


def _pause(account: StepAccount, facts: Facts, kind: str, least: float, use: Use) -> Cause | None:
    """A cause where pauses of one kind take at least so much of the fit."""
    claim, number = of_pause(account, kind), facts.gaps.get(kind, 0)
    spent_s = claim.pauses_s[kind]
    if account.share_of_fit(spent_s) < least or not number:
        return None
    pace = ""
    if number > 1 and facts.steps:
        apart = plural(max(1, round(facts.steps / number)), "step")
        pace = f": {duration(spent_s / number)} each, one in {apart}"
    return Cause(
        id=kind,
        title=f"{kind} takes {share(account.share_of_fit(spent_s))} of the fit",
        evidence=(
            f"{duration(spent_s)} in {plural(number, 'pause')}{pace}",
            *_sampled(facts, kind),
        ),
        changes=(use,),
        claim=claim,
        where=_where(facts, kind),
    )


def less_often(account: StepAccount, kind: str) -> int:
    """By how many times fewer such pauses make them `AIM` of the fit; at least 2."""
    lost = min(account.share_of_fit(account.pauses_s.get(kind, 0.0)), 0.999)
    exactly = lost * (1 - AIM) / ((1 - lost) * AIM)
    return max(2, math.ceil(exactly - 1e-6))  # rounding must not make a whole number the next one


def _spaced(account: StepAccount, facts: Facts, kind: str) -> dict[str, object]:
    """Steps from one such pause to the next, and by how many times each has to get shorter.

    Together they make the pauses `AIM` of the fit.  None is farther apart than the fit is long:
    there would be no pause at all.
    """
    number, fewer = facts.gaps.get(kind, 0), less_often(account, kind)
    every, most = facts.steps / max(1, number), planned_steps(facts)
    apart = round(min(every * fewer, most))
    shorter = max(1, round(every * fewer / most)) if every * fewer > most else 1
    rows = f", on 1/{shorter} of its rows" if shorter > 1 else ""
    return {"every": apart, "fewer": fewer, "rows": rows, "part": f"{1 / fewer:.2g}"}


def planned_steps(facts: Facts) -> int:
    """Steps of the whole fit as it was configured, as far as that is known; else of what ran."""
    most = facts.number("max_steps") or 0
    if most > 0:
        return max(round(most), facts.steps)
    epochs, samples = facts.number("max_epochs") or 0, facts.number("dataset_samples")
    rate, step_s = facts.value(SAMPLES_PER_S), facts.value(STEP_MEAN_S)
    if epochs <= 0 or not samples or not rate or not step_s:
        return facts.steps
    return max(round(epochs * samples / (rate * step_s)), facts.steps)


def validation(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit stands still for validation.

    Removed is the whole of it: validating less often, or on fewer batches, saves a part.

    Wrong where: the fit that was measured is shorter than the real one, and validates as often.
    To confirm: `trainperf compare` with a run that validates less often, by the fit clock.
    """
    values = _spaced(account, facts, "validation")
    values["interval"] = _interval(account, facts)
    return _pause(
        account, facts, "validation", LIMITS.critical, Use(change="validate_less", values=values)
    )


def _interval(account: StepAccount, facts: Facts) -> str:
    """Lightning's own options; it refuses an interval of batches that is longer than the epoch."""
    every, fewer = facts.settings.get("val_check_interval"), less_often(account, "validation")
    samples, batch = facts.number("dataset_samples"), facts.number("batch_size")
    epoch = samples / batch / facts.world_size if samples and batch else None
    epochs = (facts.number("check_val_every_n_epoch") or 1) * fewer
    # As an int it counts batches, as a float it is a part of the epoch.
    if isinstance(every, int) and not isinstance(every, bool):
        if (
            facts.settings.get("check_val_every_n_epoch", 1) is None
            or epoch is None
            or every * fewer <= epoch
        ):
            return f"val_check_interval={every * fewer}"
        epochs = every * fewer / epoch
    elif isinstance(every, float) and every < 1:
        if every * fewer <= 1:
            return f"val_check_interval={every * fewer:.2}"
        epochs = every * fewer
    most = facts.number("max_epochs") or 0
    number = max(1, round(min(epochs, most) if most > 0 else epochs))
    whole = ", val_check_interval=1.0" if isinstance(every, int | float) and every != 1.0 else ""
    return f"check_val_every_n_epoch={number}{whole}"


def checkpoint(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit stands still for checkpoints.

    Removed is the whole of it: rarer ones save a part, asynchronous ones nearly all.

    Wrong where: the disk was slow for another reason, or the real fit saves more rarely.
    To confirm: `trainperf compare` with a run without checkpoints, by the fit clock.
    """
    values = _spaced(account, facts, "checkpoint")
    by_epoch = str(facts.settings.get("save_strategy")) == "epoch"
    values["strategy"] = 'save_strategy="steps", ' if by_epoch else ""
    return _pause(
        account, facts, "checkpoint", LIMITS.notable, Use(change="checkpoint_less", values=values)
    )


def validation_grad(account: StepAccount, facts: Facts) -> Cause | None:
    """Autograd was on when the model was validated.

    Removed is all of validation: what the graph costs in it was not measured.

    Wrong where: gradients are wanted in validation, as for adversarial metrics.
    To confirm: `torch.is_grad_enabled()` in the validation step.
    """
    claim = of_pause(account, "validation")
    spent_s = claim.pauses_s["validation"]
    if facts.settings.get("validation_grad") is not True or not spent_s:
        return None
    took = share(account.share_of_fit(spent_s))
    return Cause(
        id="validation_grad",
        title="validation runs with autograd on and keeps activations for nothing",
        evidence=(f"validation takes {took} of the fit, a part of it for the graph",),
        changes=(Use(change="validate_without_grad"),),
        claim=claim,
        confidence="medium",
        severity="medium",
    )


def growing_pauses(account: StepAccount, facts: Facts) -> Cause | None:
    """Pauses of one kind get longer: the last quarter takes 1.5 times the first, or more.

    Removed is what they take beyond the first ones.

    Wrong where: what is saved or validated grows on purpose.
    To confirm: the sizes of two checkpoint files, or the batches of two validations.
    """
    pause = max(facts.long_term.pauses, key=lambda each: each.lost_s, default=None)
    if pause is None or account.share_of_fit(pause.lost_s) < LIMITS.worth / 5:
        return None
    named = (
        f"growing_{pause.gap}" if pause.gap in ("checkpoint", "epoch_boundary") else "growing_pause"
    )
    return Cause(
        id="growing_pauses",
        title=f"pauses for {words(pause.gap)} get longer: {duration(pause.begins_s)} at first, "
        f"{duration(pause.ends_s)} at last",
        evidence=(
            f"{plural(pause.number, 'pause')}: {duration(pause.lost_s)} more than without growth",
        ),
        changes=(Use(change=named),),
        claim=of_pause(account, pause.gap, pause.lost_s),
    )


# -- steps ----------------------------------------------------------------------------------------


def no_steady_state(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 counts steps
    """The warm-up was never seen to end, so there are no steady statistics.

    A run that is still being written may yet settle.

    Wrong where: the run is short, or the machine is shared: nothing is wrong with the training
    then.
    To confirm: the same training for ten times the steps, on a quiet machine.
    """
    if (
        facts.steady_steps
        or not facts.steps
        or facts.state == "running"
        or facts.value(STEP_MEAN_S)
        # The log has one mean of all steps.
        or not_covered(facts.reading(STEP_MEAN_S))
    ):
        return None
    change, title = "find_what_changes", "the step time never settled"
    if facts.steps < LIMITS.steps:
        if facts.state != "finished":
            return None
        are = "is" if facts.steps == 1 else "are"
        change = "train_longer"
        title = f"{plural(facts.steps, 'step')} {are} too few for a steady state"
    elif not_covered(facts.reading(STEP_S)):
        change = "log_more"
        title = "the means in the log are too few, or too far apart, for a steady state"
    return Cause(
        id="no_steady_state",
        title=title,
        evidence=(
            f"{plural(facts.steps, 'step')}; {LIMITS.steps} ordinary ones are needed at least",
        ),
        changes=(Use(change=change),),
        severity="low",
    )


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def slow_steps(account: StepAccount, facts: Facts) -> Cause | None:
    """Every n-th step, or each after a pause, takes much longer than the others.

    Removed is all they take beyond an ordinary step: doing it less often saves a part.

    Wrong where: something outside comes back at the same distance, e.g. another job's checkpoint.
    To confirm: the same run on another machine: what is the training's own comes at the same steps.
    """
    slow, workers = facts.slow_steps, facts.number("num_workers") or 0
    if slow is None or not account.fit_s:
        return None
    # Workers that bring their batches in turn make one step wait for each round of them.
    if slow.phase == "data_wait" and slow.every is not None and slow.every <= workers:
        return None
    # Where only the latest steps were looked at, the earlier ones are taken to be like them.
    lost_s = slow.lost_s * max(1.0, facts.steady_steps / slow.of_steps)
    if account.share_of_fit(lost_s) < LIMITS.worth:
        return None
    which = f"the step {words(slow.tag)}"
    steady_s = 0.0
    if slow.every is not None:
        ending = "th" if slow.every % 100 in (11, 12, 13) else _ENDINGS.get(slow.every % 10, "th")
        which = f"every {slow.every:,}{ending} step"
        # Those after a pause are not steady: the mean step is without them.
        steady_s = slow.lost_s * slow.phase_fraction / slow.of_steps
    line = slow.line
    doer = line.subject if line else f"what {which} does"
    return Cause(
        id="slow_steps",
        title=f"{which} takes {duration(slow.slow_s)} instead of {duration(slow.typical_s)}: "
        f"{share(account.share_of_fit(lost_s))} of the fit",
        evidence=(
            f"{plural(slow.steps, 'slow step')} of {slow.of_steps:,}",
            f"{share(slow.phase_fraction)} of what they take longer is in {words(slow.phase)}",
            *(
                (f"{line.name}: {share(line.fraction)} of that in {line.samples} samples",)
                if line
                else ()
            ),
        ),
        changes=(
            Use(change="do_less_often" if line else "find_slow_steps", values={"name": doer}),
        ),
        claim=Claim(pauses_s={"slow_steps": lost_s}, owns_s={slow.phase: steady_s}),
        where=line.where if line else "",
    )


def slow_after_capture(account: StepAccount, facts: Facts) -> Cause | None:
    """The steady steps after a capture are slower than those before it.

    The medians of up to 50 steady steps on either side, if the middle halves are apart.

    Wrong where: the machine or the data changed at the same time as the capture ended.
    To confirm: a second run without captures (`trainperf compare`).
    """
    slower = [capture for capture in facts.aftermath if capture.slower]
    last = slower[-1] if slower else None
    if last is None or last.before_s is None or last.after_s is None:
        return None
    lost_s = account.step_s * (1 - last.before_s / last.after_s)
    return Cause(
        id="slow_after_capture",
        title=f"steps are {share(last.after_s / last.before_s - 1)} slower since a capture",
        evidence=(
            f"{step_range(last.first_step, last.last_step)} profiled",
            f"{duration(last.before_s)} per step before, {duration(last.after_s)} after",
        ),
        changes=(Use(change="without_profiler"),),
        claim=Claim(removes_s=lost_s),
        confidence="medium",
    )


def is_noisy(account: StepAccount, facts: Facts) -> bool:
    """Whether steady steps vary so widely that a share of them is less certain, whatever the cause.

    From a quarter of the median on torch.utils.benchmark calls a measurement worthless.
    """
    step_s, apart_s = facts.value(STEP_S), facts.value(STEP_IQR_S)
    return bool(account.judged and step_s and apart_s is not None and apart_s / step_s >= 0.25)


def noisy_run(account: StepAccount, facts: Facts) -> Cause | None:
    """The middle half of the steady steps lies far apart, and no loader explains it.

    It is no cause and has no gain: it says how much the other numbers are worth.

    Wrong where: the steps differ because their batches do, and not because of the machine.
    To confirm: the same training with batches of one size: what stays is the machine's.
    """
    step_s, apart_s, last_s = facts.value(STEP_S), facts.value(STEP_IQR_S), facts.value(STEP_P95_S)
    # A loader with workers brings batches in bursts: its wait has an owner, and is gone from here.
    bursts = "data_wait" in account.loop_s and not account.loop_s["data_wait"]
    if not is_noisy(account, facts) or not step_s or apart_s is None or bursts:
        return None
    return Cause(
        id="noisy_run",
        title=f"steps vary widely: their middle half spans {share(apart_s / step_s)} of the median",
        evidence=(
            f"median {duration(step_s)}, middle half {duration(apart_s)} wide"
            + ("" if last_s is None else f", p95 {duration(last_s)}"),
            "smaller differences are not significant",
        ),
        changes=(Use(change="quiet_machine"),),
        confidence="low",
        severity="low",
    )


def overflow(account: StepAccount, facts: Facts) -> Cause | None:
    """A storm of overflows, beyond the few with which a scaler finds its scale.

    The gain is in useful updates per second: a skipped step costs what a step costs.

    Wrong where: the run is young: the scaler is still on its way down from its first scale.
    To confirm: the reading `overflow_rate` over a longer run, and `loss_scale` next to it.
    """
    lost, scale = facts.value(OVERFLOW_RATE), facts.value(LOSS_SCALE)
    steps = facts.readings[OVERFLOW_RATE].n if lost else 0
    # A scale that starts at 2¹⁶ may be halved ten times before it fits.
    if not lost or lost < LIMITS.worth / 2 or lost * steps <= 10:
        return None
    return Cause(
        id="overflow",
        title=f"{share(lost)} of the updates overflow and are skipped",
        evidence=(
            f"over {plural(steps, 'step')}",
            *(() if scale is None else (f"loss scale now {scale:,.6g}",)),
        ),
        changes=(Use(change="stop_overflows"),),
        claim=Claim(removes_s=lost * account.step_s),
    )


# -- changes over time
# ------------------------------------------------------------------------------

_MOVED = {
    "tokens_padded": "tokens of a batch",
    "h2d_bytes": "bytes of a batch",
    "samples": "samples of a batch",
    "pace_ns": "a fixed piece of Python",
    "waited_ns": "waiting for a processor",
    "gc_ns": "garbage collection per step",
    "owned_bytes": "memory in use",
    "allocated_bytes": "device memory of tensors",
    "cache_keys": "distinct shapes and graphs",
}
"""What grows along with a step, but for waits for ranks and for data, which say it again."""

_ALIKE = "forward, backward and optimizer alike"


def _reason(phase: str, moved: Collection[Moved], *, alike: bool) -> tuple[str, Level]:
    """The change by what moved along, else by whether all phases did, else by the phase."""
    facts = {each.fact for each in moved}
    if facts & {"tokens_padded", "h2d_bytes", "samples"} and phase != "data_wait":
        return "larger_batches", "high"
    if facts & {"pace_ns", "waited_ns"} or alike:
        return "slower_machine", "medium"
    named = {"data_wait": "slower_data", "callbacks": "hook_does_more", "loop": "loop_does_more"}
    return named.get(phase, "something_changed"), "high" if phase in (
        "data_wait",
        "callbacks",
    ) else "medium"


def _along(moved: Collection[Moved]) -> tuple[str, ...]:
    return tuple(
        f"{_MOVED[each.fact]} grew with it: {_amount(each.fact, each.before)} to "
        f"{_amount(each.fact, each.after)} (+{share(each.after / each.before - 1)})"
        for each in moved
        if each.fact in _MOVED
    )


def _amount(fact: str, value: float) -> str:
    if fact.endswith("_ns"):
        return duration(value / 1e9)
    return size(value) if fact.endswith("_bytes") else f"{value:,.0f}"


def slower_since(account: StepAccount, facts: Facts) -> Cause | None:
    """From some step on steps take longer, to the end or until they no longer do (change point).

    Removed is what they all take beyond the level before.  Silent on a machine whose speed wanders:
    the jump must be far larger than the others of the same run.  Silent as well where the machine
    was seen to be why.

    Wrong where: the work itself changed there on purpose, e.g. by a schedule of batch sizes.
    To confirm: the steps after it against those before: trainperf report RUN --steps FIRST:LAST.
    """
    levels = [
        level
        for level in facts.long_term.levels
        if not explained(
            facts,
            level.from_step,
            (facts.steps if level.until_step is None else level.until_step) - 1,
            level.after_s / level.before_s - 1,
        )
    ]
    level = max(levels, key=lambda each: each.lost_s, default=None)
    if level is None or account.share_of_fit(level.lost_s) < LIMITS.worth / 5:
        return None
    change, confidence = _reason(level.phase, level.moved, alike=level.alike)
    when = {
        "since": f"from step {level.from_step:,} on",
        "across": f"before and after step {level.from_step:,}",
    }
    return Cause(
        id="slower_since",
        title=_longer(level),
        evidence=(
            (
                f"change point: a step takes {duration(level.before_s)} before and "
                f"{duration(level.after_s)} after (medians of steady steps)"
            ),
            *_along(level.moved),
            *[_longer(each) for each in levels if each is not level][:3],
        ),
        changes=(Use(change=change, values=when),),
        claim=Claim(pauses_s={"slower_since": level.lost_s}),
        confidence=confidence,
    )


def _longer(level: NewLevel) -> str:
    """E.g. `from step 41,200 on steps take 18 % longer: data wait, +9 ms`."""
    when = f"from step {level.from_step:,} on steps take"
    if level.until_step is not None:
        when = f"steps {level.from_step:,} to {level.until_step - 1:,} take"
    rank = "" if level.rank is None else f" on rank {level.rank}"
    what, more_s = f"{words(level.phase)}{rank}", level.phase_s
    if level.alike and not rank:
        what, more_s = _ALIKE, level.after_s - level.before_s
    return f"{when} {share(level.after_s / level.before_s - 1)} longer: {what}, +{duration(more_s)}"


def slow_drift(account: StepAccount, facts: Facts) -> Cause | None:
    """Steps get longer bit by bit, to the end: something gathers, or is read or written as a whole.

    Removed is what all steps take beyond the first ones.  Silent where the rise stops, or a
    machine's speed wanders.

    Wrong where: a curriculum makes batches longer all the time: what moves along says so.
    To confirm: trainperf report RUN --steps of the first and of the last tenth, phase by phase.
    """
    drift = facts.long_term.drift
    if drift is None or account.share_of_fit(drift.lost_s) < LIMITS.worth / 2:
        return None
    change, confidence = _reason(drift.phase, drift.moved, alike=drift.alike)
    line, holder, what = facts.owner(drift.phase), _gathers(facts), drift.hook
    if drift.phase == "loop" and isinstance(facts.settings.get("loggers"), str):
        what = what or str(facts.settings["loggers"])
    if holder is not None and holder.name:
        change = "clear_what_gathers"
    elif change != "slower_machine" and drift.phase in ("callbacks", "loop"):
        change = "append_to_log"
    elif change == "something_changed" and drift.phase in WORK:
        change = "find_what_gathers"
    rank = "" if drift.rank is None else f" on rank {drift.rank}"
    grows = f"{words(drift.phase)}{f' ({drift.hook})' if drift.hook else ''}{rank} grows"
    begins_s, ends_s = drift.phase_begins_s, drift.phase_ends_s
    if drift.alike and not drift.hook and drift.rank is None:
        grows, begins_s, ends_s = f"{_ALIKE} grow", drift.begins_s, drift.ends_s
    values = {
        "name": what
        or (holder.name if holder else "")
        or (line.name if line else words(drift.phase)),
        "since": "over the run",
        "across": "at its beginning and at its end",
    }
    return Cause(
        id="slow_drift",
        title=f"steps get slower all the time: {grows} from {duration(begins_s)} to "
        f"{duration(ends_s)} per step",
        evidence=(
            (
                f"a step takes {duration(drift.begins_s)} at first and {duration(drift.ends_s)} at "
                f"last: {share(drift.ends_s / drift.begins_s - 1)} longer"
            ),
            *(
                (f"Lightning calls its logger in the loop: {what}",)
                if what and not drift.hook
                else ()
            ),
            *_along(drift.moved),
            *_sampled(facts, drift.phase),
            *(
                (f"{holder.kind} {holder.name} holds {count(holder.count)} tensors or arrays",)
                if holder
                else ()
            ),
        ),
        changes=(Use(change=change, values=values),),
        claim=Claim(pauses_s={"slow_drift": drift.lost_s}),
        where=(line.where if line else "") or (holder.where if holder else ""),
        confidence=confidence,
    )


def _gathers(facts: Facts) -> Holder | None:
    """A container with something of nearly every step, where the fit's end looked for one."""
    memory = facts.documents.memory
    held = () if memory is None else memory.held
    return next((each for each in held if each.count >= LIMITS.mostly * facts.steps), None)


# -- first steps and the compiler
# -------------------------------------------------------------------

COMPILED_GAIN = 1.43
"""How much faster torch.compile trains on average by torch's own account (A100, 163 models)."""


def recompiled_late(document: Compilation) -> list[Compiled]:
    """What was compiled again after the first step that compiled anything.

    Inside that step modules of one class are compiled after one another, each for the first time.
    """
    first = min((graph.step for graph in document.compiled if graph.step is not None), default=0)
    return [graph for graph in document.recompiled if (graph.step or 0) > first]


def excess_s(document: Compilation, facts: Facts, steps: Collection[int | None]) -> float:
    """By how much these steps were longer than a steady one, together."""
    step_s = facts.value(STEP_S) or 0.0
    return sum(max(0.0, each.wall_s - step_s) for each in document.steps if each.step in steps)


def compiled_once_s(document: Compilation, facts: Facts) -> float:
    """What compiling costs a fit in which nothing is compiled twice."""
    again = {graph.step for graph in recompiled_late(document)}
    between = [graph.seconds or 0.0 for graph in document.compiled if graph.step is None]
    return excess_s(document, facts, {each.step for each in document.steps} - again) + sum(between)


def compile_latency(account: StepAccount, facts: Facts) -> Cause | None:
    """Compiling took longer than compiled steps can have saved in this fit.

    What a compiled step saves is not known without an uncompiled run; the speed-up that torch
    reports on average stands for it.  Recompilations have a finding of their own.

    Wrong where: the real run is much longer than the one that was measured.
    To confirm: `trainperf prove` with and without compiling, `--to-the-end`.
    """
    document, step_s = facts.documents.compilation, facts.value(STEP_S)
    if document is None or not step_s or facts.state == "running":
        return None
    cost_s = compiled_once_s(document, facts)
    needed = math.ceil(cost_s / ((COMPILED_GAIN - 1) * step_s))
    if cost_s < 1.0 or needed <= facts.steps or account.share_of_fit(cost_s) < LIMITS.notable:
        return None
    return Cause(
        id="compile_latency",
        title=f"compiling takes {share(account.share_of_fit(cost_s))} of the fit",
        evidence=(
            (
                f"{duration(cost_s)} to compile {plural(document.graphs, 'graph')}, then "
                f"{duration(step_s)} per step"
            ),
            (
                f"at the {times(COMPILED_GAIN)} that torch reports on average it pays off after "
                f"{plural(needed, 'step')}; this fit had {facts.steps:,}"
            ),
        ),
        changes=(Use(change="compile_long_runs"),),
        claim=Claim(pauses_s={"compiling": cost_s}),
        confidence="medium",
    )


def first_step(account: StepAccount, facts: Facts) -> Cause | None:
    """Autotuning, warm-up or the wait for the first batch takes much of the whole fit.

    Of the wait it is the sampler or the dataset that does something once: a sort by length, an
    index, a first download.  Removed is the first step's time beyond a steady one's.

    Wrong where: the real fit is much longer: the first step is paid once.
    To confirm: `first_step_s` against `run.fit_s` of the real run.
    """
    first_s, step_s = facts.value(FIRST_STEP_S), facts.value(STEP_S)
    # A running fit will be longer than it is now.
    if first_s is None or step_s is None or facts.state == "running":
        return None
    extra_s, compiled = first_s - step_s, facts.documents.compilation
    paid_back = compiled is not None and compiled_once_s(compiled, facts) >= extra_s / 2
    # In a fit of seconds the first step always stands out and never matters.
    if paid_back or extra_s < 10.0 or account.share_of_fit(extra_s) < LIMITS.notable:
        return None
    waited_s = first_batches_s(account, facts)
    waits = waited_s >= extra_s / 2
    lost_s = min(waited_s, extra_s) if waits else extra_s
    took = share(account.share_of_fit(lost_s))
    return Cause(
        id="first_step",
        title=f"the first batch takes {took} of the fit to come"
        if waits
        else f"the first step takes {took} of the fit",
        evidence=(f"first step {duration(first_s)}, later ones {duration(step_s)}",),
        changes=(Use(change="first_batch_sooner" if waits else "pay_once"),),
        claim=Claim(pauses_s={"first_step": lost_s}),
        confidence="medium",
    )


_SIZE = re.compile(r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)")
_WRAPPED = re.compile(r"\b[LG]\['(\w+)'\]")
"""How torch names a local or a global variable."""


def recompiles(account: StepAccount, facts: Facts) -> Cause | None:
    """Guards fail step after step, and each time the step waits for the compiler.

    Removed is what those steps took beyond a steady one.  Where torch has given up on a function
    it may also run slower from then on, by how much is not known: then there is no bound.

    Wrong where: the shapes settle after the steps that were recorded.
    To confirm: `TORCH_LOGS=recompiles`; the reading `recompiles` of a longer run.
    """
    document = facts.documents.compilation
    late = [] if document is None else recompiled_late(document)
    steps = {graph.step for graph in late if graph.step is not None}
    # A shape that is seen to change is compiled once more, for all lengths: that is ordinary.
    if document is None or len(steps) < 2:
        return None
    lost_s = excess_s(document, facts, steps)
    if account.share_of_fit(lost_s) < LIMITS.worth:
        return None
    often = Counter((graph.function, graph.where) for graph in late).most_common(1)[0][0]
    worst = [graph for graph in late if (graph.function, graph.where) == often][-1]
    given_up = [graph for graph in late if graph.gave_up]
    reason = plain_reason(worst.reason or "")
    changed = _SIZE.search(reason)
    change, values = "same_guards", {}
    if changed is not None:
        change, values = "dynamic_shapes", {"name": changed["name"], "dim": changed["dim"]}
    elif "grad_mode" in reason or "GLOBAL_STATE" in reason:
        change = "one_grad_mode"
    return Cause(
        id="recompiles",
        title=f"recompilation takes {share(account.share_of_fit(lost_s))} of the fit",
        evidence=(
            (
                f"{plural(len(late), 'recompilation')} in {plural(len(steps), 'step')} after the "
                f"first, {duration(lost_s)} beyond what a steady step takes"
            ),
            f"{worst.function or 'the compiled module'}: {_short(reason)}",
            *(
                f"torch gave up on {graph.function or 'the compiled module'} in step {graph.step}: "
                f"new shapes run uncompiled"
                for graph in given_up[:1]
            ),
        ),
        changes=(Use(change=change, values=values),),
        claim=Claim(pauses_s={"recompiling": lost_s}),
        where=worst.where,
        bounded=not given_up,
    )


def plain_reason(reason: str) -> str:
    """Torch's words without its comments, variables by the names they have in the code."""
    return _WRAPPED.sub(r"\1", reason).split("  #", 1)[0].strip()


def _short(text: str) -> str:
    """No longer than fits a line of a report."""
    return text if len(text) <= 110 else text[:109] + "…"


_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](?P<file>(?P<package>\w+).*)")
"""A line of an installed package, which is not the user's to change."""


def graph_breaks(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """Something in the code ends a graph: what comes before and after is compiled apart.

    What one graph would gain is known only once there is one: no bound.  Breaks in the user's own
    code come first; of those in an installed package it says what can be done without its line.

    Wrong where: the break is between layers that take long: two graphs are then as fast as one.
    To confirm: `torch.compile(…, fullgraph=True)`; `trainperf prove` with the break removed.
    """
    document = facts.documents.compilation
    if document is None or not document.breaks:
        return None
    breaks = sorted(document.breaks, key=lambda each: bool(_INSTALLED.search(each.where)))
    first, installed = breaks[0], _INSTALLED.search(breaks[0].where)
    matches = [_INSTALLED.search(each.where) for each in breaks]
    packages = dict.fromkeys(match["package"] for match in matches if match)
    reason = first.reason.lower()
    logs = "print" in reason or "logging" in reason
    change = "no_print_in_graph" if logs else "no_break"
    if installed:
        change = "ignore_logging" if logs else "compile_parts"
    elif not logs and (
        ".item()" in reason or "capture_scalar_outputs" in reason or "data-dependent" in reason
    ):
        change = "tensor_branch"
    return Cause(
        id="graph_breaks",
        title=f"compiled code breaks at {plural(len({each.where for each in breaks}), 'place')}"
        + (f", all inside {' and '.join(packages)}" if installed else ""),
        evidence=(
            *(f"{_line(each)}: {_short(each.reason)}" for each in breaks[:3]),
            f"{plural(document.graphs, 'graph')} in total; what a single one would gain is unknown",
        ),
        changes=(
            Use(change=change, values={"package": installed["package"] if installed else ""}),
        ),
        where=first.where,
        confidence="low" if installed else "medium",
        severity="low" if installed else "medium",
    )


def _line(graph_break: GraphBreak) -> str:
    """Of a package without the path that leads to it."""
    match = _INSTALLED.search(graph_break.where)
    return match["file"] if match else graph_break.where or "a line"


def not_compiled(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 a setting
    """Compiling was turned on in the framework's options, and the model runs as it is written.

    The option travels through environment variables and plugins and may be lost on the way.  What
    compiling would gain is not known.

    Wrong where: a part of the model was compiled by hand where trainperf does not look.
    To confirm: `TORCH_LOGS=graph_code` prints graphs where anything is compiled.
    """
    if (
        facts.settings.get("compile_option") is not True
        or facts.settings.get("compiled") is not False
    ):
        return None
    return Cause(
        id="not_compiled",
        title="torch_compile=True was given, and the model is not compiled",
        evidence=("neither the model nor a module in it is a compiled one as training begins",),
        changes=(Use(change="compile_it"),),
        confidence="medium",
        severity="medium",
    )

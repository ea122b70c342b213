"""Detectors of the whole fit: pauses, slow steps, changes over time, compiling."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from trainperf.analysis.diagnosis.account import WORK, Claim, StepAccount, of_pause
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.detectors.loader import first_batches_s
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.schema import LineShare, Moved, NewLevel, SlowDrift
from trainperf.core.artifacts.compilation import Compilation, Compiled, GraphBreak
from trainperf.core.artifacts.memory import Holder
from trainperf.core.findings import LIMITS
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
    DATA_WAIT_FRACTION,
    FIRST_STEP_S,
    LOSS_SCALE,
    OVERFLOW_RATE,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_P95_S,
    STEP_S,
)
from trainperf.meters.fold import not_covered


AIM = 0.05
"""Of the fit: so much a pause may take."""


def _sampled(line: LineShare | None) -> tuple[str, ...]:
    """The function that most of it was seen in."""
    if line is None:
        return ()
    return (f"{line.name}: {share(line.fraction)} of that in {line.samples} samples",)


# -- pauses
# ----------------------------------------------------------------------------------------


def _pause(
    account: StepAccount, facts: Facts, kind: str, rarer: str, least: float, *further: Use
) -> Cause | None:
    """A cause where pauses of one kind can be made shorter.

    From `least` of the fit on they can be rarer, so that they take `AIM` of it.  What further can
    be changed costs nothing, and is said as soon as they matter at all.
    """
    claim, number, line = of_pause(account, kind), facts.gaps.get(kind, 0), facts.owner(kind)
    spent_s = claim.pauses_s[kind]
    lost = account.share_of_fit(spent_s)
    changes = list(further)
    if lost >= least:
        # Rounded first: half a millionth must not make a whole number the next one.
        fewer = max(2, math.ceil(round(lost * (1 - AIM) / (max(1 - lost, 0.001) * AIM), 6)))
        values = {"fewer": fewer, "part": f"{1 / fewer:.2g}"}
        changes.append(Use(change=rarer, values=values, realises=1 - 1 / fewer))
    if not changes or not number or lost < LIMITS.worth:
        return None
    pace = ""
    if number > 1 and facts.steps:
        apart = plural(max(1, round(facts.steps / number)), "step")
        pace = f": {duration(spent_s / number)} each, one in {apart}"
    return Cause(
        id=kind,
        title=f"{kind} takes {share(lost)} of the fit",
        evidence=(
            f"{duration(spent_s)} in {plural(number, 'pause')}{pace}",
            *_sampled(line),
        ),
        changes=tuple(changes),
        claim=claim,
        where="" if line is None else line.where,
    )


def validation(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit stands still for validation.

    Removed is the whole of it: validating less often, or on fewer batches, saves a part, and so
    does leaving autograd out where it was on.

    Wrong where: the fit that was measured is shorter than the real one, and validates as often; or
    gradients are wanted in validation, as for adversarial metrics.
    To confirm: `trainperf compare` with a run that validates less often, by the fit clock.
    """
    graph = facts.settings.get("validation_grad") is True
    further = (Use(change="validate_without_grad"),) if graph else ()
    return _pause(account, facts, "validation", "validate_less", LIMITS.critical, *further)


def checkpoint(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit stands still for checkpoints.

    Removed is the whole of it: rarer ones save a part, asynchronous ones nearly all.

    Wrong where: the disk was slow for another reason, or the real fit saves more rarely.
    To confirm: `trainperf compare` with a run without checkpoints, by the fit clock.
    """
    return _pause(account, facts, "checkpoint", "checkpoint_less", LIMITS.notable)


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
    slow, workers = facts.slow_steps, facts.number("num_workers")
    # Workers bring their batches in turn, and start anew with an epoch: that wait is the loader's.
    if slow is None or not account.fit_s or (workers and slow.phase == "data_wait"):
        return None
    # Where only the latest steps were looked at, the earlier ones are taken to be like them.
    lost_s = slow.lost_s * max(1.0, facts.steady_steps / slow.of_steps)
    if account.share_of_fit(lost_s) < 3 * LIMITS.trifle:
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
            *_sampled(line),
        ),
        changes=(
            Use(change="do_less_often" if line else "find_slow_steps", values={"name": doer}),
        ),
        claim=Claim(pauses_s={"slow_steps": lost_s}, owns_s={slow.phase: steady_s}),
        where=line.where if line else "",
    )


def noisy_run(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """The middle half of the steady steps lies far apart, and no loader explains it.

    It is no cause and has no gain: it says how much the other numbers are worth.

    Wrong where: the steps differ because their batches do, and not because of the machine.
    To confirm: the same training with batches of one size: what stays is the machine's.
    """
    step_s, apart_s, last_s = facts.value(STEP_S), facts.value(STEP_IQR_S), facts.value(STEP_P95_S)
    # A loader that is waited for brings its batches in bursts.
    bursts = (facts.value(DATA_WAIT_FRACTION) or 0.0) >= LIMITS.notable
    if not facts.noisy or not step_s or apart_s is None or bursts:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slower:
    """One way in which what comes later takes longer than what came before."""

    title: str
    evidence: tuple[str, ...]
    lost_s: float
    """Of the fit, beyond what was before."""
    change: str
    name: str = ""
    """Of what does more; for the words of the change."""
    when: tuple[str, str] = ("over the run", "at its beginning and at its end")
    """Where to look, and between what to compare."""
    where: str = ""
    gap: str = "slower_since"
    """Kind of pause that it is about, if of one."""


def slower_since(account: StepAccount, facts: Facts) -> Cause | None:
    """Later steps, or later pauses, take longer than earlier ones.

    From a step on (change point, also one that ends again), bit by bit over the run, since a
    capture, or in pauses of one kind of which the last quarter takes 1.5 times the first.  Removed
    is what they take beyond those before.  What lost most is told of, the others next to it.
    Silent on a machine whose speed wanders, and where the machine was seen to be why.

    Wrong where: the work changed on purpose, e.g. by a curriculum or a schedule of batch sizes, or
    what is saved or validated grows on purpose: what moves along says so.
    To confirm: trainperf report RUN --steps of the steps before and of those after, phase by phase.
    """
    levels = map(_level, _unexplained(facts))
    found = [*levels, *_drift(facts), *_pauses(account, facts), *_aftermath(facts)]
    worst = max(found, key=lambda each: each.lost_s, default=None)
    if worst is None or account.share_of_fit(worst.lost_s) < LIMITS.worth / 5:
        return None
    since, across = worst.when
    sure = worst.change in ("larger_batches", "slower_data", "hook_does_more")
    return Cause(
        id="slower_since",
        title=worst.title,
        evidence=(*worst.evidence, *[each.title for each in found if each is not worst][:3]),
        changes=(
            Use(
                change=worst.change,
                values={"name": worst.name, "since": since, "across": across},
            ),
        ),
        claim=Claim(pauses_s={worst.gap: worst.lost_s}),
        where=worst.where,
        confidence="high" if sure or worst.gap != "slower_since" else "medium",
    )


def _unexplained(facts: Facts) -> Iterator[NewLevel]:
    """Levels of which nothing is seen that the machine did."""
    for level in facts.long_term.levels:
        last = (facts.steps if level.until_step is None else level.until_step) - 1
        slower = level.after_s / level.before_s - 1
        if not facts.machine_slowed(level.from_step, last, slower):
            yield level


def _level(level: NewLevel) -> _Slower:
    """From a step on."""
    when = f"from step {level.from_step:,} on steps take"
    if level.until_step is not None:
        when = f"steps {level.from_step:,} to {level.until_step - 1:,} take"
    what, more_s = f"{words(level.phase)}{_on(level)}", level.phase_s
    if level.alike and level.rank is None:
        what, more_s = _ALIKE, level.after_s - level.before_s
    longer = share(level.after_s / level.before_s - 1)
    return _Slower(
        title=f"{when} {longer} longer: {what}, +{duration(more_s)}",
        evidence=(
            (
                f"change point: a step takes {duration(level.before_s)} before and "
                f"{duration(level.after_s)} after (medians of steady steps)"
            ),
            *_along(level.moved),
        ),
        lost_s=level.lost_s,
        change=_changed(level),
        when=(f"from step {level.from_step:,} on", f"before and after step {level.from_step:,}"),
    )


def _drift(facts: Facts) -> Iterator[_Slower]:
    """Bit by bit: something gathers, or is read or written as a whole."""
    drift = facts.long_term.drift
    if drift is None:
        return
    line, holder, change = facts.owner(drift.phase), _gathers(facts), _changed(drift)
    logger = facts.settings.get("loggers") if drift.phase == "loop" and not drift.hook else None
    if holder is not None:
        change = "clear_what_gathers"
    elif change not in ("slower_machine", "larger_batches"):
        change = _GATHERING.get(drift.phase, change)
    names = (holder and holder.name, drift.hook, logger, line and line.name, words(drift.phase))
    grows = f"{words(drift.phase)}{_on(drift)}{f' ({drift.hook})' if drift.hook else ''} grows"
    begins_s, ends_s = drift.phase_begins_s, drift.phase_ends_s
    if drift.alike and not drift.hook and drift.rank is None:
        grows, begins_s, ends_s = f"{_ALIKE},", drift.begins_s, drift.ends_s
    yield _Slower(
        title=f"steps get slower all the time: {grows} from {duration(begins_s)} to "
        f"{duration(ends_s)} per step",
        evidence=(
            (
                f"a step takes {duration(drift.begins_s)} at first and {duration(drift.ends_s)} at "
                f"last: {share(drift.ends_s / drift.begins_s - 1)} longer"
            ),
            *((f"Lightning calls its logger in the loop: {logger}",) if logger else ()),
            *_along(drift.moved),
            *_sampled(line),
            *(
                (f"{holder.kind} {holder.name} holds {count(holder.count)} tensors or arrays",)
                if holder
                else ()
            ),
        ),
        lost_s=drift.lost_s,
        change=change,
        name=str(next(filter(None, names))),
        where=(line.where if line else "") or (holder.where if holder else ""),
    )


def _pauses(account: StepAccount, facts: Facts) -> Iterator[_Slower]:
    """Pauses of a kind, as far as nobody owns them."""
    for pause in facts.long_term.pauses:
        named = pause.gap if pause.gap in ("checkpoint", "epoch_boundary") else "pause"
        yield _Slower(
            title=f"pauses for {words(pause.gap)} get longer: {duration(pause.begins_s)} at first, "
            f"{duration(pause.ends_s)} at last",
            evidence=(
                f"{plural(pause.number, 'pause')}, {duration(pause.lost_s)} beyond the first ones",
            ),
            lost_s=min(pause.lost_s, account.pauses_s.get(pause.gap, 0.0)),
            change=f"growing_{named}",
            gap=pause.gap,
        )


def _aftermath(facts: Facts) -> Iterator[_Slower]:
    """Since a capture, by the medians of up to 50 steady steps on either side."""
    for capture in facts.aftermath:
        if not capture.slower or not capture.before_s or not capture.after_s:
            continue
        more_s = capture.after_s - capture.before_s
        yield _Slower(
            title=f"steps are {share(more_s / capture.before_s)} slower since a capture",
            evidence=(
                f"{step_range(capture.first_step, capture.last_step)} profiled",
                f"{duration(capture.before_s)} per step before, {duration(capture.after_s)} after",
            ),
            lost_s=more_s * max(0, facts.steps - capture.last_step - 1),
            change="without_profiler",
        )


_BY_PHASE = {
    "data_wait": "slower_data",
    "callbacks": "hook_does_more",
    "loop": "loop_does_more",
}
_GATHERING = {
    "callbacks": "append_to_log",
    "loop": "append_to_log",
    **dict.fromkeys(WORK, "find_what_gathers"),
}
"""What to change where a phase grew, at once and bit by bit."""


def _changed(change: NewLevel | SlowDrift) -> str:
    """By what moved along, else by whether all phases did, else by the phase."""
    facts = {each.fact for each in change.moved}
    if facts & {"tokens_padded", "h2d_bytes", "samples"} and change.phase != "data_wait":
        return "larger_batches"
    if facts & {"pace_ns", "waited_ns"} or change.alike:
        return "slower_machine"
    return _BY_PHASE.get(change.phase, "something_changed")


def _on(change: NewLevel | SlowDrift) -> str:
    return "" if change.rank is None else f" on rank {change.rank}"


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


def _gathers(facts: Facts) -> Holder | None:
    """A named container with something of nearly every step, where the fit's end looked for one."""
    memory = facts.documents.memory
    held = () if memory is None else memory.held
    least = LIMITS.mostly * facts.steps
    return next((each for each in held if each.name and each.count >= least), None)


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


def first_step(account: StepAccount, facts: Facts) -> Cause | None:
    """What comes before the first steady step takes much of the whole fit: compiling, mostly.

    Else it is the wait for the first batch, in which a sampler or a dataset does something once (a
    sort by length, an index, a first download), or autotuning and warm-up.  Removed is the first
    step's time beyond a steady one's.  Of compiling it is what compiled steps have not saved by
    then: by how much they are shorter is not known without an uncompiled run, so the speed-up that
    torch reports on average stands for it.

    Wrong where: the real fit is much longer than the one that was measured: this is paid once.
    To confirm: `first_step_s` against `run.fit_s` of the real run; `trainperf prove` with and
    without compiling, `--to-the-end`.
    """
    first_s, step_s = facts.value(FIRST_STEP_S) or 0.0, facts.value(STEP_S)
    # A running fit will be longer than it is now.
    if not step_s or facts.state == "running":
        return None
    document = facts.documents.compilation
    compiled_s = 0.0 if document is None else compiled_once_s(document, facts)
    lost_s = first_s - step_s
    # In a fit of seconds the first step always stands out and never matters.
    what, change, matters = "the first step", "pay_once", lost_s >= 10.0
    evidence = [f"first step {duration(first_s)}, later ones {duration(step_s)}"]
    waited_s = min(first_batches_s(account, facts), lost_s)
    if document is not None and compiled_s >= lost_s / 2:
        saves_s = (COMPILED_GAIN - 1) * step_s
        what, change = "compiling", "compile_long_runs"
        lost_s = compiled_s - saves_s * facts.steps
        matters = lost_s >= 1.0
        pays = plural(math.ceil(compiled_s / saves_s), "step")
        evidence = [
            f"{duration(compiled_s)} to compile, then {duration(step_s)} per step",
            f"at the {times(COMPILED_GAIN)} that torch reports on average it pays off after {pays}",
            f"this fit had {facts.steps:,}",
        ]
    elif waited_s >= lost_s / 2:
        what, change, lost_s = "the first batch", "first_batch_sooner", waited_s
    if not matters or account.share_of_fit(lost_s) < LIMITS.notable:
        return None
    return Cause(
        id="first_step",
        title=f"{what} takes {share(account.share_of_fit(lost_s))} of the fit"
        + (" beyond what it saves" if change == "compile_long_runs" else ""),
        evidence=tuple(evidence),
        changes=(Use(change=change),),
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


_BREAKS = (
    (("print", "logging"), "no_print_in_graph", "ignore_logging"),
    ((".item()", "capture_scalar_outputs", "data-dependent"), "tensor_branch", "compile_parts"),
    (("",), "no_break", "compile_parts"),
)
"""Words of a reason, and what to change in the user's own code and in an installed package's."""


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
    own, of_package = next(
        changes for said, *changes in _BREAKS if any(word in reason for word in said)
    )
    change = of_package if installed else own
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

"""Detectors of host code: callbacks, logging, threads, modes of debugging, time without a name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trainperf.analysis.diagnosis.account import (
    OWN,
    WORK,
    Claim,
    StepAccount,
    of_python,
    of_regions,
    of_slots,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.lines import calls_of, place_of
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.artifacts.lines import COLLECT, OBJECTS
from trainperf.core.choice import texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, share, words
from trainperf.core.groups import summed
from trainperf.core.loop_kind import imported_from
from trainperf.core.readings import FIRST_STEP_S, GC_S, STEP_S
from trainperf.core.steps.records import Scalar


WRITERS = frozenset({"tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune"})
"""Packages of loggers: a thread of theirs writes what hooks and loop hand to it."""

_DEAR = ("detect_anomaly", "python_tracer", "launch_blocking")
"""Switches that cost a good part of a step, or more than that."""

CHECKS = frozenset({"isnan", "_is_any_true"})
"""Operators with which anomaly detection looks at every gradient."""


def _writers(account: StepAccount) -> tuple[str, ...]:
    """The threads that write for loggers: they have nothing to do where nothing is logged."""
    return tuple(name for name in account.threads_s if name in WRITERS)


def _meanwhile(account: StepAccount, threads: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        f"a thread of {name} computes {duration(account.threads_s[name])} per step meanwhile"
        for name in threads
    )


@worth(LIMITS.notable)
def callbacks(account: StepAccount, facts: Facts) -> Cause | None:
    """User hooks are a notable part of the step; the most expensive one is named.

    What they hand to a logger's thread goes with them: its processor time counts.

    Wrong where: the hook waits for the device, and pays for what other phases have launched.
    To confirm: `trainperf try --only no_callback_NAME SCRIPT`.
    """
    claim, threads = of_slots(account, "callbacks"), _writers(account)
    beside = account.share(sum(account.threads_s[name] for name in threads))
    named, owner = list(facts.summary.actions_s.items())[:2], facts.summary.owner("callbacks")
    name = named[0][0] if named else owner.subject if owner else "callbacks"
    return Cause(
        id="callbacks",
        title=f"callbacks take {share(account.share(claim.removes_s))} of the step"
        + (f", and a thread that they feed {share(beside)}" if beside >= LIMITS.notable else ""),
        evidence=(
            *(f"{hook}: {duration(spent_s)} per step" for hook, spent_s in named),
            *_meanwhile(account, threads),
            *texts_of(not named and "no hook was timed by name"),
        ),
        changes=(Use(change="rarer_callback", values={"hook": name}),),
        claim=replace(claim, threads=threads),
        where="" if owner is None else owner.where,
    )


def logging(account: StepAccount, facts: Facts) -> Cause | None:
    """`self.log` in the step, and what the framework does with the values after it.

    Needs an audit: without one the loop's share has a finding of its own.

    Wrong where: a logger's thread does the work later: then silence gains more than the share.
    To confirm: `trainperf try --only no_logging SCRIPT` and `--only logging_interval`.
    """
    rows = [region for region in account.regions if region.use.logs]
    every, after_s, inside_s = (
        facts.number("log_every_n_steps"),
        account.spent("loop"),
        total_s(rows),
    )
    # With few steps between two writes the framework's part of the loop is logging, too.
    logs = account.share(inside_s) >= LIMITS.worth or (every is not None and every < 10)
    if not rows or not logs or account.share(inside_s + after_s) < LIMITS.notable:
        return None
    claim, threads, (where, called_at) = of_regions(rows), _writers(account), place_of(rows)
    return Cause(
        id="logging",
        title=f"logging takes {share(account.share(inside_s + after_s))} of the step",
        evidence=(
            (
                f"{duration(inside_s)} per step in the {plural(calls_of(rows), 'operator')} that "
                "it calls"
            ),
            f"{duration(after_s)} after the last hook"
            + ("" if every is None else f", log_every_n_steps={every:.0f}"),
            *_meanwhile(account, threads),
        ),
        changes=(Use(change="log_less"),),
        claim=replace(
            claim,
            owns_s={**claim.owns_s, "loop": after_s},
            removes_s=claim.removes_s + after_s,
            threads=threads,
        ),
        where=where,
        called_at=called_at,
        confidence="medium",
    )


@worth(LIMITS.notable)
def loop(account: StepAccount, facts: Facts) -> Cause | None:
    """Logging, progress bars and metrics after the last hook take a notable part of the step.

    Where a device works on while the host waits there, the wait is not lost: no finding, unless the
    run is host-bound.  Nor is there one where nothing logs: a step of the framework has a price.

    Wrong where: the time is a wait for the device or for another rank, which the next phase would
    have otherwise.
    To confirm: `trainperf try --only no_logging SCRIPT`; samples of the line in `report --full`.
    """
    claim, threads = of_slots(account, "loop"), _writers(account)
    owner = facts.summary.owner("loop")
    if not account.host_decides or not _logs(facts.settings):
        return None
    shown, step = facts.settings.get("prog_bar_metrics"), duration(account.step_s)
    return Cause(
        id="loop",
        title=f"the framework takes {share(account.share(claim.removes_s))} of the step after the "
        "last hook",
        evidence=(
            f"{duration(claim.removes_s)} of {step} between last hook and fetch",
            *texts_of(shown and f"on the progress bar: {shown}"),
            *_meanwhile(account, threads),
        ),
        changes=(Use(change="log_rarely"),),
        claim=replace(claim, threads=threads),
        where="" if owner is None else owner.where,
        confidence="medium",
    )


def _logs(settings: Mapping[str, Scalar]) -> bool:
    """Whether a trainer has a logger, a progress bar or a metric to reduce, as far as was noted."""
    shows = "callbacks" not in settings or "Progress" in str(settings["callbacks"])
    return shows or any(map(settings.get, ("loggers", "prog_bar_metrics", "sync_dist_metrics")))


def busy_thread(account: StepAccount, facts: Facts) -> Cause | None:
    """Another thread of this process computes beside the training, and takes CPUs that it needs.

    Removed is what the thread computes: while it does, it has one of the CPUs that the model's
    threads share, or the interpreter.  Where there is a CPU for it nothing is said.

    Wrong where: the thread works for the training, e.g. a prefetcher of one's own.
    To confirm: `trainperf prove` with and without the thread.
    """
    threads = {n: s for n, s in account.threads_s.items() if account.share(s) >= LIMITS.notable}
    crowded = account.cpus is None or account.model_threads + 1 > account.cpus - account.others_cpus
    if not threads or not crowded:
        return None
    names, spent = " and ".join(threads), duration(sum(threads.values()))
    on = "" if facts.cpus is None else f", on {plural(facts.cpus, 'CPU')}"
    return Cause(
        id="busy_thread",
        title=f"{names} {'computes' if len(threads) == 1 else 'compute'} {spent} per step beside "
        "the training",
        evidence=(f"the model computes with {plural(account.model_threads, 'thread')}{on}",),
        changes=(Use(change="quiet_thread", values={"name": names}),),
        claim=Claim(threads=tuple(threads)),
        confidence="medium",
    )


_PLACES = {"other": "outside every phase", "between": "between the update and the next forward"}


def unnamed_time(account: StepAccount, facts: Facts) -> Cause | None:
    """Much of the step is outside every phase: it names the function that was seen there most.

    A loop that does not bracket all of its work has some of it there: no gain is promised then, and
    what to bracket comes first.  In an imported log it is what the log does not divide.  Of a loop
    recorded from outside what lies between update and forward counts, as far as no loader is in it.
    A logger's thread that computes meanwhile has nothing to do without it.

    Wrong where: the loop brackets only some of its phases: the time is ordinary work without a
    name.
    To confirm: bracket it (`monitor.phase(…)`), and look where the time goes then.
    """
    places = [at for at in _PLACES if account.share(account.spent(at)) >= LIMITS.notable]
    claim, missing = of_slots(account, *places), [words(p) for p in WORK if p not in account.loop_s]
    part, log = share(account.share(claim.removes_s)), bool(imported_from(facts.settings))
    spent = f"{duration(claim.removes_s)} of {duration(account.step_s)} per step"
    if not places:
        return None
    if log or (missing and facts.loop.trains):
        where = f"outside every phase; not bracketed: {', '.join(missing)}"
        return Cause(
            id="unnamed_time",
            title=f"{part} of the step is {'not divided in the log' if log else where}",
            evidence=(spent,),
            changes=(
                Use(
                    change="measure_more" if log else "bracket",
                    values={"first": next(iter(missing), ""), "phases": ", ".join(missing)},
                ),
            ),
            severity="low" if log else "medium",
        )
    lines = {place: line for place in places if (line := facts.summary.owner(place)) is not None}
    # Where a framework has loggers, its callbacks and its own code feed them.
    threads = () if facts.loop.names_callbacks else _writers(account)
    return Cause(
        id="unnamed_time",
        title=f"{part} of the step is {' or '.join(_PLACES[place] for place in places)}"
        + (f", mostly in {' and '.join(each.subject for each in lines.values())}" if lines else ""),
        evidence=(
            spent,
            *(
                f"{each.name}: {share(each.fraction)} of {duration(account.spent(place))} "
                f"{_PLACES[place]}, in {each.samples} samples"
                for place, each in lines.items()
            ),
            *texts_of(not lines and "no line was seen in most of it"),
            *_meanwhile(account, threads),
        ),
        changes=tuple(
            Use(change="lighten", values={"name": line.subject, "where": line.where})
            for line in lines.values()
        )
        or (Use(change="name_it"),),
        claim=replace(claim, threads=threads),
        where=next((line.where for line in lines.values()), ""),
        confidence="high" if lines else "medium",
    )


def debug_modes(account: StepAccount, facts: Facts) -> Cause | None:
    """Switches of torch and of Python that slow a step down, as they were when the fit began.

    What anomaly detection costs is known where the audit has timed the operators: its looks at the
    gradients, and what passes around the calls, where it keeps their stacks.  Of the others nothing
    is known but that they cost.

    Wrong where: determinism is meant: it is a price, not a fault.
    To confirm: `trainperf prove` with the switch off.
    """
    settings, beside = facts.settings, account.device is not None
    whys = {
        "detect_anomaly": "every operator keeps its Python stack, every gradient is read",
        "python_tracer": f"{settings.get('python_tracer')} is told of every call or line of Python",
        "launch_blocking": "CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel it launches",
        "autograd_profiler": "every operator of every step is recorded",
        "deterministic": "kernels that sum in a fixed order instead of the fastest ones, and new "
        "memory is filled before it is written",
        "cudnn_deterministic": "convolutions that sum in a fixed order instead of the fastest ones",
    }
    matters = {
        "launch_blocking": beside,
        "cudnn_deterministic": beside and settings.get("convolution_format"),
    }
    on = [name for name in whys if settings.get(name) and matters.get(name, True)]
    if not on or not account.judged:
        return None
    return Cause(
        id="debug_modes",
        title=f"{' and '.join(map(words, on))} {'is' if len(on) == 1 else 'are'} on in training",
        evidence=tuple(whys[name] for name in on),
        changes=tuple(Use(change=f"no_{name}") for name in on),
        claim=_of_anomalies(account) if "detect_anomaly" in on else None,
        confidence="medium",
        severity="high" if on[0] in _DEAR else "low",
    )


def _of_anomalies(account: StepAccount) -> Claim | None:
    """Looks at gradients, and the Python around all operators that have one.

    At most it is all but the roofline: no audit sees what it adds inside of a call.
    """
    passes = [region for region in account.regions if region.use.part != "optimizer"]
    looks = [region for region in passes if region.use.short_name in CHECKS]
    around, most_s = of_python(passes), total_s(passes) - sum(r.ideal_s for r in passes)
    owns_s = summed([*around.owns_s.items(), *((look.slot, look.run_s) for look in looks)])
    if account.device is not None or not sum(owns_s.values()):
        return None
    return replace(
        around,
        owns_s=owns_s,
        removes_s=sum(owns_s.values()),
        at_most_s=most_s,
        regions=tuple(looks),
    )


def garbage(account: StepAccount, facts: Facts) -> Cause | None:
    """Steps stand still for the garbage collector.

    `gc.callbacks` times each collection inside a step.  A finding from a twentieth of the fit on,
    unless the first step, or a few full collections as the process warms up, may have held it all.
    Samples name the line, where it is called by hand.

    Wrong where: the pauses are of the warm-up, and the fit is short.
    To confirm: the reading `gc_s` of a longer run; `gc.freeze()` after set-up.
    """
    paused_s, unusual = facts.worst(GC_S) or 0.0, facts.summary.excluded.get("gc", 0)
    first_s, step_s = facts.value(FIRST_STEP_S), facts.value(STEP_S)
    once_s = max(0.0, first_s - step_s) if first_s and step_s and not unusual else 0.0
    asked_s = {call.where: call.fraction * account.steps_s for call in facts.summary.collects}
    by_hand = [*asked_s] if sum(asked_s.values()) >= LIMITS.mostly * paused_s else []
    if account.share(paused_s - once_s, "fit") < LIMITS.worth or 0 < unusual < LIMITS.steps / 4:
        return None
    return Cause(
        id="garbage",
        title=f"the garbage collector takes {share(account.share(paused_s, 'fit'))} of the fit",
        evidence=(
            (
                f"{duration(paused_s)} of pauses inside steps, "
                f"{duration(paused_s / max(1, facts.run.steps))} per step"
            ),
            *(
                f"{COLLECT} at {line}: {share(min(1.0, asked_s[line] / paused_s))} of them"
                for line in by_hand[:2]
            ),
        ),
        changes=(Use(change="rare_collect" if by_hand else "freeze_garbage"),),
        claim=Claim(pauses_s={"garbage": paused_s}),
        where="".join(by_hand[:1]),
    )


def device_calls(account: StepAccount, facts: Facts) -> Cause | None:
    """Lines of the step wait for the device, or have its allocator give its memory back.

    By samples of steady steps. What `empty_cache` gives back is asked for again, and both the
    driver and the host then wait for all that the device was given. Of a wait only what the host
    would have prepared meanwhile is lost: at most all that it does in the rest of the step, and of
    a device that decides at most what it is idle for in a capture. Where the model computes, its
    wait is computing, which other causes may own.

    Wrong where: a time is read once in many steps, and the samples are few.
    To confirm: `trainperf prove` without the call.
    """
    calls = sorted(
        (
            (call.fraction * account.spent(lines.slot), lines.slot, call)
            for lines in facts.summary.lines
            if account.spent(lines.slot)
            for call in lines.stalls
            if not call.name.endswith(OBJECTS)
        ),
        key=lambda each: -each[0],
    )
    owns_s, device = summed((slot, spent_s) for spent_s, slot, _ in calls), account.device
    spent_s, decides = sum(owns_s.values()), not account.host_decides
    if account.share(spent_s) < account.least:
        return None
    waits_s = sum(s for s, _, call in calls if not call.name.endswith("empty_cache"))
    removes_s = spent_s - waits_s + min(waits_s, account.step_s - waits_s)
    if device is not None and decides:
        idle_s = [s for s in (device.host_s, device.value_s) if s is not None]
        removes_s = min(removes_s, sum(idle_s)) if idle_s else removes_s
        owns_s = {slot: s for slot, s in owns_s.items() if slot not in WORK}
    return Cause(
        id="device_calls",
        title=f"{' and '.join(dict.fromkeys(call.name for *_, call in calls))} take "
        f"{share(account.share(spent_s))} of the step",
        evidence=(
            *(f"{call.name} at {call.where}: {duration(s)} per step" for s, _, call in calls[:3]),
            *texts_of(
                removes_s < spent_s
                and f"{'the device works meanwhile: ' if decides else ''}{duration(removes_s)} per "
                "step are lost at most"
            ),
        ),
        changes=(Use(change="no_synchronize" if 2 * waits_s > spent_s else "keep_cache"),),
        claim=Claim(owns_s=owns_s, removes_s=removes_s),
        where=calls[0][2].where,
        confidence="medium",
        severity="medium" if decides and account.share(removes_s) >= LIMITS.critical else None,
    )


def own_cost(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 its seconds
    """The overhead of trainperf is more of the step than it promises.

    What its own code takes in the loop's thread is timed in its place, in every step.

    Wrong where: the steps are of few milliseconds: the share is large, the time is not.
    To confirm: `trainperf prove` cannot show it; time the script with and without TrainPerf,
    several times.
    """
    cost_s = account.spent(OWN)
    # The promise is a thirtieth of the step; what is short in a step of 5 ms is a large share of
    # it.
    if account.share(cost_s) < 0.03:
        return None
    return Cause(
        id="own_cost",
        title=f"trainperf's overhead is {share(account.share(cost_s))} of the step",
        evidence=(f"{duration(cost_s)} of {duration(account.step_s)} per step",),
        changes=(Use(change="measure_less"),),
        claim=Claim(
            owns_s={OWN: cost_s},
            removes_s=cost_s if account.share(cost_s) >= LIMITS.notable else 0.0,
        ),
        severity="low",
    )

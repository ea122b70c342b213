"""Detectors of host code: callbacks, logging, metrics, values read back, Python in the step."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from trainperf.analysis.diagnosis.account import (
    OWN,
    WORK,
    Claim,
    Region,
    StepAccount,
    of_python,
    of_regions,
    of_slots,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause, Use, known
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.schema import LineShare
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, share, words
from trainperf.core.loop_kind import imported_from
from trainperf.core.readings import FIRST_STEP_S, GC_S, STEP_S
from trainperf.traces.results import RankTrace


LOOP = 8
"""So many calls from one line in one step are a loop."""

READS = (
    "aten._local_scalar_dense.",
    "aten.is_nonzero.",
    "aten.nonzero.",
    "aten.masked_select.",
    "aten.equal.",
    "aten._unique2.",
    "aten.unique_dim.",
    "aten.unique_consecutive.",
)
"""Operators whose result the host must know before it goes on."""

DECIDES = frozenset(
    {"argmax", "argmin", "topk", "sort", "argsort", "bincount", "histc", "_unique2", "unique_dim"}
    | {"unique_consecutive", "searchsorted", "bucketize", "kthvalue", "median", "mode"}
    | {"eq", "ne", "gt", "ge", "lt", "le", "count_nonzero"}
)
"""Operators that turn scores into decisions or counts: what metrics are made of."""

METRICS = frozenset({"torchmetrics", "torcheval"})
"""Packages of metrics: what they compute without a gradient is for reading only."""

WRITERS = frozenset({"tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune"})
"""Packages of loggers: a thread of theirs writes what hooks and loop hand to it."""

CHECKS = frozenset({"isnan", "_is_any_true"})
"""Operators with which anomaly detection looks at every gradient."""


def place_of(regions: Iterable[Region]) -> tuple[str, str]:
    """`file:line` that weighs most, and the user's line that called it if it is a library's."""
    weights: dict[tuple[str, str], float] = {}
    for region in regions:
        if region.use.line is not None:
            at = (region.use.line, region.use.called_at or "")
            weights[at] = weights.get(at, 0.0) + region.seconds
    return max(weights, key=weights.__getitem__, default=("", ""))


def lines_of(regions: Iterable[Region], most: int = 2) -> tuple[str, ...]:
    """The lines that weigh most, each with its time and its operators."""
    groups: dict[str, list[Region]] = {}
    for region in regions:
        groups.setdefault(region.use.line or region.use.module or "an unknown place", []).append(
            region
        )
    ranked = sorted(groups.items(), key=lambda item: -total_s(item[1]))
    said = []
    for place, mine in ranked[:most]:
        names = dict.fromkeys(r.use.short_name for r in sorted(mine, key=lambda r: -r.seconds))
        calls = plural(sum(region.use.calls for region in mine), "call")
        listed = ", ".join([*names][:4]) + (", …" if len(names) > 4 else "")
        said.append(f"{place}: {duration(total_s(mine))} per step in {calls} of {listed}")
    return tuple(said)


def reads(uses: Iterable[OperatorUse]) -> list[OperatorUse]:
    """Those that hand a value to Python, in forward and from a known line."""
    return [
        use
        for use in uses
        if use.part == "forward" and use.line and not use.logs and use.name.startswith(READS)
    ]


def is_near(first: str, second: str) -> bool:
    """Whether two lines may belong to one piece of code: at most twelve apart in one file."""
    (file, number), (other_file, other_number) = _split(first), _split(second)
    return file == other_file and abs(number - other_number) <= 12


def _split(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdecimal() else 0


def _writers(account: StepAccount) -> tuple[str, ...]:
    """The threads that write for loggers: they have nothing to do where nothing is logged."""
    return tuple(name for name in account.threads_s if name in WRITERS)


def _meanwhile(account: StepAccount, threads: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        f"a thread of {name} computes {duration(account.threads_s[name])} per step meanwhile"
        for name in threads
    )


def callbacks(account: StepAccount, facts: Facts) -> Cause | None:
    """User hooks are a notable part of the step; the most expensive one is named.

    What they hand to a logger's thread goes with them: its processor time counts.

    Wrong where: the hook waits for the device, and pays for what other phases have launched.
    To confirm: `trainperf try --only no_callback_NAME SCRIPT`.
    """
    claim, threads = of_slots(account, "callbacks"), _writers(account)
    if account.share(claim.removes_s) < LIMITS.notable:
        return None
    named, owner = list(facts.actions_s.items())[:2], facts.owner("callbacks")
    return Cause(
        id="callbacks",
        title=f"callbacks take {share(account.share(claim.removes_s))} of the step",
        evidence=(
            *(f"{hook}: {duration(spent_s)} per step" for hook, spent_s in named),
            *_meanwhile(account, threads),
            *known(not named and "no hook was timed by name"),
        ),
        changes=(
            Use(change="rarer_callback", values={"hook": named[0][0] if named else "callbacks"}),
        ),
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
    calls = plural(sum(region.use.calls for region in rows), "operator")
    return Cause(
        id="logging",
        title=f"logging takes {share(account.share(inside_s + after_s))} of the step",
        evidence=(
            f"{duration(inside_s)} per step in the {calls} that it calls",
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


def loop(account: StepAccount, facts: Facts) -> Cause | None:
    """Logging, progress bars and metrics after the last hook take a notable part of the step.

    Where a device works on while the host waits there, the wait is not lost: no finding, unless the
    run is host-bound.

    Wrong where: the time is a wait for the device or for another rank, which the next phase would
    have otherwise.
    To confirm: `trainperf try --only no_logging SCRIPT`; samples of the line in `report --full`.
    """
    claim, threads, owner = of_slots(account, "loop"), _writers(account), facts.owner("loop")
    if account.share(claim.removes_s) < LIMITS.notable or not account.host_decides:
        return None
    shown, step = facts.settings.get("prog_bar_metrics"), duration(account.step_s)
    return Cause(
        id="loop",
        title=f"the framework takes {share(account.share(claim.removes_s))} of the step after the "
        "last hook",
        evidence=(
            f"{duration(claim.removes_s)} of {step} between last hook and fetch",
            *known(shown and f"on the progress bar: {shown}"),
            *_meanwhile(account, threads),
        ),
        changes=(Use(change="log_rarely"),),
        claim=replace(claim, threads=threads),
        where="" if owner is None else owner.where,
        confidence="medium",
    )


def metrics_every_batch(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001
    """A metric is computed from every batch: work that nothing is learned from.

    What a package of metrics computes without a gradient, and what is counted or compared after the
    loss, in lines without a matrix product that no gradient flows through.  Whether the result of
    work before the loss goes into it no audit tells: targets, matches and masks are made there, of
    the same operators, so nothing is said of that.  Metrics in hooks after the batch belong to
    `callbacks`.

    Wrong where: what is counted after the loss is for the next step, e.g. to balance experts.
    To confirm: `trainperf prove` with the metric every n-th batch.
    """
    rows = list(_metrics(account))
    if account.share(total_s(rows)) < LIMITS.notable:
        return None
    where, called_at = place_of(rows)
    calls = plural(sum(region.use.calls for region in rows), "operator")
    return Cause(
        id="metrics_every_batch",
        title=f"a metric in every batch takes {share(account.share(total_s(rows)))} of the step",
        evidence=(f"{calls} that no gradient flows through and no loss needs", *lines_of(rows)),
        changes=(
            Use(change="rarer_metric", values={"at": f" ({called_at})" if called_at else ""}),
        ),
        claim=of_regions(rows),
        where=where,
        called_at=called_at,
        confidence="medium",
    )


def _metrics(account: StepAccount) -> Iterator[Region]:
    """Forward work without a gradient that is surely for reading only."""
    learned = {r.use.line for r in account.regions if r.use.part in ("backward", "recompute")}
    forward = [r for r in account.regions if r.use.part == "forward" and r.use.line]
    products = {region.use.line for region in forward if region.use.matmul_flops}
    # The loss takes its tensors last; what scales it afterwards, e.g. a framework, takes numbers.
    loss = [r.order for r in forward if r.use.line in learned and any(map(len, r.use.shapes))]
    free = [r for r in forward if r.use.line not in learned | products]
    after = [region for region in free if loss and region.order > max(loss)]
    deciding = {region.use.line for region in after if region.use.short_name in DECIDES}
    for region in free:
        line = region.use.line or ""
        near = region in after and any(is_near(line, other or "") for other in deciding)
        if near or METRICS.intersection(PurePath(line).parts):
            yield region


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


def hidden_syncs(account: StepAccount, facts: Facts) -> Cause | None:
    """Lines of the step read values back, and settings do so in every batch.

    Where the host itself computes, and nobody waits for a device, it is the time of Python loops
    over values, from an audit. On a device: the lines of the audit that read values back, the
    settings that do so in every batch, and from a trace the time in which host and device both
    wait, which is what is removed.

    Wrong where: the value decides the next operation, so that somebody has to wait for it.
    To confirm: `trainperf.smoke.assert_no_sync(step, batch)`; idle time while synchronising in a
    trace.
    """
    return _value_loop(account) if account.device is None else _waits_for_values(account, facts)


def _value_loop(account: StepAccount) -> Cause | None:
    """Python decides value by value what one operator could do for all."""
    rows = read_in_loops(account.regions)
    if account.share(total_s(rows)) < LIMITS.notable:
        return None
    read = {id(use) for use in reads(region.use for region in rows)}
    where, called_at = place_of(region for region in rows if id(region.use) in read)
    values = plural(sum(r.use.calls for r in rows if id(r.use) in read), "value")
    return Cause(
        id="hidden_syncs",
        title=f"a Python loop over tensor values takes {share(account.share(total_s(rows)))} of "
        f"the step",
        evidence=(
            f"{values} read one by one per step (.item(), float(), print or an if on a tensor)",
            *lines_of(rows),
        ),
        changes=(Use(change="tensor_operations"),),
        claim=of_regions(rows),
        where=where,
        called_at=called_at,
        confidence="medium",
    )


def read_in_loops(regions: Sequence[Region]) -> list[Region]:
    """All that runs about as often as a read that is repeated, in lines near it."""
    often: dict[str, int] = {}
    repeated: dict[str, int] = {}
    for use in (region.use for region in regions if region.use.part == "forward"):
        if use.line:
            often[use.line] = max(often.get(use.line, 0), use.calls)
    for use in reads(region.use for region in regions):
        if use.calls >= LOOP and use.line:
            repeated[use.line] = max(repeated.get(use.line, 0), use.calls)
    chosen = {
        place
        for line, calls in repeated.items()
        for place in often
        if is_near(place, line) and 2 * often[place] >= calls
    }
    return [r for r in regions if r.use.line in chosen and r.use.part != "optimizer"]


def _waits_for_values(account: StepAccount, facts: Facts) -> Cause | None:
    """On a device: by line from the audit, by cost from a trace, and then by setting."""
    rows, trace = _read_from_device(facts), facts.traces[-1] if facts.traces else None
    sites = () if trace is None else trace.sync_sites[:2]
    lost_s = _both_wait_s(account, trace)
    if not rows and account.share(lost_s) < LIMITS.worth:
        return None
    settings = _reading_settings(facts) if lost_s else {}
    reading = f"{plural(sum(use.calls for use in rows), 'read')} per step make the host wait"
    idling = f"the device idles {share(account.share(lost_s))} of the step while the host waits for"
    return Cause(
        id="hidden_syncs",
        title=f"{idling} a value" if lost_s else reading,
        evidence=(
            *(f"{r.line}: {r.short_name}, {plural(r.calls, 'time')} per step" for r in rows[:3]),
            *settings.values(),
            *(
                f"{site.call}{''.join(f' at {frame}' for frame in site.stack[:1])}: {site.count} "
                f"times, {duration(site.total_s)} in the trace"
                for site in sites
            ),
        )[:6],
        changes=tuple(
            Use(change=change)
            for change in (*(() if settings and not rows else ("read_later",)), *settings)
        ),
        claim=Claim(removes_s=lost_s, device={"value_s": lost_s}) if lost_s else None,
        where=(rows[0].line or "") if rows else "".join(f for s in sites[:1] for f in s.stack[:1]),
        called_at=(rows[0].called_at or "") if rows else "",
        confidence="medium",
        severity=None if lost_s else ("medium" if account.host_decides else "low"),
    )


def _read_from_device(facts: Facts) -> list[OperatorUse]:
    """Operators of the audit that hand a value to the host, the most frequent first."""
    audit = facts.documents.audit
    uses = () if audit is None else audit.operators
    rows = [use for use in reads(uses) if use.place != "host"]
    rows += [
        use
        for use in uses
        if use.place == "link"
        and use.line
        and use not in rows
        and ((use.part == "forward" and "_to_copy" in use.name) or use.name.startswith(READS))
    ]
    return sorted(rows, key=lambda use: -use.calls)


def _both_wait_s(account: StepAccount, trace: RankTrace | None) -> float:
    """The lesser of the device's idle time and the host's waits, which are longer."""
    idle_s = 0.0 if account.device is None else account.device.value_s or 0.0
    steps = () if trace is None else trace.steps
    waits = [step.sync_s for step in steps if step.sync_s is not None]
    return min(idle_s, sum(waits) / len(waits)) if waits else idle_s


def _reading_settings(facts: Facts) -> dict[str, str]:
    """Settings that have a value read in every step: the change that switches each off, and why."""
    settings = facts.settings
    shown, scaler = settings.get("prog_bar_metrics"), settings.get("grad_scaler")
    said = {
        "quiet_progress_bar": shown and f"prog_bar=True reads {shown} in every batch",
        "no_throughput_monitor": "ThroughputMonitor" in str(settings.get("callbacks"))
        and "ThroughputMonitor waits for the device in every batch",
        "fused_for_scaler": scaler
        and not settings.get("optimizer_fused")
        and f"{scaler} reads a flag at every update: no fused optimizer",
        "no_nan_filter": settings.get("logging_nan_inf_filter") is True
        and "logging_nan_inf_filter=True reads the loss in every micro-batch",
    }
    return {change: str(why) for change, why in said.items() if why}


def python_in_step(account: StepAccount, facts: Facts) -> Cause | None:
    """Python, a sleep, files or numpy take much of the step while no operator runs.

    By samples of many steps, which name the function and never mean a line that may be running an
    operator; else by the audited step, where much time passes before an operator that is called a
    few times.  Python around many small operators is not meant: that is what launching them takes.
    Beside a device it matters only where the device waits for the host.

    Wrong where: the function runs once in many steps, and the samples are few: see their number.
    To confirm: time the function by itself; `trainperf prove` without the call.
    """
    return _sampled_python(account, facts) or _audited_python(account, facts)


def _sampled_python(account: StepAccount, facts: Facts) -> Cause | None:
    coded = [
        (slot, code) for slot in (*WORK, "other", "between") if (code := facts.plain_code(slot))
    ]
    if not coded or not account.host_decides:
        return None
    slot, code = max(coded, key=lambda pair: account.spent(pair[0]) * pair[1].line.fraction)
    lost_s, least_s, most_s = (
        account.spent(slot) * part for part in (code.line.fraction, code.low, code.high)
    )
    if account.share(least_s) < LIMITS.notable:
        return None
    ends = f"{share(account.share(least_s))} to {share(account.share(most_s))}"
    near = tuple(r for r in account.regions if is_near(r.use.line or "", code.line.where))
    return Cause(
        id="python_in_step",
        title=f"{code.line.subject} in {slot if slot in WORK else 'the loop'} takes "
        f"{share(account.share(lost_s))} of the step without a tensor operation",
        evidence=(
            f"{code.line.name}: {ends} of the step (95 % CI, {code.line.samples} samples)",
            f"running there: {', '.join(code.names)}",
        ),
        changes=(Use(change="python_out_of_step", values={"name": code.line.subject}),),
        claim=Claim(
            owns_s={slot: lost_s},
            removes_s=lost_s,
            at_most_s=most_s,
            before=near,
            shrinks=_crowded_out(account, slot, lost_s, near),
        ),
        where=code.line.where,
        confidence="high" if account.device is None else "medium",
    )


def _crowded_out(account: StepAccount, slot: str, lost_s: float, before: Sequence[Region]) -> float:
    """Share of a slot's operators for which it has no time beside what no operator takes.

    Then the audited step had the same seconds before an operator of another line.
    """
    waits_s = {id(region): region.python_s for region in before}
    rows = [region for region in account.regions if region.slot == slot]
    rows_s = sum(region.seconds - waits_s.get(id(region), 0.0) for region in rows)
    left_s = account.spent(slot) - lost_s
    return max(0.0, 1.0 - left_s / rows_s) if rows_s else 0.0


def _audited_python(account: StepAccount, facts: Facts) -> Cause | None:
    mine = [
        region
        for region in account.regions
        if region.use.line
        and region.use.part == "forward"
        and region.use.calls < LOOP
        # Autograd begins with it, after whatever lies between forward and backward.
        and not region.use.name.startswith("aten.ones_like")
    ]
    region = max(mine, key=lambda each: each.python_s, default=None)
    if region is None:
        return None
    # One audited step may have been interrupted there: the steady ones must lack that time, too,
    # and samples of many steps must have seen it.
    uses = () if facts.documents.audit is None else facts.documents.audit.operators
    ran_s = sum(use.host_s for use in uses if use.part == "forward")
    unexplained_s = max(0.0, account.spent(region.slot) - ran_s)
    lost_s = min(region.python_s, unexplained_s, _seen_s(account, facts, region))
    if account.share(lost_s) < LIMITS.notable:
        return None
    return Cause(
        id="python_in_step",
        title=f"Python in forward takes {share(account.share(lost_s))} of the step while no "
        f"operator runs",
        evidence=(
            f"{duration(lost_s)} per step pass before {region.use.short_name} at {region.use.line}",
            "no torch operator runs there: print, numpy, files, waiting",
        ),
        changes=(Use(change="python_out_of_step", values={"name": region.use.line}),),
        claim=Claim(owns_s={region.slot: lost_s}, removes_s=lost_s, before=(region,)),
        where=region.use.line or "",
        called_at=region.use.called_at or "",
        confidence="medium",
    )


def _seen_s(account: StepAccount, facts: Facts, region: Region) -> float:
    """Seconds of a step that samples saw in lines near a region's; its slot's without samples."""
    lines = next((each for each in facts.lines if each.slot == region.slot), None)
    if lines is None:
        return account.spent(region.slot)
    near = sum(at.fraction for at in lines.lines if is_near(at.where, region.use.line or ""))
    return near * account.spent(region.slot)


_PLACES = {"other": "outside every phase", "between": "between the update and the next forward"}


def unnamed_time(account: StepAccount, facts: Facts) -> Cause | None:
    """Much of the step is outside every phase: it names the function that was seen there most.

    A loop that does not bracket all of its work has some of it there: no gain is promised then, and
    what to bracket comes first.  In an imported log it is what the log does not divide.  Of a loop
    recorded from outside what lies between update and forward counts, as far as no loader is in it.

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
                    values={"phases": ", ".join(missing)},
                ),
            ),
            severity="low" if log else "medium",
        )
    lines = {place: line for place in places if (line := _seen_in(facts, place)) is not None}
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
            *known(not lines and "no line was seen in most of it"),
        ),
        changes=tuple(Use(change="lighten", values={"name": x.subject}) for x in lines.values())
        or (Use(change="name_it"),),
        claim=claim,
        where=next((line.where for line in lines.values()), ""),
        confidence="high" if lines else "medium",
    )


def _seen_in(facts: Facts, place: str) -> LineShare | None:
    """The function that is there most; of a wait and the loop's own code, samples are together."""
    return facts.owner(place) or (facts.owner("data_wait") if place == "between" else None)


def debug_modes(account: StepAccount, facts: Facts) -> Cause | None:
    """Switches of torch that slow a step down, by what was recorded when the fit began.

    What anomaly detection costs is known where the audit has timed the operators: its looks at the
    gradients, and what passes around the calls, where it keeps their stacks.  Of the others nothing
    is known but that they cost.

    Wrong where: determinism or a single thread is meant: it is a price, not a fault.
    To confirm: `trainperf prove` with the switch off.
    """
    switches = {
        "detect_anomaly": "every operator keeps its Python stack, every gradient is read",
        "autograd_profiler": "every operator of every step is recorded",
        "deterministic": "kernels that sum in a fixed order instead of the fastest ones",
    }
    on = [name for name in switches if facts.settings.get(name)]
    cpus, workers = facts.cpus, facts.number("num_workers") or 0.0
    # With fewer cores the loader and the system have use for the others.
    if (
        facts.host_computes
        and facts.number("threads") == 1
        and cpus
        and cpus >= max(4, 2 * (1 + workers))
    ):
        on.append("one_thread")
        switches["one_thread"] = (
            f"1 of {cpus} CPUs computes, and nothing else uses most of the others"
        )
    if not on or not account.judged:
        return None
    claim = _of_anomalies(account) if "detect_anomaly" in on else None
    names = " and ".join(words(name) for name in on)
    return Cause(
        id="debug_modes",
        title=f"{names} {'is' if len(on) == 1 else 'are'} on in training",
        evidence=tuple(switches[name] for name in on),
        changes=tuple(Use(change=f"no_{name}", values={"cpus": cpus}) for name in on),
        claim=claim,
        confidence="medium",
        severity="high" if on[0] == "detect_anomaly" else "low",
    )


def _of_anomalies(account: StepAccount) -> Claim | None:
    """Looks at gradients, and the Python around all operators that have one.

    At most it is all but the roofline: no audit sees what it adds inside of a call.
    """
    passes = [region for region in account.regions if region.use.part != "optimizer"]
    looks = [region for region in passes if region.use.short_name in CHECKS]
    around, most_s = of_python(passes), total_s(passes) - sum(r.ideal_s for r in passes)
    owns_s = dict(around.owns_s)
    for region in looks:
        owns_s[region.slot] += region.run_s
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

    Wrong where: the pauses are of the warm-up, and the fit is short.
    To confirm: the reading `gc_s` of a longer run; `gc.freeze()` after set-up.
    """
    paused_s, unusual = facts.worst(GC_S) or 0.0, facts.excluded.get("gc", 0)
    first_s, step_s = facts.value(FIRST_STEP_S), facts.value(STEP_S)
    once_s = max(0.0, (first_s or 0.0) - step_s) if step_s else 0.0
    beyond_s = paused_s if unusual else paused_s - once_s
    if account.share_of_fit(beyond_s) < LIMITS.worth or 0 < unusual < LIMITS.steps / 4:
        return None
    return Cause(
        id="garbage",
        title=f"the garbage collector takes {share(account.share_of_fit(paused_s))} of the fit",
        evidence=(f"{duration(paused_s)} of pauses inside steps",),
        changes=(Use(change="freeze_garbage"),),
        claim=Claim(pauses_s={"garbage": paused_s}),
    )


def own_cost(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 its seconds
    """The overhead of trainperf is more of the step than it promises.

    Wrong where: the steps are of few milliseconds: the share is large, the time is not.
    To confirm: `trainperf prove` cannot show it; time the script with and without TrainPerf,
    several times.
    """
    cost_s = account.spent(OWN)
    # The promise is a thirtieth of the step; what is short in a step of 5 ms is a large share of
    # it.
    if account.share(cost_s) < 0.03:
        return None
    removes_s = cost_s if account.share(cost_s) >= LIMITS.notable else 0.0
    return Cause(
        id="own_cost",
        title=f"trainperf's overhead is {share(account.share(cost_s))} of the step",
        evidence=(f"{duration(cost_s)} of {duration(account.step_s)} per step",),
        changes=(Use(change="measure_less"),),
        claim=Claim(owns_s={OWN: cost_s}, removes_s=removes_s),
        severity="low",
    )

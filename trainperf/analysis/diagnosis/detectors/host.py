"""Detectors of host code: callbacks, logging, metrics, values read back, Python in the step."""

from collections.abc import Iterable, Sequence

from trainperf.analysis.diagnosis.account import (
    OWN,
    WORK,
    Claim,
    Region,
    StepAccount,
    of_regions,
    of_slots,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, share, words
from trainperf.core.loop_kind import imported_from
from trainperf.core.readings import FIRST_STEP_S, GC_S, STEP_S


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
    lines = []
    for place, mine in ranked[:most]:
        names = dict.fromkeys(r.use.short_name for r in sorted(mine, key=lambda r: -r.seconds))
        calls = plural(sum(region.use.calls for region in mine), "call")
        listed = ", ".join([*names][:4]) + (", …" if len(names) > 4 else "")
        lines.append(f"{place}: {duration(total_s(mine))} per step in {calls} of {listed}")
    return tuple(lines)


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


def _busy_threads(account: StepAccount) -> dict[str, float]:
    """Other threads that compute a notable part of a step for what the loop hands to them."""
    least_s = LIMITS.worth * account.step_s
    return {name: s for name, s in account.threads_s.items() if s >= least_s}


def _meanwhile(threads: dict[str, float]) -> tuple[str, ...]:
    return tuple(
        f"a thread of {name} computes {duration(spent_s)} per step meanwhile"
        for name, spent_s in threads.items()
    )


def callbacks(account: StepAccount, facts: Facts) -> Cause | None:
    """User hooks are a notable part of the step; the most expensive one is named.

    What they hand to a thread, as loggers do, goes with them: its processor time counts.

    Wrong where: the hook waits for the device, and pays for what other phases have launched.
    To confirm: `trainperf try --only no_callback_NAME SCRIPT`.
    """
    claim, threads = of_slots(account, "callbacks"), _busy_threads(account)
    if account.share(claim.removes_s) < LIMITS.notable:
        return None
    named, owner = list(facts.actions_s.items())[:2], facts.owner("callbacks")
    heaviest = named[0][0] if named else "the callbacks"
    return Cause(
        id="callbacks",
        title=f"callbacks take {share(account.share(claim.removes_s))} of the step",
        evidence=(
            *(f"{hook}: {duration(spent_s)} per step" for hook, spent_s in named),
            *_meanwhile(threads),
            *(() if named else ("no hook was timed by name",)),
        ),
        changes=(Use(change="rarer_callback", values={"hook": heaviest}),),
        claim=Claim(owns_s=claim.owns_s, removes_s=claim.removes_s, threads=tuple(threads)),
        where="" if owner is None else owner.where,
    )


def logging(account: StepAccount, facts: Facts) -> Cause | None:
    """`self.log` in the step, and what the framework does with the values after it.

    Needs an audit: without one the loop's share has a finding of its own.

    Wrong where: a logger's thread does the work later: then silence gains more than the share.
    To confirm: `trainperf try --only no_logging SCRIPT` and `--only logging_interval`.
    """
    rows = [region for region in account.regions if region.use.logs]
    every, after_s = facts.number("log_every_n_steps"), account.spent("loop")
    inside_s = total_s(rows)
    # With few steps between two writes the framework's part of the loop is logging, too.
    logs = account.share(inside_s) >= LIMITS.worth or (every is not None and every < 10)
    if not rows or not logs or account.share(inside_s + after_s) < LIMITS.notable:
        return None
    claim, threads = of_regions(rows), _busy_threads(account)
    (where, called_at), calls = place_of(rows), sum(region.use.calls for region in rows)
    return Cause(
        id="logging",
        title=f"logging takes {share(account.share(inside_s + after_s))} of the step",
        evidence=(
            f"{duration(inside_s)} per step in the {plural(calls, 'operator')} that it calls",
            f"{duration(after_s)} after the last hook"
            + ("" if every is None else f", log_every_n_steps={every:.0f}"),
            *_meanwhile(threads),
        ),
        changes=(Use(change="log_less"),),
        claim=Claim(
            owns_s={**claim.owns_s, "loop": after_s},
            removes_s=claim.removes_s + after_s,
            regions=claim.regions,
            threads=tuple(threads),
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
    claim, threads, owner = of_slots(account, "loop"), _busy_threads(account), facts.owner("loop")
    if account.share(claim.removes_s) < LIMITS.notable or not account.host_decides:
        return None
    shown = facts.settings.get("prog_bar_metrics")
    return Cause(
        id="loop",
        title=f"the framework takes {share(account.share(claim.removes_s))} of the step after the "
        "last hook",
        evidence=(
            (
                f"{duration(claim.removes_s)} of {duration(account.step_s)} between last hook and "
                f"fetch"
            ),
            *((f"on the progress bar: {shown}",) if shown else ()),
            *_meanwhile(threads),
        ),
        changes=(Use(change="log_rarely"),),
        claim=Claim(owns_s=claim.owns_s, removes_s=claim.removes_s, threads=tuple(threads)),
        where="" if owner is None else owner.where,
        confidence="medium",
    )


def metrics_every_batch(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001
    """Work after the model that no gradient flows through and that counts or compares.

    What runs after the first line of the model, in lines and modules that nothing is learned in,
    without a matrix product, near an operator that decides something.  A teacher without gradients
    is none: it has products.  Metrics in hooks after the batch belong to `callbacks`.

    Wrong where: the metric is the loss of a teacher or a second head, and trains.
    To confirm: `trainperf prove` with the metric every n-th batch.
    """
    free = _without_gradient(account)
    products = {region.use.line for region in free if region.use.matmul_flops}
    deciding = [
        r.use.line for r in free if r.use.short_name in DECIDES and r.use.line not in products
    ]
    near = {line for line in deciding if line}
    rows = [
        region
        for region in free
        if region.use.line not in products
        and any(is_near(region.use.line or "", line) for line in near)
    ]
    if account.share(total_s(rows)) < LIMITS.notable:
        return None
    (where, called_at), claim = place_of(rows), of_regions(rows)
    calls = plural(sum(region.use.calls for region in rows), "operator")
    return Cause(
        id="metrics_every_batch",
        title=f"a metric in every batch takes {share(account.share(total_s(rows)))} of the step",
        evidence=(f"{calls} after the model that no gradient flows through", *lines_of(rows)),
        changes=(
            Use(change="rarer_metric", values={"at": f" ({called_at})" if called_at else ""}),
        ),
        claim=Claim(
            owns_s=claim.owns_s,
            removes_s=claim.removes_s,
            regions=claim.regions,
            threads=tuple(_busy_threads(account)),
        ),
        where=where,
        called_at=called_at,
        confidence="medium",
    )


def _without_gradient(account: StepAccount) -> list[Region]:
    """Forward work after the first line of the model that no gradient flows through."""
    ordered = sorted(account.regions, key=lambda region: region.order)
    learned = [r for r in ordered if r.use.part in ("backward", "recompute")]
    lines = {region.use.line for region in learned}
    modules = {region.use.module for region in learned if region.use.module}
    first = next(
        (at for at, region in enumerate(ordered) if region.use.line in lines), len(ordered)
    )
    return [
        region
        for region in ordered[first + 1 :]
        if region.use.part == "forward"
        and region.use.line
        and region.use.line not in lines
        and region.use.module not in modules
    ]


def busy_thread(account: StepAccount, facts: Facts) -> Cause | None:
    """Another thread of this process computes beside the training, and takes CPUs that it needs.

    Removed is what the thread computes: while it does, it has one of the CPUs that the model's
    threads share, or the interpreter.  Where there is a CPU for it nothing is said.

    Wrong where: the thread works for the training, e.g. a prefetcher of one's own.
    To confirm: `trainperf prove` with and without the thread.
    """
    threads = {
        name: spent_s
        for name, spent_s in account.threads_s.items()
        if account.share(spent_s) >= LIMITS.notable
    }
    crowded = account.cpus is None or account.model_threads + 1 > account.cpus - account.others_cpus
    if not threads or not crowded:
        return None
    spent = duration(sum(threads.values()))
    on = "" if facts.cpus is None else f", on {plural(facts.cpus, 'CPU')}"
    return Cause(
        id="busy_thread",
        title=f"{' and '.join(threads)} computes {spent} per step beside the training",
        evidence=(f"the model computes with {plural(account.model_threads, 'thread')}{on}",),
        changes=(Use(change="quiet_thread", values={"name": " and ".join(threads)}),),
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
    """On a device: by line from the audit, by owner from the settings, by cost from a trace."""
    audit = facts.documents.audit
    uses = () if audit is None else audit.operators
    rows = [use for use in reads(uses) if use.place != "host"]
    rows += [
        use
        for use in uses
        if use.place == "link"
        and use.line
        and ((use.part == "forward" and "_to_copy" in use.name) or use.name.startswith(READS))
    ]
    rows = sorted({id(use): use for use in rows}.values(), key=lambda use: -use.calls)
    owners, device = _reading_settings(facts), account.device
    waited_s = None if device is None else device.value_s
    lost_s = _both_wait_s(waited_s or 0.0, facts)
    if not rows and not owners and account.share(lost_s) < LIMITS.worth:
        return None
    sites = [
        f"{site.call}{f' at {site.stack[0]}' if site.stack else ''}: {site.count} times, "
        f"{duration(site.total_s)} in the trace"
        for trace in facts.traces[-1:]
        for site in trace.sync_sites[:2]
    ]
    idle = share(account.share(lost_s))
    title = f"the device idles {idle} of the step while the host waits for a value"
    if not lost_s:
        calls = plural(sum(use.calls for use in rows), "read")
        title = (
            f"{calls} per step make the host wait"
            if rows
            else "the host waits for the device in every step"
        )
    lines = [
        f"{use.line}: {use.short_name}, {plural(use.calls, 'time')} per step" for use in rows[:3]
    ]
    change = "read_later" if rows or not owners else owners[0][0]
    return Cause(
        id="hidden_syncs",
        title=title,
        evidence=(*lines, *(line for _, line in owners), *sites)[:6],
        changes=(Use(change=change),),
        claim=Claim(removes_s=lost_s, device={"value_s": lost_s}) if lost_s else None,
        where=(rows[0].line or "") if rows else _frame(facts),
        called_at=(rows[0].called_at or "") if rows else "",
        confidence="medium",
        severity=None if lost_s else ("medium" if account.host_decides else "low"),
    )


def _frame(facts: Facts) -> str:
    sites = facts.traces[-1].sync_sites if facts.traces else ()
    return sites[0].stack[0] if sites and sites[0].stack else ""


def _both_wait_s(device_s: float, facts: Facts) -> float:
    """The lesser of the device's idle time and the host's waits, which are longer."""
    waits = [
        step.sync_s
        for trace in facts.traces[-1:]
        for step in trace.steps
        if step.sync_s is not None
    ]
    return min(device_s, sum(waits) / len(waits)) if waits else device_s


def _reading_settings(facts: Facts) -> list[tuple[str, str]]:
    """What else waits in every step, by the recorded settings: the change, and what it is."""
    settings = facts.settings
    shown, owners = settings.get("prog_bar_metrics"), []
    if shown:
        owners.append(("quiet_progress_bar", f"prog_bar=True reads {shown} in every batch"))
    if "ThroughputMonitor" in str(settings.get("callbacks") or ""):
        owners.append(("read_later", "ThroughputMonitor waits for the device in every batch"))
    scaler = settings.get("grad_scaler")
    if scaler and settings.get("optimizer_fused") in (False, None):
        owners.append(
            ("fused_for_scaler", f"{scaler} reads a flag at every update: no fused optimizer")
        )
    if settings.get("logging_nan_inf_filter") is True:
        owners.append(
            ("read_later", "logging_nan_inf_filter=True reads the loss in every micro-batch")
        )
    return owners


def host_code(account: StepAccount, facts: Facts) -> Cause | None:
    """Much time passes before an operator that is called a few times: print, numpy, files, sleep.

    Python around many small operators is not meant: that is what launching them takes.

    Wrong where: the audited step was interrupted there, by another process or by printing once.
    To confirm: a second audit at another step (`--audit-at`); the line's samples in `report
    --full`.
    """
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
    region = max(mine, key=lambda each: each.python_s, default=None)
    if region is None:
        return None
    # One audited step may have been interrupted there: the steady ones must lack that time, too,
    # and samples of many steps must have seen it.
    uses = () if facts.documents.audit is None else facts.documents.audit.operators
    ran_s = sum(use.host_s for use in uses if use.part == "forward")
    lost_s = min(region.python_s, max(0.0, account.spent(region.slot) - ran_s))
    lost_s = min(lost_s, _seen_s(account, facts, region))
    if account.share(lost_s) < LIMITS.notable:
        return None
    return Cause(
        id="host_code",
        title=f"Python in forward takes {share(account.share(lost_s))} of the step while no "
        f"operator runs",
        evidence=(
            f"{duration(lost_s)} per step pass before {region.use.short_name} at {region.use.line}",
            "no torch operator runs there: print, numpy, files, waiting",
        ),
        changes=(Use(change="python_out_of_forward"),),
        claim=Claim(owns_s={region.slot: lost_s}, removes_s=lost_s),
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


def python_in_step(account: StepAccount, facts: Facts) -> Cause | None:
    """Samples see one function in Python, a sleep, files or numpy for much of the step.

    A line that may be running an operator is never meant.  Beside a device it matters only where
    the device waits for the host.

    Wrong where: the function runs once in many steps, and the samples are few: see their number.
    To confirm: time the function by itself; `trainperf prove` without the call.
    """
    coded = [
        (slot, code) for slot in (*WORK, "other", "between") if (code := facts.plain_code(slot))
    ]
    if not coded or not account.host_decides:
        return None
    slot, code = max(coded, key=lambda pair: account.spent(pair[0]) * pair[1].line.fraction)
    spent_s = account.spent(slot)
    lost_s, least_s = spent_s * code.line.fraction, spent_s * code.low
    if account.share(least_s) < LIMITS.notable:
        return None
    place = "the loop" if slot not in WORK else slot
    ends = f"{share(account.share(least_s))} to {share(account.share(spent_s * code.high))}"
    return Cause(
        id="python_in_step",
        title=f"{code.line.subject} in {place} takes {share(account.share(lost_s))} of the step "
        "without a tensor operation",
        evidence=(
            f"{code.line.name}: {ends} of the step (95 % CI, {code.line.samples} samples)",
            f"running there: {', '.join(code.names)}",
        ),
        changes=(Use(change="python_out_of_step", values={"name": code.line.subject}),),
        claim=Claim(owns_s={slot: lost_s}, removes_s=spent_s * code.high),
        where=code.line.where,
        confidence="high" if account.device is None else "medium",
    )


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
    slot = max(_PLACES, key=account.spent)
    lost_s = account.spent(slot)
    if account.share(lost_s) < LIMITS.notable:
        return None
    missing = [words(phase) for phase in WORK if phase not in account.loop_s]
    if imported_from(facts.settings) or (missing and facts.loop.trains):
        log = bool(imported_from(facts.settings))
        return Cause(
            id="unnamed_time",
            title=f"{share(account.share(lost_s))} of the step is "
            + (
                "not divided in the log"
                if log
                else f"outside every phase; not bracketed: {', '.join(missing)}"
            ),
            evidence=(f"{duration(lost_s)} of {duration(account.step_s)} per step",),
            changes=(Use(change="measure_more" if log else "bracket", values={"phases": missing}),),
            severity="low",
        )
    recorded = next((lines for lines in facts.lines if lines.slot in (slot, "data_wait")), None)
    line = None if recorded is None else recorded.owner
    return Cause(
        id="unnamed_time",
        title=f"{share(account.share(lost_s))} of the step is {_PLACES[slot]}"
        + (f", mostly in {line.subject}" if line else ""),
        evidence=(
            f"{duration(lost_s)} of {duration(account.step_s)} per step",
            f"{line.name}: {share(line.fraction)} of that in {line.samples} samples"
            if line
            else "no line was seen in most of it",
        ),
        changes=(
            Use(change="lighten" if line else "name_it", values={"name": line and line.subject}),
        ),
        claim=of_slots(account, slot),
        where=line.where if line else "",
        confidence="high" if line else "medium",
    )


def debug_modes(account: StepAccount, facts: Facts) -> Cause | None:
    """Switches of torch that slow a step down, by what was recorded when the fit began.

    What anomaly detection costs is bounded where the audit has timed the operators: all that they
    do not explain.  For the others nothing is known but that they cost.

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
    claim = None
    if "detect_anomaly" in on and account.regions:
        slots = [slot for slot in (*WORK, "other") if slot != "optimizer"]
        stays_s = sum(r.ideal_s for r in account.regions if r.slot in slots)
        owns_s = {slot: account.spent(slot) for slot in slots}
        claim = Claim(
            owns_s=owns_s,
            removes_s=max(0.0, sum(owns_s.values()) - stays_s),
            regions=tuple(r for r in account.regions if r.slot in slots),
        )
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

    Timed in each step where trainperf does its own work; three hundredths of the step are
    reported, and the gain is all of it.

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

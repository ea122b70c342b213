"""Detectors of the whole fit: pauses, slow steps, noise, overflows."""

import math
from dataclasses import replace

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.lines import heaviest, sampled
from trainperf.analysis.diagnosis.detectors.validation import cheaper
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.schema import LineShare
from trainperf.core.artifacts.lines import (
    BEFORE_FIT,
    DATASET_MAP,
    DATASET_MAP_IN_PROCESSES,
    IMPORTS,
    PREPARING,
    STARTUP,
)
from trainperf.core.choice import all_that_hold, first_that_holds, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import (
    duration,
    plural,
    share,
    words,
)
from trainperf.core.readings import (
    DATA_WAIT_FRACTION,
    LOSS_SCALE,
    OVERFLOW_RATE,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_P95_S,
    STEP_S,
)
from trainperf.meters.fold import not_covered


def _pause(
    account: StepAccount,
    facts: Facts,
    kind: str,
    rarer: str,
    least: float,
    *further: Use,
    own: LineShare | None = None,
) -> Cause | None:
    """A cause where pauses of one kind, or the part of them in an own function, can be shorter.

    From `least` of the fit on they can be rarer, so that they take `LIMITS.worth` of it.  What
    further can be changed costs nothing, and is said as soon as they matter at all.
    """
    number, line = facts.summary.gaps.get(kind, 0), facts.summary.owner(kind)
    spent_s = account.pauses_s.get(kind, 0.0) * (own.fraction if own else 1.0)
    lost = account.share(spent_s, "fit")
    left = max(1 - lost, 0.001)
    # Rounded first: half a millionth must not make a whole number the next one.
    fewer = max(2, math.ceil(round(lost * (1 - LIMITS.worth) / (left * LIMITS.worth), 6)))
    seldom = Use(
        change=rarer,
        values={
            "fewer": fewer,
            "part": f"{1 / fewer:.2g}",
            **({"name": own.subject} if own else {}),
        },
        realises=1 - 1 / fewer,
    )
    changes = (*further, *all_that_hold((seldom, lost >= least)))
    if not changes or not number or lost < LIMITS.worth:
        return None
    steps = plural(max(1, round(facts.run.steps / number)), "step")
    return Cause(
        id=kind,
        title=f"{words(kind)} takes {share(lost)} of the fit"
        + (f", in {own.subject}" if own else ""),
        evidence=(
            f"{duration(spent_s)} in {plural(number, 'pause')}"
            + (
                f": {duration(spent_s / number)} each, one in {steps}"
                if number > 1 and facts.run.steps
                else ""
            ),
            *sampled(line),
            *heaviest(facts, kind),
        ),
        changes=changes,
        # After each of them the caches are cold.
        claim=Claim(pauses_s={kind: spent_s}, interruptions=number),
        where="" if line is None else line.where,
    )


def validation(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit stands still for validation.

    Removed is the whole of it: what a batch of it takes beyond one of training can be saved
    without validating less; validating less often, or on fewer batches, saves a part, and so does
    leaving autograd out where it was on.

    Wrong where: the fit that was measured is shorter than the real one, and validates as often;
    samples of the validation are larger than those of training; or gradients are wanted in it, as
    for adversarial metrics.
    To confirm: `trainperf compare` with a run that validates less often, by the fit clock.
    """
    graph = (Use(change="validate_without_grad"), facts.settings.get("validation_grad") is True)
    further = (*cheaper(account, facts), *all_that_hold(graph))
    return _pause(account, facts, "validation", "validate_less", LIMITS.critical, *further)


def checkpoint(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit stands still for checkpoints.

    Removed is the whole of it: rarer ones save a part, asynchronous ones nearly all.  Of a sharded
    model the whole state may be gathered first.

    Wrong where: the disk was slow for another reason, or the real fit saves more rarely.
    To confirm: `trainperf compare` with a run without checkpoints, by the fit clock.
    """
    cause = _pause(account, facts, "checkpoint", "checkpoint_less", LIMITS.notable)
    wrapper = facts.settings.get("wrapper")
    if cause is None or wrapper not in ("FullyShardedDataParallel", "FSDPModule"):
        return cause
    return replace(cause, changes=(*cause.changes, Use(change="sharded_checkpoint")))


def epoch_boundary(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit stands still between epochs, mostly in a function of the script.

    Removed is that function's part of the pauses by their samples, from a tenth of the fit on.
    What workers take to start is `epoch_start`.

    Wrong where: the epochs of the fit that was measured are shorter than the real ones.
    To confirm: `trainperf compare` with a run without it, by the fit clock.
    """
    return _own_pause(account, facts, "epoch_boundary")


def shutdown(account: StepAccount, facts: Facts) -> Cause | None:
    """The fit goes on for long after its last step, mostly in a function of the script.

    Removed is that function's part by its samples, from a tenth of the fit on.

    Wrong where: the fit that was measured is a short try of a long one.
    To confirm: `trainperf compare` with a run without it, by the fit clock.
    """
    return _own_pause(account, facts, "shutdown")


def _own_pause(account: StepAccount, facts: Facts, kind: str) -> Cause | None:
    own = facts.summary.owner(kind)
    if own is None:
        return None
    return _pause(account, facts, kind, "lighten_pause", LIMITS.notable, own=own)


def no_steady_state(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 counts steps
    """The warm-up was never seen to end, so there are no steady statistics.

    A run that is still being written may yet settle.

    Wrong where: the run is short, or the machine is shared: nothing is wrong with the training
    then.
    To confirm: the same training for ten times the steps, on a quiet machine.
    """
    steps, few = facts.run.steps, facts.run.steps < LIMITS.steps
    if (
        facts.run.steady_steps
        or not steps
        or facts.run.state == "running"
        or (few and facts.run.state != "finished")
        or facts.value(STEP_MEAN_S)
        # The log has one mean of all steps.
        or not_covered(facts.summary.reading(STEP_MEAN_S))
    ):
        return None
    change, title = first_that_holds(
        (
            (
                "train_longer",
                plural(steps, "step")
                + f" {'is' if steps == 1 else 'are'} too few for a steady state",
            ),
            few,
        ),
        (
            ("log_more", "the means in the log are too few, or too far apart, for a steady state"),
            not_covered(facts.summary.reading(STEP_S)),
        ),
        (("find_what_changes", "the step time never settled"), True),
    )
    return Cause(
        id="no_steady_state",
        title=title,
        evidence=(f"{plural(steps, 'step')}; {LIMITS.steps} ordinary ones are needed at least",),
        changes=(Use(change=change),),
        severity="low",
    )


ATTENTION_S = 10.0
"""From here on people turn to something else; what takes less is no loss (Nielsen, 1993)."""


def before_first_step(account: StepAccount, facts: Facts) -> Cause | None:
    """The script prepares for long before its first step.

    Removed is what its own lines took, in the startup of the fit as well where one is named, and
    what maps, loads or tokenises a dataset for it; loading modules and weights, building the model
    and compiling stay.  From ten seconds on a fifth of the script is worth a word; from a fifth of
    them on where a line is named and the steps that follow take at most twice as long: such a
    script is started again and again.  What of it is most is named: of `Dataset.map` whether it ran
    in one process, why no cache has it, and on how many ranks.  A map that the next start finds in
    the cache counts only where this one could have been shorter.

    Wrong where: the run is a short try of a long training, of which this will be a small part; or
    what is prepared is another thing each time.
    To confirm: start the script again, with what it prepares kept.
    """
    prepared_s = _prepared_s(account, facts)
    spent_s, most = sum(prepared_s.values()), max(prepared_s, key=prepared_s.__getitem__)
    line, why = facts.summary.owner(most), facts.settings.get("datasets_cache")
    claim = Claim(
        pauses_s={BEFORE_FIT: spent_s - prepared_s[STARTUP], STARTUP: prepared_s[STARTUP]}
    )
    lost = spent_s / (account.whole_s(claim.scope) or math.inf)
    follows_s = account.fit_s - account.pauses_s.get(STARTUP, 0.0)
    waited_for = (line or most in MAPS) and spent_s >= LIMITS.mostly * follows_s
    least_s = ATTENTION_S * (LIMITS.critical if waited_for else 1.0)
    if spent_s < least_s or lost < LIMITS.critical:
        return None
    before_s, loading_s = sum(account.before_s.values()), account.before_s.get(IMPORTS, 0.0)
    mostly = texts_of(
        most != BEFORE_FIT and f"{duration(prepared_s[most])} of it {words(most)}",
        most in MAPS and why and f"not cached: {why}",
        facts.run.prepared_ranks > 1
        and f"on {facts.run.prepared_ranks} of {plural(facts.run.world_size, 'rank')}",
    )
    return Cause(
        id="before_first_step",
        title=f"{duration(spent_s)} of the script's own work before the first step, "
        f"{', '.join((f'{share(lost)} of all it takes', *mostly))}",
        evidence=(
            f"{duration(before_s)} before the fit, {duration(loading_s)} of them loading modules",
            *texts_of(
                most in MAPS
                and not why
                and "the next start finds it in datasets' cache, unless the dataset was made in "
                "memory"
            ),
            *sampled(line),
            *heaviest(facts, most),
        ),
        changes=_prepare_less(facts, most, prepared_s[most] / spent_s, line),
        claim=claim,
        where="" if line is None else line.where,
    )


MAPS = (DATASET_MAP, DATASET_MAP_IN_PROCESSES)


def _prepared_s(account: StepAccount, facts: Facts) -> dict[str, float]:
    """Slot to seconds, without maps that are in a cache by now and could have taken no less."""
    spent_s = {slot: account.before_s.get(slot, 0.0) for slot in PREPARING}
    line = facts.summary.owner(STARTUP)
    spent_s[STARTUP] = account.pauses_s.get(STARTUP, 0.0) * (line.fraction if line else 0.0)
    most = max(spent_s, key=spent_s.__getitem__)
    shorter = facts.run.prepared_ranks > 1 or (most == DATASET_MAP and (facts.cpus or 1) > 1)
    if facts.settings.get("datasets_cache") or (most in MAPS and shorter):
        return spent_s
    return {slot: s for slot, s in spent_s.items() if slot not in MAPS}


def _prepare_less(
    facts: Facts, most: str, fraction: float, line: LineShare | None
) -> tuple[Use, ...]:
    """What would spare most of it at the next start, or make it shorter.

    Args:
        facts: Of the run.
        most: Slot that takes most of it.
        fraction: The share that it takes.
        line: What prepares.
    """
    uncached, cpus = facts.settings.get("datasets_cache"), facts.cpus or 1
    code, saves = facts.summary.lines_in(most).host, fraction * (1 - 1 / cpus)
    plain = code.line if code and code.line.fraction >= LIMITS.mostly else None
    name = line.subject if line else "the script"
    return all_that_hold(
        (
            # A call of the script's own may go through a list, which no name tells, like Python.
            Use(change="prepare_cheaper", values={"name": plain.name if plain else name}),
            plain or (line and most in (BEFORE_FIT, STARTUP)),
        ),
        (Use(change="keep_prepared", values={"name": name}), most not in MAPS),
        (
            Use(change="let_datasets_cache", values={"why": uncached}),
            most in MAPS and uncached,
        ),
        (
            Use(change="map_in_processes", values={"number": cpus}, realises=saves),
            most == DATASET_MAP and cpus > 1,
        ),
        (Use(change="prepare_once"), facts.run.prepared_ranks > 1),
    )


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


@worth(3 * LIMITS.trifle)
def slow_steps(account: StepAccount, facts: Facts) -> Cause | None:
    """Every n-th step takes much longer than the others.

    Removed is all they take beyond an ordinary step: doing it less often saves a part.

    Wrong where: something outside comes back at the same distance, e.g. another job's checkpoint.
    To confirm: the same run on another machine: what is the training's own comes at the same steps.
    """
    slow, workers = facts.summary.slow_steps, facts.number("num_workers")
    # Workers bring their batches in turn, and start anew with an epoch: that wait is the loader's.
    if slow is None or not account.fit_s or (workers and slow.phase == "data_wait"):
        return None
    # Where only the latest steps were looked at, the earlier ones are taken to be like them.
    lost_s = slow.lost_s * max(1.0, facts.run.steady_steps / slow.of_steps)
    ending = "th" if slow.every % 100 in (11, 12, 13) else _ENDINGS.get(slow.every % 10, "th")
    which, line = f"every {slow.every:,}{ending} step", slow.line
    return Cause(
        id="slow_steps",
        title=f"{which} takes {duration(slow.slow_s)} instead of {duration(slow.typical_s)}: "
        f"{share(account.share(lost_s, 'fit'))} of the fit",
        evidence=(
            f"{plural(slow.steps, 'slow step')} of {slow.of_steps:,}",
            f"{share(slow.phase_fraction)} of what they take longer is in {words(slow.phase)}",
            *sampled(line),
        ),
        changes=(
            Use(
                change="do_less_often" if line else "find_slow_steps",
                values={"name": line.subject if line else f"what {which} does"},
            ),
        ),
        claim=Claim(
            pauses_s={"slow_steps": lost_s},
            owns_s={slow.phase: slow.lost_s * slow.phase_fraction / slow.of_steps},
        ),
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
    steps = facts.summary.readings[OVERFLOW_RATE].n if lost else 0
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

"""Rule about a part of the step that no phase names."""

from trainperf.analysis.rules.base import (
    Evidence,
    leaves_cold_caches,
    phase_fraction,
    steady_step_s,
)
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share, words
from trainperf.core.loop_kind import HUGGING_FACE, imported_from
from trainperf.core.phases import Phase
from trainperf.core.readings import OVERHEAD_S


_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@leaves_cold_caches
def unnamed_time(evidence: Evidence) -> Finding | None:
    """Much of the step is in `other`: it names the function that was seen there most.

    What slow steps that come back spend there is theirs, and a wait for ranks that come later is
    `straggler`'s: only what even the last rank spends there counts.  A loop that does not bracket
    all of its work has some of it there: no gain is promised then, and what to bracket comes first.
    In an imported log it is what the log does not divide.

    Wrong where: the loop brackets only some of its phases: the time is ordinary work without a
    name.
    To confirm: bracket it (`monitor.phase(…)`), and look where the time goes then.
    """
    summary = evidence.summary
    if imported_from(summary.run.config):
        return _not_in_log(summary)
    missing = _not_bracketed(summary)
    if missing:
        return _bracket(summary, missing) if summary.run.loop.own else None
    lost, step_s = unnamed_fraction(summary), steady_step_s(summary)
    if lost is None or not step_s or lost < LIMITS.notable:
        return None
    line = summary.owner(Phase.OTHER.label)
    name = line.subject if line else ""
    return Finding(
        id="unnamed_time",
        title=f"{share(lost)} of the step is outside every phase"
        + (f", mostly in {name}" if name else ""),
        advice=f"Lighten {name}" if name else "Name what runs outside every phase",
        evidence=(
            f"{duration(lost * step_s)} of {duration(step_s)} per step",
            *(_sampled(summary) or ("no line was seen in most of it",)),
        ),
        action=_action(summary, name),
        **costs(lost, confidence="high" if line else "medium"),
        effort="minutes" if line else "hours",
        where=line.where if line else "",
        confirm="trainperf compare BEFORE AFTER: phase_other_s falls",
    )


def _action(summary: Summary, name: str) -> str:
    """Where nothing was seen, a Trainer's user is told where to look: that code has names there."""
    if not name and summary.run.loop is HUGGING_FACE:
        return (
            "look at what training_step, compute_loss and _prepare_inputs of your Trainer do "
            "before the model is called; a run of some minutes names the line"
        )
    return (
        f"do the work of {name or 'that code'} every n-th step, or after the fit; put what has to "
        f"stay into {summary.run.loop.user_code}"
    )


def unnamed_fraction(summary: Summary) -> float | None:
    """Share of a steady step that nothing names and no other rule owns.

    `None` without enough steps, and where some of the step's work is not bracketed.
    """
    lost, step_s = phase_fraction(summary, Phase.OTHER), steady_step_s(summary)
    if lost is None or not step_s or _not_bracketed(summary) or imported_from(summary.run.config):
        return None
    slow = summary.slow_steps
    # Steps after a pause of training are not steady: the mean is without them.
    if slow is not None and slow.every is not None and slow.phase == Phase.OTHER.label:
        lost -= slow.phase_fraction * slow.lost_s / (slow.of_steps * step_s)
    label = Phase.OTHER.label
    together = [p.transfer_s / step_s for p in summary.synchronisation if p.point == label]
    lost = min([lost, *together])
    return max(0.0, lost - (summary.value(OVERHEAD_S) or 0.0) / step_s)


def _bracket(summary: Summary, missing: tuple[str, ...]) -> Finding | None:
    phases_s = summary.phases_s()
    other_s, step_s = phases_s.get(Phase.OTHER.label, 0.0), sum(phases_s.values())
    if not summary.run.steady_steps or not step_s or other_s < LIMITS.notable * step_s:
        return None
    return Finding(
        id="unnamed_time",
        title=f"{share(other_s / step_s)} of the step is outside every phase; "
        f"not bracketed: {', '.join(missing)}",
        advice=f"Bracket {', '.join(missing)}",
        evidence=(f"{duration(other_s)} of {duration(step_s)} per step", *_sampled(summary)),
        action=" and ".join(f'with monitor.phase("{label}"):' for label in missing)
        + " around that part of the step; what is left outside can then be told from it",
        severity="low",
        confirm="trainperf report shows its time",
    )


def _not_in_log(summary: Summary) -> Finding | None:
    phases_s = summary.phases_s()
    other_s, step_s = phases_s.get(Phase.OTHER.label, 0.0), sum(phases_s.values())
    if not step_s or other_s < LIMITS.notable * step_s:
        return None
    missing = [words(phase.label) for phase in Phase if phase.label not in phases_s]
    huggingface = summary.run.loop is HUGGING_FACE
    return Finding(
        id="unnamed_time",
        title=f"{share(other_s / step_s)} of the step is not divided in the log",
        advice="Measure what the log does not divide",
        evidence=(
            f"{duration(other_s)} of {duration(step_s)} per step",
            f"the log has no time of {', '.join(missing)}",
        ),
        action=f"trainperf run SCRIPT, or {'TrainPerfCallback()' if huggingface else 'LoopMonitor'}"
        " in it, for 200 steps",
        severity="low",
        confirm="trainperf report shows the time of each phase",
    )


def _not_bracketed(summary: Summary) -> tuple[str, ...]:
    measured = summary.phases_s()
    work = _WORK if summary.run.loop.trains else _WORK[:1]
    return tuple(phase.label for phase in work if phase.label not in measured)


def _sampled(summary: Summary) -> tuple[str, ...]:
    line = summary.owner(Phase.OTHER.label)
    if line is None:
        return ()
    return (f"{line.name}: {share(line.fraction)} of that in {line.samples} samples",)

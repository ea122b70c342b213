"""Rule about a part of the step that no phase names."""

from trainperf.analysis.rules.base import (
    Evidence,
    leaves_cold_caches,
    phase_fraction,
    steady_step_s,
)
from trainperf.analysis.rules.input.base import unknown_loader
from trainperf.analysis.summary.schema import LineShare, Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share, words
from trainperf.core.loop_kind import HUGGING_FACE, imported_from
from trainperf.core.phases import Phase
from trainperf.core.readings import OVERHEAD_S


_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_PLACES = {
    Phase.OTHER: "outside every phase",
    Phase.DATA_WAIT: "between the update and the next forward",
}

LOADER_IS_HEARD = (3, 12)
"""The Python from which on a recording from outside tells the loader from the loop's own code."""

MOSTLY = 0.5
"""Share of a phase's samples from which on one function that runs no operator is what it is."""


@leaves_cold_caches
def unnamed_time(evidence: Evidence) -> Finding | None:
    """Much of the step is in `other`: it names the function that was seen there most.

    What slow steps that come back spend there is theirs, and a wait for ranks that come later is
    `straggler`'s: only what even the last rank spends there counts.  A loop that does not bracket
    all of its work has some of it there: no gain is promised then, and what to bracket comes first.
    In an imported log it is what the log does not divide.  Of a loop recorded from outside, whose
    DataLoader nobody saw, what lies between update and forward counts as well.

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
    lost, phase, step_s = *_largest(summary), steady_step_s(summary)
    if not step_s or lost < LIMITS.notable:
        return None
    plain = _plain(summary, phase)
    line = summary.owner(phase.label) or plain
    name, place = line.subject if line else "", _PLACES[phase]
    return Finding(
        id="unnamed_time",
        title=f"{share(lost)} of the step is {place}" + (f", mostly in {name}" if name else ""),
        advice=f"Lighten {name}" if name else f"Name what runs {place}",
        evidence=(
            f"{duration(lost * step_s)} of {duration(step_s)} per step",
            *(_sampled(summary, phase) or ("no line was seen in most of it",)),
        ),
        action=_watched(summary, name) if plain else _action(summary, phase),
        **costs(lost, confidence="high" if line else "medium"),
        effort="minutes" if line else "hours",
        where=line.where if line else "",
        confirm=f"trainperf compare BEFORE AFTER: phase_{phase.label}_s falls",
    )


def unnamed_fraction(summary: Summary, phase: Phase = Phase.OTHER) -> float | None:
    """Share of a steady step that nothing names and no other rule owns.

    `None` without enough steps, and where some of the step's work is not bracketed.
    """
    lost, step_s = phase_fraction(summary, phase), steady_step_s(summary)
    if lost is None or not step_s or _not_bracketed(summary) or imported_from(summary.run.config):
        return None
    slow = summary.slow_steps
    # Steps after a pause of training are not steady: the mean is without them.
    if slow is not None and slow.every is not None and slow.phase == phase.label:
        lost -= slow.phase_fraction * slow.lost_s / (slow.of_steps * step_s)
    together = [p.transfer_s / step_s for p in summary.synchronisation if p.point == phase.label]
    lost = min([lost, *together])
    return max(0.0, lost - (summary.value(OVERHEAD_S) or 0.0) / step_s)


def _largest(summary: Summary) -> tuple[float, Phase]:
    """Share of the step in the phase in which most is unnamed."""
    phases = (Phase.OTHER, Phase.DATA_WAIT) if unknown_loader(summary) else (Phase.OTHER,)
    return max(((unnamed_fraction(summary, phase) or 0.0), phase) for phase in phases)


def _plain(summary: Summary, phase: Phase) -> LineShare | None:
    """What is most of a phase and runs no operator: it trains nothing, and can be left out.

    Before forward it may still be what makes the batch.
    """
    lines = next((lines for lines in summary.lines if lines.slot == phase.label), None)
    if phase is not Phase.OTHER or lines is None or lines.host is None:
        return None
    return lines.host.line if lines.host.line.fraction >= MOSTLY else None


def _watched(summary: Summary, name: str) -> str:
    return f"do the work of {name} every n-th step, or after the fit{_stays(summary)}"


def _stays(summary: Summary) -> str:
    loop = summary.run.loop
    return "" if loop.outside else f"; put what has to stay into {loop.user_code}"


def _action(summary: Summary, phase: Phase) -> str:
    if summary.run.loop is HUGGING_FACE and summary.owner(phase.label) is None:
        return (  # no line was seen, but only this can be there
            "look at what training_step, compute_loss and _prepare_inputs of your Trainer do "
            "before the model is called; a run of some minutes names the line"
        )
    if phase is Phase.DATA_WAIT and summary.owner(phase.label) is None:
        return _apart(summary)
    batches = "" if phase is Phase.OTHER else "; if it makes the batch, a DataLoader with workers"
    return (
        "if it changes gradients or weights, one call for all of them: "
        "clip_grad_norm_(model.parameters(), …), AveragedModel(model, multi_avg_fn=…)"
        f"{batches}; if it only watches, every n-th step or after the fit{_stays(summary)}"
    )


def _apart(summary: Summary) -> str:
    """How to tell a loader from the loop's own code."""
    version = summary.run.software.get("python", "").split(".")[:2]
    newer = ""
    if tuple(int(part) for part in version if part.isdigit()) < LOADER_IS_HEARD:
        newer = f"run it with Python {'.'.join(map(str, LOADER_IS_HEARD))} or newer, or "
    return f"{newer}{summary.run.loop.measures['data wait']}: then the loader's time has a name"


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


def _sampled(summary: Summary, phase: Phase = Phase.OTHER) -> tuple[str, ...]:
    line = summary.owner(phase.label)
    if line is None:
        return ()
    return (f"{line.name}: {share(line.fraction)} of that in {line.samples} samples",)

"""Check that the step time is that of steady steps."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, reason, unknown
from trainperf.core.formatting.units import duration, plural, times, words
from trainperf.core.readings import FIRST_STEP_S, STEP_S


def steady_state(case: Case) -> Outcome:
    """Steady-state, not first step, is reported.

    Fails when the warm-up was never seen to end, or when the first step counts as steady.
    """
    summary = case.summary
    run, step_s = summary.run, summary.value(STEP_S)
    first_s = summary.value(FIRST_STEP_S)
    if not run.steps:
        return unknown("no step was recorded", "train some steps")
    if step_s is None:
        more = "train until the warm-up is over: the report says when"
        why = f"{reason(summary, STEP_S)} in {plural(run.steps, 'step')}"
        return unknown(why, more) if run.state == "running" else failed(more, why)
    if run.steady_steps == run.steps:
        return failed(
            "exclude the first steps: compilation, allocation and autotuning are in them",
            f"all {plural(run.steps, 'step')} count, the first one too",
        )
    first = ""
    if first_s is not None:
        first = f"first step {duration(first_s)}, {times(first_s / step_s)} a steady one"
    excluded = ", ".join(f"{steps:,} {words(tag)}" for tag, steps in summary.excluded.items())
    return passed(f"{duration(step_s)} per steady step", first, f"excluded: {excluded}")

"""Rule about a first step that takes much of a short fit."""

from trainperf.analysis.rules.base import Evidence, first_batches_s, own_fit_s
from trainperf.analysis.rules.compiler.base import WORTH, once_s
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.readings import FIRST_STEP_S, STEP_S


def first_step(evidence: Evidence) -> Finding | None:
    """Compilation, autotuning or the wait for the first batch takes much of the whole fit.

    Of the wait it is the sampler or the dataset that does something once: a sort by length, an
    index, a first download.

    The first step's time beyond a steady one's, over the fit; from 10 s on. Where the compiler's
    time is known to be most of it, `compile_latency` says so.

    Wrong where: the real fit is much longer: the first step is paid once.
    To confirm: `first_step_s` against `run.fit_s` of the real run.
    """
    summary = evidence.summary
    first_s, step_s = summary.value(FIRST_STEP_S), summary.value(STEP_S)
    # A running fit will be longer than it is now.
    if first_s is None or step_s is None or summary.run.state == "running":
        return None
    compiled = evidence.documents.compilation
    if compiled is not None and once_s(compiled, summary) >= (first_s - step_s) / 2:
        return None  # compiling has a finding of its own, or has paid back
    extra_s = first_s - step_s
    # In a fit of seconds the first step always stands out and never matters.
    if extra_s < 10.0 or extra_s < WORTH * own_fit_s(summary):
        return None
    lost = extra_s / own_fit_s(summary)
    waited_s = first_batches_s(summary) or 0.0
    if waited_s >= extra_s / 2:
        return _first_batch(lost, min(waited_s, extra_s), step_s)
    return Finding(
        id="first_step",
        title=f"the first step takes {share(lost)} of the fit",
        advice="Pay for the first step once",
        evidence=(f"first step {duration(first_s)}, later ones {duration(step_s)}",),
        action="train longer in one go, keep the compilation cache, or do not compile short runs",
        **costs(lost, confidence="medium", scope="fit"),
        confirm="trainperf compare BEFORE AFTER: first_step_s is a smaller part of the fit",
    )


def _first_batch(lost: float, waited_s: float, step_s: float) -> Finding:
    """Before the first batch something is done once; what compiles is not to blame."""
    return Finding(
        id="first_step",
        title=f"the first batch takes {share(lost)} of the fit to come",
        advice="Have the first batch sooner",
        evidence=(f"{duration(waited_s)} of waiting for it, later steps {duration(step_s)}",),
        action="do what sampler and dataset do before the first batch (a sort by length, an index) "
        "once, and keep its result on disk",
        **costs(lost, confidence="medium", scope="fit"),
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: first_step_s is a smaller part of the fit",
    )

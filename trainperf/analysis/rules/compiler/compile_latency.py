"""Rule about compilation that a short fit cannot pay back."""

import math

from trainperf.analysis.rules.base import Evidence, own_fit_s
from trainperf.analysis.rules.compiler.base import WORTH, once_s
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, plural, share, times
from trainperf.core.readings import STEP_S


COMPILED_GAIN = 1.43
"""How much faster torch.compile trains on average by torch's own account (A100, 163 models)."""


def compile_latency(evidence: Evidence) -> Finding | None:
    """Compiling took longer than compiled steps can have saved in this fit.

    What a compiled step saves is not known without an uncompiled run; the speed-up that torch
    reports on average stands for it.  Recompilations have a finding of their own.

    Wrong where: the real run is much longer than the one that was measured.
    To confirm: `trainperf prove` with and without compiling, `--to-the-end`.
    """
    summary, document = evidence.summary, evidence.documents.compilation
    step_s, fit_s = summary.value(STEP_S), own_fit_s(summary)
    # A running fit will be longer than it is now.
    if document is None or not step_s or not fit_s or summary.run.state == "running":
        return None
    cost_s = once_s(document, summary)
    saved_s = (COMPILED_GAIN - 1) * step_s
    needed = math.ceil(cost_s / saved_s)
    lost = min(cost_s / fit_s, 1.0)
    if cost_s < 1.0 or needed <= summary.run.steps or lost < WORTH:
        return None
    return Finding(
        id="compile_latency",
        title=f"compiling takes {share(lost)} of the fit",
        advice="Compile long runs only",
        evidence=(
            (
                f"{duration(cost_s)} to compile {plural(document.graphs, 'graph')}, then "
                f"{duration(step_s)} per step"
            ),
            (
                f"at the {times(COMPILED_GAIN)} that torch reports on average it pays off "
                f"after {plural(needed, 'step')}; this fit had {summary.run.steps:,}"
            ),
        ),
        action="leave torch.compile out of short runs, train longer in one go, or keep the cache "
        "(TORCHINDUCTOR_FX_GRAPH_CACHE=1)",
        **costs(lost, confidence="medium", scope="fit"),
        effort="minutes",
        confirm="first_step_s is near step_s; trainperf compare BEFORE AFTER",
    )

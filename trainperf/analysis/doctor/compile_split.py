"""Check that compilation is kept out of the steady steps."""

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    failed,
    failed_by,
    not_applicable,
    passed,
    reason,
    unknown,
)
from trainperf.core.formatting.units import duration, plural
from trainperf.core.readings import FIRST_STEP_S, RECOMPILES, STEP_S


def compile_split(case: Case) -> Outcome:
    """`torch.compile` separates first from steady.

    Fails when compiled code has no steady step yet, and on `compile_latency` and `first_step`.
    Unknown without graph counts.
    """
    summary, compilation = case.summary, case.evidence.documents.compilation
    built = summary.value(RECOMPILES)
    if compilation is None and not built:
        if built is None and summary.run.config.get("compiled") is not False:
            return unknown(reason(summary, RECOMPILES), f"{case.loop.everything} counts graphs")
        return not_applicable("nothing was compiled in this fit")
    bad = failed_by(case, ("compile_latency", "first_step"))
    if bad is not None:
        return bad
    step_s, first_s = summary.value(STEP_S), summary.value(FIRST_STEP_S)
    if step_s is None:
        return failed("train past the compilation: no step is steady yet", _graphs(case))
    first = "not measured" if first_s is None else duration(first_s)
    return passed(_graphs(case), f"first step {first}, steady {duration(step_s)}")


def _graphs(case: Case) -> str:
    compilation = case.evidence.documents.compilation
    if compilation is None:
        return plural(round(case.summary.value(RECOMPILES) or 0), "graph")
    spent = "" if compilation.compile_s is None else f" in {duration(compilation.compile_s)}"
    breaks = f", {plural(len(compilation.breaks), 'graph break')}" if compilation.breaks else ""
    return f"{plural(compilation.graphs, 'graph')}{spent}{breaks}"

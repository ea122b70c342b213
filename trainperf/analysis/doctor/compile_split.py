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
from trainperf.analysis.rules.base import own_fit_s
from trainperf.analysis.rules.compiler.base import WORTH, excess_s, recompiled_late
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.readings import FIRST_STEP_S, RECOMPILES, STEP_S


def compile_split(case: Case) -> Outcome:
    """`torch.compile` separates first from steady.

    Fails when compiled code has no steady step yet, on `compile_latency`, `first_step` and
    `recompiles`, and where one recompilation takes as much of the fit.  Unknown without graph
    counts.
    """
    summary, compilation = case.summary, case.evidence.documents.compilation
    built = summary.value(RECOMPILES)
    if compilation is None and not built:
        if built is None and summary.run.config.get("compiled") is not False:
            return unknown(reason(summary, RECOMPILES), f"{case.loop.everything} counts graphs")
        return not_applicable("nothing was compiled in this fit")
    bad = failed_by(case, ("compile_latency", "recompiles", "first_step"))
    if bad is not None:
        return bad
    again = 0.0 if compilation is None else _again(compilation, summary)
    if again >= WORTH:
        return failed(_ONCE, f"recompilation takes {share(again)} of the fit", _graphs(case))
    step_s, first_s = summary.value(STEP_S), summary.value(FIRST_STEP_S)
    if step_s is None:
        return failed("train past the compilation: no step is steady yet", _graphs(case))
    first = "not measured" if first_s is None else duration(first_s)
    return passed(_graphs(case), f"first step {first}, steady {duration(step_s)}")


_ONCE = "compile for all shapes at once: torch.compile(…, dynamic=True) or mark_dynamic"


def _again(compilation: Compilation, summary: Summary) -> float:
    """Share of the fit that steps with a recompilation took beyond a steady one."""
    fit_s = own_fit_s(summary)
    steps = {graph.step for graph in recompiled_late(compilation) if graph.step is not None}
    return excess_s(compilation, summary, steps) / fit_s if fit_s else 0.0


def _graphs(case: Case) -> str:
    compilation = case.evidence.documents.compilation
    if compilation is None:
        return plural(round(case.summary.value(RECOMPILES) or 0), "graph")
    spent = "" if compilation.compile_s is None else f" in {duration(compilation.compile_s)}"
    breaks = f", {plural(len(compilation.breaks), 'graph break')}" if compilation.breaks else ""
    return f"{plural(compilation.graphs, 'graph')}{spent}{breaks}"

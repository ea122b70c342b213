"""Check that varying shapes cost neither compilations nor padding."""

from trainperf.analysis.doctor.base import Case, Outcome, passed, reason, unknown
from trainperf.core.formatting.units import count, share
from trainperf.core.readings import PADDING_FRACTION, RECOMPILES


FAILS_ON = ("recompiles", "padding")


def dynamic_shapes(case: Case) -> Outcome:
    """Dynamic shapes do not cause recompiles or padding waste.

    Fails on `recompiles` and `padding`.  Unknown without graph counts or a mask.
    """
    summary, compilation = case.summary, case.evidence.documents.compilation
    graphs, wasted = summary.value(RECOMPILES), summary.value(PADDING_FRACTION)
    again = None if compilation is None else len(compilation.recompiled)
    if graphs is None and again is None and wasted is None:
        return unknown(reason(summary, RECOMPILES), f"{case.loop.everything} counts both")
    built = "" if graphs is None else f"{count(graphs)} graphs built inside steps"
    anew = "" if again is None else f"{again} of them compiled again"
    padded = (
        "padding was not measured"
        if wasted is None
        else f"{share(wasted)} of the tokens is padding"
    )
    return passed(built, anew, padded)

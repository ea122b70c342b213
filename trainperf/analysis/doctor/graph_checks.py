"""Checks of compiled graphs: first and steady steps, recompilation and padding."""

from trainperf.analysis.diagnosis.detectors.compiler import excess_s, recompiled_late
from trainperf.analysis.doctor.base import Case, Check, answer, missing, only, reason, shown
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, plural, share
from trainperf.core.readings import FIRST_STEP_S, PADDING_FRACTION, RECOMPILES, STEP_S


def _recompiling(case: Case) -> float:
    """Share of the fit that steps with a recompilation took beyond a steady one."""
    late = recompiled_late(case.facts.compilation)
    steps = {graph.step for graph in late if graph.step is not None}
    return case.account.share(excess_s(case.facts, steps), "fit")


def _graphs(case: Case) -> str:
    document = case.facts.compilation
    spent = "" if document.compile_s is None else f" in {duration(document.compile_s)}"
    return f"{plural(document.graphs, 'graph')}{spent}"


GRAPH_CHECKS: tuple[Check, ...] = (
    Check(
        id="compile_split",
        about="""`torch.compile` separates first from steady.

        Fails when compiled code has no steady step yet, on `first_step` and `recompiles`, and where
        one recompilation takes as much of the fit. Unknown without graph counts.

        Wrong where: graphs were compiled before the fit began.
        To confirm: `TORCH_LOGS=recompiles`, and the reading `first_step_s`.
        """,
        causes=("recompiles", "first_step"),
        first=[
            answer(
                "unknown",
                lambda case: reason(case.facts, RECOMPILES),
                action="{loop.everything} counts graphs",
                when=lambda case: (
                    case.facts.documents.compilation is None
                    and missing(RECOMPILES)(case)
                    and case.facts.settings.get("compiled") is not False
                ),
            ),
            answer(
                "not_applicable",
                "nothing was compiled in this fit",
                when=lambda case: (
                    case.facts.documents.compilation is None and not case.facts.value(RECOMPILES)
                ),
            ),
        ],
        looks=[
            answer(
                "fail",
                lambda case: f"recompilation takes {share(_recompiling(case))} of the fit",
                _graphs,
                action="compile for all shapes at once: torch.compile(…, dynamic=True) or "
                "mark_dynamic",
                when=lambda case: _recompiling(case) >= LIMITS.notable,
            ),
            answer(
                "fail",
                _graphs,
                action="run past the compilation: no step is steady yet",
                when=missing(STEP_S),
            ),
            answer(
                "pass",
                _graphs,
                shown(FIRST_STEP_S, "first step {}", duration),
                shown(STEP_S, "steady {}", duration),
            ),
        ],
    ),
    Check(
        id="dynamic_shapes",
        about="""Dynamic shapes do not cause recompiles or padding waste.

        Fails on `recompiles` and `padding`.  Unknown without graph counts or a mask.

        Wrong where: the run is too short to have met all shapes.
        To confirm: the readings `recompiles` and `padding_fraction` of a longer run.
        """,
        causes=("recompiles", "padding"),
        looks=[
            answer(
                "unknown",
                lambda case: reason(case.facts, RECOMPILES),
                action="{loop.everything} counts both",
                when=lambda case: (
                    case.facts.documents.compilation is None
                    and missing(RECOMPILES, PADDING_FRACTION)(case)
                ),
            ),
            answer(
                "pass",
                shown(RECOMPILES, "{} graphs built inside steps", count),
                lambda case: f"{len(case.facts.compilation.recompiled):,} graphs compiled again",
                shown(PADDING_FRACTION, "{} of the tokens is padding", share),
                only("padding was not measured", missing(PADDING_FRACTION)),
            ),
        ],
    ),
)
"""In the order in which they are shown."""

"""Detectors of first steps and the compiler: warm-up, recompiles, graph breaks."""

import math
import re
from collections import Counter
from collections.abc import Collection

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.loader import first_batches_s
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.artifacts.compilation import Compilation, Compiled, GraphBreak
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import (
    duration,
    plural,
    share,
    times,
)
from trainperf.core.readings import (
    FIRST_STEP_S,
    STEP_S,
)


COMPILED_GAIN = 1.43
"""How much faster torch.compile trains on average by torch's own account (A100, 163 models)."""


def recompiled_late(document: Compilation) -> list[Compiled]:
    """What was compiled again after the first step that compiled anything.

    Inside that step modules of one class are compiled after one another, each for the first time.
    """
    first = min((graph.step for graph in document.compiled if graph.step is not None), default=0)
    return [graph for graph in document.recompiled if (graph.step or 0) > first]


def excess_s(document: Compilation, facts: Facts, steps: Collection[int | None]) -> float:
    """By how much these steps were longer than a steady one, together."""
    step_s = facts.value(STEP_S) or 0.0
    return sum(max(0.0, each.wall_s - step_s) for each in document.steps if each.step in steps)


def compiled_once_s(document: Compilation, facts: Facts) -> float:
    """What compiling costs a fit in which nothing is compiled twice."""
    again = {graph.step for graph in recompiled_late(document)}
    between = [graph.seconds or 0.0 for graph in document.compiled if graph.step is None]
    return excess_s(document, facts, {each.step for each in document.steps} - again) + sum(between)


def first_step(account: StepAccount, facts: Facts) -> Cause | None:
    """What comes before the first steady step takes much of the whole fit: compiling, mostly.

    Else it is the wait for the first batch, in which a sampler or a dataset does something once (a
    sort by length, an index, a first download), or autotuning and warm-up.  Removed is the first
    step's time beyond a steady one's.  Of compiling it is what compiled steps have not saved by
    then: by how much they are shorter is not known without an uncompiled run, so the speed-up that
    torch reports on average stands for it.  At most it is all of the compiling, as with a cache.

    Wrong where: the real fit is much longer than the one that was measured: this is paid once.
    To confirm: `first_step_s` against `run.fit_s` of the real run; `trainperf prove` with and
    without compiling, `--to-the-end`.
    """
    first_s, step_s = facts.value(FIRST_STEP_S) or 0.0, facts.value(STEP_S)
    # A running fit will be longer than it is now.
    if not step_s or facts.state == "running":
        return None
    document = facts.documents.compilation
    compiled_s = 0.0 if document is None else compiled_once_s(document, facts)
    lost_s = most_s = first_s - step_s
    # In a fit of seconds the first step always stands out and never matters.
    what, change, matters = "the first step", "pay_once", lost_s >= 10.0
    evidence = [f"first step {duration(first_s)}, later ones {duration(step_s)}"]
    waited_s = min(first_batches_s(account, facts), lost_s)
    if document is not None and compiled_s >= lost_s / 2:
        saves_s = (COMPILED_GAIN - 1) * step_s
        what, change = "compiling", "compile_long_runs"
        lost_s, most_s = compiled_s - saves_s * facts.steps, compiled_s
        matters = lost_s >= 1.0
        pays = plural(math.ceil(compiled_s / saves_s), "step")
        evidence = [
            f"{duration(compiled_s)} to compile, then {duration(step_s)} per step",
            f"at the {times(COMPILED_GAIN)} that torch reports on average it pays off after {pays}",
            f"this fit had {facts.steps:,}",
        ]
    elif waited_s >= lost_s / 2:
        what, change, lost_s = "the first batch", "first_batch_sooner", waited_s
        most_s = waited_s
    if not matters or account.share_of_fit(lost_s) < LIMITS.notable:
        return None
    return Cause(
        id="first_step",
        title=f"{what} takes {share(account.share_of_fit(lost_s))} of the fit"
        + (" beyond what it saves" if change == "compile_long_runs" else ""),
        evidence=tuple(evidence),
        changes=(Use(change=change),),
        claim=Claim(pauses_s={"first_step": lost_s}, at_most_s=most_s),
        confidence="medium",
    )


_SIZE = re.compile(r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)")

_WRAPPED = re.compile(r"\b[LG]\['(\w+)'\]")
"""How torch names a local or a global variable."""


@worth(LIMITS.worth)
def recompiles(account: StepAccount, facts: Facts) -> Cause | None:
    """Guards fail step after step, and each time the step waits for the compiler.

    Removed is what those steps took beyond a steady one.  Where torch has given up on a function
    it may also run slower from then on, by how much is not known: then there is no bound.

    Wrong where: the shapes settle after the steps that were recorded.
    To confirm: `TORCH_LOGS=recompiles`; the reading `recompiles` of a longer run.
    """
    document = facts.documents.compilation
    late = [] if document is None else recompiled_late(document)
    steps = {graph.step for graph in late if graph.step is not None}
    # A shape that is seen to change is compiled once more, for all lengths: that is ordinary.
    if document is None or len(steps) < 2:
        return None
    lost_s = excess_s(document, facts, steps)
    often = Counter((graph.function, graph.where) for graph in late).most_common(1)[0][0]
    worst = [graph for graph in late if (graph.function, graph.where) == often][-1]
    given_up = [graph for graph in late if graph.gave_up]
    # Torch's words without its comments, variables by the names they have in the code.
    reason = _WRAPPED.sub(r"\1", worst.reason or "").split("  #", 1)[0].strip()
    changed = _SIZE.search(reason)
    change, values = "same_guards", {}
    if changed is not None:
        change, values = "dynamic_shapes", {"name": changed["name"], "dim": changed["dim"]}
    elif "grad_mode" in reason or "GLOBAL_STATE" in reason:
        change = "one_grad_mode"
    return Cause(
        id="recompiles",
        title=f"recompilation takes {share(account.share_of_fit(lost_s))} of the fit",
        evidence=(
            (
                f"{plural(len(late), 'recompilation')} in {plural(len(steps), 'step')} after the "
                f"first, {duration(lost_s)} beyond what a steady step takes"
            ),
            f"{worst.function or 'the compiled module'}: {_short(reason)}",
            *(
                f"torch gave up on {graph.function or 'the compiled module'} in step {graph.step}: "
                f"new shapes run uncompiled"
                for graph in given_up[:1]
            ),
        ),
        changes=(Use(change=change, values=values),),
        claim=Claim(pauses_s={"recompiling": lost_s}),
        where=worst.where,
        bounded=not given_up,
    )


def _short(text: str) -> str:
    """No longer than fits a line of a report."""
    return text if len(text) <= 110 else text[:109] + "…"


_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](?P<file>(?P<package>\w+).*)")
"""A line of an installed package, which is not the user's to change."""

_BREAKS = (
    (("print", "logging"), "no_print_in_graph", "ignore_logging"),
    ((".item()", "capture_scalar_outputs", "data-dependent"), "tensor_branch", "compile_parts"),
    (("",), "no_break", "compile_parts"),
)
"""Words of a reason, and what to change in the user's own code and in an installed package's."""


def graph_breaks(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """Something in the code ends a graph: what comes before and after is compiled apart.

    What one graph would gain is known only once there is one: no bound.  Breaks in the user's own
    code come first; of those in an installed package it says what can be done without its line.

    Wrong where: the break is between layers that take long: two graphs are then as fast as one.
    To confirm: `torch.compile(…, fullgraph=True)`; `trainperf prove` with the break removed.
    """
    document = facts.documents.compilation
    if document is None or not document.breaks:
        return None
    breaks = sorted(document.breaks, key=lambda each: bool(_INSTALLED.search(each.where)))
    first, installed = breaks[0], _INSTALLED.search(breaks[0].where)
    matches = [_INSTALLED.search(each.where) for each in breaks]
    packages = dict.fromkeys(match["package"] for match in matches if match)
    reason = first.reason.lower()
    own, of_package = next(
        changes for phrases, *changes in _BREAKS if any(word in reason for word in phrases)
    )
    change = of_package if installed else own
    return Cause(
        id="graph_breaks",
        title=f"compiled code breaks at {plural(len({each.where for each in breaks}), 'place')}"
        + (f", all inside {' and '.join(packages)}" if installed else ""),
        evidence=(
            *(f"{_line(each)}: {_short(each.reason)}" for each in breaks[:3]),
            f"{plural(document.graphs, 'graph')} in total; what a single one would gain is unknown",
        ),
        changes=(
            Use(change=change, values={"package": installed["package"] if installed else ""}),
        ),
        where=first.where,
        confidence="low" if installed else "medium",
        severity="low" if installed else "medium",
    )


def _line(graph_break: GraphBreak) -> str:
    """Of a package without the path that leads to it."""
    match = _INSTALLED.search(graph_break.where)
    return match["file"] if match else graph_break.where or "a line"


def not_compiled(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 a setting
    """Compiling was turned on in the framework's options, and the model runs as it is written.

    The option travels through environment variables and plugins and may be lost on the way.  What
    compiling would gain is not known.

    Wrong where: a part of the model was compiled by hand where trainperf does not look.
    To confirm: `TORCH_LOGS=graph_code` prints graphs where anything is compiled.
    """
    if (
        facts.settings.get("compile_option") is not True
        or facts.settings.get("compiled") is not False
    ):
        return None
    return Cause(
        id="not_compiled",
        title="torch_compile=True was given, and the model is not compiled",
        evidence=("neither the model nor a module in it is a compiled one as training begins",),
        changes=(Use(change="compile_it"),),
        confidence="medium",
        severity="medium",
    )

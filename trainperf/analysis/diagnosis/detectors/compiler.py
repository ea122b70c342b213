"""Detectors of first steps and the compiler: warm-up, recompiles, graph breaks."""

import math
import re
from collections import Counter
from collections.abc import Collection

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.loader import first_batches_s
from trainperf.analysis.diagnosis.detectors.ranks import BUCKET_MB, buckets, usual_buckets
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.artifacts.compilation import Compilation, Compiled, GraphBreak
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import (
    count,
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


def excess_s(facts: Facts, steps: Collection[int | None]) -> float:
    """By how much these steps were longer than a steady one, together."""
    step_s, timed = facts.value(STEP_S) or 0.0, facts.compilation.steps
    return sum(max(0.0, each.wall_s - step_s) for each in timed if each.step in steps)


def compiled_once_s(document: Compilation, facts: Facts) -> float:
    """What compiling costs a fit in which nothing is compiled twice."""
    again = {graph.step for graph in recompiled_late(document)}
    between = [graph.seconds or 0.0 for graph in document.compiled if graph.step is None]
    return excess_s(facts, {each.step for each in document.steps} - again) + sum(between)


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
    if not step_s or facts.run.state == "running":
        return None
    compiled_s = compiled_once_s(facts.compilation, facts)
    beyond_s, saves_s = first_s - step_s, (COMPILED_GAIN - 1) * step_s
    compiles = compiled_s >= beyond_s / 2
    waited_s = min(first_batches_s(account, facts), beyond_s)
    pays = plural(math.ceil(compiled_s / saves_s), "step")
    what, change, lost_s, most_s = first_that_holds(
        (
            ("compiling", "compile_long_runs", compiled_s - saves_s * facts.run.steps, compiled_s),
            compiles,
        ),
        (("the first batch", "first_batch_sooner", waited_s, waited_s), waited_s >= beyond_s / 2),
        (("the first step", "pay_once", beyond_s, beyond_s), True),
    )
    # In a fit of seconds the first step always stands out and never matters.
    matters = lost_s >= 1.0 if compiles else beyond_s >= 10.0
    if not matters or account.share(lost_s, "fit") < LIMITS.notable:
        return None
    return Cause(
        id="first_step",
        title=f"{what} takes {share(account.share(lost_s, 'fit'))} of the fit"
        + (" beyond what it saves" if compiles else ""),
        evidence=(
            f"{duration(compiled_s)} to compile, then {duration(step_s)} per step",
            f"at the {times(COMPILED_GAIN)} that torch reports on average it pays off after {pays}",
            f"this fit had {facts.run.steps:,}",
        )
        if compiles
        else (f"first step {duration(first_s)}, later ones {duration(step_s)}",),
        changes=(Use(change=change),),
        claim=Claim(pauses_s={"first_step": lost_s}, at_most_s=most_s),
        confidence="medium",
    )


_SIZE = re.compile(
    r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)"
    r"\. expected (?P<was>\S+), actual (?P<now>\S+)"
)
_FAILED = (
    (_SIZE, "dimension {dim} of {name} was {was}, then {now}"),
    (
        re.compile(r"\A(?P<name>[^=<>!]+) == (?P<was>[^=]+)\Z"),
        "{name} was {was} when it was compiled, and has changed",
    ),
)
"""A guard in torch's words and in ours: what was compiled for, and what came."""

_LINE = re.compile(r"# (\S*[/\\])?(?P<file>[^\s/\\]+):(?P<line>\d+) in ")
"""Where torch says which line of the user's a guard is for."""

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
    late = recompiled_late(facts.compilation)
    steps = {graph.step for graph in late if graph.step is not None}
    # A shape that is seen to change is compiled once more, for all lengths: that is ordinary.
    if len(steps) < 2:
        return None
    lost_s = excess_s(facts, steps)
    often = Counter((graph.function, graph.where) for graph in late).most_common(1)[0][0]
    worst = [graph for graph in late if (graph.function, graph.where) == often][-1]
    given_up = [graph for graph in late if graph.gave_up]
    reason, where = _guard(worst)
    changed = _SIZE.search(reason)
    change = first_that_holds(
        ("dynamic_shapes", changed),
        ("one_grad_mode", "grad_mode" in reason or "GLOBAL_STATE" in reason),
        ("same_guards", True),
    )
    return Cause(
        id="recompiles",
        title=f"recompilation takes {share(account.share(lost_s, 'fit'))} of the fit",
        evidence=(
            (
                f"{plural(len(late), 'recompilation')} in {plural(len(steps), 'step')} after the "
                f"first, {duration(lost_s)} beyond what a steady step takes"
            ),
            f"{worst.function or 'the compiled module'}: {_short(_in_words(reason))}",
            *(
                f"torch gave up on {graph.function or 'the compiled module'} in step {graph.step}: "
                f"what is new to it runs uncompiled from there on"
                for graph in given_up[:1]
            ),
        ),
        changes=(Use(change=change, values=changed.groupdict() if changed else {}),),
        claim=Claim(pauses_s={"recompiling": lost_s}),
        where=where,
        bounded=not given_up,
    )


def _guard(graph: Compiled) -> tuple[str, str]:
    """What a guard checked, variables by the names they have in the code, and the line it is for.

    Torch's words end with that line, and with the end of its file's path.
    """
    reason, _, comment = _WRAPPED.sub(r"\1", graph.reason or "").partition("  #")
    line, file = _LINE.search(comment), graph.where.rpartition(":")[0]
    same = line is not None and file.endswith(line["file"])
    return reason.strip(), f"{file}:{line['line']}" if line and same else graph.where


def _in_words(reason: str) -> str:
    """What was compiled for, and what came, where torch says it in one of these ways."""
    matches = ((pattern.search(reason), words) for pattern, words in _FAILED)
    return next((words.format(**match.groupdict()) for match, words in matches if match), reason)


def _short(text: str) -> str:
    """No longer than fits a line of a report."""
    return text if len(text) <= 110 else text[:109] + "…"


_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](?P<file>(?P<package>\w+).*)")
"""A line of an installed package, which is not the user's to change."""

_OF_DDP = re.compile(r"DDPOptimizer|_inside_ddp_forward|torch[/\\]nn[/\\]parallel[/\\]")
"""Breaks of torch's own at the borders of DDP and of its buckets."""

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
    Those that torch makes on purpose around DDP are none.

    Wrong where: the break is between layers that take long: two graphs are then as fast as one.
    To confirm: `torch.compile(…, fullgraph=True)`; `trainperf prove` with the break removed.
    """
    breaks = sorted(
        (
            each
            for each in facts.compilation.breaks
            if not _OF_DDP.search(f"{each.where} {each.reason}")
        ),
        key=lambda each: bool(_INSTALLED.search(each.where)),
    )
    if not breaks:
        return None
    first, installed = breaks[0], _INSTALLED.search(breaks[0].where)
    packages = dict.fromkeys(
        match["package"] for each in breaks if (match := _INSTALLED.search(each.where))
    )
    own, of_package = next(
        changes
        for phrases, *changes in _BREAKS
        if any(word in first.reason.lower() for word in phrases)
    )
    return Cause(
        id="graph_breaks",
        title=f"compiled code breaks at {plural(len({each.where for each in breaks}), 'place')}"
        + (f", all inside {' and '.join(packages)}" if installed else ""),
        evidence=(
            *(f"{_line(each)}: {_short(each.reason)}" for each in breaks[:3]),
            (
                f"{plural(facts.compilation.graphs, 'graph')} in total; what a single one would "
                "gain is unknown"
            ),
        ),
        changes=(
            Use(change=of_package, values={"package": installed["package"]})
            if installed
            else Use(change=own),
        ),
        where=first.where,
        confidence="low" if installed else "medium",
        severity="low" if installed else "medium",
    )


def _line(graph_break: GraphBreak) -> str:
    """Of a package without the path that leads to it."""
    match = _INSTALLED.search(graph_break.where)
    return match["file"] if match else graph_break.where or "a line"


_UNRECORDED = (
    ("cpu device", "one_device"),
    ("multiple devices", "one_device"),
    ("mutated inputs", "no_mutation"),
    ("symbolic", "fixed_shapes"),
    ("dynamic", "fixed_shapes"),
)
"""Words of a reason for which torch records no CUDA graph, and what to change."""


def cuda_graphs(account: StepAccount, facts: Facts) -> Cause | None:
    """CUDA graphs were asked for, and torch left some out, or records one for each of many shapes.

    A graph that is left out is launched kernel by kernel; one that is recorded takes longer than
    that and keeps its memory.  How much depends on how far the host is behind: no bound.  Written
    by torch's sources, never run.

    Wrong where: what is left out is a small part of the step.
    To confirm: `TORCH_LOGS=cudagraphs`; `trainperf prove` with another mode of torch.compile.
    """
    document = facts.compilation
    # Forward and backward of a graph are recorded apart; of more than 8 each torch itself warns.
    many = document.recorded > 8 * 2 * max(1, document.graphs)
    if account.device is None or not (many or document.unrecorded):
        return None
    reasons = dict.fromkeys(filter(None, (each.unrecorded for each in document.compiled)))
    kinds = (change for text in reasons for words, change in _UNRECORDED if words in text)
    return Cause(
        id="cuda_graphs",
        title=f"{document.recorded} CUDA graphs were recorded, one for each shape"
        if many
        else f"torch.compile records no CUDA graph of {plural(document.unrecorded, 'graph')}, "
        "though it was asked to",
        evidence=tuple(map(_short, reasons)) or ("torch told no reason",),
        changes=(Use(change="fixed_shapes" if many else next(kinds, "another_mode")),),
        confidence="medium",
        severity="medium",
    )


def ddp_pieces(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """DDP cuts compiled code at its buckets, into many more pieces than buckets of a usual size.

    Each piece is compiled, guarded and launched by itself.  What fewer would gain is not known.

    Wrong where: the buckets are as small as they are to begin reducing early.
    To confirm: `trainperf prove` with larger buckets, or `torch._dynamo.config.optimize_ddp=False`.
    """
    document = facts.compilation
    cuts = sum(each.times for each in document.breaks if "DDPOptimizer" in each.reason)
    pieces = cuts / max(1, document.graphs)
    if pieces <= usual_buckets(facts):
        return None
    return Cause(
        id="ddp_pieces",
        title=f"DDP cuts a compiled graph into {count(pieces)} pieces, at its buckets",
        evidence=buckets(facts),
        changes=(Use(change="larger_buckets", values={"megabytes": BUCKET_MB}),),
        confidence="medium",
        severity="medium",
    )


def not_compiled(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 a setting
    """Compiling was asked for, and the model runs as it is written.

    The framework's option travels through environment variables and plugins and may be lost on the
    way; or the model was given to torch.compile, and what came back is not what is called.  What
    compiling would gain is not known.

    Wrong where: a part of the model was compiled by hand where trainperf does not look.
    To confirm: `TORCH_LOGS=graph_code` prints graphs where anything is compiled.
    """
    settings = facts.settings
    switches = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
    off = next((name for name in switches if settings.get(name) == "1"), "")
    compiled = settings.get("compiled")
    unused = compiled is True and settings.get("ran_compiled") is False and facts.run.steps
    lost = compiled is False and settings.get("compile_option") is True
    if not unused and not lost:
        return None
    change, title, evidence = (
        (
            "call_compiled",
            "the model was given to torch.compile, and nothing was compiled",
            "torch built no graph in this process",
        )
        if unused
        else (
            "compile_it",
            "torch_compile=True was given, and the model is not compiled",
            "neither the model nor a module in it is a compiled one as training begins",
        )
    )
    return Cause(
        id="not_compiled",
        title=title,
        evidence=(f"{off}=1 in the environment" if off else evidence,),
        changes=(Use(change="no_switch" if off else change, values={"name": off}),),
        confidence="medium",
        severity="medium",
    )

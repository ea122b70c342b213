"""Assertion that `torch.compile` builds no new graph after the warm-up."""

import textwrap
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch._dynamo.utils as dynamo

from trainperf.core.errors import ConfigError, SmokeFailure
from trainperf.recording.probes.compilation import graphs_built
from trainperf.recording.probes.dynamo_log import first_line, recompile_reason


Batch = TypeVar("Batch")

_SHOWN = 5


def assert_no_recompile(
    step: Callable[[Batch], object], batches: Iterable[Batch], *, warmup: int = 1
) -> None:
    """Fail if *step* makes torch.compile build a graph on a batch after the first *warmup* ones.

    Counts through torch's own statistics.  Also fails if torch.compile has built nothing in this
    process.
    """
    __tracebackhide__ = True
    built, earlier = [graphs_built()], dynamo.get_compilation_metrics()
    for at, batch in enumerate(batches):
        earlier = dynamo.get_compilation_metrics() if at == warmup else earlier
        step(batch)
        built.append(graphs_built())
    done = len(built) - 1
    later = [at for at in range(warmup, done) if built[at + 1] > built[at]]
    if done <= warmup:
        raise ConfigError(f"warmup={warmup}: there are only {done} batches; pass more of them")
    if not graphs_built():
        raise SmokeFailure(
            "torch.compile has built no graph in this process, so there is nothing to recompile.",
            "compile the model or the step first, and call what torch.compile(model) returns; "
            "TORCH_COMPILE_DISABLE or torch.compiler.disable switch it off.",
        )
    if later:
        # torch keeps the latest few only, so the new ones are told apart by identity.
        old = set(map(id, earlier))
        reasons = [
            _reason(metric) for metric in dynamo.get_compilation_metrics() if id(metric) not in old
        ]
        raise SmokeFailure(*_explained(later, done, reasons))


def _explained(later: list[int], done: int, reasons: list[str]) -> tuple[str, str]:
    where = ", ".join(map(str, later[:_SHOWN])) + (", …" if len(later) > _SHOWN else "")
    lines = [f"  {textwrap.shorten(reason, 200)}" for reason in reasons[:_SHOWN]]
    saw = (
        f"torch.compile built new graphs on {len(later)} of {done} batches, "
        f"after the warm-up (batch {where}, counted from 0)."
    )
    do = (
        "give all batches one shape (pad, drop_last=True), mark the dimension that varies "
        "(torch._dynamo.mark_dynamic, or torch.compile(dynamic=True)), and keep Python numbers "
        "that change out of the compiled function; one recompilation that makes a dimension "
        "dynamic is normal: exclude it with warmup=2."
    )
    return "\n".join([saw, *lines]), do


def _reason(metric: dynamo.CompilationMetrics) -> str:
    reason = recompile_reason(metric) or "no reason recorded"
    place = f"{metric.co_filename}:{metric.co_firstlineno}"
    return f"{metric.co_name} ({place}): {first_line(reason)}"

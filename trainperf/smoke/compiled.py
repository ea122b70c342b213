"""Does `torch.compile` build new graphs after the warm-up?"""

import textwrap
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
import torch._dynamo.utils as dynamo

from trainperf.core.errors import ConfigError
from trainperf.smoke.failure import SmokeFailure


Batch = TypeVar("Batch")

_SHOWN = 5


def assert_no_recompile(
    step: Callable[[Batch], object], batches: Iterable[Batch], *, warmup: int = 1
) -> None:
    """Fail if *step* makes torch.compile build a graph on a batch after the first *warmup* ones.

    Counts by torch's own statistics, which are not a public interface: where they are missing, a
    `ConfigError` says so.  It fails too if torch.compile has built nothing in this process.
    """
    __tracebackhide__ = True
    later: list[int] = []
    done = 0
    known = _metrics()
    for at, batch in enumerate(batches):
        before = _graphs()
        if at == warmup:
            known = _metrics()
        step(batch)
        done += 1
        if at >= warmup and _graphs() > before:
            later.append(at)
    if done <= warmup:
        raise ConfigError(f"warmup={warmup}: there are only {done} batches; give more of them")
    if not _graphs():
        raise SmokeFailure(
            "torch.compile has built no graph in this process, so nothing can be recompiled.",
            "compile the model or the step first; with torch.compile(model) call what it returns; "
            "TORCH_COMPILE_DISABLE or torch.compiler.disable switch it off.",
        )
    if later:
        # torch keeps the latest few only, so the new ones are told apart by identity.
        old = set(map(id, known))
        reasons = [_reason(metric) for metric in _metrics() if id(metric) not in old]
        raise SmokeFailure(*_explained(later, done, reasons))


def _explained(later: list[int], done: int, reasons: list[str]) -> tuple[str, str]:
    where = ", ".join(map(str, later[:_SHOWN])) + (", …" if len(later) > _SHOWN else "")
    said = [f"  {textwrap.shorten(reason, 200)}" for reason in reasons[:_SHOWN]]
    saw = (
        f"torch.compile built new graphs on {len(later)} of {done} batches, "
        f"after the warm-up (batch {where}, counted from 0)."
    )
    do = (
        "give all batches one shape (pad, drop_last=True), mark the dimension that varies "
        "(torch._dynamo.mark_dynamic, or torch.compile(dynamic=True)), and keep Python numbers "
        "that change out of the compiled function; one recompilation that makes a dimension "
        "dynamic is normal: warmup=2 leaves it out."
    )
    return "\n".join([saw, *said]), do


def _graphs() -> int:
    """Graphs built so far in this process."""
    counters = getattr(dynamo, "counters", None)
    if counters is None:
        raise ConfigError(
            f"torch {torch.__version__}: torch._dynamo.utils.counters is gone, so recompilations "
            "cannot be counted; leave this assertion out with this version"
        )
    graphs: int = counters["stats"].get("unique_graphs", 0)
    return graphs


def _metrics() -> list[object]:
    """What torch remembers of each graph it built, oldest first; empty where it does not tell."""
    known = getattr(dynamo, "get_compilation_metrics", None)
    return list(known()) if known is not None else []


def _reason(metric: object) -> str:
    name = getattr(metric, "co_name", None)
    file = getattr(metric, "co_filename", None)
    line = getattr(metric, "co_firstlineno", None)
    reason = getattr(metric, "recompile_reason", None) or "no reason recorded"
    return f"{name} ({file}:{line}): {str(reason).splitlines()[0]}"

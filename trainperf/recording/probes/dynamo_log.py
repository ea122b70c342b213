"""Records that torch keeps of its compilations, as far as this version has them.

None of it is a public interface: whatever a version lacks is *not known*, with the reason.  Nothing
here imports the compiler; where nobody has loaded it nothing was compiled.
"""

import re
import sys
from itertools import chain
from types import ModuleType

from trainperf.audit.stack_frames import shown_path
from trainperf.core.artifacts.compilation import Compiled


UTILITIES = "torch._dynamo.utils"
"""Loaded with the compiler; not a public interface."""

_NUMBER = re.compile(r"^\[?(\d+)/(\d+)\]?:?\s*")
"""How torch numbers a function and its compilations, e.g. `1/6: `."""
_EXPLANATION = re.compile(r"^\s*Explanation:\s*(.+)$", re.MULTILINE)

_WRAPPERS = "external_utils.py"
"""Where torch wraps a module whose forward is torch's own: the name there says nothing."""

_REFUSED = ("recompile limit", "recompile_limit", "cache_size_limit", "cache limit")


def compiled(entry: object, step: int | None) -> Compiled:
    """What torch keeps of a compilation.  Of a backward it names no function."""
    kept = vars(entry)
    name, file = kept.get("co_name") or "", kept.get("co_filename") or _WRAPPERS
    own = name and not file.endswith(_WRAPPERS)
    micros = kept.get("duration_us")
    reason = recompile_reason(entry)
    refused = (kept.get("fail_reason") or "").lower()
    return Compiled(
        function=name if own else "",
        where=f"{shown_path(file)}:{kept.get('co_firstlineno') or 1}" if own else "",
        step=step,
        seconds=kept.get("entire_frame_compile_time_s") if micros is None else micros / 1e6,
        reason=_NUMBER.sub("", first_line(reason)) if reason else None,
        backward=kept.get("is_forward") is False,
        gave_up=any(word in refused for word in _REFUSED),
        unrecorded=first_line(kept.get("cudagraph_skip_reason") or "") or None,
    )


def recompile_reason(entry: object) -> str | None:
    """The guard that failed, in torch's words; `None` the first time a function is compiled."""
    kept = vars(entry)
    if "recompile_reason" in kept:
        return kept["recompile_reason"] or None
    # Torch 2.6 keeps the guards that failed elsewhere, under the compilation that they belonged to.
    again = _NUMBER.match(str(kept.get("compile_id")))
    if again is None or again[2] == "0":
        return None
    last = f"{again[1]}/{int(again[2]) - 1}: "
    reasons = chain.from_iterable(getattr(utilities(), "guard_failures", {}).values())
    return next((reason for reason in reasons if reason.startswith(last)), "no reason recorded")


def utilities() -> ModuleType | None:
    """That module, if the compiler was ever loaded."""
    return sys.modules.get(UTILITIES)


def graphs_recorded() -> int:
    """CUDA graphs that compiled code has recorded on this thread's devices; written, never run."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    containers = getattr(getattr(trees, "local", None), "tree_manager_containers", {})
    # An iterator that counts shows its next number.
    return sum(
        int(repr(each.tree_manager.graph_counter)[len("count(") : -1])
        for each in containers.values()
        if each.tree_manager
    )


def first_line(text: str) -> str:
    """Torch explains at length; what it is stands in the first line."""
    return text.strip().split("\n", 1)[0].strip()


def compilations() -> list[object]:
    """The latest ones, as torch keeps them."""
    return list(getattr(utilities(), "get_compilation_metrics", list)())


def graph_breaks() -> list[object]:
    """All since `torch._dynamo.reset()`, which forgets them."""
    return getattr(utilities(), "graph_break_reasons", [])


def compiling_s(before_s: float = 0.0) -> float | None:
    """Time that torch has spent compiling since it was *before_s*; `None` where it does not count.

    `torch._dynamo.reset()` may have it begin anew.
    """
    ask = getattr(utilities(), "calculate_time_spent", None)
    spent_s: float | None = ask and ask().get("total_wall_time")
    return spent_s and (spent_s - before_s if spent_s >= before_s else spent_s)


def graph_break(entry: object) -> tuple[str, str]:
    """Why a graph ended, in a sentence or in the first line where torch explains nothing; where."""
    kept = vars(entry)
    reason, frames = kept.get("reason") or "", kept.get("user_stack")
    explanation = _EXPLANATION.search(reason)
    where = f"{shown_path(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return explanation[1].strip() if explanation else first_line(reason), where

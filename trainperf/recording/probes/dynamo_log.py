"""Records that torch keeps of its compilations, as far as this version has them.

None of it is a public interface: whatever a version lacks is *not known*, with the reason.  Nothing
here imports the compiler; where nobody has loaded it nothing was compiled.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType

from trainperf.audit.stack_frames import shown_path
from trainperf.core.artifacts.compilation import Compiled, GraphBreak


UTILITIES = "torch._dynamo.utils"
"""Loaded with the compiler; not a public interface."""

NO_RECORDS = "this version of torch keeps no records of its compilations"

_FRAME = re.compile(r"^\[?(\d+)/\d+\]?:?\s*")
"""How torch numbers a function and its compilations, e.g. `1/6: `."""
_COMPILATION = re.compile(r"^\[?(\d+)/(\d+)")
_EXPLANATION = re.compile(r"^\s*Explanation:\s*(.+)$", re.MULTILINE)

_WRAPPERS = "external_utils.py"
"""Where torch wraps a module whose forward is torch's own: the name there says nothing."""

_REFUSED = ("recompile limit", "recompile_limit", "cache_size_limit", "cache limit")


class DynamoRecords:
    """What torch recorded since this was made.  Each call tells what is new since the last."""

    def __init__(self) -> None:
        self._last: object = next(reversed(_metrics() or ()), None)
        self._breaks = len(_list("graph_break_reasons") or ())
        self._spent_s = _spent_s() or 0.0
        self._names: dict[str, tuple[str, str]] = {}

    def compiled(self, step: int | None) -> list[Compiled]:
        """The compilations since the last call, which all belong to one step or to a gap."""
        entries = _metrics() or []
        old = [place for place, entry in enumerate(entries) if entry is self._last]
        new = entries[old[-1] + 1 :] if old else entries
        self._last = entries[-1] if entries else None
        return [self._compiled(entry, step) for entry in new]

    def breaks(self) -> Counter[tuple[str, str]]:
        """Reason and place of each graph break since the last call."""
        reasons = _list("graph_break_reasons") or ()
        if len(reasons) < self._breaks:  # `torch._dynamo.reset()` forgets them
            self._breaks = 0
        new, self._breaks = reasons[self._breaks :], len(reasons)
        return Counter((explained(_text(entry, "reason")), _place(entry)) for entry in new)

    def compile_s(self) -> float | None:
        """Time spent compiling since this was made; `None` where torch does not count it."""
        spent_s = _spent_s()
        if spent_s is None:
            return None
        return spent_s - self._spent_s if spent_s >= self._spent_s else spent_s

    def reasons(self) -> dict[str, str]:
        """What is not known in this version."""
        if utilities() is None:
            return {}
        missing = {
            "compiled": _metrics() is None,
            "breaks": _list("graph_break_reasons") is None,
            "compile_s": _spent_s() is None,
        }
        return {name: NO_RECORDS for name, lacks in missing.items() if lacks}

    def _compiled(self, entry: object, step: int | None) -> Compiled:
        number = _frame(_text(entry, "compile_id"))
        name, file = _text(entry, "co_name"), _text(entry, "co_filename")
        if name:
            own = file and not file.endswith(_WRAPPERS)
            line = _number(entry, "co_firstlineno") or 1
            self._names[number] = (name, f"{shown_path(file)}:{line:.0f}") if own else ("", "")
        function, where = self._names.get(number, ("", ""))
        reason = recompile_reason(entry)
        refused = _text(entry, "fail_reason").lower()
        return Compiled(
            function=function,
            where=where,
            step=step,
            seconds=_seconds(entry),
            reason=_FRAME.sub("", first_line(reason)) if reason else None,
            backward=getattr(entry, "is_forward", True) is False,
            gave_up=any(word in refused for word in _REFUSED),
        )


def recompile_reason(entry: object) -> str | None:
    """The guard that failed, in torch's words; `None` the first time a function is compiled."""
    if hasattr(entry, "recompile_reason"):
        return _text(entry, "recompile_reason") or None
    # Torch 2.6 keeps the guards that failed elsewhere, under the compilation that they belonged to.
    again = _COMPILATION.match(_text(entry, "compile_id"))
    if again is None or again[2] == "0":
        return None
    last = f"{again[1]}/{int(again[2]) - 1}: "
    guards = getattr(utilities(), "guard_failures", {}).values()
    reasons = (reason for of_function in guards for reason in of_function)
    return next((reason for reason in reasons if reason.startswith(last)), "no reason recorded")


def by_times(breaks: Counter[tuple[str, str]]) -> tuple[GraphBreak, ...]:
    """The places at which graphs ended, those of most graphs first."""
    return tuple(
        GraphBreak(reason=reason, where=where, times=times)
        for (reason, where), times in breaks.most_common()
    )


def utilities() -> ModuleType | None:
    """That module, if the compiler was ever loaded."""
    return sys.modules.get(UTILITIES)


def explained(reason: str) -> str:
    """The sentence that says why a graph ended; the first line where torch explains nothing."""
    match = _EXPLANATION.search(reason)
    return match[1].strip() if match else first_line(reason)


def first_line(text: str) -> str:
    """Torch explains at length; what it is stands in the first line."""
    return text.strip().split("\n", 1)[0].strip()


def _metrics() -> Sequence[object] | None:
    ask = getattr(utilities(), "get_compilation_metrics", None)
    return list(ask()) if callable(ask) else None


def _list(name: str) -> Sequence[object] | None:
    entries = getattr(utilities(), name, None)
    return entries if isinstance(entries, list) else None


def _spent_s() -> float | None:
    ask: Callable[[], dict[str, float]] | None = getattr(utilities(), "calculate_time_spent", None)
    return ask().get("total_wall_time") if callable(ask) else None


def _seconds(entry: object) -> float | None:
    micros = _number(entry, "duration_us")
    return micros / 1e6 if micros is not None else _number(entry, "entire_frame_compile_time_s")


def _place(reason: object) -> str:
    frames = getattr(reason, "user_stack", None) or ()
    return f"{shown_path(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def _frame(compile_id: str) -> str:
    match = _FRAME.match(compile_id)
    return match[1] if match else compile_id


def _text(entry: object, name: str) -> str:
    value = getattr(entry, name, None)
    return value if isinstance(value, str) else ""


def _number(entry: object, name: str) -> float | None:
    value = getattr(entry, name, None)
    return value if isinstance(value, (int, float)) else None

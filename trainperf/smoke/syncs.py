"""Assertion that a step never waits for the device, with the lines that make it wait.

Observed as torch dispatches operations, on any device: on a CPU nothing waits, but the same line
would on an accelerator.  A CPU run cannot tell which tensors would stay on the host there.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trainperf.accelerators import default_accelerator
from trainperf.audit.nested import tensors_in
from trainperf.audit.stack_frames import place
from trainperf.core.errors import SmokeFailure
from trainperf.core.formatting.units import plural


_CALLS = {
    "item": ".item()",
    "__bool__": "bool(tensor), as in `if tensor:`",
    "__float__": "float(tensor)",
    "__int__": "int(tensor)",
    "__index__": "a tensor as an index or a count",
    "__contains__": "`in tensor`",
    "__format__": "a tensor in an f-string",
    "__repr__": "a tensor printed",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
    "__array__": "a tensor made a NumPy array",
    "cpu": ".cpu()",
}
"""Methods of a tensor that end on the host, by their Python name.

Not `to`: on a CPU `.to(device)` is how a healthy step moves its batch.
"""

_OPERATORS = {
    "aten::_local_scalar_dense": "a value read from a tensor",
    "aten::nonzero": "nonzero(), or where() with one argument: the size depends on the values",
    "aten::masked_select": "masked_select(): the size depends on the values",
    "aten::_unique2": "unique(): the size depends on the values",
    "aten::unique_dim": "unique(): the size depends on the values",
    "aten::unique_consecutive": "unique_consecutive(): the size depends on the values",
    "aten::bincount": "bincount(): the size depends on the values",
    "aten::equal": "torch.equal()",
    "aten::allclose": "torch.allclose()",
    "aten::repeat_interleave": "repeat_interleave() without output_size",
    "aten::index": "indexing with a boolean mask: the size depends on the values",
}
"""Operators whose result the host needs before it can go on."""

_MASKS = (torch.bool, torch.uint8)

SCALER = "GradScaler.step() reads whether the gradients overflowed"

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_OURS = f"{Path(__file__).parent}{os.sep}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CodeLocation:
    """A line of the user's (of the innermost frame outside torch), and the function it is in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{place(self.file, self.line)} in {self.function}" if self.line else self.file


NOWHERE = CodeLocation(file="backward (no Python frame)", line=0, function="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """An operation that waits for the device."""

    what: str
    place: CodeLocation
    on_host: bool
    """Whether its tensors are in host memory; then it waits on an accelerator only."""


class Watch:
    """Records waits; enter `modes` around the step."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = allowed
        self._depth = 0
        self._waits: Counter[Wait] = Counter()
        self._on_device = False
        self.modes = (_Dispatched(self), _Called(self))

    def waits(self) -> list[tuple[Wait, int]]:
        """The waits and their counts, in the order of their first occurrence.

        If the step used a device, only those of tensors on it.
        """
        return [
            (wait, n) for wait, n in self._waits.items() if not (self._on_device and wait.on_host)
        ]

    def note(self, what: str, place: CodeLocation, *, on_host: bool) -> None:
        """Remember one wait, unless it is in a function that may."""
        if place.function not in self._allowed:
            self._waits[Wait(what=what, place=place, on_host=on_host)] += 1

    def called(self, name: str, arguments: Sequence[object], run: Callable[[], object]) -> object:
        """A Python call of a tensor method; what it dispatches is its own affair."""
        if self._depth or name not in _CALLS:
            return run()
        self._look(_CALLS[name], arguments)
        self._depth += 1
        try:
            return run()
        finally:
            self._depth -= 1

    def dispatched(self, name: str, arguments: Sequence[object]) -> None:
        """An operator that is about to run."""
        self._on_device |= _any_on_device(arguments)
        if not self._depth and name in _OPERATORS and _waits(name, arguments):
            self._look(_OPERATORS[name], arguments)

    def _look(self, what: str, arguments: Sequence[object]) -> None:
        frame = sys._getframe()  # noqa: SLF001 the one way to the caller's line
        on_host = not _any_on_device(arguments)
        self._on_device |= not on_host
        if on_host and _within(frame, "_get_value"):
            return  # an optimizer's step counter is in host memory on every device
        if _within(frame, "_maybe_opt_step"):
            what = SCALER
        self.note(what, location_of(frame), on_host=on_host)


def location_of(frame: FrameType | None) -> CodeLocation:
    """The innermost frame that is neither torch's nor ours."""
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((_TORCH, _OURS, "<frozen")):
            return CodeLocation(file=code.co_filename, line=frame.f_lineno, function=code.co_name)
        frame = frame.f_back
    return NOWHERE


class _Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Sees operators, also those called from C++."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._watch = watch

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Look at the operator, then run it."""
        named = kwargs or {}
        operator = func._schema.name  # noqa: SLF001 it is nowhere else
        self._watch.dispatched(operator, (*args, *named.values()))
        return func(*args, **named)


class _Called(TorchFunctionMode):
    """Sees calls of tensor methods, also those that dispatch nothing on a CPU."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Look at the call, then run it."""
        named = kwargs or {}
        name = getattr(func, "__name__", "")
        return self._watch.called(name, (*args, *named.values()), lambda: func(*args, **named))


def _any_on_device(arguments: Sequence[object]) -> bool:
    return any(tensor.device.type != "cpu" for tensor in tensors_in(arguments))


def _waits(name: str, arguments: Sequence[object]) -> bool:
    """Of operators with several forms, whether this one has a size that depends on values."""
    if name == "aten::index":
        return any(index.dtype in _MASKS for index in tensors_in(arguments[1:]))
    return name != "aten::repeat_interleave" or not any(isinstance(each, int) for each in arguments)


def _within(frame: FrameType | None, function: str) -> bool:
    """Whether *function* is among torch's own frames, between the user's line and here."""
    while frame is not None and frame.f_code.co_filename.startswith((_TORCH, _OURS)):
        if frame.f_code.co_name == function:
            return True
        frame = frame.f_back
    return False


_SHOWN = 10


def assert_no_sync(
    step: Callable[..., object], *args: object, warmup: int = 1, allowed: Collection[str] = ()
) -> None:
    """Fail if *step*, called with *args* *warmup* calls, makes the host wait for the device.

    On CUDA the step runs with torch's sync debug mode set to `error`, which is put back; the first
    wait ends it.  Everywhere, reads of tensors are seen as torch dispatches them: on a CPU they
    cost nothing, but would wait on an accelerator.  A function named in *allowed* may read; on
    CUDA the look ends there.  Not seen: `torch.cuda.synchronize()`,
    and on a CPU what compiled code does.
    """
    __tracebackhide__ = True
    for _ in range(warmup):
        step(*args)
    with no_sync(allowed=allowed):
        step(*args)


@contextmanager
def no_sync(*, allowed: Collection[str] = ()) -> Iterator[None]:
    """The same for a block of code; what is inside is not repeated, so warm up before."""
    __tracebackhide__ = True
    watch = Watch(allowed)
    with ExitStack() as around:
        around.enter_context(_forbidden(watch))
        for mode in watch.modes:
            around.enter_context(mode)
        yield
    waits = watch.waits()
    if waits:
        raise SmokeFailure(_evidence(waits), _advice(waits[0][0].what))


@contextmanager
def _forbidden(watch: Watch) -> Iterator[None]:
    """On CUDA, make torch raise where it would wait; turn its error into what the watch knows."""
    accelerator = default_accelerator()
    with accelerator.raises_at_waits():
        try:
            yield
        except RuntimeError as error:
            if not accelerator.raised_at_wait(error):
                raise
            if not watch.waits():
                place = _raised_at(error.__traceback__)
                what = f"an operation that synchronises {accelerator.type.upper()}"
                watch.note(what, place, on_host=False)


def _raised_at(trace: TracebackType | None) -> CodeLocation:
    """The user's innermost line of a traceback."""
    last = NOWHERE
    for frame, line in walk_tb(trace):
        code = frame.f_code
        if location_of(frame).file == code.co_filename:
            last = CodeLocation(file=code.co_filename, line=line, function=code.co_name)
    return last


def _evidence(waits: list[tuple[Wait, int]]) -> str:
    lines = [
        f"  {wait.place}: {wait.what}" + (f" ({n} ×)" if n > 1 else "")
        for wait, n in waits[:_SHOWN]
    ]
    if len(waits) > _SHOWN:
        lines.append(f"  … and {len(waits) - _SHOWN} more places")
    total = sum(n for _, n in waits)
    where = "waits for the device" if not waits[0][0].on_host else "would wait for an accelerator"
    return f"the step {where} {plural(total, 'time')}:\n" + "\n".join(lines)


def _advice(what: str) -> str:
    return next((advice for words, advice in _ADVICE.items() if words in what), _ON_DEVICE)


_KEEP_SIZE = "keep the size fixed: torch.where or a multiplication by the mask, or output_size=."
_ON_DEVICE = (
    "keep the value on the device (loss.detach()), add it up there, and read it every 50 or 100 "
    "steps, outside the step; copies to the host: non_blocking=True into pinned memory."
)
_ADVICE = {
    SCALER: "give the scaler a fused optimizer (AdamW(fused=True)), which decides on the device, "
    "or train in bfloat16 without a scaler.",
    "if tensor": "decide on the device with torch.where, or decide on the host from host values.",
    "size depends": _KEEP_SIZE,
    "output_size": _KEEP_SIZE,
    "index or a count": "keep sizes and indices of Python as Python numbers, made by the collate "
    "function.",
}
"""By what is in the name of the first wait."""

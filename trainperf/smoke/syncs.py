"""Assertion that a step never waits for the device, with the lines that make it wait.

Observed as torch dispatches operations, on any device: on a CPU nothing waits, but the same line
would on an accelerator.  A CPU run cannot tell which tensors would stay on the host there.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import NamedTuple

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

_FOREIGN = (f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).parent}{os.sep}", "<frozen")
"""Torch's files and ours: a line of the user's is in none of them."""


class Wait(NamedTuple):
    """An operation that waits for the device."""

    what: str
    where: str
    """A line of the user's, and the function it is in."""
    on_host: bool
    """Whether its tensors are in host memory; then it waits on an accelerator only."""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Records waits of operators, also those called from C++; and what `_Called` sees."""

    def __init__(self, allowed: Collection[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._allowed = allowed
        self._waits: Counter[Wait] = Counter()
        self._on_device = False
        self.calling = False
        """Whether a method runs that was looked at: what it dispatches is its own affair."""

    def waits(self) -> list[tuple[Wait, int]]:
        """The waits and their counts, in the order of their first occurrence.

        If the step used a device, only those of tensors on it.
        """
        counted = self._waits.items()
        return [(wait, n) for wait, n in counted if not (self._on_device and wait.on_host)]

    def note(self, what: str, lines: Iterable[tuple[FrameType, int]], *, on_host: bool) -> None:
        """Remember one wait at the first of *lines* that is the user's, unless that one may."""
        users = ((f, n) for f, n in lines if not f.f_code.co_filename.startswith(_FOREIGN))
        frame, line = next(users, (None, 0))
        if frame is None:
            self._waits[Wait(what, "backward (no Python frame)", on_host)] += 1
        elif frame.f_code.co_name not in self._allowed:
            where = f"{place(frame.f_code.co_filename, line)} in {frame.f_code.co_name}"
            self._waits[Wait(what, where, on_host)] += 1

    def look(self, what: str, arguments: Sequence[object]) -> None:
        """A read of some tensors."""
        lines = list(walk_stack(sys._getframe()))  # noqa: SLF001 the one way to the caller's line
        codes = [frame.f_code for frame, _ in lines]
        inner = {
            code.co_name
            for code in takewhile(lambda code: code.co_filename.startswith(_FOREIGN), codes)
        }
        on_host = not _any_on_device(arguments)
        self._on_device |= not on_host
        if on_host and "_get_value" in inner:
            return  # an optimizer's step counter is in host memory on every device
        self.note(SCALER if "_maybe_opt_step" in inner else what, lines, on_host=on_host)

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Look at the operator, then run it."""
        named = kwargs or {}
        operator, arguments = func._schema.name, (*args, *named.values())  # noqa: SLF001 nowhere else
        self._on_device |= _any_on_device(arguments)
        if not self.calling and operator in _OPERATORS and _waits(operator, arguments):
            self.look(_OPERATORS[operator], arguments)
        return func(*args, **named)


class _Called(TorchFunctionMode):
    """Sees calls of tensor methods, also those that dispatch nothing on a CPU."""

    def __init__(self, watch: _Watch) -> None:
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
        name, named = getattr(func, "__name__", ""), kwargs or {}
        if self._watch.calling or name not in _CALLS:
            return func(*args, **named)
        self._watch.look(_CALLS[name], (*args, *named.values()))
        self._watch.calling = True
        try:
            return func(*args, **named)
        finally:
            self._watch.calling = False


def _any_on_device(arguments: Sequence[object]) -> bool:
    return any(tensor.device.type != "cpu" for tensor in tensors_in(arguments))


def _waits(name: str, arguments: Sequence[object]) -> bool:
    """Of operators with several forms, whether this one has a size that depends on values."""
    if name == "aten::index":
        return any(index.dtype in _MASKS for index in tensors_in(arguments[1:]))
    return name != "aten::repeat_interleave" or not any(isinstance(each, int) for each in arguments)


_SHOWN = 10


def assert_no_sync(
    step: Callable[..., object], *args: object, warmup: int = 1, allowed: Collection[str] = ()
) -> None:
    """Fail if *step*, called with *args* *warmup* calls, makes the host wait for the device.

    On CUDA the step runs with torch's sync debug mode set to `error`, which is put back; the first
    wait ends it.  Everywhere, reads of tensors are seen as torch dispatches them: on a CPU they
    cost nothing, but would wait on an accelerator.  A function named in *allowed* may read; on
    CUDA the look ends there.  Not seen: `torch.cuda.synchronize()`, and on a CPU what compiled code
    does.
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
    watch, accelerator = _Watch(allowed), default_accelerator()
    # On CUDA torch raises where it would wait.
    with accelerator.raises_at_waits():
        try:
            with watch, _Called(watch):
                yield
        except RuntimeError as error:
            if accelerator.wait_error is None or accelerator.wait_error not in str(error):
                raise
            if not watch.waits():
                lines = reversed(list(walk_tb(error.__traceback__)))
                what = f"an operation that synchronises {accelerator.type.upper()}"
                watch.note(what, lines, on_host=False)
    waits = watch.waits()
    if waits:
        what = waits[0][0].what
        advice = next((advice for words, advice in _ADVICE.items() if words in what), _ON_DEVICE)
        raise SmokeFailure(_evidence(waits), advice)


def _evidence(waits: list[tuple[Wait, int]]) -> str:
    lines = [
        f"  {wait.where}: {wait.what}" + (f" ({n} ×)" if n > 1 else "")
        for wait, n in waits[:_SHOWN]
    ]
    if len(waits) > _SHOWN:
        lines.append(f"  … and {len(waits) - _SHOWN} more places")
    total = sum(n for _, n in waits)
    where = "waits for the device" if not waits[0][0].on_host else "would wait for an accelerator"
    return f"the step {where} {plural(total, 'time')}:\n" + "\n".join(lines)


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

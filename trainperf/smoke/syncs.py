"""Assertion that a step never waits for the device."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

import torch

from trainperf.core.errors import SmokeFailure
from trainperf.core.formatting.units import plural
from trainperf.smoke.watching import NOWHERE, SCALER, CodeLocation, Wait, Watch, location_of


_SHOWN = 10


def assert_no_sync(
    step: Callable[..., object],
    *args: object,
    warmup: int = 1,
    allowed: Collection[str] = (),
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
    if not torch.cuda.is_available():
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "called a synchronizing CUDA operation" not in str(error):
            raise
        if not watch.waits():
            place = _raised_at(error.__traceback__)
            watch.note("an operation that synchronises CUDA", place, on_host=False)
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _raised_at(trace: TracebackType | None) -> CodeLocation:
    """The user's innermost line of a traceback."""
    last = NOWHERE
    while trace is not None:
        frame = location_of(trace.tb_frame)
        if frame.file == trace.tb_frame.f_code.co_filename:
            last = CodeLocation(file=frame.file, line=trace.tb_lineno, function=frame.function)
        trace = trace.tb_next
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
    if what == SCALER:
        return (
            "give the scaler a fused optimizer (AdamW(fused=True)), which decides on the device, "
            "or train in bfloat16 without a scaler."
        )
    if "if tensor" in what:
        return "decide on the device with torch.where, or decide on the host from host values."
    if "size depends" in what or "output_size" in what:
        return "keep the size fixed: torch.where or a multiplication by the mask, or output_size=."
    if "index or a count" in what:
        return "keep sizes and indices of Python as Python numbers, made by the collate function."
    return (
        "keep the value on the device (loss.detach()), add it up there, and read it every 50 or "
        "100 steps, outside the step; copies to the host: non_blocking=True into pinned memory."
    )

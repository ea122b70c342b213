"""Stacks of a running thread, reduced to the frames of the user's own code."""

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from torch.nn.parallel import DistributedDataParallel

from trainperf.audit.stack_frames import OURS, STANDARD, TORCH, in_package, shown_path
from trainperf.core.artifacts.lines import (
    SENDS_BUFFERS,
    WORKER_MAKING,
    Place,
    SampledStack,
)
from trainperf.recording.probes.garbage_collector import GarbageProbe
from trainperf.recording.probes.host_work import (
    CALLERS,
    DEVICE_CALLS,
    OBJECT_CALLS,
    host_work,
    package_of,
)
from trainperf.recording.probes.sample_fields import fields_made
from trainperf.recording.run_identity import LIBRARIES
from trainperf.recording.stacks import Stack


FRAMEWORK, PACKAGE, USER, MODULE, LIBRARY, LOADER = range(6)
"""Whose code a frame runs: torch's or a framework's; an installed package's; the user's; the part
of torch that calls a module's forward; Python's or numpy's, which calls nothing of torch; and the
part of torch, or the library, that is asked for batches."""

_OPERATORS = (FRAMEWORK, MODULE, LOADER)
"""Whose frames may run tensor operations for the user's line."""

_SEND = getattr(
    getattr(DistributedDataParallel, "_distributed_broadcast_coalesced", None), "__code__", None
)
"""Code of DDP's that sends its buffers, and waits for that on a host; not a public interface."""

MOST_STACKS = 2000
"""Different ones that are kept apart; any further one counts as a stack without frames."""
_MOST_FILES = _MOST_INSTRUCTIONS = 20_000
_DEEPEST = 16
"""Frames of the user's code that are kept: the innermost ones."""

_OF_TORCH = {
    str(TORCH / "nn" / "modules" / "module.py"): MODULE,
    str(TORCH / "utils" / "data" / "dataloader.py"): LOADER,
}
_BATCHES = frozenset(start.partition(".")[0] for start in LIBRARIES)
_FRAMEWORKS = ("lightning", "pytorch_lightning", "torch", "accelerate", "tqdm")


class UserStacks:
    """Numbers the stacks it is shown, and keeps what they consist of.

    Runs on the sampling thread, which holds the interpreter lock meanwhile: nothing is formatted.
    """

    def __init__(self) -> None:
        self.stacks: dict[SampledStack, int] = {}
        """Each with its number, in their order."""
        self._places: dict[tuple[int, int], tuple[int, CodeType]] = {}
        """Code's identity and line to number and code, which is kept alive, and so its identity."""
        self._host_work: dict[str | tuple[int, int], str] = {}

    def number(self, slot: str, lines: Stack, innermost: FrameType | None = None) -> int:
        """Number of a stack that was seen in that phase.

        What it does on the host is told where its *innermost* frame is there, which is not kept.
        """
        own: list[int] = []
        others: list[int] = []
        inside, last, leaf, loads = 0, FRAMEWORK, None, False
        for code, line in lines:
            kind = kind_of(code.co_filename)
            if kind == USER:
                own.append(self._place(code, line))
            elif kind == PACKAGE and not own:
                others.append(self._place(code, line))
            elif kind == MODULE:
                if last == USER:  # a wrapper's forward, as DDP's, is torch's: its inside counts
                    inside = len(own)
                kind = last
            loads = loads or kind == LOADER
            if leaf is None or (kind in _OPERATORS and not own):
                leaf = kind
            last = kind
        places = (own or others)[:_DEEPEST]
        stack = SampledStack(
            slot,
            frames=tuple(reversed(places)),
            outside=max(0, len(places) - inside) if own else len(places),
            host_work=self._work(innermost, leaf, lines) if own and innermost else "",
            loads=loads,
        )
        if len(self.stacks) >= MOST_STACKS and stack not in self.stacks:
            stack = SampledStack(slot, (), 0, "", loads=False)
        return self.stacks.setdefault(stack, len(self.stacks))

    def places(self) -> tuple[Place, ...]:
        """What the stacks' frames are numbers of, as reports print it."""
        kept = list(self._places.items())
        making = (s.frames for s in list(self.stacks) if s.loads or s.slot == WORKER_MAKING)
        of_batches = set[int]().union(*making)
        return tuple(
            described(code, line, makes=number in of_batches) for (_, line), (number, code) in kept
        )

    def _place(self, code: CodeType, line: int | None) -> int:
        # None while a frame is between two lines, e.g. where a generator resumes.
        at = id(code), line or code.co_firstlineno
        if at not in self._places and len(self.stacks) >= MOST_STACKS:
            return -1  # a stack with a new place would not be kept
        return self._places.setdefault(at, (len(self._places), code))[0]

    def _work(self, frame: FrameType, kind: int | None, lines: Stack) -> str:
        """What it does on the host.  The source is read at its first look."""
        # Our own callback, as the garbage collector ends, counts for whoever has called that.
        caller = frame.f_back
        if frame.f_code is GarbageProbe.callback and caller is not None:
            frame, kind = caller, kind_of(caller.f_code.co_filename)
        code = frame.f_code
        if code is _SEND:
            return SENDS_BUFFERS
        if kind in _OPERATORS:
            own = (
                DEVICE_CALLS[called]
                for (called, _), (caller, _) in pairwise(lines)
                if called in DEVICE_CALLS and not Path(caller.co_filename).is_relative_to(TORCH)
            )
            sends = (OBJECT_CALLS[code] for code, _ in lines if code in OBJECT_CALLS)
            return next(own, "") or next(sends, "")
        package = None if kind == USER else package_of(code.co_filename)
        at = (id(code), frame.f_lasti) if package is None else package
        if at not in self._host_work:
            if len(self._host_work) >= _MOST_INSTRUCTIONS:  # code that is made anew all the time
                self._host_work.clear()
            self._host_work[at] = host_work(frame, package)
        return self._host_work[at]


@lru_cache(_MOST_FILES)
def kind_of(file: str) -> int:
    """Whose code a file has."""
    if file.startswith("<"):
        return USER if file.startswith(("<ipython", "<stdin")) else FRAMEWORK
    path = Path(file)
    if path.is_relative_to(TORCH):
        return _OF_TORCH.get(file, FRAMEWORK)
    package = package_of(file)
    if in_package(file):
        if package in _BATCHES or package.startswith(_FRAMEWORKS):
            return LOADER if package in _BATCHES else FRAMEWORK
        return LIBRARY if package.startswith("numpy") else PACKAGE
    if path.is_relative_to(STANDARD):
        return FRAMEWORK if package in CALLERS else LIBRARY
    return FRAMEWORK if path.is_relative_to(OURS) else USER


def described(code: CodeType, line: int, *, makes: bool = False) -> Place:
    """A place as reports print it; with the field that it *makes* of a sample, where asked for."""
    name = getattr(code, "co_qualname", code.co_name)  # Python 3.11 has it
    field = fields_made(code).get(line, "") if makes else ""
    return Place(shown_path(code.co_filename), line, name.rpartition("<locals>.")[2], field)

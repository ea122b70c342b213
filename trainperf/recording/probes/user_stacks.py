"""Stacks of a running thread, reduced to the frames of the user's own code."""

import sysconfig
from pathlib import Path
from types import CodeType, FrameType

import torch

from trainperf.audit.stack_frames import shown_path
from trainperf.core.artifacts.lines import Place
from trainperf.recording.probes.host_work import CALLERS, host_work, package_of


FRAMEWORK, PACKAGE, USER, MODULE, LIBRARY, LOADER = range(6)
"""Whose code a frame runs: torch's or a framework's; an installed package's; the user's; the part
of torch that calls a module's forward; Python's or numpy's, which calls nothing of torch; and the
part of torch that is asked for batches."""

_OPERATORS = (FRAMEWORK, MODULE, LOADER)
"""Whose frames may run tensor operations for the user's line."""

MOST_STACKS = 2000
"""Different ones that are kept apart; any further one counts as a stack without frames."""
_MOST_CODES = 20_000
_NOWHERE = -1
_DEEPEST = 16
"""Frames of the user's code that are kept: the innermost ones."""

_TORCH = Path(torch.__file__).parent
_MODULE_FILE = str(_TORCH / "nn" / "modules" / "module.py")
_LOADER_FILE = str(_TORCH / "utils" / "data" / "dataloader.py")
_OURS = Path(__file__).parents[2]
_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
_FRAMEWORKS = ("lightning", "pytorch_lightning", "torch", "accelerate", "tqdm")

Key = tuple[int, ...]
"""Slot, number of frames outside of modules, number of what runs on the host, whether a loader is
asked, and the places from the innermost one on."""


class UserStacks:
    """Numbers the stacks it is shown, and keeps what they consist of.

    Runs on the sampling thread, which holds the interpreter lock meanwhile: nothing is formatted.
    """

    def __init__(self) -> None:
        self._codes: dict[int, tuple[int, CodeType]] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self.places: list[tuple[CodeType, int]] = []
        """Function and line of each place."""
        self._stacks: dict[Key, int] = {}
        self.keys: list[Key] = []
        """What each stack consists of."""
        self.host_work: list[str] = [""]
        """What runs that is no tensor operation, by number; the first is for what may be one."""
        self._host_work: dict[tuple[int, int], int] = {}

    def number(self, slot: int, innermost: FrameType | None) -> int:
        """Number of the stack that ends in this frame.  No frame is kept."""
        own: list[int] = []
        others: list[int] = []
        inside, last, codes, frame, leaf, loads = 0, FRAMEWORK, self._codes, innermost, None, 0
        while frame is not None:
            code = frame.f_code
            entry = codes.get(id(code))
            kind = entry[0] if entry is not None else self._classify(code)
            if kind == USER:
                own.append(self._place(code, frame))
            elif kind == PACKAGE and not own:
                others.append(self._place(code, frame))
            elif kind == MODULE:
                if last == USER:  # a wrapper's forward, as DDP's, is torch's: its inside counts
                    inside = len(own)
                kind = last
            elif kind == LOADER:
                loads = 1
            if leaf is None or (kind in _OPERATORS and not own):
                leaf = kind
            last = kind
            frame = frame.f_back
        places = own[:_DEEPEST] if own else others[:_DEEPEST]
        work = 0 if leaf in _OPERATORS or not own else self._work(innermost, leaf)
        outside = max(0, len(places) - inside) if own else len(places)
        key = (slot, outside, work, loads, *places)
        number = self._stacks.get(key)
        return self._new(key) if number is None else number

    def _new(self, key: Key) -> int:
        if len(self.keys) >= MOST_STACKS:
            key = (key[0], 0, 0, 0)
            if key in self._stacks:
                return self._stacks[key]
        number = self._stacks[key] = len(self.keys)
        self.keys.append(key)
        return number

    def _place(self, code: CodeType, frame: FrameType) -> int:
        # None while a frame is between two lines, e.g. where a generator resumes.
        at = (id(code), frame.f_lineno or code.co_firstlineno)
        number = self._numbers.get(at)
        if number is None:
            if len(self.keys) >= MOST_STACKS:  # a stack with a new place would not be kept
                return _NOWHERE
            number = self._numbers[at] = len(self.places)
            self.places.append((code, at[1]))  # which keeps the code, and so its id, alive
        return number

    def _work(self, frame: FrameType | None, kind: int | None) -> int:
        """Number of what it does on the host.  Its source is read where it is seen first."""
        if frame is None:
            return 0
        code = frame.f_code
        at = (id(code), frame.f_lasti)
        number = self._host_work.get(at)
        if number is None:
            work = host_work(frame, None if kind == USER else package_of(code.co_filename))
            if work not in self.host_work:
                self.host_work.append(work)
            number = self._host_work[at] = self.host_work.index(work)
        return number

    def _classify(self, code: CodeType) -> int:
        if len(self._codes) >= _MOST_CODES:  # code that is made anew all the time
            self._codes.clear()
            self._host_work.clear()
        kind = kind_of(code.co_filename)
        self._codes[id(code)] = (kind, code)
        return kind


def kind_of(file: str) -> int:
    """Whose code a file has."""
    if file.startswith("<"):
        return USER if file.startswith(("<ipython", "<stdin")) else FRAMEWORK
    path = Path(file)
    if path.is_relative_to(_TORCH):
        return {_MODULE_FILE: MODULE, _LOADER_FILE: LOADER}.get(file, FRAMEWORK)
    parts = path.parts
    package = next((at for at, part in enumerate(parts) if part in _INSTALLED), None)
    if package is not None:
        name = parts[package + 1]
        if name.startswith(_FRAMEWORKS):
            return FRAMEWORK
        return LIBRARY if name.startswith("numpy") else PACKAGE
    if path.is_relative_to(_STANDARD):
        return FRAMEWORK if package_of(file) in CALLERS else LIBRARY
    return FRAMEWORK if path.is_relative_to(_OURS) else USER


def described(code: CodeType, line: int) -> Place:
    """A place as reports print it."""
    name = getattr(code, "co_qualname", code.co_name)  # Python 3.11 has it
    return Place(shown_path(code.co_filename), line, name.rpartition("<locals>.")[2])

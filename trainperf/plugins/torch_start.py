"""Start of the measurement in a process that `trainperf run` has launched: when PyTorch is loaded.

Next to nothing happens then: a process may do no training.  The Hugging Face `Trainer` gets its
callback when its module is loaded, and everything else waits for the first update of an optimizer.
"""

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Protocol

from torch.compiler import is_compiling
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from trainperf.core.launch_environment import LaunchOptions, LaunchSignal
from trainperf.recording.guard import Guard


PART = "trainperf run"

TRAINER = "transformers.trainer"
CALLBACKS = "DEFAULT_CALLBACKS"
"""A list of that module, of what every Trainer gets: public by its name, and not documented."""


def begin(text: str) -> None:
    """PyTorch is loaded.  Does nothing where no command has launched this process.

    Args:
        text: The options of the command.
    """
    guard = Guard()
    if text:
        guard.run(PART, lambda: _begin(LaunchOptions.parse(text), guard))


def _begin(options: LaunchOptions, guard: Guard) -> None:
    options.send(LaunchSignal.LOADED)
    _UpdateHooks(options, guard)
    _hear_of_trainers(guard.wrap(PART, _offer_callback))


class _Hearer(Protocol):
    """What hears of updates."""

    def begins(self, optimizer: Optimizer) -> None:
        """Before one."""

    def ends(self, optimizer: Optimizer) -> None:
        """After one."""


class _UpdateHooks:
    """Hooks of all optimizers of the process; what records is loaded at the first update.

    They stay for as long as the process lives: PyTorch goes through its hooks while they run.
    """

    def __init__(self, options: LaunchOptions, guard: Guard) -> None:
        self._options = options
        self._guard = guard
        self._updates: _Hearer | None = None
        # What hears of updates has a guard of its own: these two run every step.
        register_optimizer_step_pre_hook(self._begins)
        register_optimizer_step_post_hook(self._ends)

    def _begins(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        del args, kwargs
        if is_compiling():
            return
        if self._updates is None:
            self._updates = self._guard.run(PART, self._load)
        if self._updates is not None:
            self._updates.begins(optimizer)

    def _load(self) -> _Hearer:
        from trainperf.plugins.outside_updates import ProcessUpdates  # noqa: PLC0415 see above

        self._options.send(LaunchSignal.STEPPED)
        return ProcessUpdates(self._options)

    def _ends(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        del args, kwargs
        if self._updates is not None and not is_compiling():
            self._updates.ends(optimizer)


def _offer_callback(module: ModuleType) -> None:
    """Give every Trainer that is built from now on our callback."""
    offered = getattr(module, CALLBACKS, None)
    if isinstance(offered, list):
        from trainperf.plugins.hugging_face import AutoTrainPerfCallback  # noqa: PLC0415 see above

        offered.append(AutoTrainPerfCallback)


def _hear_of_trainers(then: Callable[[ModuleType], object]) -> None:
    """Have *then* called once the module of the Trainer is loaded."""
    if TRAINER in sys.modules:
        # It is the one that loads PyTorch, and has no list yet.  A model is built later than that.
        _AtParameter(then)
    else:
        sys.meta_path.insert(0, _AfterImport(then))


class _AfterImport(MetaPathFinder, Loader):
    """The module's own loader, and a call behind it."""

    def __init__(self, then: Callable[[ModuleType], object]) -> None:
        self._then = then
        self._searching = False
        self._loader: Loader | None = None

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """What the other finders give, with us as its loader; nothing for any other module."""
        del path, target
        if fullname != TRAINER or self._searching:
            return None
        self._searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As its own loader makes it."""
        return None if self._loader is None else self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load it as if we were not there, then call."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._loader is None or module.__spec__ is None:
            return
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)


class _AtParameter:
    """The first parameter that any module gets after the list is there."""

    def __init__(self, then: Callable[[ModuleType], object]) -> None:
        self._then = then
        self._handle: RemovableHandle = register_module_parameter_registration_hook(self._look)

    def _look(self, module: object, name: str, parameter: object) -> None:
        del module, name, parameter
        trainer = sys.modules.get(TRAINER)
        if trainer is not None and hasattr(trainer, CALLBACKS):
            self._handle.remove()
            self._then(trainer)

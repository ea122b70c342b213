"""Start of the measurement in a process that `trainperf run` has launched: when PyTorch is loaded.

Next to nothing happens then: a process may do no training.  The Hugging Face `Trainer` gets its
callback when its module is loaded, and everything else waits for the first update of an optimizer.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from trainperf.core.launch_environment import LaunchOptions, LaunchSignal
from trainperf.recording.early_lines import EARLY_LINES
from trainperf.recording.guard import Guard
from trainperf.recording.process_objects import SwitchedHook, UntracedHook, nothing
from trainperf.recording.worker_lines import PART as WORKERS
from trainperf.recording.worker_lines import WORKER_LINES


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
    def first_update(*_: object) -> None:
        """What records is loaded, and is called from here on in our place.

        Hooks stay as long as the process lives: PyTorch goes through them while they run.
        """
        from trainperf.plugins.outside_updates import ProcessUpdates  # noqa: PLC0415 see above

        options.send(LaunchSignal.STEPPED)
        updates = ProcessUpdates()
        for handle, hook in ((before, updates.begins), (after, updates.ends)):
            SwitchedHook(handle, hook).puts[0]()

    options.send(LaunchSignal.LOADED)
    EARLY_LINES.start("torch")
    before = register_optimizer_step_pre_hook(UntracedHook(guard.hook(PART, first_update)))
    after = register_optimizer_step_post_hook(UntracedHook(nothing))
    _hear_of_trainers(guard.wrap(PART, _offer_callback))
    guard.run(WORKERS, lambda: WORKER_LINES.start(options.signals or ""))


def _offer_callback(module: object) -> None:
    """Give every Trainer that is built from now on our callback."""
    from trainperf.plugins.hugging_face import AutoTrainPerfCallback  # noqa: PLC0415 see above

    getattr(module, CALLBACKS).append(AutoTrainPerfCallback)


def _hear_of_trainers(then: Callable[[object], object]) -> None:
    """Have *then* called once the module of the Trainer is loaded."""

    def look(*_: object) -> None:
        module = sys.modules.get(TRAINER)
        if hasattr(module, CALLBACKS):
            handle.remove()
            then(module)

    if TRAINER in sys.modules:
        # It is the one that loads PyTorch, and has no list yet.  A model is built later than that.
        handle = register_module_parameter_registration_hook(look)
    else:
        sys.meta_path.insert(0, _AfterImport(then))


@dataclass(eq=False)
class _AfterImport:
    """A finder that has the module's own loader call something once it has loaded the module."""

    then: Callable[[object], object]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What Python finds on the path; nothing for any other module."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == TRAINER else None
        if spec is not None and spec.loader is not None:
            vars(spec.loader)["exec_module"] = partial(self._load, spec.loader)
        return spec

    def _load(self, loader: Loader, module: ModuleType) -> None:
        """Load it as if we were not there, then call."""
        vars(loader).pop("exec_module")
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        loader.exec_module(module)
        self.then(module)

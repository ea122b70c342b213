"""Training of a fit as trials see it, whatever loop it is: in a process that is thrown away.

Loaded there, and where somebody has trials of their own: with it comes every change that is tried.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from torch import nn
from typing_extensions import override

from trainperf.core.launch_environment import TrialLaunch
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.framework_objects import is_ours, overrides
from trainperf.loop.prepared_loaders import holds_ahead, loader_under
from trainperf.recording.probes.base import Probe
from trainperf.trials import Trial
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.start import trials_probe
from trainperf.trials.state import Stateful
from trainperf.trials.training import Training


class FitTraining(Training):
    """The training of a fit.

    Args:
        fit: Whose it is; its batches go through the source of the trials from now on.
        facts: What it consists of.
        owners: Who of a framework has a list of callbacks: each of these can be left out of it.
    """

    base: type = object
    """Class of its callbacks."""
    step_hooks: Sequence[str] = ()
    """Which of their hooks run in a step."""
    essential: tuple[type, ...] = ()
    """Those that are never muted."""

    def __init__(self, fit: Fit, facts: FitFacts, owners: Sequence[Any] = ()) -> None:
        objects, source = facts.objects, None
        if facts.takes_batches:
            source = BatchSource(loader_under(facts.loader), holds_ahead(facts.loader))
            fit.through = source.over
        super().__init__(
            cast("nn.Module", objects.module),  # nothing else is tried
            objects.optimizers,
            objects.device,
            source,
            facts.micro_batches,
            [each for each in (*objects.schedulers, objects.scaler) if isinstance(each, Stateful)],
        )
        self.kind = facts.kind
        self._fit, self._run = fit, objects.run
        self._owners = [(owner, list(owner.callbacks)) for owner in owners]
        self._muted: set[int] = set()
        """Ids of callbacks that are left out."""
        # The user's that do something in a step.
        self.callbacks: list[Trial] = [
            Trial(
                type(each).__name__,
                partial(self._leave_out, self._muted.add, id(each)),
                partial(self._leave_out, self._muted.discard, id(each)),
            )
            for _, callbacks in self._owners
            for each in callbacks
            if not (is_ours(each) or isinstance(each, self.essential))
            and any(overrides(each, self.base, hook) for hook in self.step_hooks)
        ]

    def probe(self) -> Probe:
        """What takes it through its trials."""
        fit, own = self._fit, cast("Sequence[Trial]", self._fit.options.trials)
        # Without a launch nothing is tried.
        return trials_probe(self, self._run, fit.guard, cast("TrialLaunch", fit.launch.trials), own)

    @override
    def end(self) -> None:
        self._fit.tried = True
        super().end()

    def _leave_out(self, change: Callable[[int], None], callback: int) -> None:
        """After that change of what is muted."""
        change(callback)
        for owner, callbacks in self._owners:
            owner.callbacks = [each for each in callbacks if id(each) not in self._muted]

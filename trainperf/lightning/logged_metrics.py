"""Logged metrics that cost something in every batch: shown, or reduced over the ranks.

Read from Lightning's store of logged results, which is not a public interface: if it goes away,
nothing is said.
"""

from collections.abc import Iterable
from typing import ClassVar, Protocol

import lightning.pytorch as pl

from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe


class Kept(Protocol):
    """What is used of one logged result."""

    meta: "Meta"


class Meta(Protocol):
    """How it was logged."""

    name: str
    prog_bar: bool
    on_step: bool
    sync: "Sync"


class Sync(Protocol):
    """Whether it is reduced over the ranks."""

    should: bool


class LoggedProbe(Probe):
    """Names of the metrics that `self.log` shows or reduces in every batch.

    Under `prog_bar_metrics` and `sync_dist_metrics` in the run's configuration, empty where there
    are none.
    """

    name = "logged metrics"
    facts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, trainer: "pl.Trainer") -> None:
        self._trainer = trainer

    def config(self) -> dict[str, Scalar]:
        """What has been logged in training so far."""
        results = getattr(self._trainer.fit_loop.epoch_loop, "_results", None)
        if not isinstance(results, dict):
            return {}
        kept: list[Kept] = list(results.values())
        each = [result.meta for result in kept if result.meta.on_step]
        return {
            "prog_bar_metrics": _named(meta for meta in each if meta.prog_bar),
            "sync_dist_metrics": _named(meta for meta in each if meta.sync.should),
        }


def _named(metrics: Iterable[Meta]) -> str:
    return ", ".join(dict.fromkeys(meta.name for meta in metrics))

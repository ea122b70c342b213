"""Feeds overflows of an engine that scales the loss by itself: DeepSpeed in fp16.

Its `backward` and `step` are not torch's, and no GradScaler is there to be watched; but the engine
counts its updates and those it skipped.  Both are plain numbers: reading them waits for no device.
"""

from typing import ClassVar, Protocol, runtime_checkable

from trainperf.core.phases import Tag
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.scaler import ScalerProbe
from trainperf.recording.recorder import Draft


@runtime_checkable
class ScalingEngine(Protocol):
    """What of `deepspeed.DeepSpeedEngine` is looked at."""

    global_steps: int
    """Updates that were due, skipped ones among them."""
    skipped_steps: int
    optimizer: object
    """Its wrapper around the user's, which holds the scale (`cur_scale`, or `loss_scale`)."""

    def fp16_enabled(self) -> bool:
        """Whether it scales the loss."""


class EngineProbe(Probe):
    """Attempts and overflows of every step, and the scale that it left."""

    name = ScalerProbe.name
    facts: ClassVar[tuple[str, ...]] = ScalerProbe.facts

    def __init__(self, engine: ScalingEngine) -> None:
        self._engine = engine

    def begin(self) -> None:
        """Begin to feed *recorder*; a resumed engine has counted before."""
        self._due, self._skipped = self._engine.global_steps, self._engine.skipped_steps

    def close(self, draft: Draft) -> None:
        """The engine has stepped, or this was no boundary of its own.  Runs every step."""
        engine = self._engine
        due, skipped = engine.global_steps, engine.skipped_steps
        draft.facts["attempts"] = due - self._due
        draft.facts["overflows"] = skipped - self._skipped
        if skipped != self._skipped:
            draft.tags |= Tag.OVERFLOW
        self._due, self._skipped = due, skipped
        draft.facts["loss_scale"] = _scale(engine.optimizer)


def _scale(optimizer: object) -> float | None:
    """The scale, where the wrapper keeps it as a number: a tensor would have to be waited for."""
    scale = getattr(optimizer, "cur_scale", None) or getattr(optimizer, "loss_scale", None)
    return float(scale) if isinstance(scale, int | float) else None

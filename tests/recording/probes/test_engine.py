"""Overflows of an engine with a loss scale of its own.

The engine is a stub with DeepSpeed's documented interface: on a CPU DeepSpeed trains in fp32 and
bf16 only, which have no scale.
"""

import pytest
import torch
from support.live import HostFit

from trainperf.core.phases import Tag
from trainperf.recording.probes.engine import EngineProbe
from trainperf.recording.probes.selection import EVERYTHING, FitObjects, choose


class Wrapper:
    """What DeepSpeed puts around the user's optimizer."""

    cur_scale = 256.0


class Engine(torch.nn.Linear):
    """DeepSpeed's engine as the probe sees it: it counts boundaries, and those it skipped."""

    def __init__(self, *, fp16: bool = True) -> None:
        super().__init__(1, 1)
        self.global_steps = self.skipped_steps = 7
        self.optimizer = Wrapper()
        self.fp16 = fp16

    def fp16_enabled(self) -> bool:
        """As configured."""
        return self.fp16

    def step(self, *, overflows: bool) -> None:
        """At a boundary; a skipped one halves the scale."""
        self.global_steps += 1
        if overflows:
            self.skipped_steps += 1
            self.optimizer.cur_scale /= 2


def test_skipped_steps_are_overflows() -> None:
    """Two of five; what a resumed engine has counted before is not of this fit."""
    engine = Engine()
    fit = HostFit(EngineProbe(engine))
    for overflows in (False, True, False, True, False):
        fit.monitor.recorder.boundary()
        engine.step(overflows=overflows)
        fit.monitor.micro_batch(None, None, complete=True)
    fit.finish()

    assert fit.facts("attempts") == [1] * 5
    assert fit.facts("overflows") == [0, 1, 0, 1, 0]
    assert fit.facts("loss_scale") == [256, 128, 128, 64, 64]
    assert [bool(step.tags & Tag.OVERFLOW) for step in fit.sink.records] == [
        False, True, False, True, False,
    ]  # fmt: skip


def test_a_step_that_is_no_boundary_attempts_nothing() -> None:
    """DeepSpeed accumulates by itself: its `step()` may be none."""
    fit = HostFit(EngineProbe(Engine())).steps(2).finish()

    assert fit.facts("attempts") == fit.facts("overflows") == [0, 0]


@pytest.mark.parametrize("fp16", [True, False])
def test_an_engine_is_watched_only_if_it_scales(fp16: bool) -> None:  # noqa: FBT001 a case
    """Otherwise there is a reason."""
    objects = FitObjects(device=torch.device("cpu"), module=Engine(fp16=fp16), precision="bf16")
    chosen = choose(objects, EVERYTHING)

    assert any(isinstance(probe, EngineProbe) for probe in chosen.probes) == fp16
    assert ("overflows" in chosen.reasons) == (not fp16)

"""The measurements.  To add one: a file here and a line in `METERS`; order is display order."""

from trainperf.meters.allreduce import AllReduceTail, AllReduceTailFraction
from trainperf.meters.base import Meter, Scope
from trainperf.meters.data_wait import DataStall, DataWait, DataWaitAll
from trainperf.meters.host_bound import HostBound
from trainperf.meters.loss import Loss
from trainperf.meters.memory import (
    Fragmentation,
    MemoryPeak,
    MemoryReservedPeak,
    MemorySlope,
    ResidentPeak,
)
from trainperf.meters.overflow import LossScale, OverflowRate
from trainperf.meters.pauses import GarbageCollection, Overhead, Recompiles
from trainperf.meters.phases import PHASE_METERS
from trainperf.meters.step_time import (
    FirstStep,
    StepIQR,
    StepMean,
    StepTime,
    StepTimeP95,
    StepTimeP99,
)
from trainperf.meters.throughput import (
    EffectiveTokens,
    OptimizerSteps,
    PaddedTokens,
    Padding,
    Samples,
)
from trainperf.meters.transfer import H2DBytes, H2DFraction, H2DRate, H2DTensors, H2DTime


METERS: tuple[Meter, ...] = (
    StepTime(),
    StepTimeP95(),
    StepTimeP99(),
    StepIQR(),
    StepMean(),
    FirstStep(),
    DataWait(),
    DataWaitAll(),
    DataStall(),
    H2DTime(),
    H2DRate(),
    H2DFraction(),
    H2DBytes(),
    H2DTensors(),
    *PHASE_METERS,
    EffectiveTokens(),
    PaddedTokens(),
    Padding(),
    Samples(),
    OptimizerSteps(),
    OverflowRate(),
    LossScale(),
    AllReduceTail(),
    AllReduceTailFraction(),
    HostBound(),
    MemoryPeak(),
    MemoryReservedPeak(),
    Fragmentation(),
    ResidentPeak(),
    MemorySlope(),
    GarbageCollection(),
    Recompiles(),
    Loss(),
    Overhead(),
)

__all__ = ["METERS", "Meter", "Scope"]

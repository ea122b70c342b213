"""Phases inside a step, gaps between steps, and tags on steps: what a moment of a fit belongs to.

Phases and gaps share one numbering (*slots*), because one stack holds them both: a checkpoint may
nest in a callback or in validation, and every nanosecond of a fit belongs to exactly one slot.
"""

from enum import IntEnum, IntFlag


class Phase(IntEnum):
    """A named, exclusive part of a step.  The phases of a step sum to its wall time."""

    DATA_WAIT = 0
    H2D = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    CALLBACKS = 5
    LOOP = 6
    OTHER = 7

    @property
    def label(self) -> str:
        """The name used in files and readings, e.g. `data_wait`."""
        return self.name.lower()


class Gap(IntEnum):
    """Wall time between steps (or cut out of one) that belongs to no step."""

    STARTUP = 8
    VALIDATION = 9
    CHECKPOINT = 10
    EPOCH_BOUNDARY = 11
    SANITY_CHECK = 12
    PROFILER_DUMP = 13
    SHUTDOWN = 14
    RESTART = 15
    OTHERS_TURN = 16

    @property
    def label(self) -> str:
        """The name used in files and reports, e.g. `validation`."""
        return self.name.lower()


FIRST_GAP = int(Gap.STARTUP)
PHASES = tuple(Phase)
GAPS = tuple(Gap)
SLOTS = len(PHASES) + len(GAPS)


class Tag(IntFlag):
    """Why a step is unusual.  Tagged steps are kept; statistics choose which tags they accept."""

    WARMUP = 1
    FIRST_IN_EPOCH = 2
    AFTER_VALIDATION = 4
    AFTER_CHECKPOINT = 8
    PROFILED = 16
    AUDITED = 32
    RECOMPILED = 64
    GC = 128
    OVERFLOW = 256
    PARTIAL_GROUP = 512
    OUT_OF_TURN = 1024
    TURN_BOUNDARY = 2048
    TRIAL = 4096

    @property
    def label(self) -> str:
        """The name used in files and reports, e.g. `after_validation`."""
        return str(self.name).lower()


TAGS = tuple(Tag)

# An overflowing step does all the work of a step except the update, and how often that happens is
# part of what the run is; every other tag says that something else ran inside the step.
DISQUALIFYING = int(~Tag.OVERFLOW & sum(TAGS, Tag(0)))

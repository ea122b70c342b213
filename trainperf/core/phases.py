"""Phases inside a step, gaps between steps, and tags on steps: what a moment of a fit belongs to.

Phases and gaps share one numbering (*slots*), because one stack holds them both: a checkpoint may
nest in a callback or in validation, and every nanosecond of a fit belongs to exactly one slot.
"""

from enum import IntEnum, IntFlag

from trainperf.core.docstrings import DocumentedText, documented


class Slot(IntEnum):
    """A phase or a gap."""

    @property
    def label(self) -> str:
        """The name used in files, readings and reports, e.g. `data_wait`."""
        return self.name.lower()

    @property
    def about(self) -> DocumentedText:
        """What happens in it, and when its time misleads."""
        return documented(_ABOUT[self])


class Phase(Slot):
    """A named, exclusive part of a step.  The phases of a step sum to its wall time."""

    DATA_WAIT = 0
    H2D = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    CALLBACKS = 5
    LOOP = 6
    OTHER = 7


class Gap(Slot):
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


_ABOUT: dict[Slot, str] = {
    Phase.DATA_WAIT: """blocked in the loader's `next`
        Wrong where: the device still has work queued (then the wait costs nothing), or the loop was
        recorded from outside: then it is everything between an update and the next forward.
        To confirm: the reading `data_stall_fraction`; `trainperf try --only free_loader SCRIPT`.
        """,
    Phase.H2D: """in the batch transfer call (on a CPU: its hooks, nothing is copied)
        Wrong where: the copy is non-blocking: the call returns before it is done.
        To confirm: the reading `h2d_s`; in a trace, the copies and what they overlap.
        """,
    Phase.FORWARD: """in forward and the loss (Lightning: `training_step`), without backward
        Wrong where: a device computes (the host only launches there), or a Lightning step calls
        `loss.backward()` itself without `manual_backward`, which counts as forward.
        To confirm: an audit (`--audit-at 20`) times each operator; a trace, each kernel.
        """,
    Phase.BACKWARD: """in backward (Lightning: between `on_before_backward` and `on_after_backward`)
        Wrong where: a device computes (the host only launches there), or several ranks reduce:
        the wait for the last of them is in it.
        To confirm: the reading `allreduce_tail_s`; an audit (`--audit-at 20`) for the operators.
        """,
    Phase.OPTIMIZER: """in the optimizer: step, zero_grad, clipping, scaler, scheduler
        Wrong where: something in it reads a value back, as a GradScaler does: the host then waits
        here for the device's backward.
        To confirm: `trainperf try --only no_update SCRIPT`.
        """,
    Phase.CALLBACKS: """in hooks of callbacks and of the module
        Wrong where: a hook waits for the device: what it waits for was launched by other phases.
        To confirm: `actions_s` names each hook; `trainperf try --only no_callback_NAME SCRIPT`.
        """,
    Phase.LOOP: """in the framework between the last hook and the next fetch: metrics, logging, and
        on several ranks the wait for the others
        Wrong where: it is a wait, for the device or for other ranks, and no work of the loop.
        To confirm: `synchronisation` of the summary splits the ranks' wait off; `trainperf try
        --only no_logging SCRIPT`.
        """,
    Phase.OTHER: """that no phase brackets
        Wrong where: a loop of your own does not bracket its phases: their work is in it. Phases
        with names of the loop's own are a part of it, as `own` of the summary says.
        To confirm: `lines` of the summary names the functions that were seen there.
        """,
    Gap.STARTUP: """from the beginning of the fit to the first fetch
        Wrong where: importing, building the model and the Trainer take long: they come before it.
        To confirm: the wall time of the whole script.
        """,
    Gap.VALIDATION: """validation between steps
        Wrong where: it is the gap of the lowest rank: another may validate longer.
        To confirm: `trainperf compare` with a run that validates less often, by the fit clock.
        """,
    Gap.CHECKPOINT: """a checkpoint is saved
        Wrong where: it is saved by a thread or a process: what goes on meanwhile slows the steps.
        To confirm: `trainperf compare` with a run without checkpoints, by the fit clock.
        """,
    Gap.EPOCH_BOUNDARY: """from the end of an epoch to the next one's first fetch
        Wrong where: workers start in it, and the first batch is waited for in the step after it.
        To confirm: the finding `epoch_start`.
        """,
    Gap.SANITY_CHECK: """Lightning's validation before the first step
        Wrong where: it compiles and allocates what the first step needs, and makes that one short.
        To confirm: a run with `num_sanity_val_steps=0`.
        """,
    Gap.PROFILER_DUMP: """a capture is written
        Wrong where: reading it goes on in a process of its own, next to the steps that follow.
        To confirm: a run without captures.
        """,
    Gap.SHUTDOWN: """from the last step to the end of the fit
        Wrong where: what comes after `teardown` is not in it.
        To confirm: the wall time of the whole script.
        """,
    Gap.RESTART: """between two attempts of a restarted run
        Wrong where: the clocks of two hosts differ; steps that were not written yet are in it.
        To confirm: the times in the log of the scheduler.
        """,
    Gap.OTHERS_TURN: """the other run trains, in `trainperf prove`
        Wrong where: a part of the other run goes on in this turn, on another host for instance.
        To confirm: `trainperf report` of the other run.
        """,
}

FIRST_GAP = int(Gap.STARTUP)
PHASES = tuple(Phase)
GAPS = tuple(Gap)
SLOTS = len(PHASES) + len(GAPS)
LABELS = tuple(slot.label for slot in (*PHASES, *GAPS))
"""By slot; phases that a loop names itself have slots below 0."""


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

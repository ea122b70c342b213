"""Contents of `memory.json`: what fills the memory of the device, from the real tensors.

Bytes are of storages: tensors that share memory count once, under the first kind that has them, in
the order of the fields.  `None` means *not known*; `reasons` says why.
"""

from typing import ClassVar, Literal

import msgspec

from trainperf.core.artifacts import Document


Category = Literal[
    "parameters",
    "buffers",
    "gradients",
    "optimizer state",
    "master weights",
    "activations",
    "temporaries",
]


class ModuleActivations(msgspec.Struct, frozen=True, kw_only=True):
    """What the forward of one module left for backward, the modules inside it not counted."""

    module: str | None
    """Its path, as in the audit; `None` outside of every module."""
    size_bytes: int


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A container that had gathered tensors or arrays when the fit ended."""

    kind: str
    """Its type: `list`, `dict`, `deque`, `set`."""
    name: str
    """How its owner calls it: `Model.losses`, `losses in train()`; its type if nobody is known."""
    where: str
    """`file:line` where it is filled, else where its owner is written; empty if not known."""
    count: int
    """Tensors and arrays in it, also those one level deeper; what shares memory counts once."""
    graphs: int
    """Those of them that hold an autograd graph."""
    size_bytes: int
    """Their own memory; what a graph keeps besides is not in it."""
    made_at: str = msgspec.field(default="", name="made")
    """`file:line` that made the ones of the audited step, if it is known."""


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The allocation that ended the fit."""

    during: Literal["forward", "backward", "optimizer", "elsewhere"]
    """By the frames of the exception."""
    workspace: bool
    """Whether a library asked for its workspace, and no tensor was to be made."""
    requested_bytes: int | None
    allocated_bytes: int | None
    """Most that tensors held until then, on an accelerator; since the process started."""
    where: str
    """`file:line` of the user's code that asked for it; empty if not known."""


class MemoryLedger(Document, frozen=True, kw_only=True):
    """Bytes by what they are for."""

    file: ClassVar[str] = "memory.json"
    step: int | None = None
    """Number of the audited step; `None` if none was: then what needs it is `None` too."""
    device: str
    parameters_bytes: int
    buffers_bytes: int = 0
    gradients_bytes: int
    """Those there were when the optimizer stepped, else at the end of the fit."""
    optimizer_state_bytes: dict[str, int]
    """Per kind of tensor, e.g. `exp_avg`; `master weights` are copies of parameters in higher
    precision that are stepped, of which the model itself knows nothing."""
    parameters: int = 0
    """Elements."""
    trainable_parameters: int = 0
    activations_bytes: int | None = None
    """Most that forward left alive for a backward to begin with, in the audited step."""
    activations: tuple[ModuleActivations, ...] = ()
    """The same by module, the largest first."""
    peak_bytes: int | None = None
    """Most that all these and the tensors made in the audited step held together."""
    at_peak_bytes: dict[Category, int] = msgspec.field(default_factory=dict)
    """Of what that peak was made; sums to it."""
    capacity_bytes: int | None = None
    """Memory of the device; on a CPU, of the machine."""
    micro_batches: int = 1
    """Forward-backward passes in a step."""
    precision: str = ""
    """What the loop was told, e.g. `16-mixed`."""
    world_size: int = 1
    held: tuple[Holder, ...] = ()
    """Containers that gathered tensors, the largest first."""
    out_of_memory: OutOfMemory | None = None
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    master_bytes: int = 0
    """Master weights in files of before 2026-11-29, which are a kind of optimizer state since."""

    @property
    def optimizer_bytes(self) -> int:
        """Optimizer state and master weights: what a sharded optimizer divides."""
        return sum(self.optimizer_state_bytes.values()) + self.master_bytes

    @property
    def static_bytes(self) -> int:
        """What is there whatever the batch: parameters, buffers, gradients, optimizer."""
        return (
            self.parameters_bytes + self.buffers_bytes + self.gradients_bytes + self.optimizer_bytes
        )

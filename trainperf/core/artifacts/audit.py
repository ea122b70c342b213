"""Contents of `audit.json`: the audit of one training step, readable offline.

Counts are exact for the step that was audited.  FLOPs are floating-point operations (a multiply and
an add are two), bytes are what an operator must at least read and write, times are host time.
`None` means *not known*.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

import msgspec

from trainperf.core.artifacts import Document
from trainperf.core.groups import largest
from trainperf.core.machine.chips import Chip


Part = Literal["forward", "backward", "recompute", "optimizer"]
Kind = Literal["matmul", "pointwise", "reduction", "copy", "other"]
Place = Literal["device", "host", "link"]

_ELEMENT_BYTES = {"fp64": 8, "int64": 8, "fp16": 2, "bf16": 2, "fp8": 1, "bool": 1}
"""Of dtypes that have not four."""


def short_name(name: str) -> str:
    """Without namespace and overload: `addmm` of `aten.addmm.default` or `aten::addmm`."""
    parts = name.split("::") if "::" in name else name.split(".")
    return parts[1] if len(parts) > 1 else name


class OperatorUse(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operator that agree in shapes, dtypes, place in the code and part."""

    name: str
    """E.g. `aten.addmm.default`."""
    part: Part
    """`recompute` is forward work that activation checkpointing repeats in backward."""
    kind: Kind
    """`matmul` is any contraction: matrix products, convolutions, attention."""
    place: Place
    """`link` copies between host and device; `host` ran on the CPU next to an accelerator."""
    module: str | None
    """Path of the module whose forward made it, e.g. `GPT2.blocks.0.mlp`; backward as forward."""
    line: str | None
    """`file:line` of the innermost frame outside torch, Lightning and trainperf.

    Relative to the working directory or the script's, where it lies below one of them; of an
    installed package from the package on.
    """
    called_at: str | None = None
    """Where `line` is in an installed package: that of the innermost frame of the user's own code
    around it.  `None` where it is the user's own, or nobody's."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the tensors it was given, lists flattened."""
    dtypes: tuple[str, ...]
    """As `shapes`."""
    precision: str
    """What it computes in: `fp32 tf32 fp16 bf16 fp8 fp64`, or the dtype's own name."""
    calls: int
    flops: int
    """Arithmetic of all calls: contractions, and elementwise work and reductions besides."""
    matmul_flops: int
    """The part of `flops` that is contractions: what FLOP counts of models mean."""
    repeated_flops: int
    """The part of `matmul_flops` that repeats forward work: it counts in HFU, not in MFU."""
    read_bytes: int
    """Each tensor once per call; a broadcast one with what it stores."""
    written_bytes: int
    memory_bytes: int
    """The least that passes between memory and a cache of `cache_bytes`: the floors stand on it."""
    fused_bytes: int
    """The part of `memory_bytes` left when chains of elementwise operators are one kernel each."""
    inner_bytes: int = 0
    """The part of `moved_bytes` that a chain of elementwise operators hands on inside itself."""
    constant: bool = False
    """Whether it computes with numbers and such results only: no batch, parameter or buffer."""
    again: int = 0
    """Of the calls those that compute what the same forward has computed from the same values, and
    in backward those of the graph of such calls."""
    ignored: float = 0.0
    """Of a loss over classes the share of its rows whose target is to be ignored."""
    result_dtype: str | None = None
    """Of the first tensor it returns, by the name it has in `dtypes`; `None` if it returns none."""
    host_s: float
    """Host time inside the calls, audit excluded: on CPU their run time, elsewhere the launch."""
    busy_s: float = 0.0
    """The part of it in which the calling thread computed: not while others had its core."""
    before_s: float = 0.0
    """Host time before the calls, since the operator before them in this part and thread.

    Python of yours and of a framework, views, torch's dispatch, and some microseconds of the audit.
    """
    logs: bool = False
    """Whether a framework's logging made the calls, e.g. Lightning's `self.log`."""
    unheld: str = ""
    """Path of a module around it of whose weights no optimizer that stepped holds any; in backward
    only where all that it computes goes into gradients that nobody holds.  Empty without one."""
    dropped: str = ""
    """Line that called the backward it is of, where all that it computes goes into gradients that
    are zeroed, replaced or freed before an update reads them.  Empty elsewhere."""
    siblings: str = ""
    """Path of a container around it of equal modules that could be computed at once: none is given
    what another one has computed.  Empty without one."""
    repeated: str = ""
    """Path of a module around it, or one of whose results it works on, that is called again and
    again with tensors of the same shapes, never with what another call of it has computed.  Empty
    without one."""
    passes: int = 1
    """How often that module is called in the step."""
    composed: bool = False
    """Whether a module of torch itself that has others inside makes the calls, e.g.
    `nn.MultiheadAttention`: how is nobody's to change."""
    in_call: int = 1
    """How many of the calls one call of a module of torch itself makes, e.g. `nn.GRU` on a CPU: no
    Python of yours runs between them.  1 elsewhere."""
    resized: float = 1.0
    """Part of the audited step's bytes that a mean step has: of what is in these fields."""

    @property
    def short_name(self) -> str:
        """E.g. `addmm`."""
        return short_name(self.name)

    @property
    def source(self) -> tuple[str | None, str | None]:
        """Module and line."""
        return self.module, self.line

    @property
    def written_numbers(self) -> float:
        """How many elements a call writes in the audited step."""
        written = self.result_dtype or next(iter(self.dtypes), "")
        return self.written_bytes / self.resized / self.calls / _ELEMENT_BYTES.get(written, 4)

    @property
    def is_fused_attention(self) -> bool:
        """Whether it is torch's own attention, forward or backward."""
        return self.short_name.startswith("_scaled_dot_product")

    @property
    def moved_bytes(self) -> int:
        """Read and written, as if nothing were cached."""
        return self.read_bytes + self.written_bytes


class StepAudit(Document, frozen=True, kw_only=True):
    """Every operator of one training step."""

    file: ClassVar[str] = "audit.json"
    step: int | None = None
    """Number of the step in its fit; `None` outside of one."""
    micro_batches: int = 1
    device: str
    """Type of the device that computed: `cpu`, `cuda`, …"""
    device_index: int | None = None
    """Its number among those of its type, where the model is on one; a CPU has none."""
    device_name: str
    """As the driver or the operating system calls it."""
    cache_bytes: int | None
    """Last-level cache of that device, with the levels before it where they are known."""
    operators: tuple[OperatorUse, ...]
    """In the order of their first call."""
    uncounted: tuple[str, ...] = ()
    """Operators whose arithmetic is not known: it counts as none."""
    audited_s: float
    """Host time of the step under audit: many times that of a normal step."""
    batch_bytes: int = 0
    """Of the tensors of one of its batches, as they were when it had been trained."""
    unread: dict[str, int] = msgspec.field(default_factory=dict)
    """Fields of every batch of the step, e.g. `['depth']`, of which no operator has read a value,
    nor of a view or a copy of them, to their bytes.  Empty where none was read: then the step has
    worked on something else."""

    @property
    def timed(self) -> bool:
        """Whether operators have run when they return, so that the host's times are theirs."""
        return self.device == "cpu"

    @property
    def calls(self) -> int:
        """Operators that moved data."""
        return sum(use.calls for use in self.operators)

    @property
    def model_flops(self) -> int:
        """Contractions without what is repeated: what MFU divides."""
        return sum(use.matmul_flops - use.repeated_flops for use in self.operators)

    @property
    def hardware_flops(self) -> int:
        """Contractions with what is repeated: what HFU divides."""
        return sum(use.matmul_flops for use in self.operators)

    @property
    def precision(self) -> str | None:
        """What most of the contractions' FLOPs are computed in; `None` without contractions."""
        uses = (use for use in self.operators if use.matmul_flops)
        return largest(((use.precision, use.matmul_flops) for use in uses), None)

    def resized(self, ratio: float) -> "StepAudit":
        """About what a step of so many times as large a batch does: all but the update grows.

        Off where work is not in proportion to the batch: attention's scores grow faster with the
        length, weights are read once.  So bytes only shrink: a floor that stands on them stays one.
        """
        operators = (
            use if use.part == "optimizer" else _resized(use, ratio) for use in self.operators
        )
        return msgspec.structs.replace(self, operators=tuple(operators))

    def of(self, parts: Iterable[Part]) -> list[OperatorUse]:
        """The operators of some parts of the step."""
        wanted = frozenset(parts)
        return [use for use in self.operators if use.part in wanted]


_FLOPS = ("flops", "matmul_flops", "repeated_flops")
_BYTES = ("read_bytes", "written_bytes", "memory_bytes", "fused_bytes", "inner_bytes")
_TIMES = ("host_s", "busy_s", "before_s")


def _resized(use: OperatorUse, ratio: float) -> OperatorUse:
    counts = {name: round(getattr(use, name) * ratio) for name in _FLOPS}
    counts |= {name: round(getattr(use, name) * min(ratio, 1.0)) for name in _BYTES}
    times = {name: getattr(use, name) * ratio for name in _TIMES}
    resized = use.resized * min(ratio, 1.0)
    return msgspec.structs.replace(use, resized=resized, **counts, **times)


class AttentionTime(msgspec.Struct, frozen=True, kw_only=True):
    """Fused attention of one size, forward and backward, timed alone on the audited run's CPU."""

    shapes: tuple[tuple[int, ...], ...]
    """Of queries, keys and values."""
    seconds: dict[str, float]
    """Of one call per precision, host clock, the fastest of several."""


class MeasuredChip(Document, frozen=True, kw_only=True):
    """Limits of the audited run's device, measured where no data sheet is in the table."""

    file: ClassVar[str] = "chip.json"
    chip: Chip
    attention: tuple[AttentionTime, ...] = ()
    """The heaviest sizes of the audited step in fp32, where the CPU multiplies faster in bf16."""

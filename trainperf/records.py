"""What is known about a fit: one record per step and per gap, and who the run was.

Times are integer nanoseconds on the host's monotonic clock, counted from the start of the fit
(the run's only wall-clock time is `RunInfo.started_at`).  `None` means *not measured*.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.errors import ConfigError
from trainperf.phases import DISQUALIFYING, PHASES, Phase
from trainperf.stats.quantiles import Distribution


SCHEMA_VERSION = 1
"""Version of the run directory's files; see the changelog for what each version changed."""

BLOCK_STEPS = 4096
"""The most steps one block holds: large enough for numpy, small enough for memory."""

Scalar = str | int | float | bool | None
Row = Sequence[int | float | None]
Column = npt.NDArray[np.float64]

CORE_COLUMNS = ("index", "start_ns", "tags", "micro_batches", *(f"{p.label}_ns" for p in PHASES))
_FIRST_PHASE = CORE_COLUMNS.index("data_wait_ns")
_FIRST_FACT = len(CORE_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something a probe can know about one step, beyond its host time."""

    name: str
    unit: str
    meaning: str


FACTS: dict[str, Fact] = {
    fact.name: fact
    for fact in (
        Fact(
            name="data_stall_ns",
            unit="ns",
            meaning="device time between an event recorded just before the fetch and one just "
            "after it: what the device lost to the loader",
        ),
        Fact(name="h2d_device_ns", unit="ns", meaning="device time between events around the copy"),
        Fact(name="h2d_bytes", unit="B", meaning="bytes of the batch's tensors on the device"),
        Fact(name="h2d_tensors", unit="1", meaning="number of tensors in the batch"),
        Fact(
            name="lead_forward",
            unit="1",
            meaning="marks the device had not reached when forward returned",
        ),
        Fact(
            name="lead_backward",
            unit="1",
            meaning="marks the device had not reached when backward returned",
        ),
        Fact(
            name="tail_ns",
            unit="ns",
            meaning="from the last gradient being ready to backward having returned, summed over "
            "the synchronising micro-batches",
        ),
        Fact(name="samples", unit="1", meaning="leading dimension of the batch, this rank"),
        Fact(name="tokens_effective", unit="1", meaning="sum of the mask, this rank"),
        Fact(name="tokens_padded", unit="1", meaning="number of mask elements, this rank"),
        Fact(name="updates", unit="1", meaning="optimizer steps that were called for"),
        Fact(name="attempts", unit="1", meaning="optimizer updates attempted under a GradScaler"),
        Fact(name="overflows", unit="1", meaning="attempted updates that the scaler skipped"),
        Fact(name="loss_scale", unit="1", meaning="the scaler's scale, read now and then"),
        Fact(name="loss", unit="1", meaning="the last micro-batch's loss, this rank"),
        Fact(name="allocated_bytes", unit="B", meaning="device memory held by tensors after it"),
        Fact(name="reserved_bytes", unit="B", meaning="device memory held by the allocator"),
        Fact(name="peak_bytes", unit="B", meaning="highest allocated_bytes since process start"),
        Fact(
            name="reserved_peak_bytes",
            unit="B",
            meaning="highest reserved_bytes since process start",
        ),
        Fact(name="resident_bytes", unit="B", meaning="resident set of the process (CPU runs)"),
        Fact(name="gc_ns", unit="ns", meaning="time the garbage collector ran inside the step"),
        Fact(name="recompiles", unit="1", meaning="graphs torch.compile built inside the step"),
        Fact(name="overhead_ns", unit="ns", meaning="what trainperf itself cost on the host"),
    )
}


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One finished step: when, how long in each phase, why it is unusual, and the probes' facts."""

    index: int
    """Number of the step within this fit, from 0; an optimizer update, not a micro-batch."""
    start_ns: int
    """When the loop asked for the step's first batch, counted from the start of the fit."""
    tags: int = 0
    """Bits of `Tag`."""
    micro_batches: int = 1
    """Forward-backward passes in the step."""
    host_ns: tuple[int, ...]
    """Host time per phase, in the order of `Phase`; sums to the step's wall time."""
    facts: dict[str, int | float | None] = {}
    """Values of the facts in the run's columns."""

    @property
    def wall_ns(self) -> int:
        """Host time of the step, gaps cut out."""
        return sum(self.host_ns)

    @property
    def wall_s(self) -> float:
        """Host time of the step in seconds, gaps cut out."""
        return self.wall_ns / 1e9


class GapRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="gap"):
    """Time that belongs to no step.  A gap nested in another is not counted in the outer one."""

    gap: str
    start_ns: int
    duration_ns: int
    after_step: int
    """Index of the last step begun before the gap; -1 before the first."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="run"):
    """Who the run was: line 1 of every record file."""

    schema: int = SCHEMA_VERSION
    started_at: str = ""
    """Wall-clock time at which the fit began, ISO 8601 in UTC: an anchor, never used to measure."""
    rank: int = 0
    world_size: int = 1
    columns: tuple[str, ...] = ()
    """Facts in each step line after the core columns, in this order."""
    device: str = "cpu"
    """Type of the device the model is on: `cpu`, `cuda`, …"""
    reasons: dict[str, str] = {}
    """Fact or reading name to the sentence that says why it cannot be measured in this run."""
    notes: dict[str, str] = {}
    """How some number was obtained, e.g. which mask was used; printed by reports."""
    software: dict[str, str] = {}
    hardware: dict[str, Scalar] = {}
    config: dict[str, Scalar] = {}
    """Parameters, precision, strategy, batch size, accumulation, loader settings, seed, …"""
    totals: dict[str, int] = {}
    """Steps, samples and tokens of earlier fits that this one continues."""
    continues: str = ""
    """Run directory this fit continues, if it was resumed and the earlier one is known."""
    attempt: int = 0


class Totals(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="totals"):
    """Cumulative facts that belong to no single step; the last one in a file holds."""

    at_step: int
    actions_ns: dict[str, int] = {}
    """Exclusive host time of each user hook, by name."""
    sequence_lengths: dict[int, int] = {}
    """Effective length of a sequence (upper edge of its bin, in tokens) to how many there were."""
    faults: dict[str, str] = {}
    """Parts of trainperf that were switched off after an error of their own, and the error."""
    dropped: dict[str, int] = {}
    """Measurements given up because a bounded buffer was full."""
    notes: dict[str, str] = {}
    """Notes learned while training: they complete `RunInfo.notes`."""
    reasons: dict[str, str] = {}
    """Reasons learned while training: they complete `RunInfo.reasons`."""


class EndMark(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """Last line of a record file that was closed: how the fit ended and how long it took."""

    reason: str
    """`finished`, `interrupted`, or the exception's class name."""
    fit_ns: int
    """From the start of the fit to this line."""
    steps: int


@dataclass(frozen=True, slots=True)
class StepSchema:
    """How to read a row: which facts follow the core columns, and on what device they arose."""

    columns: tuple[str, ...] = ()
    device: str = "cpu"

    @property
    def synchronous(self) -> bool:
        """Whether the device works in step with the host, as a CPU does."""
        return self.device == "cpu"


class StepBlock:
    """Up to 4,096 steps as columns: what meters observe.

    Inside a block a missing fact is NaN; `fact` and `having` are how it is kept from a statistic.
    """

    def __init__(self, schema: StepSchema, matrix: Column) -> None:
        self.schema = schema
        self._matrix = matrix
        self._parts: dict[tuple[str, ...], StepBlock] = {}

    @classmethod
    def from_rows(cls, schema: StepSchema, rows: Sequence[Row]) -> "StepBlock":
        """Build from rows of core columns and facts; `None` is a missing value."""
        width = _FIRST_FACT + len(schema.columns)
        if not rows:
            return cls(schema, np.empty((0, width)))
        return cls(schema, np.array(rows, dtype=np.float64))

    @classmethod
    def from_records(
        cls, records: Iterable[StepRecord], schema: StepSchema | None = None
    ) -> "StepBlock":
        """Build from records; without a schema the columns are all facts that any record has."""
        steps = list(records)
        if schema is None:
            present = {name for step in steps for name in step.facts}
            unknown = present - FACTS.keys()
            if unknown:
                raise ConfigError(f"facts {sorted(unknown)}: not in FACTS; add them there first")
            schema = StepSchema(tuple(name for name in FACTS if name in present))
        return cls.from_rows(schema, [row_of(step, schema) for step in steps])

    @classmethod
    def joined(cls, blocks: "Sequence[StepBlock]") -> "StepBlock":
        """The steps of several blocks of one schema as one block."""
        if len(blocks) == 1:
            return blocks[0]
        matrices = [block._matrix for block in blocks]  # noqa: SLF001 blocks of this class
        return cls(blocks[0].schema, np.concatenate(matrices))

    def __len__(self) -> int:
        return int(self._matrix.shape[0])

    @cached_property
    def index(self) -> Column:
        """Step numbers."""
        return self._matrix[:, 0]

    @cached_property
    def start_ns(self) -> Column:
        """Start of each step, nanoseconds from the start of the fit."""
        return self._matrix[:, 1]

    @cached_property
    def tags(self) -> npt.NDArray[np.int64]:
        """Bits of `Tag` per step."""
        return self._matrix[:, 2].astype(np.int64)

    @cached_property
    def micro_batches(self) -> Column:
        """Forward-backward passes per step."""
        return self._matrix[:, 3]

    @cached_property
    def wall_ns(self) -> Column:
        """Host time per step in whole nanoseconds (exact: a sum of integers below 2**53)."""
        total: Column = self._matrix[:, _FIRST_PHASE:_FIRST_FACT].sum(axis=1)
        return total

    @cached_property
    def walls(self) -> Distribution | None:
        """Distribution of wall times in seconds: several meters read it, so it is made once."""
        return Distribution.of(self.wall_ns / 1e9)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.schema.columns)}

    @cached_property
    def _sums(self) -> list[float]:
        sums: list[float] = self._matrix.sum(axis=0).tolist()
        return sums

    @cached_property
    def _missing(self) -> list[int]:
        missing: list[int] = np.isnan(self._matrix[:, _FIRST_FACT:]).sum(axis=0).tolist()
        return missing

    def core(self) -> Column:
        """The core columns as a matrix, one row a step."""
        return self._matrix[:, :_FIRST_FACT]

    def host_ns(self, phase: Phase) -> Column:
        """Host time per step in one phase, in whole nanoseconds."""
        return self._matrix[:, _FIRST_PHASE + phase]

    @cached_property
    def total_wall_ns(self) -> float:
        """Sum of `wall_ns`."""
        return sum(self._sums[_FIRST_PHASE:_FIRST_FACT])

    def total_ns(self, phase: Phase) -> float:
        """Sum of `host_ns` of a phase."""
        return self._sums[_FIRST_PHASE + phase]

    def fact(self, name: str) -> Column | None:
        """Values of a fact, NaN where missing; `None` when no step in the block has it."""
        place = self._places.get(name)
        if place is None or self._missing[place] == len(self):
            return None
        return self._matrix[:, _FIRST_FACT + place]

    def total(self, name: str) -> float:
        """Sum of a fact that every step has: ask a block that came from `having`."""
        return self._sums[_FIRST_FACT + self._places[name]]

    def having(self, *names: str) -> "StepBlock | None":
        """The steps that have every one of these facts; `None` when there is none."""
        places = [self._places.get(name) for name in names]
        missing = [len(self) if place is None else self._missing[place] for place in places]
        if not len(self) or max(missing) == len(self):
            return None
        if max(missing) == 0:
            return self
        known = self._parts.get(names)
        if known is None:
            columns = [_FIRST_FACT + place for place in places if place is not None]
            complete = np.logical_not(np.isnan(self._matrix[:, columns]).any(axis=1))
            known = self._parts[names] = self.select(complete)
        return known if len(known) else None

    def select(self, chosen: npt.NDArray[np.bool_]) -> "StepBlock":
        """The steps for which *chosen* is true."""
        return StepBlock(self.schema, self._matrix[chosen])

    def steady(self) -> "StepBlock":
        """The steps without a disqualifying tag."""
        usual = (self.tags & DISQUALIFYING) == 0
        return self if usual.all() else self.select(usual)

    def retagged(self, tags: npt.NDArray[np.int64]) -> "StepBlock":
        """The same steps with other tags, e.g. the union over ranks."""
        matrix = self._matrix.copy()
        matrix[:, 2] = tags
        return StepBlock(self.schema, matrix)

    def renumbered(self, by: int) -> "StepBlock":
        """The same steps with *by* added to their numbers: a later attempt goes on counting."""
        matrix = self._matrix.copy()
        matrix[:, 0] += by
        return StepBlock(self.schema, matrix)

    def records(self) -> list[StepRecord]:
        """The steps as records, for people and tests: not for the hot path."""
        return [record_of(row, self.schema) for row in self._matrix.tolist()]


def row_of(step: StepRecord, schema: StepSchema) -> Row:
    """A record as a row of core columns and facts."""
    facts = (step.facts.get(name) for name in schema.columns)
    return (step.index, step.start_ns, step.tags, step.micro_batches, *step.host_ns, *facts)


def record_of(row: Row, schema: StepSchema) -> StepRecord:
    """A row of core columns and facts as a record; inverse of `row_of`."""
    core = [int(value or 0) for value in row[:_FIRST_FACT]]
    facts = dict(zip(schema.columns, (_number(value) for value in row[_FIRST_FACT:]), strict=True))
    return StepRecord(
        index=core[0],
        start_ns=core[1],
        tags=core[2],
        micro_batches=core[3],
        host_ns=tuple(core[_FIRST_PHASE:]),
        facts=facts,
    )


def _number(value: float | None) -> int | float | None:
    if value is None or math.isnan(value):
        return None
    return int(value) if float(value).is_integer() else value

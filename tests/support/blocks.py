"""Steps as rows and as records: the ways between that only tests need."""

import math
from collections.abc import Iterable

from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import CORE_COLUMNS, FACTS, Row, StepRecord


def row_of(step: StepRecord, schema: StepSchema) -> Row:
    """A record as a row of core columns and facts."""
    facts = (step.facts.get(name) for name in schema.columns)
    return (step.index, step.start_ns, step.tags, step.micro_batches, *step.host_ns, *facts)


def block_of(records: Iterable[StepRecord], schema: StepSchema | None = None) -> StepBlock:
    """A block of records; without a schema the columns are all `FACTS` that any of them has."""
    steps = list(records)
    present = {name for step in steps for name in step.facts}
    schema = schema or StepSchema(tuple(name for name in FACTS if name in present))
    return StepBlock.from_rows(schema, [row_of(step, schema) for step in steps])


def records_of(block: StepBlock) -> list[StepRecord]:
    """The steps of a block as records."""
    return [_record(row, block.schema) for row in block.cells.tolist()]


def _record(row: list[float], schema: StepSchema) -> StepRecord:
    index, start_ns, tags, micro_batches, *host_ns = map(int, row[: len(CORE_COLUMNS)])
    facts = zip(schema.columns, map(_number, row[len(CORE_COLUMNS) :]), strict=True)
    return StepRecord(
        index=index,
        start_ns=start_ns,
        tags=tags,
        micro_batches=micro_batches,
        host_ns=tuple(host_ns),
        facts=dict(facts),
    )


def _number(value: float) -> float | None:
    """A whole number as one; NaN is a missing fact."""
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else value

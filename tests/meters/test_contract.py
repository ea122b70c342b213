"""What every meter promises.  A new member of `METERS` is picked up by itself."""

import math
import re
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from trainperf.core.phases import Tag
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import FACTS, RunInfo
from trainperf.meters import METERS, Meter, Scope
from trainperf.meters.fold import Fold, Reading, readings


UNITS = {"s", "1", "B", "1/s", "B/s"}
SUFFIXES = {"s": "_s", "1/s": "_per_s", "B/s": "_per_s", "B": "bytes"}
EACH = pytest.mark.parametrize("meter", METERS, ids=lambda meter: meter.name)


@dataclass(frozen=True, slots=True)
class Generated:
    """Steps with every fact, each missing now and then."""

    schema: StepSchema
    rows: list[list[float | None]]

    def block(self, first: int, last: int) -> StepBlock:
        """Some of the steps."""
        return StepBlock.from_rows(self.schema, self.rows[first:last])


def generated(steps: int, device: str) -> Generated:
    """Random steps from a fixed seed: whole nanoseconds and counts, as a recorder makes them."""
    rng = np.random.default_rng(11)
    columns = tuple(FACTS)
    rows: list[list[float | None]] = []
    clock = 0
    for index in range(steps):
        phases = rng.integers(1_000, 20_000_000, 8).tolist()
        tags = int(Tag.WARMUP) if index < 12 else int(rng.choice([0, 0, 0, 256, 4]))
        facts = [None if rng.random() < 0.1 else float(rng.integers(1, 1_000_000)) for _ in columns]
        rows.append([index, clock, tags, 1, *phases, *facts])
        clock += sum(phases)
    return Generated(StepSchema(columns, device), rows)


STEPS = generated(700, "cuda")


def without(names: tuple[str, ...]) -> StepBlock:
    """Steps in which these facts are missing."""
    rows = [list(row) for row in STEPS.rows]
    for name in names:
        place = 12 + STEPS.schema.columns.index(name)
        for row in rows:
            row[place] = None
    return StepBlock.from_rows(STEPS.schema, rows)


def fold(meter: Meter, size: int) -> Fold:
    """All steps, folded in blocks of *size*."""
    folded = Fold([meter])
    for first in range(0, len(STEPS.rows), size):
        folded.observe(STEPS.block(first, first + size))
    return folded


def reading(folded: Fold) -> Reading:
    """The only reading of a fold."""
    return readings([folded], RunInfo(columns=STEPS.schema.columns))[folded.meters[0].name]


@EACH
def test_the_name_is_a_key_and_carries_its_unit(meter: Meter) -> None:
    """`_s`, `bytes` and `_per_s` say what the number is in; a docstring what it is."""
    assert [other.name for other in METERS].count(meter.name) == 1
    assert len((meter.__doc__ or "").strip()) > 20
    assert meter.better in {"lower", "higher", None}
    assert set(meter.needs) <= set(FACTS)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", meter.name)
    assert meter.unit in UNITS
    assert meter.unit == "1" or SUFFIXES[meter.unit] in meter.name


@pytest.mark.parametrize("meter", [m for m in METERS if m.needs], ids=lambda meter: meter.name)
def test_without_what_it_needs_it_is_not_measured_and_says_why(meter: Meter) -> None:
    """`None` with a reason, never 0."""
    folded = Fold([meter])

    folded.observe(without(meter.needs))

    found = reading(folded)
    assert found.value is None
    assert found.reason


@EACH
def test_blocks_of_fifty_and_of_4096_say_the_same(meter: Meter) -> None:
    """TensorBoard and the report are equal by construction."""
    live, offline = reading(fold(meter, 50)), reading(fold(meter, 4096))

    assert live.value is not None
    assert offline.value == pytest.approx(live.value, rel=1e-9)
    assert (live.n, live.low, live.high) == (offline.n, offline.low, offline.high)


@EACH
def test_merging_is_associative(meter: Meter) -> None:
    """Blocks may be grouped anyhow: state is a fold."""
    parts = [meter.observe(STEPS.block(a, a + 200).steady()) for a in (100, 300, 500)]
    first, second, third = parts

    left = first.merge(second).merge(third)
    right = first.merge(second.merge(third))

    assert left.n == right.n
    assert left.value() == pytest.approx(right.value(), rel=1e-9)


@EACH
def test_its_reading_survives_json_without_nan(meter: Meter) -> None:
    """What is on disk is what was measured."""
    found = reading(fold(meter, 4096))

    assert msgspec.json.decode(msgspec.json.encode(found), type=Reading) == found
    assert math.isfinite(found.value)


@EACH
def test_it_is_shown_the_steps_of_its_scope_and_no_others(meter: Meter) -> None:
    """A steady meter does not move when warm-up steps change; one over all steps may."""
    changed = [list(row) for row in STEPS.rows]
    for row in changed[:12]:
        row[4] = 9e9
    folded = Fold([meter])
    folded.observe(StepBlock.from_rows(STEPS.schema, changed))

    if meter.scope is Scope.STEADY:
        assert reading(folded) == reading(fold(meter, 4096))


@EACH
def test_it_has_no_state(meter: Meter) -> None:
    """Observing the same block twice gives the same twice."""
    block = STEPS.block(100, 300)
    first, second = meter.observe(block), meter.observe(block)

    assert first.value() == second.value()

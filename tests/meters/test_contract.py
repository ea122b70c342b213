"""What every meter promises.  A new member of `METERS` is picked up by itself."""

import math
import re
from collections.abc import Collection

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


COLUMNS = tuple(FACTS)


def generated(without: Collection[str] = (), first_wait_ns: int | None = None) -> StepBlock:
    """Random steps from a fixed seed: whole nanoseconds and counts, as a recorder makes them.

    Args:
        without: Facts that are missing; all others are now and then.
        first_wait_ns: Data wait of the steps that warm up; random like all others by default.
    """
    rng = np.random.default_rng(11)
    rows: list[list[float | None]] = []
    for index in range(700):
        phases = rng.integers(1_000, 20_000_000, 8).tolist()
        tags = int(Tag.WARMUP) if index < 12 else int(rng.choice([0, 0, 0, 256, 4]))
        facts = [None if rng.random() < 0.1 else float(rng.integers(1, 1_000_000)) for _ in COLUMNS]
        known = [None if name in without else n for name, n in zip(COLUMNS, facts, strict=True)]
        if index < 12 and first_wait_ns:
            phases[0] = first_wait_ns
        rows.append([index, 160_000_000 * index, tags, 1, *phases, *known])
    return StepBlock.from_rows(StepSchema(COLUMNS, "cuda"), rows)


STEPS = generated()


def fold(meter: Meter, size: int) -> Fold:
    """All steps, folded in blocks of *size*."""
    folded = Fold([meter])
    for first in range(0, len(STEPS), size):
        folded.observe(STEPS.select(slice(first, first + size)))
    return folded


def reading(folded: Fold) -> Reading:
    """The only reading of a fold."""
    return readings([folded], RunInfo(columns=COLUMNS))[folded.meters[0].name]


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

    folded.observe(generated(without=meter.needs))

    found = reading(folded)
    assert found.value is None
    assert found.reason


@EACH
def test_blocks_of_fifty_and_of_4096_say_the_same(meter: Meter) -> None:
    """TensorBoard and the report are equal by construction; nor does a meter keep anything."""
    live, offline = reading(fold(meter, 50)), reading(fold(meter, 4096))

    assert live.value is not None
    assert offline.value == pytest.approx(live.value, rel=1e-9)
    assert (live.n, live.low, live.high) == (offline.n, offline.low, offline.high)


@EACH
def test_merging_is_associative(meter: Meter) -> None:
    """Blocks may be grouped anyhow: state is a fold."""
    parts = [meter.observe(STEPS.select(slice(a, a + 200)).steady()) for a in (100, 300, 500)]
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
    folded = Fold([meter])
    folded.observe(generated(first_wait_ns=9_000_000_000))

    if meter.scope is Scope.STEADY:
        assert reading(folded) == reading(fold(meter, 4096))

"""Columns of steps: selection, missing facts, and the way back to records."""

import numpy as np
from support.blocks import block_of, records_of
from support.runs import MS, make_step, make_steps

from trainperf.core.phases import DISQUALIFYING, GAPS, PHASES, TAGS, Phase, Tag
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import CORE_COLUMNS


def test_records_become_columns_and_records_again() -> None:
    """Nothing is lost on the way through a block."""
    steps = [
        make_step(3, tags=int(Tag.GC), data_wait=1, forward=2, facts={"samples": 8, "loss": 2.5}),
        make_step(4, forward=2, facts={"samples": 8, "loss": None}),
    ]

    assert records_of(block_of(steps)) == steps


def test_the_phases_of_a_step_sum_to_its_wall_time() -> None:
    """To the nanosecond."""
    block = block_of([make_step(0, data_wait=1.000001, h2d=2, other=0.5)])

    assert block.wall_ns.tolist() == [3_500_001]
    assert block.host_ns(Phase.DATA_WAIT).tolist() == [1_000_001]


def test_steady_steps_have_no_tag_but_overflow() -> None:
    """Every other tag says that something else ran inside the step."""
    steps = [make_step(i, tags=int(tag), forward=1) for i, tag in enumerate([0, *Tag])]

    block = block_of(steps).steady()

    assert [[tag.label for tag in TAGS if tags & tag] for tags in block.tags.tolist()] == [
        [],
        ["overflow"],
    ]
    assert DISQUALIFYING & Tag.OVERFLOW == 0


def test_only_steps_with_every_asked_fact_are_had() -> None:
    """A missing fact takes its step out of a quotient, not just out of its numerator."""
    facts = [{"samples": 1, "loss": 2.0}, {"samples": 1, "loss": None}, {"samples": 3, "loss": 1.0}]
    block = block_of([make_step(i, forward=1, facts=f) for i, f in enumerate(facts)])

    assert block.having("samples", "loss").index.tolist() == [0, 2]
    assert block.having("gc_ns") is None


def test_a_fact_that_no_step_has_is_not_measured() -> None:
    """A column of nothing but gaps is `None`, not zeros."""
    block = block_of([make_step(0, forward=1, facts={"loss": None})])

    assert block.fact("loss") is None
    assert block.having("loss") is None


def test_replacing_a_column_leaves_the_original_alone() -> None:
    """Blocks are values."""
    block = block_of(make_steps(2, warmup=0, forward=1))

    tagged = block.replaced("tags", np.array([1, 2]))
    numbered = block.replaced("index", block.index + 10)

    assert tagged.tags.tolist() == [1, 2]
    assert numbered.index.tolist() == [10, 11]
    assert (block.tags.tolist(), block.index.tolist()) == ([0, 0], [0, 1])


def test_wall_time_in_seconds_and_nanoseconds_agree() -> None:
    """A record knows both."""
    step = make_step(0, forward=1500)

    assert (step.wall_ns, step.wall_s) == (1500 * MS, 1.5)


def test_slots_are_numbered_without_holes() -> None:
    """One stack holds phases and gaps, so they share one numbering."""
    assert [*PHASES, *GAPS] == list(range(len(PHASES) + len(GAPS)))
    assert len(CORE_COLUMNS) == 4 + len(PHASES)


def test_an_empty_block_has_no_steps() -> None:
    """No rows is a possible number of rows."""
    block = StepBlock.from_rows(StepSchema(("loss",)), [])

    assert len(block) == 0
    assert block.walls is None
    assert records_of(block) == []

"""The ledger sums to the fit, whatever the fit was."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.blocks import block_of
from support.runs import (
    MS,
    RankSpec,
    make_gap,
    make_info,
    make_run_dir,
    make_step,
    make_steps,
)

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import UNATTRIBUTED, Journal
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.replay import Replay
from trainperf.core.phases import GAPS, PHASES, Gap
from trainperf.core.steps.block import StepBlock


def journal(path: Path, ranks: list[RankSpec]) -> Journal:
    """The journal of rank 0 after a replay."""
    replay = Replay(Run.open(make_run_dir(path / "run", ranks)))
    list(replay.blocks())
    return replay.journals[0]


def again(started_at: str) -> list[RankSpec]:
    """Cut off after a second, and started anew for half of one, at that time of day."""
    later = msgspec.structs.replace(make_info(), started_at=started_at)
    return [
        RankSpec(steps=make_steps(10, forward=100), info=make_info(), end=None),
        RankSpec(steps=make_steps(5, forward=100), info=later, attempt=1),
    ]


AFTER_START = [
    make_step(step.index, start_ns=step.start_ns + 200 * MS, forward=100)
    for step in make_steps(10, forward=100)
]
NO_RESTART = (1_500, {"restart": None, UNATTRIBUTED: 0.0})

FITS: dict[str, tuple[list[RankSpec], int, dict[str, float | None]]] = {
    "a second of steps, pauses, a start, and 50 ms in no line": (
        [
            RankSpec(
                steps=make_steps(10, data_wait=40, forward=60),
                gaps=[
                    make_gap(Gap.STARTUP, 200),
                    make_gap(Gap.VALIDATION, 100),
                    make_gap(Gap.VALIDATION, 200),
                ],
                fit_ns=1550 * MS,
            )
        ],
        1550,
        {
            "data_wait": 0.4,
            "forward": 0.6,
            "loop": 0.0,
            "startup": 0.2,
            "validation": 0.3,
            UNATTRIBUTED: 0.05,
        },
    ),
    "a running fit lasts up to its last line": (
        [RankSpec(steps=AFTER_START, gaps=[make_gap(Gap.STARTUP, 200)], end=None)],
        1200,
        {UNATTRIBUTED: 0.0},
    ),
    "a hole between two steps of a running fit": (
        [
            RankSpec(
                steps=[make_step(0, forward=100), make_step(1, start_ns=400 * MS, forward=100)],
                end=None,
            )
        ],
        500,
        {UNATTRIBUTED: 0.3},
    ),
    "a hole before the last gap of a running fit": (
        [
            RankSpec(
                steps=[make_step(0, forward=100)],
                gaps=[make_gap(Gap.VALIDATION, 100, start_ns=300 * MS)],
                end=None,
            )
        ],
        400,
        {UNATTRIBUTED: 0.2},
    ),
    "the time between two attempts is a restart": (
        again("2026-11-01T12:00:10+00:00"),
        10_500,
        {"restart": 9.0, UNATTRIBUTED: 0.0},
    ),
    "an anchor before the end of the first attempt": (
        again("2026-11-01T12:00:00.5Z"),
        *NO_RESTART,
    ),
    "no anchor": (again(""), *NO_RESTART),
    "an anchor that is no time": (again("yesterday"), *NO_RESTART),
    "a gap of a later release has the name it came with": (
        [
            RankSpec(
                steps=make_steps(1, forward=100),
                gaps=[msgspec.structs.replace(make_gap(Gap.VALIDATION, 50), gap="evaluation")],
            )
        ],
        150,
        {"evaluation": 0.05},
    ),
}
"""What ranks wrote, how many milliseconds the fit lasted, and parts of its ledger."""


@pytest.mark.parametrize(("ranks", "fit_ms", "ledger"), FITS.values(), ids=FITS)
def test_every_second_is_under_its_phase_or_gap(
    ranks: list[RankSpec], fit_ms: int, ledger: dict[str, float | None], tmp_path: Path
) -> None:
    """Or under none: then it shows."""
    found = journal(tmp_path, ranks)

    assert found.fit_ns == fit_ms * MS
    assert {name: found.ledger_s().get(name) for name in ledger} == ledger


@given(
    walls=st.lists(st.lists(st.integers(0, 10**9), min_size=8, max_size=8), min_size=1, max_size=9),
    gaps=st.lists(st.tuples(st.sampled_from(GAPS), st.integers(0, 10**9)), max_size=9),
    slack=st.integers(-(10**8), 10**8),
)
def test_it_sums_to_the_fit_to_the_nanosecond(
    walls: list[list[int]], gaps: list[tuple[Gap, int]], slack: int
) -> None:
    """For any steps, gaps and residual."""
    found = Journal(0)
    rows = [[index, 0, 0, 1, *wall] for index, wall in enumerate(walls)]
    found.begin(RecordFile(parts=(), rank=0, attempt=0, info=make_info()))
    found.add(StepBlock.from_rows(block_of([]).schema, rows))
    for gap, duration in gaps:
        found.add(make_gap(gap, duration / MS))
    found.close()
    found.fit_ns += slack

    assert sum(round(spent_s * 1e9) for spent_s in found.ledger_s().values()) == found.fit_ns


def test_phases_come_first_and_what_is_left_over_last(tmp_path: Path) -> None:
    """The order reports print."""
    spec = RankSpec(steps=make_steps(1, forward=1), gaps=[make_gap(Gap.SHUTDOWN, 1)])

    names = list(journal(tmp_path, [spec]).ledger_s())

    assert names == [*(phase.label for phase in PHASES), "shutdown", UNATTRIBUTED]

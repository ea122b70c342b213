"""The summary: one pass, every number of the contract, and what was left out."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from support.late import named
from support.runs import (
    MS,
    RankSpec,
    make_gap,
    make_info,
    make_run_dir,
    make_step,
    make_steps,
    summary_of,
)

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import save_summary, summarize
from trainperf.analysis.summary.run_facts import SILENT_S
from trainperf.analysis.summary.schema import Summary
from trainperf.core.phases import PHASES, Gap, Tag
from trainperf.core.steps.records import Totals


CONTRACT = """data_wait_fraction data_stall_fraction h2d_s h2d_bytes_per_s h2d_fraction step_s
step_p95_s step_p99_s first_step_s overflow_rate loss_scale effective_tokens_per_s
padded_tokens_per_s padding_fraction samples_per_s optimizer_steps_per_s allreduce_tail_s
allreduce_tail_fraction allreduce_skew_s host_bound_fraction flops_per_s mfu hfu memory_peak_bytes
memory_reserved_peak_bytes fragmentation_bytes gc_s recompiles loss overhead_s"""


def write_summary(path: Path, *, now_s: float | None = None) -> Summary:
    """Summarize the run at *path* and save the summary in it."""
    run = Run.open(path)
    summary = summarize(run, now_s=now_s)
    save_summary(summary, run.path)
    return summary


def plain(**phases_ms: float) -> RankSpec:
    """One rank, two hundred equal steps."""
    return RankSpec(steps=make_steps(200, **(phases_ms or {"forward": 50.0})))


def pair(slow_ms: float = 0.0) -> list[RankSpec]:
    """Two ranks that wait for each other; rank 1 is slower in its loader."""
    return [
        RankSpec(
            steps=make_steps(
                200,
                data_wait=2 + extra,
                forward=10,
                backward=20 + tail,
                loop=0.5,
                facts={"tail_ns": round(tail * MS), "tokens_effective": 100 * (rank + 1)},
            ),
            info=make_info(rank=rank, world_size=2),
        )
        for rank, (extra, tail) in enumerate(((0.0, 1 + slow_ms), (slow_ms, 1.0)))
    ]


def test_it_is_json_with_all_that_the_contract_promises(tmp_path: Path) -> None:
    """What other programs read, whole, in place of an old one: a value, or the reason why not."""
    directory = make_run_dir(tmp_path / "run", [plain(data_wait=20, forward=30)])
    (directory / "summary.json").write_text("old")

    summary = write_summary(directory)

    written = (directory / "summary.json").read_bytes()
    data = json.loads(written)
    assert msgspec.json.decode(written, type=Summary) == summary
    assert [path.name for path in directory.glob("*.*")] == ["steps-rank0.jsonl", "summary.json"]
    assert {"schema", "run", "readings", "ledger_s", "findings", "excluded"} <= set(data)
    assert {*CONTRACT.split(), *(f"phase_{phase.label}_s" for phase in PHASES)} <= {
        name
        for name, reading in data["readings"].items()
        if reading["value"] is not None or reading["reason"]
    }
    assert data["readings"]["data_wait_fraction"] == {"value": 0.4, "unit": "1", "n": 188}
    assert data["readings"]["overflow_rate"]["value"] is None
    assert data["findings"][0]["id"] == "data_wait"
    assert data["excluded"] == {"warmup": 12}


def test_a_step_with_several_tags_is_excluded_once_under_the_first(tmp_path: Path) -> None:
    """The reasons add up to the steps that are not steady."""
    both = int(Tag.AFTER_VALIDATION | Tag.GC)
    steps = [
        *make_steps(20, forward=50),
        make_step(20, tags=both, forward=90),
        make_step(21, tags=int(Tag.GC), forward=90),
        make_step(22, tags=int(Tag.WARMUP | Tag.FIRST_IN_EPOCH), forward=90),
        make_step(23, tags=int(Tag.OVERFLOW), forward=50),
    ]

    summary = summary_of(tmp_path, [RankSpec(steps=steps)])

    assert summary.excluded == {"warmup": 13, "after_validation": 1, "gc": 1}
    assert sum(summary.excluded.values()) == summary.run.steps - summary.run.steady_steps


def test_tokens_of_ranks_are_summed_over_the_same_steps(tmp_path: Path) -> None:
    """100 + 200 tokens a step of 33.5 ms, whatever was written after the other was killed."""
    first, second = pair()
    shorter = RankSpec(steps=second.steps[:150], info=second.info, end=None)

    summary = summary_of(tmp_path, [first, shorter])

    assert summary.run.steps == 150
    assert summary.readings["effective_tokens_per_s"].value == pytest.approx(300 / 0.0335)
    assert "50 steps excluded: not every rank recorded them" in summary.warnings


def test_the_late_rank_is_named_and_the_skew_is_a_reading(tmp_path: Path) -> None:
    """Rank 1 waits 20 ms longer for its data."""
    summary = summary_of(tmp_path, pair(20))

    (backward, loop) = summary.synchronisation
    assert (named(backward), loop.late) == ((1, "data_wait"), ())
    assert summary.readings["allreduce_skew_s"].value == pytest.approx(0.020, rel=0.002)
    assert summary.readings["allreduce_tail_s"].per_rank == (
        pytest.approx(0.021, rel=0.002),
        pytest.approx(0.001, rel=0.002),
    )


def test_an_elastic_restart_with_fewer_ranks_is_read_whole(tmp_path: Path) -> None:
    """Two ranks for 200 steps and rank 0 alone for 100: readings combine the ranks there are."""
    first, second = pair(20)
    alone = RankSpec(
        steps=make_steps(100, data_wait=2, forward=48, facts={"tokens_effective": 100}),
        info=make_info(rank=0, world_size=1),
        attempt=1,
    )

    summary = summary_of(tmp_path, [first, second, alone])

    assert (summary.run.steps, summary.warnings) == (300, ())
    seconds = 200 * 0.0535 + 100 * 0.050
    tokens = 300 * 100 + 200 * 200
    assert summary.readings["step_s"].n == 188 + 88
    assert summary.readings["effective_tokens_per_s"].value == pytest.approx(
        (tokens - 12 * 300 - 12 * 100) / (seconds - 12 * 0.0535 - 12 * 0.050), rel=1e-6
    )
    assert [point.n for point in summary.synchronisation] == [188, 188]


def test_damaged_lines_are_a_warning(tmp_path: Path) -> None:
    """With the rank and their number."""
    directory = make_run_dir(tmp_path / "run", [plain()])
    with (directory / "steps-rank0.jsonl").open("ab") as file:
        file.write(b"[1\n{\n")

    assert write_summary(directory).warnings == ("rank 0: 2 damaged lines skipped",)


SHORT = make_steps(30, forward=1)


@pytest.mark.parametrize(
    ("specs", "warnings"),
    [
        (
            [RankSpec(steps=SHORT, info=make_info(rank=2, world_size=4))],
            ("1 of 4 ranks read (missing: 0, 1, 3): sums over ranks are too low",),
        ),
        (
            [*pair(), RankSpec(steps=SHORT, info=pair()[0].info, attempt=1)],
            ("attempt 1: 1 of 2 ranks read (missing: 1): sums over ranks are too low",),
        ),
        # A probe that was switched off must not look like a measurement of nothing.
        (
            [
                RankSpec(
                    steps=SHORT,
                    totals=Totals(at_step=1, faults={"tokens": "KeyError"}, dropped={"marks": 3}),
                )
            ],
            (
                "tokens was switched off: KeyError",
                "marks: 3 measurements dropped, a buffer was full",
            ),
        ),
        # More than 1 % of the fit in no record is a defect of ours.
        (
            [RankSpec(steps=make_steps(20, forward=50), fit_ns=1100 * MS)],
            ("100 ms of the fit are not covered by any record",),
        ),
        ([RankSpec(steps=make_steps(20, forward=50), fit_ns=1005 * MS)], ()),
    ],
)
def test_what_is_missing_is_a_warning(
    specs: list[RankSpec], warnings: tuple[str, ...], tmp_path: Path
) -> None:
    """In a sentence each."""
    assert summary_of(tmp_path, specs).warnings == warnings


@pytest.mark.parametrize("rank", [0, 1])
def test_a_loss_that_diverged_is_said_and_has_no_value(tmp_path: Path, rank: int) -> None:
    """The last finite loss is long ago: it is not what the model has learned."""
    note = "not finite since step 7 (93 steps)"
    specs = [
        RankSpec(
            steps=make_steps(100, forward=1, facts={"loss": 2.5}),
            info=make_info(rank=r, world_size=2),
            totals=Totals(at_step=99, notes={"loss": note} if r == rank else {}),
        )
        for r in (0, 1)
    ]

    summary = summary_of(tmp_path, specs)

    assert (summary.readings["loss"].value, summary.readings["loss"].reason) == (None, note)
    assert summary.warnings == (f"the loss is {note}",)


def test_a_loss_that_a_restart_brought_back_has_a_value(tmp_path: Path) -> None:
    """The attempt that diverged is over."""
    steps = make_steps(100, forward=1, facts={"loss": 2.5})
    specs = [
        RankSpec(steps=steps, totals=Totals(at_step=1, notes={"loss": "not finite"})),
        RankSpec(steps=steps, totals=Totals(at_step=1), attempt=1),
    ]

    summary = summary_of(tmp_path, specs)

    assert summary.readings["loss"].value == 2.5
    assert summary.warnings == ()


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        ("finished", "finished", None),
        ("interrupted", "interrupted", None),
        ("ValueError", "failed", "ValueError"),
        ("not closed", "interrupted", "not closed"),
        (None, "running", None),
    ],
)
def test_how_the_fit_ended_is_said(
    tmp_path: Path, end: str | None, state: str, reason: str | None
) -> None:
    """From the end mark, or from there being none."""
    run = summary_of(tmp_path, [RankSpec(steps=make_steps(30, forward=1), end=end)]).run

    assert (run.state, run.end_reason) == (state, reason)


def test_a_run_without_a_step_is_summarized_all_the_same(tmp_path: Path) -> None:
    """An exception in the first batch."""
    spec = RankSpec(steps=[], gaps=[make_gap(Gap.STARTUP, 400)], end="ValueError")

    summary = summary_of(tmp_path, [spec])

    assert (summary.run.steps, summary.run.fit_s) == (0, 0.4)
    assert summary.readings["step_s"].reason == "no step was recorded"
    assert summary.findings == ()


BARE = [
    RankSpec(steps=make_steps(40, forward=1), info=make_info(rank=rank, world_size=2))
    for rank in (0, 1)
]


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        (pair(20), None),
        ([plain()], "one rank: no other rank to wait for"),
        (BARE, "not measured: needs the all-reduce tail of at least two ranks"),
        (
            [RankSpec(steps=spec.steps[:5], info=spec.info) for spec in pair(20)],
            "no steady state",
        ),
    ],
    ids=["two ranks", "one rank", "another strategy than DDP", "a few steps"],
)
def test_the_skew_has_an_interval_or_a_reason(
    specs: list[RankSpec], reason: str | None, tmp_path: Path
) -> None:
    """Not zero: not applicable."""
    reading = summary_of(tmp_path, specs).readings["allreduce_skew_s"]

    assert (reading.value is None) is (reading.low is None) is (reason is not None)
    assert (reason or "") in (reading.reason or "")


@pytest.mark.parametrize(
    ("ranks", "step_ms", "silent_s", "state"),
    [
        (1, 1, 5.0, "running"),
        (1, 1, 2 * SILENT_S, "killed"),
        # Steps of 10 s are written in groups: five minutes of silence are nothing.
        (1, 10_000, 300.0, "running"),
        # The other rank writes; this one may be waiting for a file system.
        (2, 1, 8000.0, "running"),
    ],
)
def test_a_run_that_stopped_writing_was_killed(
    ranks: int, step_ms: float, silent_s: float, state: str, tmp_path: Path
) -> None:
    """Without an end mark the last write decides."""
    steps = make_steps(30, forward=step_ms)
    specs = [
        RankSpec(steps=steps, info=make_info(rank=rank, world_size=ranks), end=None)
        for rank in range(ranks)
    ]
    directory = make_run_dir(tmp_path / "run", specs)
    for rank in range(ranks):
        written_s = 9000.0 - silent_s * (rank == 0)
        os.utime(directory / f"steps-rank{rank}.jsonl", (written_s, written_s))

    assert write_summary(directory, now_s=9000.0).run.state == state


def test_what_ranks_counted_and_learned_is_the_runs(tmp_path: Path) -> None:
    """Hooks on the rank where each costs most, lengths of all of them, the mask that was used."""
    specs = [
        RankSpec(
            steps=make_steps(100, callbacks=9),
            info=make_info(rank=rank, world_size=2),
            totals=Totals(
                at_step=9,
                actions_ns={"A.x": 300 * MS, "B.y": spent * MS},
                sequence_lengths={256: 1, 128: rank},
                notes={"tokens": "attention_mask"},
                reasons={"tokens_effective": "the batch has no mask"},
            ),
        )
        for rank, spent in ((0, 100), (1, 400))
    ]

    summary = summary_of(tmp_path, specs)

    assert list(summary.actions_s.items()) == [("B.y", 0.004), ("A.x", 0.003)]
    assert list(summary.sequence_lengths.items()) == [(128, 1), (256, 2)]
    assert summary.run.notes == {"tokens": "attention_mask"}
    assert summary.readings["effective_tokens_per_s"].reason == "the batch has no mask"

"""Each reading against a planted truth."""

from collections.abc import Iterable, Mapping

import pytest
from support.blocks import block_of
from support.runs import make_step, make_steps

from trainperf.core.phases import Tag
from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.records import RunInfo, StepRecord
from trainperf.meters import METERS
from trainperf.meters.fold import Fold, Reading, readings


def read(
    *ranks: list[StepRecord], device: str = "cpu", info: RunInfo | None = None
) -> dict[str, Reading]:
    """All readings over the steps of one or several ranks."""
    folds = []
    columns: tuple[str, ...] = ()
    for steps in ranks:
        block = block_of(steps)
        columns = block.schema.columns
        fold = Fold(METERS)
        fold.observe(block_of(steps, StepSchema(columns, device)))
        folds.append(fold)
    return readings(folds, info or RunInfo(columns=columns, device=device))


def steps_with(fact_rows: Iterable[Mapping[str, float]], **phases_ms: float) -> list[StepRecord]:
    """A step for each of these facts, all with these phases."""
    return [make_step(i, facts=facts, **phases_ms) for i, facts in enumerate(fact_rows)]


QUANTILES = {"step_s", "step_p99_s", "h2d_s"}
COPIED = {"h2d_device_ns": 1_000_000, "h2d_bytes": 8_000_000, "h2d_tensors": 3}
LEADS = [(0, 1), (1, 0), (2, 0), (0, 3)]
ATTEMPTS = [{"attempts": 1, "overflows": int(i % 5 == 0)} for i in range(150)]
SHARES = {
    "data_stall_fraction": "data_stall_ns",
    "h2d_fraction": "h2d_device_ns",
    "allreduce_tail_fraction": "tail_ns",
}
CASES: dict[str, tuple[list[StepRecord], str, dict[str, float | str]]] = {
    **{
        f"{name} in a short step does not dominate, and one without the fact is in neither": (
            [
                make_step(0, forward=1_000, facts={fact: 900_000_000}),
                make_step(1, forward=9_000, facts={fact: 100_000_000}),
                make_step(2, forward=5_000, facts={fact: None}),
            ],
            "cuda",
            {name: 0.1},
        )
        for name, fact in SHARES.items()
    },
    "a quotient of sums: (0.9 + 0.1) / 10 s, not the mean of 0.9 and 0.011": (
        [make_step(0, data_wait=900, forward=100), make_step(1, data_wait=100, forward=8900)],
        "cpu",
        {"data_wait_fraction": 0.1},
    ),
    "the first batch of an epoch counts in all steps, not in the steady ones": (
        [
            make_step(0, tags=int(Tag.FIRST_IN_EPOCH), data_wait=80, forward=20),
            make_step(1, data_wait=20, forward=80),
        ],
        "cpu",
        {"data_wait_fraction": 0.2, "data_wait_all_fraction": 0.5},
    ),
    "on a CPU the stall is the wait": (
        [make_step(0, data_wait=30, forward=70)],
        "cpu",
        {"data_stall_fraction": 0.3},
    ),
    "on a device the stall is what the device lost, 2 of 100 ms": (
        steps_with([{"data_stall_ns": 2_000_000}], data_wait=30, forward=70),
        "cuda",
        {"data_wait_fraction": 0.3, "data_stall_fraction": 0.02},
    ),
    "a compilation of 10 s moves no percentile of the steady steps": (
        [
            make_step(0, tags=int(Tag.WARMUP), forward=10_000),
            *(make_step(i, forward=50) for i in range(1, 101)),
        ],
        "cpu",
        {"first_step_s": 10.0, "step_s": 0.05, "step_p99_s": 0.05, "step_mean_s": 0.05},
    ),
    "a step that overflowed is a steady one": (
        [
            make_step(0, tags=int(Tag.OVERFLOW), forward=150),
            *(make_step(i, forward=50) for i in (1, 2)),
        ],
        "cpu",
        {"step_mean_s": 0.25 / 3},
    ),
    "twelve warm-up steps are no steady state": (
        make_steps(12, forward=50),
        "cpu",
        {"step_s": "no steady state", "first_step_s": 0.05},
    ),
    "0 of 0 is not 0 %": (
        [make_step(0, forward=1, facts={"attempts": 0, "overflows": 0})],
        "cpu",
        {"overflow_rate": "not measured: the event never occurred"},
    ),
    "30 updates of 150, warm-up included": (
        [
            make_step(i, tags=int(Tag.WARMUP) if i < 12 else 0, forward=1, facts=facts)
            for i, facts in enumerate(ATTEMPTS)
        ],
        "cpu",
        {"overflow_rate": 0.2},
    ),
    "the end of forward is one of the marks that the device may have ahead of it": (
        steps_with([{"lead_forward": f, "lead_backward": b} for f, b in LEADS], forward=1),
        "cuda",
        {"host_bound_fraction": 0.5},
    ),
    "a mean is over the steps that have the fact": (
        steps_with([{"h2d_bytes": 8}, {}, {"h2d_bytes": 4}], forward=1),
        "cuda",
        {"h2d_bytes": 6},
    ),
    "8 MB in 1 ms are 8 GB/s": (
        steps_with([COPIED] * 8, forward=9, h2d=1),
        "cuda",
        {"h2d_bytes_per_s": 8e9, "h2d_fraction": 0.1, "h2d_tensors": 3, "h2d_s": 0.001},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_reading_is_what_was_planted(case: str) -> None:
    """To the last digit, but for quantiles, which are right to 0.2 %; or the reason why not."""
    steps, device, expected = CASES[case]
    found = read(steps, device=device)

    for name, value in expected.items():
        exactly = 0.002 if name in QUANTILES else 1e-12
        missing = isinstance(value, str) and found[name].value is None
        assert not missing or value in (found[name].reason or ""), name
        assert missing or found[name].value == pytest.approx(value, rel=exactly), name


@pytest.mark.parametrize(
    ("key", "reading"), [("attempts", "overflow_rate"), ("phase_h2d_s", "phase_h2d_s")]
)
def test_a_reason_given_by_the_run_is_the_reason_shown(key: str, reading: str) -> None:
    """The run knows best why something does not apply: no value stands beside it, not even 0 s."""
    found = read([make_step(0, forward=1)], info=RunInfo(reasons={key: "it is bf16"}))

    assert (found[reading].value, found[reading].reason) == (None, "it is bf16")
    assert found["phase_forward_s"].value == 0.001


def test_the_phases_add_up_to_the_mean_step() -> None:
    """No time of a step is in two phases or in none."""
    steps = [make_step(i, data_wait=1 + i, forward=5, loop=0.5, other=0.25) for i in range(20)]
    found = read(steps)

    phases = sum(r.value or 0 for name, r in found.items() if name.startswith("phase_"))
    assert phases == pytest.approx(found["step_mean_s"].value, rel=1e-12)


APART = [
    {"peak_bytes": 10, "reserved_peak_bytes": 100},
    {"peak_bytes": 90, "reserved_peak_bytes": 100},
    {},
]
RANKS: dict[str, tuple[list[list[StepRecord]], dict[str, float], dict[str, object]]] = {
    "100 + 60 tokens in 1 s and 2 s are 80 a second, not 100 + 30": (
        [
            steps_with([{"tokens_effective": tokens, "tokens_padded": 200}], forward=ms)
            for tokens, ms in ((100, 1000), (60, 2000))
        ],
        {"effective_tokens_per_s": 80.0, "padded_tokens_per_s": 200.0, "padding_fraction": 0.6},
        {},
    ),
    "every rank's value stands beside the common one": (
        [
            [make_step(i, data_wait=waited, forward=40 - waited) for i in range(20)]
            for waited in (20, 0)
        ],
        {"data_wait_fraction": 0.25},
        {"data_wait_fraction": (0.5, 0.0)},
    ),
    # Before the second step the reserved peak was far ahead; over ranks the largest counts.
    "fragmentation is what is held unused now": (
        [
            steps_with(APART, forward=1),
            steps_with([{**APART[1], "peak_bytes": 70}] * 3, forward=1),
        ],
        {"fragmentation_bytes": 30},
        {"fragmentation_bytes": (10, 30)},
    ),
}


@pytest.mark.parametrize(("ranks", "together", "each"), RANKS.values(), ids=RANKS)
def test_ranks_have_a_reading_together_and_one_each(
    ranks: list[list[StepRecord]], together: dict[str, float], each: dict[str, object]
) -> None:
    """Pooling ranks makes no more steps."""
    found = read(*ranks)

    assert {name: found[name].value for name in together} == together
    assert {name: found[name].per_rank for name in each} == each
    assert {found[name].n for name in together} == {len(ranks[0])}

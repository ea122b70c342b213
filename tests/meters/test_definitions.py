"""Each reading against a planted truth."""

import pytest
from support.runs import make_step, make_steps

from trainperf.core.phases import Tag
from trainperf.core.steps.block import StepBlock, StepSchema
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
        block = StepBlock.from_records(steps)
        columns = block.schema.columns
        fold = Fold(METERS)
        fold.observe(StepBlock.from_records(steps, StepSchema(columns, device)))
        folds.append(fold)
    return readings(folds, info or RunInfo(columns=columns, device=device))


def test_waiting_longer_in_short_steps_does_not_dominate() -> None:
    """The fraction is a quotient of sums: (0.9 + 0.1) / 10 s, not the mean of 0.9 and 0.011."""
    steps = [
        make_step(0, data_wait=900, forward=100),
        make_step(1, data_wait=100, forward=8900),
    ]

    assert read(steps)["data_wait_fraction"].value == 0.1


def test_the_wait_over_all_steps_stands_beside_the_steady_one() -> None:
    """A slow first batch of an epoch shows in one and not in the other."""
    steps = [
        make_step(0, tags=int(Tag.FIRST_IN_EPOCH), data_wait=80, forward=20),
        make_step(1, data_wait=20, forward=80),
    ]
    found = read(steps)

    assert found["data_wait_fraction"].value == 0.2
    assert found["data_wait_all_fraction"].value == 0.5


def test_on_a_cpu_the_stall_is_the_wait() -> None:
    """Nothing is queued that could hide it."""
    found = read([make_step(0, data_wait=30, forward=70)])

    assert found["data_stall_fraction"].value == 0.3


def test_on_a_device_the_stall_is_what_the_device_lost() -> None:
    """The host waited for 30 of 100 ms, and the device was idle for 2 of them."""
    steps = [make_step(0, data_wait=30, forward=70, facts={"data_stall_ns": 2_000_000})]
    found = read(steps, device="cuda")

    assert found["data_wait_fraction"].value == 0.3
    assert found["data_stall_fraction"].value == 0.02


def test_the_phases_add_up_to_the_mean_step() -> None:
    """No time of a step is in two phases or in none."""
    steps = [make_step(i, data_wait=1 + i, forward=5, loop=0.5, other=0.25) for i in range(20)]
    found = read(steps)

    phases = sum(r.value or 0 for name, r in found.items() if name.startswith("phase_"))
    assert phases == pytest.approx(found["step_mean_s"].value, rel=1e-12)


def test_the_first_step_is_not_in_the_steady_statistics() -> None:
    """A 10 s compilation moves no median and no percentile."""
    steps = [make_step(0, tags=int(Tag.WARMUP), forward=10_000)]
    steps += [make_step(i, forward=50) for i in range(1, 101)]
    found = read(steps)

    assert found["first_step_s"].value == 10.0
    assert found["step_p99_s"].value == pytest.approx(0.050, rel=0.002)
    assert found["step_s"].n == 100


def test_an_overflow_does_not_disqualify_a_step() -> None:
    """Skipped updates are part of what the run is."""
    steps = [make_step(i, tags=int(Tag.OVERFLOW), forward=50) for i in range(3)]

    assert read(steps)["step_s"].n == 3


def test_the_overflow_rate_counts_attempts_of_the_whole_fit() -> None:
    """30 of 150 in the steps that attempted, warm-up included."""
    steps = [
        make_step(
            i,
            tags=int(Tag.WARMUP) if i < 12 else 0,
            forward=1,
            facts={"attempts": 1, "overflows": int(i % 5 == 0)},
        )
        for i in range(150)
    ]

    assert read(steps)["overflow_rate"].value == 0.2


def test_a_scaler_that_never_attempted_has_no_rate() -> None:
    """0 of 0 is not 0 %."""
    found = read([make_step(0, forward=1, facts={"attempts": 0, "overflows": 0})])

    assert found["overflow_rate"].value is None
    assert found["overflow_rate"].reason == "not measured: the event never occurred"


def test_tokens_of_all_ranks_over_the_slowest_ranks_time() -> None:
    """100 + 60 tokens in 1 s and 2 s: 80 a second, not 100 + 30."""
    fast = [make_step(0, forward=1000, facts={"tokens_effective": 100, "tokens_padded": 200})]
    slow = [make_step(0, forward=2000, facts={"tokens_effective": 60, "tokens_padded": 200})]
    found = read(fast, slow)

    assert found["effective_tokens_per_s"].value == 80.0
    assert found["padded_tokens_per_s"].value == 200.0
    assert found["padding_fraction"].value == 0.6
    assert found["effective_tokens_per_s"].n == 1


def test_every_ranks_value_stands_beside_the_common_one() -> None:
    """Who waits for data can be read off."""
    waiting = [make_step(i, data_wait=20, forward=20) for i in range(20)]
    working = [make_step(i, data_wait=0, forward=40) for i in range(20)]

    assert read(waiting, working)["data_wait_fraction"].per_rank == (0.5, 0.0)


def test_host_bound_steps_are_those_in_which_the_device_had_caught_up() -> None:
    """None of the step's earlier marks ahead when backward returns; the end of forward is one."""
    leads = [(0, 1), (1, 0), (2, 0), (0, 3)]
    steps = [
        make_step(i, forward=1, facts={"lead_forward": f, "lead_backward": b})
        for i, (f, b) in enumerate(leads)
    ]

    assert read(steps, device="cuda")["host_bound_fraction"].value == 0.5


def test_a_reason_given_by_the_run_is_the_reason_shown() -> None:
    """The run knows best why something does not apply."""
    info = RunInfo(reasons={"attempts": "bf16 uses no GradScaler"})

    found = read([make_step(0, forward=1)], info=info)

    assert found["overflow_rate"].reason == "bf16 uses no GradScaler"


def test_a_reading_that_cannot_be_measured_in_this_run_has_no_value() -> None:
    """With `dataloader_iter` the copy is inside the training step: its phase is not 0 s."""
    info = RunInfo(reasons={"phase_h2d_s": "training_step fetches by itself"})

    found = read([make_step(0, forward=1)], info=info)

    assert found["phase_h2d_s"].value is None
    assert found["phase_h2d_s"].reason == "training_step fetches by itself"
    assert found["phase_forward_s"].value == 0.001


def test_fragmentation_is_what_is_held_unused_now() -> None:
    """Before the second step the reserved peak was far ahead; over ranks the largest counts."""
    first = {"peak_bytes": 10, "reserved_peak_bytes": 100}
    later = {"peak_bytes": 90, "reserved_peak_bytes": 100}
    steps = [make_step(0, forward=1, facts=first), make_step(1, forward=1, facts=later)]
    steps += [make_step(2, forward=1)]
    other = [make_step(i, forward=1, facts={**later, "peak_bytes": 70}) for i in range(3)]

    assert read(steps)["fragmentation_bytes"].value == 10
    assert read(steps, other)["fragmentation_bytes"].value == 30
    assert read(steps, other)["fragmentation_bytes"].per_rank == (10, 30)


def test_without_a_steady_step_the_reason_says_so() -> None:
    """Twelve warm-up steps are no steady state."""
    found = read(make_steps(12, forward=50))

    assert found["step_s"].value is None
    assert "no steady state" in (found["step_s"].reason or "")
    assert found["first_step_s"].value == 0.05


def test_copied_bytes_over_the_devices_copy_time() -> None:
    """8 MB in 1 ms are 8 GB/s."""
    facts = {"h2d_device_ns": 1_000_000, "h2d_bytes": 8_000_000, "h2d_tensors": 3}
    found = read([make_step(i, forward=9, h2d=1, facts=facts) for i in range(8)], device="cuda")

    assert found["h2d_bytes_per_s"].value == 8e9
    assert found["h2d_fraction"].value == 0.1
    assert found["h2d_tensors"].value == 3

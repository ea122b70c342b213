"""Each rule against a planted fault, and against the twin that only looks like one."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.runs import (
    MS,
    RankSpec,
    make_gap,
    make_info,
    make_step,
    make_steps,
    summary_of,
)

from trainperf.analysis.doctor.base import Case
from trainperf.analysis.doctor.input import loader
from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.gains import change_of
from trainperf.analysis.rules.input.workers import cpus_of_rank, staffing
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import Scalar, Totals


def found(summary: Summary) -> dict[str, Finding]:
    """Findings by their id."""
    return {finding.id: finding for finding in summary.findings}


def run(
    path: Path,
    *,
    device: str = "cpu",
    config: Mapping[str, Scalar] | None = None,
    facts: Mapping[str, float] | None = None,
    **phases_ms: float,
) -> Summary:
    """The summary of two hundred equal steps on a machine with eight CPUs."""
    info = make_info(device=device, config=config, hardware={"cpu_count": 8})
    steps = make_steps(200, facts=facts, **phases_ms)
    return summary_of(path, [RankSpec(steps=steps, info=info)])


def test_a_loader_in_the_training_process_needs_as_many_workers_as_it_is_slower(
    tmp_path: Path,
) -> None:
    """Batches take 60 ms, the rest of the step 25: three workers keep up."""
    summary = run(tmp_path, config={"num_workers": 0}, data_wait=60, forward=25)

    finding = found(summary)["data_wait"]
    assert finding.action == "DataLoader(num_workers=3, persistent_workers=True)"
    assert finding.fraction == pytest.approx(60 / 85)
    assert finding.severity == "high"
    assert summary.findings[0] is finding


def test_no_more_workers_are_asked_for_than_there_are_cpus(tmp_path: Path) -> None:
    """Batches take forty times as long as the rest of the step."""
    summary = run(tmp_path, config={"num_workers": 0}, data_wait=400, forward=10)

    assert "num_workers=8," in found(summary)["data_wait"].action


def busy(
    path: Path, cpus: int, threads: int, *, workers: int = 0, data_wait: float, forward: float
) -> Summary:
    """The summary of a model that computes on the CPU with some threads."""
    info = make_info(
        config={"num_workers": workers}, hardware={"cpu_count": cpus, "threads": threads}
    )
    steps = make_steps(200, data_wait=data_wait, forward=forward)
    return summary_of(path, [RankSpec(steps=steps, info=info)])


@pytest.mark.parametrize(
    ("cpus", "threads", "times_ms", "workers", "left", "fraction"),
    [
        (2, 2, (12, 8), 1, 1, 0.4),
        (2, 1, (8, 10), 1, None, 8 / 18),
        (8, 8, (30, 30), 1, 7, 0.5),
        (8, 8, (60, 10), 3, 5, 50 / 70),
        (8, 4, (30, 10), 3, None, 30 / 40),
    ],
)
def test_workers_get_cpus_that_the_model_computes_with_where_that_gains(
    tmp_path: Path,
    *,
    cpus: int,
    threads: int,
    times_ms: tuple[float, float],
    workers: int,
    left: int | None,
    fraction: float,
) -> None:
    """The shortest of what a batch and the rest take, though fewer threads slow the rest.

    Of two CPUs one each: 16 ms instead of 20.
    """
    data_wait, forward = times_ms
    summary = busy(tmp_path, cpus, threads, data_wait=data_wait, forward=forward)

    finding = found(summary)["data_wait"]
    assert f"num_workers={workers}," in finding.action
    assert ("set_num_threads" in finding.action) == (left is not None)
    assert left is None or f"set_num_threads({left})" in finding.action
    assert finding.fraction == pytest.approx(fraction)


@pytest.mark.parametrize(
    ("cpus", "threads", "workers", "data_wait", "forward"),
    [(2, 2, 0, 3, 17), (2, 2, 0, 19, 1), (4, 4, 2, 30, 10), (1, 1, 0, 30, 20), (2, 4, 0, 3, 17)],
)
def test_where_no_cpu_is_free_a_sample_must_get_cheaper(
    tmp_path: Path, cpus: int, threads: int, workers: int, data_wait: float, forward: float
) -> None:
    """A model that computes for 17 ms with two threads may take 34 with one."""
    summary = busy(tmp_path, cpus, threads, workers=workers, data_wait=data_wait, forward=forward)

    finding = found(summary)["data_wait"]
    assert finding.advice == "Make a sample cheaper"
    assert any(fact.startswith("no CPU is free for a worker") for fact in finding.evidence)
    assert not change_of(finding)
    assert finding.fraction == pytest.approx(data_wait / (data_wait + forward))


@pytest.mark.parametrize("cpus", [1, 2, 3, 8])
def test_workers_and_threads_are_never_more_than_the_cpus(tmp_path: Path, cpus: int) -> None:
    """Nor does a step get longer, even with a model whose time is that of its threads."""
    for threads in (1, 2, 3, 8, 16):
        for making in (5, 25, 400):
            path = tmp_path / f"{threads}-{making}"
            staff = staffing(busy(path, cpus, threads, data_wait=making, forward=20), making / 1e3)
            if staff is not None:
                assert staff.workers + (staff.threads or threads) <= cpus
                assert staff.step_s < (making + 20) / 1e3


def test_one_cpu_of_a_rank_with_a_device_is_not_shared_by_a_loader_that_needs_nine(
    tmp_path: Path,
) -> None:
    """A worker would save a tenth of 90 %: the bound is that of a cheaper sample."""
    info = make_info(device="cuda", config={"num_workers": 0}, hardware={"cpu_count": 1})
    steps = make_steps(200, facts={"data_stall_ns": 90 * MS}, data_wait=90, forward=10)

    finding = found(summary_of(tmp_path, [RankSpec(steps=steps, info=info)]))["data_wait"]

    assert finding.advice == "Make a sample cheaper"
    assert "9 workers would keep up, on 1 CPU" in finding.evidence
    assert finding.fraction == pytest.approx(0.9)


def test_two_workers_on_two_cpus_promise_half_the_wait_and_not_all_of_it(tmp_path: Path) -> None:
    """Of 20 ms to make a batch beside 2 ms of work, two workers leave 10: 2.2×, never 11×."""
    info = make_info(config={"num_workers": 0}, hardware={"cpu_count": 2})
    steps = make_steps(200, data_wait=20, forward=2)

    finding = found(summary_of(tmp_path, [RankSpec(steps=steps, info=info)]))["data_wait"]

    assert "num_workers=2," in finding.action
    assert finding.fraction == pytest.approx(12 / 22)
    assert finding.gain_upper_bound == pytest.approx(2.2)


def test_below_a_workers_round_trip_no_worker_is_advised(tmp_path: Path) -> None:
    """0.3 ms of data wait in a step of 1.3: a worker would make it 2.3."""
    finding = found(run(tmp_path, config={"num_workers": 0}, data_wait=0.3, forward=1))["data_wait"]

    assert "DataLoader(num_workers" not in finding.action
    assert any("num_workers=0 is right" in fact for fact in finding.evidence)


def test_of_a_batch_that_takes_less_than_a_workers_round_trip_little_is_nothing(
    tmp_path: Path,
) -> None:
    """0.19 of 1.35 ms, in tensors that have nothing to make cheaper: a healthy loader."""
    small = run(tmp_path / "small", config={"num_workers": 0}, data_wait=0.19, forward=1.16)
    slow = run(tmp_path / "slow", config={"num_workers": 0}, data_wait=1.9, forward=11.6)

    assert "data_wait" not in found(small)
    assert "data_wait" in found(slow)
    assert loader(Case(evidence=Evidence(summary=small))).status == "pass"


def test_what_takes_little_leaves_little_cold(tmp_path: Path) -> None:
    """0.3 of 1.3 ms: the bound allows as much again, not all that caches may hold."""
    finding = found(run(tmp_path, config={"num_workers": 0}, data_wait=0.3, forward=1))["data_wait"]

    assert finding.gain_upper_bound == pytest.approx(1.3 / 0.7)


@pytest.mark.parametrize(
    ("ranks", "hardware", "cpus"),
    [
        (8, {"cpu_count": 8, "host_cpus": 64, "local_world_size": 8}, 8),
        (8, {"cpu_count": 64, "host_cpus": 64, "local_world_size": 8}, 8),
        (16, {"cpu_count": 64, "host_cpus": 64, "local_world_size": 8}, 8),
        (8, {"cpu_count": 16, "host_cpus": 16, "local_world_size": 8}, 2),
        (2, {"cpu_count": 2, "host_cpus": 2, "local_world_size": 2}, 1),
        (3, {"cpu_count": 2, "host_cpus": 2, "local_world_size": 3}, 1),
        (8, {"cpu_count": 64}, 8),
        (1, {"cpu_count": 4, "host_cpus": 64, "cpu_mask": "0-3", "host": "a"}, 4),
        (1, {"cpu_count": 2, "host_cpus": 2, "cpu_mask": "0-7", "host": "a"}, 2),
    ],
    ids=[
        "bound",
        "unbound",
        "two machines",
        "quota",
        "two",
        "more than CPUs",
        "old",
        "alone with a mask",
        "alone with a quota",
    ],
)
def test_a_rank_has_its_own_cpus_and_no_more_than_its_share_of_the_machines(
    tmp_path: Path, ranks: int, hardware: Mapping[str, Scalar], cpus: int
) -> None:
    """A share of its own is not divided again, and no number of ranks has more CPUs each."""
    info = make_info(world_size=ranks, hardware=hardware)
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(50, forward=10), info=info)])

    assert cpus_of_rank(summary) == cpus


@pytest.mark.parametrize(
    ("data_wait", "stall", "forward", "workers", "fraction"),
    [(12.0, 1.5, 3.0, 1, 0.1), (40.0, 30.0, 10.0, 2, 0.6)],
)
def test_on_a_device_making_a_batch_takes_the_wait_and_not_the_stall(
    tmp_path: Path, data_wait: float, stall: float, forward: float, workers: int, fraction: float
) -> None:
    """12 ms of a step of 15 make its batch, and the device idles for 1.5: worth a worker.

    40 of 50 ms make it, the device idles for 30, and works for 20 that hide the workers: two.
    """
    finding = found(
        run(
            tmp_path,
            device="cuda",
            config={"num_workers": 0},
            facts={"data_stall_ns": stall * MS, "h2d_bytes": 9_600_000},
            data_wait=data_wait,
            forward=forward,
        )
    )["data_wait"]

    assert f"num_workers={workers}," in finding.action
    assert f"num_workers=0: {data_wait:.1f} ms per step" in finding.evidence[-2]
    assert finding.fraction == pytest.approx(fraction)


def test_the_bytes_of_a_whole_step_are_not_those_of_one_batch(tmp_path: Path) -> None:
    """Eight micro-batches of 20 MB, each made in 8 ms: a worker hides that."""
    summary = run(
        tmp_path,
        device="cuda",
        config={"num_workers": 0, "accumulate_grad_batches": 8},
        facts={"data_stall_ns": 64 * MS, "h2d_bytes": 160_000_000},
        data_wait=64,
        forward=80,
    )

    assert "num_workers=1," in found(summary)["data_wait"].action


def test_workers_that_nearly_keep_up_need_a_few_more(tmp_path: Path) -> None:
    """Two workers give a batch every 50 ms, 40 are needed: three do."""
    summary = run(tmp_path, config={"num_workers": 2}, data_wait=10, forward=40)

    assert "num_workers=3," in found(summary)["data_wait"].action


def test_with_every_cpu_busy_the_dataset_itself_must_get_cheaper(tmp_path: Path) -> None:
    """Eight workers on eight CPUs."""
    summary = run(tmp_path, config={"num_workers": 8}, data_wait=30, forward=20)

    finding = found(summary)["data_wait"]
    assert "cache or preprocess" in finding.action
    assert "num_workers" not in finding.action


def test_an_unknown_loader_is_not_told_numbers(tmp_path: Path) -> None:
    """Not every loader is a `DataLoader`."""
    finding = found(run(tmp_path, data_wait=30, forward=20))["data_wait"]

    assert "num_workers" not in finding.action


def test_of_a_wait_that_the_device_notices_only_its_part_is_promised(tmp_path: Path) -> None:
    """25 of 50 ms waited, 10 lost: at most 1.25 ×, not 2 ×."""
    summary = run(
        tmp_path, device="cuda", facts={"data_stall_ns": 10 * MS}, data_wait=25, forward=25
    )

    finding = found(summary)["data_wait"]
    assert finding.fraction == pytest.approx(0.2)
    assert "the device idled for data 20 % of the step" in finding.evidence


def test_on_several_ranks_the_one_that_waits_longest_bounds_the_gain(tmp_path: Path) -> None:
    """Rank 1 waits half of every step, rank 0 never: removing it gains up to 2 ×."""
    specs = [
        RankSpec(
            steps=make_steps(100, data_wait=wait, forward=40 - wait, loop=0.1),
            info=make_info(rank=rank, world_size=2),
        )
        for rank, wait in ((0, 0.0), (1, 20.0))
    ]

    finding = found(summary_of(tmp_path, specs))["data_wait"]
    assert finding.fraction == pytest.approx(0.5, rel=0.01)
    assert finding.title.endswith("waiting for data on the rank that waits longest")


def test_a_heavy_callback_is_named(tmp_path: Path) -> None:
    """The hook with the largest share, in what to do and in the evidence."""
    totals = Totals(at_step=1, actions_ns={"Cheap.a": 5 * MS, "Slow.on_train_batch_end": 2000 * MS})
    spec = RankSpec(steps=make_steps(200, callbacks=10, forward=40), totals=totals)

    finding = found(summary_of(tmp_path, [spec]))["callbacks"]
    assert finding.advice == "Lighten Slow.on_train_batch_end"
    assert finding.evidence[0] == "Slow.on_train_batch_end: 10.0 ms per step"
    assert finding.fraction == pytest.approx(0.2)


def test_our_own_hooks_are_not_the_users_callbacks(tmp_path: Path) -> None:
    """6 of 10 ms in callbacks are trainperf's: the user's 4 ms of 50 are not worth a word."""
    hooks = {"Slow.on_train_batch_end": 800 * MS}
    steps = make_steps(200, callbacks=10, forward=40, facts={"overhead_ns": 6 * MS})
    spec = RankSpec(steps=steps, totals=Totals(at_step=1, actions_ns=hooks))

    assert set(found(summary_of(tmp_path, [spec]))) == {"own_cost"}


def test_a_heavy_loop_points_at_logging(tmp_path: Path) -> None:
    """On one rank nothing else is there."""
    assert "prog_bar=False" in found(run(tmp_path, loop=10, forward=40))["loop"].action


def test_waiting_for_a_device_in_the_loop_is_not_lost(tmp_path: Path) -> None:
    """A device-bound run drains its queue somewhere; logging less would only move that."""
    facts = {"lead_forward": 9, "lead_backward": 9}

    assert run(tmp_path, device="cuda", facts=facts, loop=30, forward=20).findings == ()


def test_on_two_ranks_only_what_the_last_one_spends_in_the_loop_is_the_loops(
    tmp_path: Path,
) -> None:
    """Rank 0 waits 20 ms there for rank 1, who spends 1: that is lateness, not logging."""
    specs = [
        RankSpec(
            steps=make_steps(200, forward=30, callbacks=late, loop=21 - late),
            info=make_info(rank=rank, world_size=2),
        )
        for rank, late in ((0, 0.0), (1, 20.0))
    ]

    summary = summary_of(tmp_path, specs)

    assert "loop" not in found(summary)
    finding = found(summary)["straggler"]
    assert finding.advice == "Look at rank 1"
    assert "20.0 ms in callbacks" in finding.evidence[0]


def test_two_late_ranks_of_five_do_what_the_others_do_not(tmp_path: Path) -> None:
    """Ranks 3 and 4 come after the others, now the one and now the other last."""
    specs = []
    for rank in range(5):
        late = [20.0 + (index + rank) % 2 if rank > 2 else 0.0 for index in range(200)]
        steps = [
            make_step(index, tags=int(index < 12), forward=30, callbacks=ms, loop=22 - ms)
            for index, ms in enumerate(late)
        ]
        specs.append(RankSpec(steps=steps, info=make_info(rank=rank, world_size=5)))

    finding = found(summary_of(tmp_path, specs))["straggler"]

    assert finding.advice == "Look at ranks 3–4"
    assert finding.action == "find what ranks 3–4 do in callbacks that the others do not"


def test_a_slow_copy_from_pageable_memory_is_to_be_pinned(tmp_path: Path) -> None:
    """10 of 50 ms on the device."""
    facts = {"h2d_device_ns": 10 * MS, "h2d_bytes": 20_000_000, "h2d_tensors": 3}

    summary = run(
        tmp_path, device="cuda", config={"pin_memory": False}, facts=facts, h2d=10, forward=40
    )

    finding = found(summary)["transfer"]
    assert "pin_memory=True" in finding.action
    assert "19.1 MiB per step at 2.00 GB/s" in finding.evidence


def test_padding_is_bounded_by_the_tokens_it_takes(tmp_path: Path) -> None:
    """Half of the tokens, and no data wait: at most twice as many effective ones."""
    facts = {"tokens_effective": 500, "tokens_padded": 1000}

    finding = found(run(tmp_path, facts=facts, forward=50))["padding"]

    assert finding.fraction == pytest.approx(0.5)
    assert finding.evidence == ("10,000 of 20,000 tokens/s are effective",)


def test_a_storm_of_overflows_is_told_from_a_scaler_that_finds_its_scale(tmp_path: Path) -> None:
    """30 of 150 updates; against the ten with which every run may begin."""
    storm = [
        make_step(i, forward=50, facts={"attempts": 1, "overflows": int(i % 5 == 0)})
        for i in range(150)
    ]
    settling = [
        make_step(i, forward=50, facts={"attempts": 1, "overflows": int(i < 10)})
        for i in range(150)
    ]

    finding = found(summary_of(tmp_path / "a", [RankSpec(steps=storm)]))["overflow"]
    healthy = found(summary_of(tmp_path / "b", [RankSpec(steps=settling)]))

    assert finding.fraction == pytest.approx(0.2)
    assert "overflow" not in healthy


@pytest.mark.parametrize(("gap", "most"), [(Gap.VALIDATION, 0.19), (Gap.CHECKPOINT, 0.09)])
def test_a_pause_is_found_from_its_share_of_the_fit_on(
    tmp_path: Path, gap: Gap, most: float
) -> None:
    """Half of the fit is; just below the threshold is not."""
    steps = make_steps(100, forward=100)
    much = [make_gap(gap, 5_000), make_gap(gap, 5_000)]
    little = [make_gap(gap, 10_000 * most / (1 - most))]

    finding = found(summary_of(tmp_path / "a", [RankSpec(steps=steps, gaps=much)]))[gap.label]
    healthy = found(summary_of(tmp_path / "b", [RankSpec(steps=steps, gaps=little)]))

    assert (finding.scope, finding.fraction) == ("fit", pytest.approx(0.5))
    assert finding.evidence == ("10.0 s in 2 pauses", "5.00 s each, one in 50 steps")
    assert gap.label not in healthy


def test_garbage_collection_is_found_from_its_share_of_the_fit_on(tmp_path: Path) -> None:
    """2 ms of every 50."""
    finding = found(run(tmp_path, facts={"gc_ns": 2 * MS}, forward=50))["garbage"]

    assert finding.fraction == pytest.approx(0.04)


def test_a_host_bound_run_is_told_that_faster_kernels_gain_nothing(tmp_path: Path) -> None:
    """No bound is promised: nobody knows it without a trace."""
    facts = {"lead_forward": 0, "lead_backward": 0}

    finding = found(run(tmp_path, device="cuda", facts=facts, forward=50))["host_bound"]

    assert finding.gain_upper_bound is None
    assert "100 % of the steps" in finding.title


def test_a_starving_device_is_not_called_host_bound(tmp_path: Path) -> None:
    """It has caught up because there was no data."""
    facts = {"lead_forward": 0, "lead_backward": 1, "data_stall_ns": 20 * MS}

    findings = found(run(tmp_path, device="cuda", facts=facts, data_wait=20, forward=30))

    assert set(findings) == {"data_wait"}


def test_workers_that_die_with_the_epoch_show_at_its_start(tmp_path: Path) -> None:
    """Ten epochs of twenty steps, each beginning with a wait of 500 ms."""
    steps = [
        make_step(
            index,
            tags=int(Tag.FIRST_IN_EPOCH) if index % 20 == 0 else 0,
            data_wait=500 if index % 20 == 0 else 0.1,
            forward=50,
        )
        for index in range(200)
    ]
    gaps = [make_gap(Gap.EPOCH_BOUNDARY, 1) for _ in range(10)]
    spec = RankSpec(steps=steps, gaps=gaps, info=make_info(config={"num_workers": 4}))
    kept = RankSpec(
        steps=steps,
        gaps=gaps,
        info=make_info(config={"num_workers": 4, "persistent_workers": True}),
    )

    finding = found(summary_of(tmp_path / "a", [spec]))["epoch_start"]

    assert finding.action == "DataLoader(persistent_workers=True)"
    assert finding.fraction == pytest.approx(5000 / 15019, rel=0.01)
    assert "epoch_start" not in found(summary_of(tmp_path / "b", [kept]))


def test_a_run_that_stays_slower_after_a_capture_is_told(tmp_path: Path) -> None:
    """60 ms instead of 50 since step 100."""
    steps = [
        make_step(i, tags=int(Tag.PROFILED) if i == 100 else 0, forward=50 if i <= 100 else 60)
        for i in range(200)
    ]

    finding = found(summary_of(tmp_path, [RankSpec(steps=steps)]))["slow_after_capture"]

    assert finding.title == "steps are 20 % slower since a capture"


def test_a_short_run_is_told_how_long_it_must_be(tmp_path: Path) -> None:
    """Five steps settle nothing."""
    finding = found(summary_of(tmp_path, [RankSpec(steps=make_steps(5, forward=50))]))

    assert finding["no_steady_state"].title == "5 steps are too few for a steady state"


def test_a_run_that_never_settled_is_told_so_unless_it_is_still_running(tmp_path: Path) -> None:
    """It may yet settle."""
    steps = make_steps(300, warmup=300, forward=50)

    ended = found(summary_of(tmp_path / "a", [RankSpec(steps=steps)]))
    running = found(summary_of(tmp_path / "b", [RankSpec(steps=steps, end=None)]))

    assert ended["no_steady_state"].title == "the step time never settled"
    assert running == {}


def test_a_compilation_that_a_short_fit_cannot_pay_back_is_told(tmp_path: Path) -> None:
    """A minute of compilation in a fit of two; against one of seconds, where it never matters."""
    slow = [make_step(0, tags=1, forward=60_000), *make_steps(1201, forward=50)[1:]]
    quick = [make_step(0, tags=1, forward=600), *make_steps(13, warmup=1, forward=50)[1:]]

    finding = found(summary_of(tmp_path / "a", [RankSpec(steps=slow)]))["first_step"]

    assert finding.fraction == pytest.approx(0.5, rel=0.01)
    assert "first_step" not in found(summary_of(tmp_path / "b", [RankSpec(steps=quick)]))


def test_our_own_cost_in_a_short_step_is_a_note_and_never_first(tmp_path: Path) -> None:
    """50 µs of a millisecond: nothing to gain, and nothing to begin with."""
    summary = run(tmp_path, facts={"overhead_ns": 50_000}, forward=0.8, callbacks=0.2)
    finding = found(summary)["own_cost"]

    assert finding.evidence == ("50.0 µs of 1.00 ms per step",)
    assert (finding.fraction, finding.gain_upper_bound) == (0.0, None)
    assert [finding.id for finding in summary.findings] == ["callbacks", "own_cost"]


def test_findings_are_ranked_by_what_they_gain_for_the_fit(tmp_path: Path) -> None:
    """30 % of steps that are half of the fit come after validation, which is the other half."""
    steps = make_steps(100, data_wait=30, forward=70)

    summary = summary_of(tmp_path, [RankSpec(steps=steps, gaps=[make_gap(Gap.VALIDATION, 10_000)])])

    assert [finding.id for finding in summary.findings] == ["validation", "data_wait"]


def test_few_steady_steps_carry_no_diagnosis(tmp_path: Path) -> None:
    """Ten of them are an anecdote."""
    steps = make_steps(22, data_wait=30, forward=20)

    assert summary_of(tmp_path, [RankSpec(steps=steps)]).findings == ()


def test_padding_does_not_promise_to_remove_the_wait_for_data(tmp_path: Path) -> None:
    """40 % of the step waits for the same documents, packed or not."""
    facts = {"tokens_effective": 500, "tokens_padded": 1000}

    finding = found(run(tmp_path, facts=facts, data_wait=20, forward=30))["padding"]

    assert finding.fraction == pytest.approx(0.5 * 0.6)


def test_what_every_rank_spends_in_the_loop_is_the_loops(tmp_path: Path) -> None:
    """10 of 50 ms on both, and nobody waits for anybody."""
    specs = [
        RankSpec(
            steps=make_steps(200, forward=40, loop=10), info=make_info(rank=rank, world_size=2)
        )
        for rank in (0, 1)
    ]

    assert found(summary_of(tmp_path, specs))["loop"].fraction == pytest.approx(0.2)


@pytest.mark.parametrize(("device", "lost"), [("cpu", 0.4), ("cuda", 0.2)])
def test_on_a_device_the_same_delay_is_not_lost_twice(
    tmp_path: Path, device: str, lost: float
) -> None:
    """20 of 100 ms at either point: a CPU lost both, behind a device's back it is one delay."""
    specs = [
        RankSpec(
            steps=make_steps(
                200,
                data_wait=20 * late,
                forward=80 - 20 * late,
                loop=20 - 20 * late,
                optimizer=20 * late,
                facts={"tail_ns": (21 - 20 * late) * MS},
            ),
            info=make_info(rank=rank, world_size=2, device=device),
        )
        for rank, late in ((0, 1), (1, 0))
    ]

    finding = found(summary_of(tmp_path, specs))["straggler"]

    assert finding.fraction == pytest.approx(lost)
    assert finding.fraction == pytest.approx(lost)


def test_time_lost_to_now_this_rank_now_that_is_found_without_a_name(tmp_path: Path) -> None:
    """Batches of unequal length: now one rank is late by 20 ms, now the other."""
    specs = []
    for rank in (0, 1):
        steps = [
            make_step(
                index,
                tags=int(index < 12),
                forward=10 + 20 * (index % 2 == rank),
                backward=10 + 20 * (index % 2 != rank),
                facts={"tail_ns": (1 + 20 * (index % 2 != rank)) * MS},
            )
            for index in range(200)
        ]
        specs.append(RankSpec(steps=steps, info=make_info(rank=rank, world_size=2)))

    finding = found(summary_of(tmp_path, specs))["straggler"]

    assert finding.advice == "Even out the ranks"
    assert finding.confidence == "medium"
    assert finding.evidence[0] == "20.0 ms per step at backward, not always for the same rank"
    assert "batches of equal length" in finding.action


def test_on_a_cpu_workers_compete_with_the_model(tmp_path: Path) -> None:
    """So the bound is less sure there than where a device computes."""
    facts = {"data_stall_ns": 20 * MS}
    on_cpu = run(tmp_path / "a", data_wait=20, forward=30)
    on_device = run(tmp_path / "b", device="cuda", facts=facts, data_wait=20, forward=30)

    levels = [found(summary)["data_wait"].confidence for summary in (on_cpu, on_device)]
    assert levels == ["medium", "high"]

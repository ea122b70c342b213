"""Several ranks: redundant reductions, their tail, uneven ranks, `DataParallel`."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.runs import MS, RankSpec, make_info, make_step, summary_of

from trainperf.analysis.rules import diagnose
from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.distributed.allreduce_tail import allreduce_tail
from trainperf.analysis.rules.distributed.data_parallel import data_parallel
from trainperf.analysis.rules.distributed.no_sync import no_sync
from trainperf.analysis.rules.distributed.straggler import straggler
from trainperf.analysis.rules.host.unnamed_time import unnamed_time
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.steps.records import Scalar, Totals
from trainperf.reports.run import text
from trainperf.traces.capture_files import CaptureFacts, CaptureReport
from trainperf.traces.results import Collective, RankTrace, TraceTotals


ACCUMULATES: Mapping[str, Scalar] = {"allreduces_per_step": 4.0, "micro_batches_per_step": 4.0}

HALF = "and bf16_compress_hook to send half the bytes"


def ranks(
    path: Path,
    *,
    tail_ms: float = 2.0,
    device: str = "cpu",
    config: Mapping[str, Scalar] | None = None,
    spikes: int = 0,
) -> Summary:
    """Two even ranks, 100 ms per step with 40 of backward; rank 0 waits 60 more every so many."""
    specs = []
    for rank in (0, 1):
        steps = []
        for index in range(200):
            late = 60.0 * (rank == 0 and bool(spikes) and index % spikes == 0)
            steps.append(
                make_step(
                    index,
                    tags=int(index < 12),
                    forward=59.5,
                    backward=40.0 + late,
                    loop=0.5,
                    facts={"tail_ns": round((tail_ms + late) * MS)},
                )
            )
        info = make_info(
            rank=rank, world_size=2, device=device, config={"loop": "plain", **(config or {})}
        )
        specs.append(RankSpec(steps=steps, info=info))
    return summary_of(path, specs)


def captured(summary: Summary, *, comm_s: float, bus: float | None = None) -> Evidence:
    """With a capture in which a step of the slower rank communicates so long."""
    kinds = Collective(kind="all_reduce", count=9, total_s=comm_s, bus_bytes_per_s=bus)
    traced = tuple(
        RankTrace(
            file=f"rank{rank}",
            rank=rank,
            totals=TraceTotals(steps=3, step_s=0.1, comm_s=comm_s / (1 + rank)),
            collectives=(kinds,),
        )
        for rank in (0, 1)
    )
    facts = CaptureFacts(first_step=50, first_index=50, complete_steps=3)
    return Evidence(summary=summary, captures=(CaptureReport(ranks=traced, capture=facts),))


def said(finding: Finding | None) -> Finding:
    """There is one."""
    assert finding is not None
    return finding


def test_reductions_of_micro_batches_that_update_nothing_are_redundant(tmp_path: Path) -> None:
    """Three of four; on a CPU they gain at most three quarters of backward, 40 of 100 ms."""
    finding = said(no_sync(Evidence(summary=ranks(tmp_path, tail_ms=8.0, config=ACCUMULATES))))

    assert finding.fraction == pytest.approx(0.75 * 0.4)
    assert finding.gain_upper_bound == pytest.approx(1 / 0.7)
    assert finding.title == "75 % of the all-reduces are in micro-batches that do not update"
    assert finding.evidence == (
        "4 all-reduces for 4 micro-batches per step",
        "8.00 ms of 100 ms per step in their tails, the rest overlaps backward",
    )
    assert finding.action.startswith("with model.no_sync(): ")


@pytest.mark.parametrize(
    ("device", "traced_s", "whole"), [("cuda", None, 0.2), ("cuda", 0.06, 0.6)]
)
def test_on_a_device_reductions_are_bounded_by_their_tail_or_by_a_capture(
    tmp_path: Path, device: str, traced_s: float | None, whole: float
) -> None:
    """20 ms of tail; a capture that saw 60 ms of communication knows what is hidden, too."""
    summary = ranks(tmp_path, tail_ms=20.0, device=device, config=ACCUMULATES)
    evidence = Evidence(summary=summary)
    if traced_s is not None:
        evidence = captured(summary, comm_s=traced_s)

    assert said(no_sync(evidence)).fraction == pytest.approx(0.75 * whole)


@pytest.mark.parametrize(
    "config",
    [
        {"allreduces_per_step": 1.0, "micro_batches_per_step": 4.0},
        {"allreduces_per_step": 1.0, "micro_batches_per_step": 1.0},
        {"allreduces_per_step": 2.0, "micro_batches_per_step": 1.0},  # two backwards of one batch
        {"allreduces_per_step": 1.1, "micro_batches_per_step": 1.2},  # the epoch cuts groups short
        {"micro_batches_per_step": 4.0},
        {},
    ],
)
def test_reductions_that_are_needed_are_no_finding(
    tmp_path: Path, config: dict[str, Scalar]
) -> None:
    """With `no_sync`, without accumulation, or where nobody counted."""
    assert no_sync(Evidence(summary=ranks(tmp_path, tail_ms=30.0, config=config))) is None


def test_two_backwards_a_micro_batch_are_both_needed_in_the_last_one(tmp_path: Path) -> None:
    """Two models in turn, four micro-batches: of eight reductions six are redundant."""
    config = {"allreduces_per_step": 8.0, "micro_batches_per_step": 4.0}
    finding = said(no_sync(Evidence(summary=ranks(tmp_path, config=config))))

    assert finding.fraction == pytest.approx(0.75 * 0.4)


def test_lightning_has_its_wrapped_module_elsewhere(tmp_path: Path) -> None:
    """The line to write names it."""
    config = {**ACCUMULATES, "loop": "lightning"}
    finding = said(no_sync(Evidence(summary=ranks(tmp_path, config=config))))

    assert finding.action.startswith("with self.trainer.model.no_sync(): ")


def test_what_even_the_last_rank_waits_for_is_the_tail(tmp_path: Path) -> None:
    """30 of 100 ms on both ranks: nobody is late, and the gradients are reduced in crumbs."""
    config = {"ddp_buckets": 60, "gradient_bytes": 65_280}
    evidence = Evidence(summary=ranks(tmp_path, tail_ms=30.0, config=config))
    finding = said(allreduce_tail(evidence))

    assert straggler(evidence) is None
    assert finding.title == "30 % of the step waits for gradients to be reduced"
    assert finding.fraction == pytest.approx(0.4)  # small buckets slow down backward itself
    assert "60 buckets of 1.06 KiB on average" in finding.evidence
    assert finding.action == "DistributedDataParallel(bucket_cap_mb=25) or larger"


@pytest.mark.parametrize(
    ("config", "action"),
    [
        ({"ddp_unused_bytes": 0}, "DistributedDataParallel(find_unused_parameters=False)"),
        ({"ddp_unused_bytes": 64}, "accumulate more micro-batches under no_sync(), or send bf16"),
        (
            {"ddp_unused_bytes": 0, "loop": "lightning"},
            "DDPStrategy(find_unused_parameters=False)",
        ),
        (
            {"ddp_unused_bytes": 0, "loop": "huggingface"},
            "TrainingArguments(ddp_find_unused_parameters=False)",
        ),
        # Its arguments have no bucket views.
        (
            {"ddp_gradient_as_bucket_view": False, "loop": "huggingface"},
            "accumulate more micro-batches under no_sync(), or send bf16",
        ),
        # Two hundred megabytes in nine buckets are as DDP makes them.
        (
            {"ddp_buckets": 9, "gradient_bytes": 200_000_000, "ddp_gradient_as_bucket_view": False},
            f"DistributedDataParallel(gradient_as_bucket_view=True), {HALF}",
        ),
    ],
)
def test_what_to_do_about_a_tail_follows_from_how_ddp_was_set_up(
    tmp_path: Path, config: dict[str, Scalar], action: str
) -> None:
    """Buckets first, then the search for unused parameters, then the bytes."""
    summary = ranks(tmp_path, tail_ms=30.0, config=config)

    assert said(allreduce_tail(Evidence(summary=summary))).action == action


def test_a_short_tail_is_no_finding(tmp_path: Path) -> None:
    """9 of 100 ms, or nothing known of it."""
    assert allreduce_tail(Evidence(summary=ranks(tmp_path, tail_ms=9.0))) is None


def test_on_a_device_a_hidden_reduction_is_not_promised_without_a_capture(tmp_path: Path) -> None:
    """30 ms of tail; a capture with 50 ms of communication bounds it by these, and by its link."""
    summary = ranks(tmp_path, tail_ms=30.0, device="cuda")
    alone = said(allreduce_tail(Evidence(summary=summary)))
    traced = said(allreduce_tail(captured(summary, comm_s=0.05, bus=2e9)))

    assert alone.fraction == pytest.approx(0.3)
    assert traced.fraction == pytest.approx(0.5)
    assert "all-reduces move 2.00 GB/s over the slowest link" in traced.evidence


def test_the_tail_leaves_to_no_sync_what_is_its(tmp_path: Path) -> None:
    """30 ms of four reductions, of which three are redundant: 7.5 ms are no finding any more."""
    evidence = Evidence(summary=ranks(tmp_path, tail_ms=30.0, config=ACCUMULATES))

    assert allreduce_tail(evidence) is None
    assert diagnose(evidence)[0].id == "no_sync"


@pytest.mark.parametrize(("spikes", "uneven"), [(5, False), (1, True)])
def test_a_few_long_waits_are_no_habit_of_the_ranks(
    tmp_path: Path, *, spikes: int, uneven: bool
) -> None:
    """60 ms in every fifth step are 11 % of the time, and the other steps lose nothing."""
    found = straggler(Evidence(summary=ranks(tmp_path, spikes=spikes)))

    assert (found is not None) is uneven


def late(
    path: Path,
    *,
    everybody_ms: float,
    tail_ms: float = 1.0,
    config: Mapping[str, Scalar] | None = None,
) -> Summary:
    """Rank 1 makes its batches in 30 ms more than rank 0, of 100 ms per step."""
    specs = []
    for rank in (0, 1):
        steps = [
            make_step(
                index,
                tags=int(index < 12),
                data_wait=everybody_ms + 30.0 * rank,
                forward=30.0,
                backward=70.0 - everybody_ms - 30.0 * rank,
                facts={"tail_ns": round((tail_ms + 30.0 * (1 - rank)) * MS)},
            )
            for index in range(200)
        ]
        info = make_info(rank=rank, world_size=2, config={"loop": "plain", **(config or {})})
        specs.append(RankSpec(steps=steps, info=info))
    return summary_of(path, specs)


@pytest.mark.parametrize(("buckets", "whole"), [(1, 0.12), (2, 0.24), (9, 0.4)])
def test_what_is_lost_to_a_late_rank_is_not_for_reductions_to_save(
    tmp_path: Path, buckets: int, whole: float
) -> None:
    """Of 70 ms of backward rank 0 waits 30 for the other rank, and 12 for the last bucket.

    The buckets before it took as long at most, and no longer than backward did.
    """
    config = {"ddp_buckets": buckets}
    summary = late(tmp_path / "a", everybody_ms=0.0, tail_ms=12.0, config=config)
    several = late(tmp_path / "b", everybody_ms=0.0, tail_ms=12.0, config={**ACCUMULATES, **config})

    assert said(allreduce_tail(Evidence(summary=summary))).fraction == pytest.approx(whole)
    assert said(no_sync(Evidence(summary=several))).fraction == pytest.approx(0.75 * whole)


@pytest.mark.parametrize(
    ("everybody_ms", "ids"), [(0.0, ["straggler"]), (20.0, ["straggler", "data_wait"])]
)
def test_one_slow_loader_is_the_stragglers_and_what_all_wait_is_data_wait(
    tmp_path: Path, everybody_ms: float, ids: list[str]
) -> None:
    """30 ms more on one rank are named once; the 20 that both wait are another finding."""
    findings = late(tmp_path, everybody_ms=everybody_ms).findings
    found = sorted(findings, key=lambda finding: -(finding.fraction or 0.0))

    assert [one.id for one in found] == ids
    fractions = [one.fraction for one in found]
    assert fractions == pytest.approx([0.3, everybody_ms / 100][: len(ids)], rel=0.01)
    for one in found[1:]:
        # The figure is nobody's own wait: neither the late rank's nor the longest.
        assert one.title == "20 % of the step is spent waiting for data on every rank"
        assert "the late rank waits 30.0 ms longer: see the straggler finding" in one.evidence


@pytest.mark.parametrize(
    ("devices", "loop", "action", "severity"),
    [
        (0, "plain", "train the model itself", "low"),
        (1, "lightning", "train the model itself", "low"),
        (
            4,
            "plain",
            "torchrun --nproc-per-node=4, DistributedDataParallel(model) in each process",
            "high",
        ),
        (
            4,
            "lightning",
            'Trainer(strategy="ddp", devices=4), and no wrapper in the module',
            "high",
        ),
    ],
)
def test_data_parallel_is_to_be_replaced_or_taken_off(
    tmp_path: Path, devices: int, loop: str, action: str, severity: str
) -> None:
    """What it costs depends on the devices: no bound is promised."""
    config: dict[str, Scalar] = {
        "wrapper": "DataParallel",
        "data_parallel_devices": devices,
        "loop": loop,
    }
    finding = said(data_parallel(Evidence(summary=ranks(tmp_path, config=config))))

    assert (finding.action, finding.severity) == (action, severity)
    assert finding.gain_upper_bound is None


def test_another_wrapper_is_not_data_parallel(tmp_path: Path) -> None:
    """The one to use has a longer name."""
    summary = ranks(tmp_path, config={"wrapper": "DistributedDataParallel"})

    assert data_parallel(Evidence(summary=summary)) is None


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"loop": "huggingface", "average_tokens_across_devices": True}, "the gather of token"),
        ({"loop": "huggingface", "average_tokens_across_devices": False}, "code outside every"),
        ({"loop": "plain"}, "code outside every phase"),
    ],
)
def test_a_wait_that_no_phase_names_is_said_where_it_is_known(
    tmp_path: Path, config: dict[str, Scalar], place: str
) -> None:
    """`late at other` says nothing; a Trainer's ranks gather token counts before forward."""
    specs = []
    for rank in (0, 1):
        wait, work = (0.5, 21.0) if rank else (20.5, 1.0)
        steps = [
            make_step(i, data_wait=work, other=wait, forward=9, facts={"tail_ns": MS})
            for i in range(60)
        ]
        totals = Totals(at_step=59, config={"collectives": "backward 1, other 1"})
        info = make_info(rank=rank, world_size=2, config=config)
        specs.append(RankSpec(steps=steps, info=info, totals=totals))
    summary = summary_of(tmp_path, specs)
    finding = said(straggler(Evidence(summary=summary)))

    (late,) = (fact for fact in finding.evidence if fact.startswith("rank 1 late by"))
    assert f"at {place}" in late
    assert late.endswith("20.0 ms in data wait")
    assert "at other" not in text.render(summary)
    assert f"at {place}" in text.render(summary)
    assert unnamed_time(Evidence(summary=summary)) is None

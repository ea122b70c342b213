"""The rules about the loader: by its anatomy, on a device, and where another rule knows better."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.batches import Batch
from support.runs import MS, RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.input.transfer import transfer
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts import write_document
from trainperf.core.findings import Finding
from trainperf.core.steps.records import Scalar
from trainperf.reports.run.run_view import headline
from trainperf.traces.capture_files import CaptureFacts, CaptureReport
from trainperf.traces.results import RankTrace, TraceTotals


def found(
    path: Path,
    batch: Batch | None = None,
    *,
    device: str = "cpu",
    config: Mapping[str, Scalar] | None = None,
    facts: Mapping[str, float] | None = None,
    **phases_ms: float,
) -> Summary:
    """Two hundred equal steps on eight CPUs, the loader looked into."""
    info = make_info(
        device=device,
        config={"num_workers": batch.workers if batch else 0, **(config or {})},
        hardware={"cpu_count": 8, "device_name": "NVIDIA H100 80GB HBM3"},
    )
    spec = RankSpec(steps=make_steps(200, facts=facts, **phases_ms), info=info)
    run = make_run_dir(path / "gpt2" / "trainperf", [spec])
    if batch is not None:
        write_document(batch.anatomy(), run)
    return summarize(Run.open(run))


def only(summary: Summary) -> Finding:
    """The finding, which is alone."""
    [finding] = summary.findings
    return finding


# -- data wait, by part -----------------------------------------------------------------------


def test_the_part_that_costs_is_named_with_its_line_and_the_workers_that_keep_up(
    tmp_path: Path,
) -> None:
    """A batch takes 50 ms, the rest of the step 20: three workers."""
    finding = only(found(tmp_path, Batch(getitem=45, collate=5), data_wait=50, forward=20))

    assert finding.id == "data_wait"
    assert finding.title == "71 % of the step is spent waiting for data, mainly for __getitem__"
    assert finding.advice == "Give the loader 3 workers"
    assert finding.action == "DataLoader(num_workers=3, persistent_workers=True)"
    assert finding.where == "images.py:12"
    assert finding.evidence[1:] == (
        (
            "a batch takes 50.0 ms to make in a process of its own: 45.0 ms in __getitem__, "
            "5.00 ms in collate_fn"
        ),
        "num_workers=0; a batch every 20.0 ms needs 3",
    )
    assert finding.fraction == pytest.approx(50 / 70)


def test_what_collate_costs_is_put_down_to_collate(tmp_path: Path) -> None:
    """And its line is named."""
    finding = only(found(tmp_path, Batch(getitem=5, collate=45), data_wait=50, forward=20))

    assert "mainly for collate_fn" in finding.title
    assert finding.where == "images.py:40"


@pytest.mark.parametrize(
    ("batch", "advice", "action"),
    [
        (Batch(getitem=300, workers=8), "Make __getitem__ cheaper", "9.38 ms per sample"),
        (Batch(collate=300, workers=8), "Make collate_fn cheaper", "torch.stack"),
    ],
)
def test_where_no_cpu_is_left_the_part_must_get_cheaper(
    tmp_path: Path, batch: Batch, advice: str, action: str
) -> None:
    """Sixteen workers would keep up with steps of 20 ms; there are eight CPUs."""
    finding = only(found(tmp_path, batch, data_wait=20, forward=20))

    assert finding.advice == advice
    assert action in finding.action
    assert finding.effort == "hours"
    assert finding.evidence[-1] == "16 workers would keep up, on 8 CPUs"


@pytest.mark.parametrize(
    ("receiving", "pinning", "part"),
    [(40, None, "transport"), (5, 40, "pinning"), (32, None, "transport")],
)
def test_what_the_training_process_does_itself_no_worker_hides(
    tmp_path: Path, receiving: float, pinning: float | None, part: str
) -> None:
    """Batches arrive no faster than they are unpacked and pinned."""
    batch = Batch(getitem=50, receiving=receiving, pinning=pinning, workers=2)

    finding = only(found(tmp_path, batch, data_wait=20, forward=35))

    assert finding.advice == "Send less from the workers"
    assert finding.title.endswith(f"mainly for {part}")
    assert "more workers do not help" in finding.evidence[-1]
    assert "num_workers" not in finding.action


def test_no_worker_is_advised_whose_batches_are_as_dear_to_receive(tmp_path: Path) -> None:
    """20 ms to make one here, 15 to unpack one that a worker has made, and a millisecond."""
    finding = only(found(tmp_path, Batch(getitem=19, receiving=15), data_wait=20, forward=20))

    assert finding.advice == "Make __getitem__ cheaper"
    assert finding.evidence[-1] == "getting one from a worker would still take about 16.1 ms"


@pytest.mark.parametrize(("device", "worth"), [("cuda", True), ("cpu", False)])
def test_what_receiving_a_batch_was_measured_to_take_decides_and_not_its_size(
    tmp_path: Path, device: str, *, worth: bool
) -> None:
    """100 MB made in 30 ms, unpacked in 0.3: only a model on the CPU reads them in the step."""
    batch = Batch(getitem=5, collate=25, receiving=0.3, size=100_000_000)
    facts = {} if device == "cpu" else {"data_stall_ns": 30 * MS}

    finding = only(found(tmp_path, batch, device=device, facts=facts, data_wait=30, forward=40))

    assert ("num_workers=1," in finding.action) is worth


def test_batches_that_are_dearer_to_receive_than_to_make_need_no_worker(tmp_path: Path) -> None:
    """2 ms to make one, 12 to unpack what a worker has made."""
    finding = only(found(tmp_path, Batch(receiving=12, workers=2), data_wait=12, forward=20))

    assert finding.advice == "Make the batches without workers"
    assert finding.action.startswith("DataLoader(num_workers=0)")
    assert finding.title.endswith("mainly for transport")


def test_workers_that_cannot_pack_as_fast_as_they_make_are_too_few(tmp_path: Path) -> None:
    """60 ms of packing beside 2 of making: for steps of 20 ms it takes three."""
    finding = only(found(tmp_path, Batch(packing=60, workers=1), data_wait=40, forward=20))

    assert finding.title.endswith("mainly for transport")
    assert "num_workers=3" in finding.action


def test_uneven_batches_need_a_store(tmp_path: Path) -> None:
    """Two workers make one every 15 ms on average, but one in twenty takes 90."""
    batch = Batch(getitem=30, collate=0.1, workers=2, worst=3.0)

    finding = only(found(tmp_path, batch, data_wait=5, forward=20))

    assert finding.advice == "Prefetch more batches"
    assert "prefetch_factor" in finding.action
    assert finding.evidence[-1] == "but 90.3 ms for one in twenty"


def test_workers_that_ought_to_keep_up_compete_with_the_model(tmp_path: Path) -> None:
    """Two workers need 20 ms for a batch, the step has 20, and waits."""
    finding = only(found(tmp_path, Batch(getitem=38, workers=2), data_wait=5, forward=20))

    assert finding.advice == "Make __getitem__ cheaper"
    assert finding.evidence[-1] == "2 workers would keep up, but compete for 8 CPUs"


def test_with_a_look_into_the_loader_too_the_model_keeps_threads_that_pay(tmp_path: Path) -> None:
    """Of eight CPUs, for 60 ms of making before 10, three go to workers; for 5 before 40 none."""
    config: dict[str, Scalar] = {"threads": 8}
    slow = found(tmp_path / "a", Batch(getitem=59), config=config, data_wait=60, forward=10)
    fast = found(tmp_path / "b", Batch(getitem=4), config=config, data_wait=5, forward=40)

    assert "num_workers=3," in only(slow).action
    assert "torch.set_num_threads(5)" in only(slow).action
    assert only(fast).advice == "Make __getitem__ cheaper"
    assert any("no CPU is free" in fact for fact in only(fast).evidence)
    assert "only waits for a disk or a network, 1 worker instead" in only(fast).action


def test_a_step_of_several_micro_batches_needs_a_batch_for_each(tmp_path: Path) -> None:
    """Four in 40 ms: 30 ms a batch take three workers."""
    config: dict[str, Scalar] = {"accumulate_grad_batches": 4}

    finding = only(found(tmp_path, Batch(getitem=29), config=config, data_wait=80, forward=40))

    assert "num_workers=3," in finding.action


@pytest.mark.parametrize(("waits", "said"), [(105, True), (95, False)])
def test_a_batch_that_takes_much_longer_in_the_training_process_is_said_to(
    tmp_path: Path, waits: float, *, said: bool
) -> None:
    """50 ms in a process of its own, where nothing else computes."""
    summary = found(tmp_path, Batch(getitem=49), data_wait=waits, forward=20)

    assert ("105 ms in the training process" in only(summary).evidence) is said


def test_without_an_anatomy_the_reader_is_told_how_to_get_one(tmp_path: Path) -> None:
    """In the words of the loop."""
    lightning = only(found(tmp_path / "a", data_wait=30, forward=20))
    plain = only(found(tmp_path / "b", config={"loop": "plain"}, data_wait=30, forward=20))

    assert lightning.evidence[-1].startswith("TrainPerf(loader_anatomy=True) shows")
    assert plain.evidence[-1].startswith("monitor.loader_anatomy() shows")


def test_the_summary_says_how_many_workers_keep_up(tmp_path: Path) -> None:
    """Also where nothing waits; on a device the time that it has is the step without its stall."""
    keeps = found(tmp_path / "a", Batch(getitem=49), data_wait=1, forward=20)
    hides = found(
        tmp_path / "b",
        Batch(getitem=49, workers=4),
        device="cuda",
        facts={"data_stall_ns": 0},
        data_wait=30,
        forward=20,
    )

    assert keeps.loader is not None
    assert keeps.loader.workers_needed == 3
    assert hides.loader is not None
    assert hides.loader.workers_needed == 1


def test_a_loader_that_keeps_up_is_no_finding_however_long_its_batches_take(
    tmp_path: Path,
) -> None:
    """Forty small tensors and 300 ms a batch, and a step that never waits."""
    batch = Batch(getitem=300, tensors=40, size=4096, workers=8)

    assert found(tmp_path, batch, data_wait=0.5, forward=20).findings == ()


# -- hidden -----------------------------------------------------------------------------------


def hidden(path: Path, *, stall_ms: float, wait_ms: float = 25.0, device: str = "cuda") -> Summary:
    """Steps of 50 ms."""
    return found(
        path,
        device=device,
        facts={"data_stall_ns": stall_ms * MS},
        data_wait=wait_ms,
        forward=50 - wait_ms,
    )


def test_a_wait_that_the_device_hides_is_to_be_left_alone(tmp_path: Path) -> None:
    """The host waits for half of the step, and the device does not notice: nothing to gain."""
    summary = hidden(tmp_path, stall_ms=0.2)

    finding = only(summary)
    assert finding.id == "data_hidden"
    assert (finding.fraction, finding.gain_upper_bound, finding.severity) == (0.0, None, "low")
    assert "No clear bottleneck" in headline(summary)


@pytest.mark.parametrize(
    ("stall_ms", "wait_ms", "device", "ids"),
    [
        (0.2, 4.5, "cuda", []),
        (4.8, 18.0, "cuda", []),
        (10.0, 25.0, "cuda", ["data_wait"]),
        (0.2, 25.0, "cpu", ["data_wait"]),
    ],
    ids=["little", "partly", "noticed", "cpu"],
)
def test_a_wait_that_is_small_or_noticed_is_not_called_hidden(
    tmp_path: Path, stall_ms: float, wait_ms: float, device: str, ids: list[str]
) -> None:
    """On a CPU nothing is hidden at all."""
    summary = hidden(tmp_path, stall_ms=stall_ms, wait_ms=wait_ms, device=device)

    assert [finding.id for finding in summary.findings] == ids


def test_what_gains_nothing_comes_after_all_that_gains_something(tmp_path: Path) -> None:
    """Also after a finding without a bound."""
    summary = found(
        tmp_path,
        device="cuda",
        facts={"data_stall_ns": 0, "lead_forward": 0, "lead_backward": 0},
        data_wait=25,
        forward=25,
    )

    assert [finding.id for finding in summary.findings] == ["host_bound", "data_hidden"]


# -- many small tensors -----------------------------------------------------------------------


def test_many_small_tensors_in_the_loader_are_named_instead_of_the_wait(tmp_path: Path) -> None:
    """Sixty-four tensors of 1 KiB; nothing is done for a sample but handling them."""
    batch = Batch(getitem=8, collate=4, tensors=64, size=64 << 10)

    finding = only(found(tmp_path, batch, data_wait=12, forward=12))

    assert finding.id == "many_small_tensors"
    assert finding.fraction == pytest.approx(0.5)
    assert finding.where == "images.py:12"
    assert "1.00 KiB per tensor" in finding.evidence


@pytest.mark.parametrize(
    "batch",
    [
        Batch(getitem=8, collate=4, tensors=15, size=15 << 10),
        Batch(getitem=8, collate=4, tensors=64, size=64 << 20),
        Batch(getitem=40, collate=4, tensors=64, size=64 << 10),
    ],
    ids=["few", "large", "work"],
)
def test_few_or_large_tensors_or_real_work_are_a_data_wait(tmp_path: Path, batch: Batch) -> None:
    """Whose cause is another."""
    assert only(found(tmp_path, batch, data_wait=12, forward=12)).id == "data_wait"


COPIES = {"h2d_device_ns": 10 * MS, "h2d_bytes": 20_000, "h2d_tensors": 40, "lead_forward": 5}


def test_many_small_copies_to_the_device_are_named_instead_of_the_transfer(
    tmp_path: Path,
) -> None:
    """Forty of 500 bytes, 10 of 50 ms."""
    summary = found(
        tmp_path, device="cuda", config={"pin_memory": True}, facts=COPIES, h2d=1, forward=49
    )

    finding = only(summary)
    assert finding.id == "many_small_tensors"
    assert "collate_fn" in finding.action
    assert finding.evidence == ("10.0 ms of 50.0 ms per step", "500 B per tensor, at 2.00 MB/s")
    assert finding.fraction == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("facts", "config", "id_"),
    [
        ({"h2d_tensors": 12}, {}, "transfer"),
        ({"h2d_bytes": 200 << 20}, {}, "transfer"),
        ({}, {"accumulate_grad_batches": 8}, "transfer"),
        ({"h2d_device_ns": MS}, {}, None),
    ],
    ids=["few", "large", "few a micro-batch", "cheap"],
)
def test_few_or_large_or_cheap_copies_are_not(
    tmp_path: Path, facts: dict[str, float], config: dict[str, Scalar], id_: str | None
) -> None:
    """Those that take long are a transfer."""
    summary = found(
        tmp_path, device="cuda", config=config, facts={**COPIES, **facts}, h2d=1, forward=49
    )

    assert [finding.id for finding in summary.findings] == ([id_] if id_ else [])


# -- transfer ---------------------------------------------------------------------------------


def test_a_copy_that_holds_up_a_host_the_device_waits_for_costs_what_it_holds_it_up(
    tmp_path: Path,
) -> None:
    """2 ms on the device, 10 on the host: a bound on the gain must hold for both."""
    facts = {"h2d_device_ns": 2 * MS, "h2d_bytes": 10**8, "h2d_tensors": 2}
    bound = {**facts, "lead_forward": 0, "lead_backward": 0}
    ahead = {**facts, "lead_forward": 5, "lead_backward": 5}

    late = found(tmp_path / "a", device="cuda", facts=bound, h2d=10, forward=40)
    early = found(tmp_path / "b", device="cuda", facts=ahead, h2d=10, forward=40)

    assert [f.fraction for f in late.findings if f.id == "transfer"] == [pytest.approx(0.2)]
    assert early.findings == ()


@pytest.mark.parametrize(
    ("config", "action"),
    [
        ({"pin_memory": False}, "Lightning then copies without blocking"),
        ({"pin_memory": False, "loop": "plain"}, "batch.to(device, non_blocking=True)"),
        ({"pin_memory": True}, "send less"),
        ({"pin_memory": True, "loop": "plain"}, "non_blocking=True); send less"),
    ],
)
def test_pageable_memory_is_pinned_and_a_plain_loop_told_not_to_block(
    tmp_path: Path, config: dict[str, Scalar], action: str
) -> None:
    """20 MB in 10 ms; the link could do it in a third of a millisecond."""
    facts = {"h2d_device_ns": 10 * MS, "h2d_bytes": 20_000_000, "h2d_tensors": 3}

    finding = only(found(tmp_path, device="cuda", config=config, facts=facts, h2d=10, forward=40))

    assert action in finding.action
    assert "19.1 MiB per step at 2.00 GB/s, 3.1 % of the link's 64.0 GB/s" in finding.evidence


@pytest.mark.parametrize(("overlap", "fraction"), [(None, 0.2), (0.25, 0.15), (0.75, None)])
def test_copying_that_a_trace_shows_beside_computing_is_not_counted(
    tmp_path: Path, overlap: float | None, fraction: float | None
) -> None:
    """10 of 50 ms are copying; as far as kernels run meanwhile, nothing is lost."""
    facts = {"h2d_device_ns": 10 * MS, "h2d_bytes": 20_000_000, "h2d_tensors": 3}
    summary = found(tmp_path, device="cuda", facts=facts, h2d=10, forward=40)
    totals = TraceTotals(steps=3, step_s=0.05, h2d_s=0.01, h2d_overlap_fraction=overlap)
    capture = CaptureReport(
        ranks=(RankTrace(file="rank0", totals=totals),),
        capture=CaptureFacts(first_step=100, first_index=100, complete_steps=3),
    )

    finding = transfer(Evidence(summary=summary, captures=(capture,)))

    assert (finding.fraction if finding else None) == pytest.approx(fraction)

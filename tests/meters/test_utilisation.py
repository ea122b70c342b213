"""FLOP/s, MFU and HFU from an audit and planted steps."""

from pathlib import Path

import msgspec
import pytest
from support.blocks import block_of
from support.light import make_audit, make_use, write_audit
from support.runs import WARMUP_STEPS, RankSpec, make_run_dir, make_step, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.artifacts.folder import read_documents
from trainperf.core.phases import Tag
from trainperf.core.steps.records import StepRecord
from trainperf.meters.fold import Reading
from trainperf.meters.lead_steps import LeadSteps
from trainperf.meters.utilisation import utilisation


TERA = 10**12


def audit(device: str = "NVIDIA H100 80GB HBM3", precision: str = "bf16") -> StepAudit:
    """Ten TFLOP, of which two are repeated, in one contraction of step 30."""
    product = make_use(flops=10 * TERA, kind="matmul", precision=precision)
    product = msgspec.structs.replace(product, repeated_flops=2 * TERA)
    return StepAudit(
        step=30,
        device="cuda",
        device_name=device,
        cache_bytes=None,
        operators=(product,),
        audited_s=1.0,
    )


def steps(size: int = 512, audited_size: int = 512) -> list[StepRecord]:
    """Forty steps of 20 ms, the audited one of them of a second."""
    usual = make_steps(40, facts={"tokens_padded": size}, forward=20.0)
    facts = {"tokens_padded": audited_size}
    usual[30] = make_step(30, tags=int(Tag.AUDITED), facts=facts, forward=1000.0)
    return usual


def readings(run: Path, records: list[StepRecord]) -> dict[str, Reading]:
    """Over two blocks."""
    steps = LeadSteps()
    for part in (records[:25], records[25:]):
        steps.observe(block_of(part))
    return utilisation(steps, read_documents(run))


H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("device", "precision", "size", "share", "reason"),
    [
        # 8 TFLOP of the model and 10 of the hardware in 20 ms, at a peak of 989.4 TFLOP/s.
        *((H100, "bf16", size, 400 / 989.4 * 512 / size, None) for size in (480, 512, 550)),
        # No peak is guessed.
        ("Some CPU", "fp32", 512, None, "the peak of Some CPU is not in the chip table"),
        ("Tesla T4", "bf16", 512, None, "the peak of T4 in bf16 is not known"),
    ],
)
def test_utilisation_is_the_audits_flops_over_the_steady_steps_time(
    device: str,
    precision: str,
    size: int,
    share: float | None,
    reason: str | None,
    tmp_path: Path,
) -> None:
    """A steady step of 512 tokens does 512 / 480 of what one of 480 did."""
    write_document(audit(device, precision), tmp_path)

    found = readings(tmp_path, steps(audited_size=size))

    assert found["flops_per_s"].value == pytest.approx(8e12 * 512 / size / 0.020)
    assert found["mfu"].value == (share and pytest.approx(share))
    assert found["hfu"].value == (share and pytest.approx(share * 10 / 8))
    assert (found["hfu"].reason or None) == reason
    assert {reading.n for reading in found.values() if reading.value} == {40 - 1 - WARMUP_STEPS}


@pytest.mark.parametrize(("audited_size", "alike"), [(128, True), (120, True), (64, False)])
def test_what_is_not_like_the_audited_step_is_not_put_beside_its_floors(
    tmp_path: Path, audited_size: int, *, alike: bool
) -> None:
    """A millisecond of arithmetic a step of 128 tokens, which takes 20 ms."""
    records = make_steps(40, facts={"tokens_padded": 128}, forward=20.0)
    facts = {"tokens_padded": audited_size}
    records[30] = make_step(30, tags=int(Tag.AUDITED), facts=facts, forward=1000.0)
    run = make_run_dir(tmp_path, [RankSpec(steps=records)])
    flops = 10**9 * audited_size // 128
    product = make_use(name="aten.mm.default", flops=flops, kind="matmul", host_s=0.01)
    write_audit(run, product, step=30)

    summary = summarize(Run.open(run))
    light = summary.light

    # What one operator reached is of the audited step, whatever the others are like.
    assert light.operators[0].floor.floor_s == pytest.approx(1e-3 * audited_size / 128)
    if alike:
        assert light.phases[0].floor_s == pytest.approx(1e-3)
        assert light.phases[0].over == pytest.approx(20, rel=1e-3)
        assert summary.value("mfu") == pytest.approx(0.05, rel=1e-3)
    else:
        assert [phase.measured_s for phase in light.phases] == [None] * 4
        assert summary.value("mfu") is None


def test_what_does_not_grow_with_the_batch_does_not_grow() -> None:
    """The update; and bytes, among which are the weights."""
    passes = make_use(flops=100, memory=1000, kind="matmul", host_s=1.0)
    update = make_use(flops=10, memory=100, part="optimizer", host_s=0.1)
    known = make_audit(passes, update)

    smaller, larger = known.resized(0.9).operators, known.resized(1.1).operators

    assert (smaller[0].flops, smaller[0].memory_bytes, smaller[0].host_s) == (90, 900, 0.9)
    assert (larger[0].flops, larger[0].memory_bytes, larger[0].host_s) == (110, 1000, 1.1)
    assert smaller[1] == larger[1] == update


@pytest.mark.parametrize(
    ("document", "records", "reason"),
    [
        ("", steps(), "no FLOP count was made of this model"),
        ("{", steps(), "audit.json: damaged"),
        (audit(), make_steps(26, warmup=26, forward=20.0), "no steady state"),
        (
            audit(),
            steps(audited_size=256),
            "others: 256 tokens with padding, a steady step has 512 on average",
        ),
    ],
    ids=["no audit", "damaged", "a warm-up alone", "a step of another size"],
)
def test_without_a_rate_the_reason_is_said(
    document: StepAudit | str, records: list[StepRecord], reason: str, tmp_path: Path
) -> None:
    """A null reading always has one."""
    if isinstance(document, StepAudit):
        write_document(document, tmp_path)
    elif document:
        (tmp_path / "audit.json").write_text(document)

    found = readings(tmp_path, records)

    assert [reading.value for reading in found.values()] == [None] * 3
    assert all(reason in (reading.reason or "") for reading in found.values())

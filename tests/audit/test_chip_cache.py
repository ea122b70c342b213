"""The figures of a machine without a data sheet: measured after the fit, remembered, the best."""

from pathlib import Path

import msgspec
import pytest
import torch
from support.light import make_use

from trainperf.audit import chip_cache
from trainperf.audit.chip_benchmark import best_of, device_name
from trainperf.audit.chip_cache import CACHE, PROBES, cache_file, chip_for, note_chip
from trainperf.core.artifacts import read_document, write_document
from trainperf.core.artifacts.audit import MeasuredChip, OperatorUse, StepAudit
from trainperf.core.interleaving.wire import Participant
from trainperf.core.machine.chips import Chip
from trainperf.loop import report


CPU = device_name(torch.device("cpu"))

SLOW = Chip(
    name="planted",
    flops_per_s={"fp32": 1e9, "bf16": 2e9},
    memory_bytes_per_s=1e9,
    link_bytes_per_s=None,
    launch_s=5e-6,
    source="this test",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def use(*, flops: int = 0, memory: int = 0, host_s: float, precision: str = "fp32") -> OperatorUse:
    """A product called once."""
    return make_use(flops=flops, memory=memory, kind="matmul", precision=precision, host_s=host_s)


def audit(*uses: OperatorUse, device: str = "cpu", name: str | None = None) -> StepAudit:
    """A step on this machine."""
    return StepAudit(
        device=device,
        device_name=name or CPU,
        cache_bytes=None,
        operators=uses,
        audited_s=1.0,
    )


def remember(*, probes: int = PROBES, chip: Chip = SLOW) -> Path:
    """As an earlier run would have."""
    file = cache_file(CPU)
    file.parent.mkdir(parents=True)
    file.write_bytes(msgspec.json.encode([chip] * probes))
    return file


def remembered() -> list[Chip]:
    """What the next run will read."""
    return msgspec.json.decode(cache_file(CPU).read_bytes(), type=list[Chip])


def test_a_probe_that_found_a_faster_machine_counts() -> None:
    """Figure by figure; and the next run knows that there was one more."""
    remember(probes=1)

    found = chip_for(audit(), measure=True, budget_s=0.2)

    assert found.flops_per_s["fp32"] > SLOW.flops_per_s["fp32"]
    assert (len(remembered()), best_of(remembered())) == (2, found)


def test_what_the_audited_step_reached_the_chip_can_do() -> None:
    """So no operator that took its time is faster than its floor."""
    remember()
    fast = use(flops=10**9, memory=10**7, host_s=1e-3)

    found = chip_for(audit(fast), measure=True)

    assert found.flops_per_s == {"fp32": 1e12, "bf16": 2e9}
    assert found.memory_bytes_per_s == 1e10
    assert best_of(remembered()) == found


@pytest.mark.parametrize(
    "uses",
    [
        (),
        # Below a tenth of a millisecond the clock and the launch are part of the time.
        (use(flops=10**9, memory=10**7, host_s=50e-6),),
        (use(flops=10**9, host_s=1e-3, precision="int64"),),
    ],
)
def test_the_figures_of_earlier_runs_are_used(uses: tuple[OperatorUse, ...]) -> None:
    """After so many probes; a moment and a precision without a peak say nothing."""
    remember()

    assert chip_for(audit(*uses), measure=True) == SLOW


def test_without_time_to_measure_only_what_is_known_is_used() -> None:
    """An interrupted fit is not held up; of a chip of the table not even its launch is timed."""
    assert chip_for(audit(device="cuda", name="NVIDIA H100 80GB HBM3"), measure=False) is None
    assert chip_for(audit(), measure=False) is None
    remember(probes=1)
    assert chip_for(audit(), measure=False) == SLOW
    assert len(remembered()) == 1


@pytest.mark.parametrize("contents", [b"", b"{", b'{"probes": 1}', b"[1]", b"\xff"])
def test_a_damaged_memory_is_measured_anew(contents: bytes) -> None:
    """It is a cache."""
    remember().write_bytes(contents)

    assert chip_for(audit(), measure=False) is None


def test_a_cache_that_cannot_be_written_costs_nothing_else(cache: Path) -> None:
    """A file stands where the directory should be."""
    cache.write_text("")

    assert chip_for(audit(), measure=False) is None
    chip_cache._save([SLOW], cache_file("x"))


def test_the_figures_are_those_of_the_device_the_release_and_the_threads() -> None:
    """One thread does not do what eight do."""
    threads = torch.get_num_threads()
    names = {cache_file("Chip A").name, cache_file("Chip B").name}
    torch.set_num_threads(threads + 1)
    names.add(cache_file("Chip A").name)
    torch.set_num_threads(threads)

    assert len(names) == 3
    assert not any(set(name) & set('/\\: "') for name in names)


def test_a_run_with_a_whole_audit_gets_its_chip(tmp_path: Path) -> None:
    """One without does not; of a damaged one the report says what is wrong with it."""
    remember()
    note_chip(tmp_path, measure=True)
    (tmp_path / StepAudit.file).write_text("{")
    note_chip(tmp_path, measure=True)
    assert read_document(MeasuredChip, tmp_path) is None

    write_document(audit(), tmp_path)
    note_chip(tmp_path, measure=True)

    assert read_document(MeasuredChip, tmp_path) == MeasuredChip(chip=SLOW)


@pytest.mark.parametrize("ended_by", ["prove", "a person"])
def test_a_fit_that_prove_has_ended_has_time_for_the_benchmark(
    ended_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it; whoever interrupts a training does.  Without limits no rule speaks."""
    write_document(audit(), tmp_path)
    monkeypatch.setattr(chip_cache, "probe", lambda *_, **__: SLOW)
    if ended_by == "prove":
        for name, text in Participant(address="nowhere", side=0).variable().items():
            monkeypatch.setenv(name, text)
    report.note_chip(tmp_path, finished=False)

    assert (read_document(MeasuredChip, tmp_path) is not None) == (ended_by == "prove")

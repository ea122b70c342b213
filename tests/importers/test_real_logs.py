"""Logs that the frameworks' own code wrote, of planted trainings: `tests/support/real_logs.py`."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.importers import recognise
from trainperf.importers.writing import write_run
from trainperf.reports.charts.small import charts_of
from trainperf.reports.run.page import load_page_data, render


REAL = Path(__file__).parent / "real"

Imported = Callable[..., tuple[str, Summary]]


@pytest.fixture
def imported(tmp_path: Path) -> Imported:
    """The summary of what the logs of some names become, and its format."""

    def summary_of(*names: str) -> tuple[str, Summary]:
        files = []
        for name in names:
            packed = (REAL / name).read_bytes()
            files.append(tmp_path / name.removesuffix(".gz"))
            files[-1].write_bytes(gzip.decompress(packed) if name.endswith(".gz") else packed)
        kind = recognise(files)
        return kind.name, summarize(Run.open(write_run(kind, files, tmp_path / "run")))

    return summary_of


def near(ms: float) -> object:
    """What was planted: within 2 % or 0.5 ms, in seconds."""
    return pytest.approx(ms / 1e3, rel=0.02, abs=0.0005)


def test_torchtitans_trainer(imported: Imported) -> None:
    """Two ranks of thirty steps: fetch 20 ms, a pass of 30 and the trainer's own, update 10."""
    kind, summary = imported("torchtitan-rank0.jsonl.gz", "torchtitan-rank1.jsonl.gz")

    assert kind == "torchtitan"
    assert (summary.run.ranks, summary.run.steps) == ((0, 1), 30)
    assert summary.value("phase_data_wait_s") == near(20)
    assert summary.value("phase_optimizer_s") == near(10)
    assert 0.030 <= (summary.value("phase_other_s") or 0) < 0.034
    assert summary.ledger_s["validation"] == near(150)
    tokens_per_s = 2 * 1536 / sum(summary.phases_s().values())
    assert summary.value("effective_tokens_per_s") == pytest.approx(tokens_per_s, rel=0.02)


def test_megatrons_timers_and_training_log(imported: Imported) -> None:
    """Sixty iterations, five to a line, of which the first is logged alone as well."""
    kind, summary = imported("megatron.log")

    assert kind == "megatron"
    assert summary.run.steps == 60
    assert summary.value("step_mean_s") == near(59)
    assert summary.value("phase_data_wait_s") == near(6)
    assert summary.value("phase_forward_s") == near(14)
    assert summary.value("phase_backward_s") == near(24)
    assert summary.value("phase_optimizer_s") == near(10)
    assert summary.value("samples_per_s") == pytest.approx(8 / 0.059, rel=0.02)
    assert summary.ledger_s["validation"] == near(200)
    assert summary.ledger_s["checkpoint"] == near(100)
    assert "means over" in (summary.readings["step_s"].reason or "")


def test_deepspeeds_engine(imported: Imported) -> None:
    """Forty updates of two batches: forward 20 ms, backward 30, update 8, and the engine's own."""
    kind, summary = imported("deepspeed.log")

    assert kind == "deepspeed"
    assert summary.run.steps == 40
    assert 0.020 <= (summary.value("phase_forward_s") or 0) < 0.022
    assert 0.030 <= (summary.value("phase_backward_s") or 0) < 0.034
    assert 0.008 <= (summary.value("phase_optimizer_s") or 0) < 0.010
    assert (summary.value("allreduce_tail_s") or 1) < 0.003
    assert summary.readings["samples_per_s"].value is None


@pytest.mark.parametrize("name", ["trainer_state.json", "trainer_state-tokens.json"])
def test_a_trainers_state(imported: Imported, name: str) -> None:
    """Forty steps of two batches of 15 ms, and the Trainer's own; two evaluations of five."""
    kind, summary = imported(name)

    assert kind == "huggingface"
    assert summary.run.steps == 40
    (whole,) = summary.phases_s().values()
    assert 0.030 <= whole < 0.040
    assert 0.150 <= summary.ledger_s["validation"] < 0.200
    counted = summary.readings["padded_tokens_per_s"].value
    assert (counted is None) is (name == "trainer_state.json")
    if counted is not None:
        assert counted == pytest.approx(2 * 4 * 8 / whole, rel=0.02)


def test_charts_of_what_a_log_does_not_hold_say_why(imported: Imported, tmp_path: Path) -> None:
    """No line of zeros; tokens that are padded are not called effective; no band between points."""
    imported("trainer_state-tokens.json")
    page = load_page_data(Run.open(tmp_path / "run"))

    drawn = {chart.key: chart for chart in charts_of(page.groups, page.summary)}

    assert drawn["data_wait"].lines == []
    assert drawn["data_wait"].absent.startswith("not covered: trainer_state.json")
    assert [line.label for line in drawn["tokens"].lines] == ["with padding"]
    assert drawn["tokens"].note.startswith("With padding; without: not covered")
    assert drawn["loss"].lines[0].single is None


def test_the_page_asks_for_no_audit_of_a_log(imported: Imported, tmp_path: Path) -> None:
    """There is no loop to put a line into."""
    imported("megatron.log")

    page = render(load_page_data(Run.open(tmp_path / "run")))

    assert "not measured: the run was imported from a log" in page
    assert "needs an audit" not in page

"""Logs that the frameworks' own code wrote, of planted trainings: `tests/support/real_logs.py`."""

from pathlib import Path

import pytest
from support.imported import imported

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.loop_kind import imported_from
from trainperf.reports.charts.series import SERIES, chart_of
from trainperf.reports.run.page import load_page_data, render


REAL = Path(__file__).parent / "real"


def summary_of(folder: Path, *names: str) -> Summary:
    """The summary of what the logs of some names become."""
    logs = ((REAL / name).read_bytes() for name in names)
    return summarize(Run.open(imported(folder, *logs)))


# Bounds of readings and of the ledger.  What was planted is within 2 % or 0.5 ms; of what the
# trainer does itself, only that it is little more is known.
Bounds = dict[str, tuple[float, float]]


def near(ms: float) -> tuple[float, float]:
    """What was planted: within 2 % or 0.5 ms, in seconds."""
    off_s = max(0.02 * ms / 1e3, 0.0005)
    return ms / 1e3 - off_s, ms / 1e3 + off_s


REAL_LOGS: dict[str, tuple[tuple[str, ...], int, Bounds, Bounds]] = {
    # Two ranks of thirty steps: fetch 20 ms, a pass of 30 and the trainer's own, update 10.
    "torchtitan": (
        ("torchtitan-rank0.jsonl.gz", "torchtitan-rank1.jsonl.gz"),
        30,
        {
            "phase_data_wait_s": near(20),
            "phase_optimizer_s": near(10),
            "phase_other_s": (0.030, 0.034),
        },
        {"validation": near(150)},
    ),
    # Sixty iterations, five to a line, of which the first is logged alone as well.
    "megatron": (
        ("megatron.log",),
        60,
        {
            "step_mean_s": near(59),
            "phase_data_wait_s": near(6),
            "phase_forward_s": near(14),
            "phase_backward_s": near(24),
            "phase_optimizer_s": near(10),
            "samples_per_s": (0.98 * 8 / 0.059, 1.02 * 8 / 0.059),
        },
        {"validation": near(200), "checkpoint": near(100)},
    ),
    # Forty updates of two batches: forward 20 ms, backward 30, update 8, and the engine's own.
    "deepspeed": (
        ("deepspeed.log",),
        40,
        {
            "phase_forward_s": (0.020, 0.022),
            "phase_backward_s": (0.030, 0.034),
            "phase_optimizer_s": (0.008, 0.010),
            "allreduce_tail_s": (0.0, 0.003),
        },
        {},
    ),
}
REASONS = {"megatron": ("step_s", "means over"), "deepspeed": ("samples_per_s", "")}
"""A reading without a value, and words of why."""
TOKENS = {"torchtitan": 2 * 1536}
"""Of a step."""


@pytest.mark.parametrize("name", REAL_LOGS)
def test_what_was_planted_comes_back(name: str, tmp_path: Path) -> None:
    """Of all ranks of the framework's own log."""
    files, steps, values, ledger = REAL_LOGS[name]
    summary = summary_of(tmp_path, *files)

    assert imported_from(summary.run.config) == name
    assert (summary.run.steps, summary.run.ranks) == (steps, tuple(range(len(files))))
    found = {each: summary.value(each) for each in values} | {
        each: summary.ledger_s[each] for each in ledger
    }
    bounds = values | ledger
    assert {n: v for n, v in found.items() if not bounds[n][0] <= (v or -1) <= bounds[n][1]} == {}
    per_s = TOKENS.get(name, 0) / sum(summary.phases_s().values())
    assert (summary.value("effective_tokens_per_s") or 0) == pytest.approx(per_s, rel=0.02)
    reading, why = REASONS.get(name, ("", ""))
    assert not reading or summary.readings[reading].value is None
    assert not reading or why in (summary.readings[reading].reason or "")


@pytest.mark.parametrize("name", ["trainer_state.json", "trainer_state-tokens.json"])
def test_a_trainers_state(name: str, tmp_path: Path) -> None:
    """Forty steps of two batches of 15 ms, and the Trainer's own; two evaluations of five."""
    summary = summary_of(tmp_path, name)

    assert (imported_from(summary.run.config), summary.run.steps) == ("huggingface", 40)
    (whole,) = summary.phases_s().values()
    assert 0.030 <= whole < 0.040
    assert 0.150 <= summary.ledger_s["validation"] < 0.200
    counted = summary.readings["padded_tokens_per_s"].value
    assert (counted is None) is (name == "trainer_state.json")
    if counted is not None:
        assert counted == pytest.approx(2 * 4 * 8 / whole, rel=0.02)


def test_what_a_log_does_not_hold_has_no_line(tmp_path: Path) -> None:
    """None of zeros; tokens that are padded are not called effective; no band between points."""
    summary_of(tmp_path, "trainer_state-tokens.json")
    page = load_page_data(Run.open(tmp_path))

    drawn = {each.title: chart_of(each, page.groups, page.summary) for each in SERIES}

    assert drawn["Data wait"].lines == []
    assert [line.label for line in drawn["Tokens per second"].lines] == ["with padding"]
    assert drawn["Loss"].lines[0].shade is None


def test_the_page_asks_for_no_audit_of_a_log(tmp_path: Path) -> None:
    """There is no loop to put a line into."""
    summary_of(tmp_path, "megatron.log")

    page = render(load_page_data(Run.open(tmp_path)))

    assert "not measured: the run was imported from a log" in page
    assert "needs an audit" not in page

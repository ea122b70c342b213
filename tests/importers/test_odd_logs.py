"""Logs as people have them: restarted in one file, in seconds, packed, coloured, of many ranks."""

import gzip
import json
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support import logs
from support.imported import imported

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.commands import main
from trainperf.importers import recognise
from trainperf.importers.writing import write_run
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import progress


def summary_of(folder: Path, written: str | bytes, name: str = "train.log") -> Summary:
    """The summary of what a log becomes."""
    return summarize(Run.open(imported(folder, written, name=name)))


def an_hour_later(written: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is written when the job begins then."""
    with monkeypatch.context() as later:
        later.setattr(logs, "BEGAN", logs.BEGAN + timedelta(hours=1))
        return written()


def titan() -> str:
    """A hundred steps of 100 ms, and one of a second before them."""
    return logs.torchtitan(logs.steady(100, logs.TITAN))


def deepspeed() -> str:
    """The same, with times of day: 25 ms between two updates are outside of the engine."""
    return logs.deepspeed(logs.steady(100, logs.DEEPSPEED), outside_ms=25)


def megatron() -> str:
    """Means over ten iterations."""
    return logs.megatron(logs.steady(600, logs.MEGATRON))


def megatron_singly() -> str:
    """Each iteration."""
    return logs.megatron(logs.steady(100, logs.MEGATRON), interval=1)


@pytest.mark.parametrize(
    ("written", "mean_s"),
    [(titan, 0.1), (deepspeed, 0.125), (megatron, 0.1), (megatron_singly, 0.1)],
)
def test_a_job_that_was_restarted_into_the_same_log_is_two_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[], str], mean_s: float
) -> None:
    """The hour between them is no step, and the second first step is none of the steady ones."""
    once = summary_of(tmp_path, written(), "once.log")

    summary = summary_of(tmp_path, written() + an_hour_later(written, monkeypatch))

    assert summary.run.steps == 2 * once.run.steps
    assert summary.run.steady_steps == 2 * once.run.steady_steps
    assert summary.value("step_mean_s") == pytest.approx(mean_s, rel=0.02)
    assert summary.run.attempts == 2
    assert summary.ledger_s["restart"] == pytest.approx(3600, rel=0.05)


def test_a_megatron_job_that_went_on_where_it_was_is_known_by_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its count does not go back then."""
    arguments = "  world_size ...................................... 8\n"
    again = re.sub(
        r"iteration +(\d+)/",
        lambda found: f"iteration {int(found[1]) + 600:8d}/",
        an_hour_later(megatron, monkeypatch),
    )

    summary = summary_of(tmp_path, arguments + megatron() + arguments + again)

    assert summary.run.steps == 1200
    assert summary.run.attempts == 2


def test_logs_without_a_time_of_day_stay_in_the_order_in_which_they_are_given(
    tmp_path: Path,
) -> None:
    """Whatever their files are called."""
    first, second = (
        logs.verl(20).replace('"timing_s/step": 100.0', '"timing_s/step": 120.0'),
        logs.verl(20),
    )
    files = [tmp_path / "b.log", tmp_path / "a.log"]
    for file, text in zip(files, (first, second), strict=True):
        file.write_text(text, encoding="utf-8")

    summary = summarize(Run.open(write_run(recognise(files), files, tmp_path)))

    assert summary.run.attempts == 2
    assert summary.value("first_step_s") == pytest.approx(120.0)


def test_a_trainer_that_was_resumed_says_so_and_counts_its_samples_once(tmp_path: Path) -> None:
    """The rates of its last entry are of the steps since then alone."""
    state = json.loads(logs.trainer_state(500, 10, 0.5, tokens=2048))
    for entry in state["log_history"]:
        if entry["step"] > 300:
            entry["train_runtime"] -= 150
    state["log_history"][-1] |= {"train_samples_per_second": 16.0, "train_steps_per_second": 2.0}

    summary = summary_of(tmp_path, json.dumps(state), "trainer_state.json")

    assert summary.run.steps == 500
    assert summary.value("step_mean_s") == pytest.approx(0.5)
    assert summary.value("samples_per_s") == pytest.approx(16.0)
    assert summary.run.attempts == 2
    # Nothing of the log says how long it stood still.
    assert progress(summary).endswith("1 restart")


def test_seconds_are_no_milliseconds(tmp_path: Path) -> None:
    """Forks of Megatron-DeepSpeed print an iteration's seconds."""
    in_seconds = re.sub(
        r"iteration \(ms\): ([\d.]+)",
        lambda found: f"iteration (s): {float(found[1]) / 1e3:.4f}",
        megatron(),
    )

    assert summary_of(tmp_path, in_seconds).value("step_mean_s") == pytest.approx(0.1, rel=0.02)


def test_a_log_that_is_packed_or_coloured_is_read_as_what_is_in_it(tmp_path: Path) -> None:
    """Whatever its lines end with."""
    text = megatron()
    coloured = "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines())
    expected = summary_of(tmp_path, text)
    forms = {
        "a.log": coloured.encode(),
        "b.log.gz": gzip.compress(coloured.encode()),
        "c.log": text.replace("\n", "\r\n").encode(),
    }
    for name, packed in forms.items():
        summary = summary_of(tmp_path, packed, name)
        assert summary.readings["phase_optimizer_s"] == expected.readings["phase_optimizer_s"], name
        assert summary.run.fit_s == expected.run.fit_s, name


def test_a_line_that_one_which_was_cut_runs_into_is_kept(tmp_path: Path) -> None:
    """As where a job was killed while it wrote, and went on in the same file."""
    text = titan()
    cut = text[: -len(text.splitlines()[-1]) // 2]

    summary = summary_of(tmp_path, cut + text)

    assert summary.run.steps == 199
    assert summary.run.attempts == 2


def test_the_command_takes_packed_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is called after the log in it."""
    monkeypatch.chdir(tmp_path)
    Path("train.log.gz").write_bytes(gzip.compress(megatron().encode()))

    monkeypatch.setattr(sys, "argv", ["trainperf", "import", "train.log.gz"])

    assert main() == 0

    assert "imported from a Megatron-LM log: train.log" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "imported" / "train").is_dir()


def test_a_log_of_one_step_is_said_in_the_singular(tmp_path: Path) -> None:
    """Neither `all 1 step` nor `1 step are`."""
    summary = summary_of(tmp_path, logs.trainer_state(1, 1, 0.5), "trainer_state.json")

    assert headline(summary).startswith("One step of 500 ms; ")
    assert summary.findings[0].title == "1 step is too few for a steady state"


def test_means_that_do_not_settle_do_not_blame_the_training(tmp_path: Path) -> None:
    """Four means that differ say nothing of changing shapes."""
    times = [{**logs.MEGATRON, "forward-backward": 70.0 + 40 * (n // 10)} for n in range(40)]

    summary = summary_of(tmp_path, logs.megatron(times))

    finding = next(f for f in summary.findings if f.id == "no_steady_state")
    assert "means in the log" in finding.title
    assert "shapes" not in finding.action


def test_a_loss_that_is_no_number_is_none(tmp_path: Path) -> None:
    """A callback may log anything by that name."""
    state = json.loads(logs.trainer_state(50, 1, 0.5, tokens=10))
    for entry in state["log_history"][:20]:
        entry["loss"] = "n/a"

    summary = summary_of(tmp_path, json.dumps(state), "trainer_state.json")

    assert summary.run.steps == 50
    assert summary.value("loss") == pytest.approx(2.995)

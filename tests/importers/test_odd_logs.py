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

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.commands import main
from trainperf.core.errors import LogError
from trainperf.importers import recognise
from trainperf.importers.writing import write_run
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import progress


def imported(tmp_path: Path, written: str | bytes, name: str = "train.log") -> Summary:
    """The summary of what a log becomes."""
    file = tmp_path / name
    file.write_bytes(written if isinstance(written, bytes) else written.encode())
    run = write_run(recognise([file]), [file], tmp_path / "run")
    return summarize(Run.open(run))


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
    once = imported(tmp_path, written(), "once.log")

    summary = imported(tmp_path, written() + an_hour_later(written, monkeypatch))

    assert summary.run.steps == 2 * once.run.steps
    assert summary.run.steady_steps == 2 * once.run.steady_steps
    assert summary.value("step_mean_s") == pytest.approx(mean_s, rel=0.02)
    assert summary.restarts is not None
    assert summary.restarts.number == 1
    assert summary.restarts.without_training_s == pytest.approx(3600, rel=0.05)


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

    summary = imported(tmp_path, arguments + megatron() + arguments + again)

    assert summary.run.steps == 1200
    assert summary.restarts is not None
    assert summary.restarts.number == 1


def test_a_trainer_that_was_resumed_says_so_and_counts_its_samples_once(tmp_path: Path) -> None:
    """The rates of its last entry are of the steps since then alone."""
    state = json.loads(logs.trainer_state(500, 10, 0.5, tokens=2048))
    for entry in state["log_history"]:
        if entry["step"] > 300:
            entry["train_runtime"] -= 150
    state["log_history"][-1] |= {"train_samples_per_second": 16.0, "train_steps_per_second": 2.0}

    summary = imported(tmp_path, json.dumps(state), "trainer_state.json")

    assert summary.run.steps == 500
    assert summary.value("step_mean_s") == pytest.approx(0.5)
    assert summary.value("samples_per_s") == pytest.approx(16.0)
    assert summary.restarts is not None
    assert summary.restarts.number == 1
    # Nothing of the log says how long it stood still.
    assert progress(summary).endswith("1 restart")


def test_seconds_are_no_milliseconds(tmp_path: Path) -> None:
    """Forks of Megatron-DeepSpeed print an iteration's seconds."""
    in_seconds = re.sub(
        r"iteration \(ms\): ([\d.]+)",
        lambda found: f"iteration (s): {float(found[1]) / 1e3:.4f}",
        megatron(),
    )

    assert imported(tmp_path, in_seconds).value("step_mean_s") == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("order", ["in turns", "one behind the other"])
def test_ranks_in_one_file_are_refused_with_what_to_give(tmp_path: Path, order: str) -> None:
    """The spans of one would be taken for another's: 40 % data wait in place of 20."""
    texts = [logs.torchtitan(logs.steady(20, logs.TITAN), rank=rank) for rank in (0, 1)]
    both = "".join(texts)
    if order == "in turns":
        pairs = zip(*(text.splitlines(keepends=True) for text in texts), strict=True)
        both = "".join(line for pair in pairs for line in pair)

    with pytest.raises(LogError, match="lines of rank 0 and of rank 1: give a file for each rank"):
        imported(tmp_path, both)


def test_a_log_that_is_packed_or_coloured_is_read_as_what_is_in_it(tmp_path: Path) -> None:
    """Whatever its lines end with; a damaged one is refused."""
    text = megatron()
    coloured = "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines())
    expected = imported(tmp_path, text)
    forms = {
        "a.log": coloured.encode(),
        "b.log.gz": gzip.compress(coloured.encode()),
        "c.log": text.replace("\n", "\r\n").encode(),
    }
    for name, packed in forms.items():
        summary = imported(tmp_path, packed, name)
        assert summary.readings["phase_optimizer_s"] == expected.readings["phase_optimizer_s"], name
        assert summary.run.fit_s == expected.run.fit_s, name

    with pytest.raises(LogError, match=r"d\.log\.gz: packed, and damaged"):
        imported(tmp_path, gzip.compress(text.encode())[:500], "d.log.gz")


def test_a_log_that_is_no_longer_read_says_so(tmp_path: Path) -> None:
    """Nothing is made of sums over several updates, nor of MLPerf's blocks."""
    sums = "[Rank 0] time (ms) | batch_input: 1.0 | fwd_microstep: 600.0\n"
    sums += "[Rank 0] time (ms) | fwd: 600.0 | bwd: 1000.0 | step: 100.0\n"
    with pytest.raises(LogError, match=r"pipeline engine, .* no longer read"):
        imported(tmp_path, sums)

    with pytest.raises(LogError, match="not read: MLPerf logs"):
        imported(tmp_path, ':::MLLOG {"time_ms": 1, "key": "run_start"}\n')


def test_a_line_that_one_which_was_cut_runs_into_is_kept(tmp_path: Path) -> None:
    """As where a job was killed while it wrote, and went on in the same file."""
    text = titan()
    cut = text[: -len(text.splitlines()[-1]) // 2]

    summary = imported(tmp_path, cut + text)

    assert summary.run.steps == 199
    assert summary.restarts is not None
    assert summary.restarts.number == 1


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
    summary = imported(tmp_path, logs.trainer_state(1, 1, 0.5), "trainer_state.json")

    assert headline(summary).startswith("One step of 500 ms; ")
    assert summary.findings[0].title == "1 step is too few for a steady state"


def test_means_that_do_not_settle_do_not_blame_the_training(tmp_path: Path) -> None:
    """Four means that differ say nothing of changing shapes."""
    times = [{**logs.MEGATRON, "forward-backward": 70.0 + 40 * (n // 10)} for n in range(40)]

    summary = imported(tmp_path, logs.megatron(times))

    finding = next(f for f in summary.findings if f.id == "no_steady_state")
    assert "means in the log" in finding.title
    assert "shapes" not in finding.action


def test_a_log_that_is_given_twice_is_not_counted_twice(tmp_path: Path) -> None:
    """Not by another path to it either."""
    (tmp_path / "a.log").write_text(megatron(), encoding="utf-8")

    files = [tmp_path / "a.log", tmp_path / "." / "a.log"]
    with pytest.raises(LogError, match="given twice"):
        write_run(recognise(files), files, tmp_path / "run")


def test_a_trainer_state_holds_what_earlier_ones_do(tmp_path: Path) -> None:
    """Two of one training would count its steps twice."""
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        file.write_text(logs.trainer_state(20, 1, 0.5), encoding="utf-8")

    with pytest.raises(LogError, match=r"b\.json: .* given twice"):
        write_run(recognise(files), files, tmp_path / "run")


def test_files_of_two_formats_are_told_apart(tmp_path: Path) -> None:
    """Each is named with what it is."""
    (tmp_path / "a.log").write_text(megatron(), encoding="utf-8")
    (tmp_path / "b.json").write_text(logs.trainer_state(20, 1, 0.5), encoding="utf-8")

    both = r"60 of megatron \(a\.log\) and 1 of huggingface \(b\.json\)"
    with pytest.raises(LogError, match=both):
        recognise([tmp_path / "a.log", tmp_path / "b.json"])


def test_a_loss_that_is_no_number_is_none(tmp_path: Path) -> None:
    """A callback may log anything by that name."""
    state = json.loads(logs.trainer_state(50, 1, 0.5, tokens=10))
    for entry in state["log_history"][:20]:
        entry["loss"] = "n/a"

    summary = imported(tmp_path, json.dumps(state), "trainer_state.json")

    assert summary.run.steps == 50
    assert summary.value("loss") == pytest.approx(2.995)

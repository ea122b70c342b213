"""Logs with a known truth come back as runs with that truth, and with nothing that they lack."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import logs

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import LogError
from trainperf.core.loop_kind import imported_from
from trainperf.core.window import RunWindow
from trainperf.importers import FORMATS, recognise
from trainperf.importers.writing import write_run
from trainperf.reports.run.page import load_page_data, render


def imported(tmp_path: Path, *texts: str, name: str = "train.log") -> Summary:
    """The summary of what logs become."""
    files = []
    for place, text in enumerate(texts):
        files.append(tmp_path / f"{place}-{name}")
        files[-1].write_text(text, encoding="utf-8")
    run = write_run(recognise(files), files, tmp_path / "run")
    return summarize(Run.open(run))


def about(seconds: float) -> object:
    """The issue's tolerance for a planted truth."""
    return pytest.approx(seconds, rel=0.02)


def reason(summary: Summary, name: str) -> str:
    """Why a reading has no value."""
    reading = summary.readings[name]
    assert reading.value is None
    return reading.reason or ""


def test_torchtitan_spans_become_phases_gaps_and_tokens_of_each_rank(tmp_path: Path) -> None:
    """Spans inside of an evaluation are not the step's."""
    times = logs.steady(300, logs.TITAN)
    every = {"eval": (100, 2000.0), "checkpoint_save": (150, 500.0)}
    ranks = (logs.torchtitan(times, rank=rank, passes=2, every=every) for rank in (0, 1))

    summary = imported(tmp_path, *ranks)

    assert summary.run.ranks == (0, 1)
    assert summary.run.steps == 300
    assert summary.value("step_s") == about(0.100)
    assert summary.value("phase_data_wait_s") == about(0.020)
    assert summary.value("phase_optimizer_s") == about(0.015)
    assert summary.value("first_step_s") == about(1.0)
    assert summary.value("effective_tokens_per_s") == about(2 * 4096 / 0.1)
    assert summary.ledger_s["validation"] == about(6.0)
    assert summary.ledger_s["checkpoint"] == about(1.0)
    assert summary.ledger_s["startup"] == about(1.5)
    assert "one span, `fwd_bwd`" in reason(summary, "phase_forward_s")
    assert summary.findings[0].id == "data_wait"


def test_torchtitan_says_what_ended_a_fit_in_an_evaluation(tmp_path: Path) -> None:
    """The span that it broke off has no end."""
    lines = logs.torchtitan(logs.steady(30, logs.TITAN)).splitlines()
    last = json.loads(lines[-1])
    for name, message in (("eval_start", ""), ("step_error", "step_error: OutOfMemoryError: CUDA")):
        lines.append(json.dumps({**last, "log_type_name": name, "message": message}))

    assert "OutOfMemoryError" in str(imported(tmp_path, "\n".join(lines) + "\n").run)


def test_deepspeed_timers_are_the_step_where_the_log_has_no_time_of_day(tmp_path: Path) -> None:
    """What is outside of the engine is in no step, and said so."""
    summary = imported(tmp_path, logs.deepspeed(logs.steady(300, logs.DEEPSPEED), passes=2))

    assert summary.value("step_s") == about(0.100)
    assert summary.value("phase_forward_s") == about(0.030)
    assert summary.value("phase_backward_s") == about(0.060)
    assert summary.value("phase_optimizer_s") == about(0.010)
    assert summary.value("allreduce_tail_s") == about(0.010)
    assert summary.value("samples_per_s") == about(320)
    assert reason(summary, "data_wait_fraction") == "not covered: the engine times no loading"
    assert "is in no step" in summary.run.notes["imported"]
    assert summary.run.started_at == ""


def test_deepspeed_times_of_day_show_what_is_outside_of_the_engine(tmp_path: Path) -> None:
    """From update to update, without the checkpoints between them."""
    text = logs.deepspeed(
        logs.steady(300, logs.DEEPSPEED), outside_ms=25, skipped_every=5, checkpoint=(100, 3000)
    )

    summary = imported(tmp_path, text)

    assert summary.value("step_mean_s") == about(0.125)
    assert summary.value("phase_other_s") == about(0.025)
    assert summary.value("overflow_rate") == about(0.2)
    assert summary.ledger_s["checkpoint"] == about(6.0)
    assert "before the end of the first step" in reason(summary, "first_step_s")


def test_megatrons_means_are_no_single_steps(tmp_path: Path) -> None:
    """Spread, slow steps and the first step are not covered; means, gaps and counts are."""
    every = {"evaluate": (200, 9000.0), "save-checkpoint": (300, 2000.0)}

    summary = imported(
        tmp_path, logs.megatron(logs.steady(600, logs.MEGATRON), every=every, skipped=2)
    )

    assert summary.run.steps == 600
    assert summary.value("step_mean_s") == about(0.100)
    assert summary.value("phase_data_wait_s") == about(0.008)
    assert summary.value("phase_forward_s") == about(0.022)
    assert summary.value("phase_backward_s") == about(0.038)
    assert summary.value("phase_optimizer_s") == about(0.020)
    assert summary.value("samples_per_s") == about(160)
    assert summary.value("overflow_rate") == about(0.2)
    assert summary.ledger_s["validation"] == about(27.0)
    assert summary.ledger_s["checkpoint"] == about(4.0)
    for name in ("step_s", "step_p95_s", "step_p99_s", "step_iqr_s", "first_step_s"):
        assert reason(summary, name) == "not covered: the log holds means over 10 steps"
    assert summary.slow_steps is None
    assert not {"slow_steps", "noisy_run", "no_steady_state"} & {f.id for f in summary.findings}


def test_a_log_interval_of_one_has_every_step(tmp_path: Path) -> None:
    """Then quantiles are what the log holds."""
    summary = imported(tmp_path, logs.megatron(logs.steady(300, logs.MEGATRON), interval=1))

    assert summary.value("step_s") == about(0.100)
    assert summary.value("step_p99_s") == pytest.approx(0.1047, rel=0.02)
    assert summary.value("first_step_s") == about(0.910)


@pytest.mark.parametrize("interval", [1, 10])
def test_the_first_iteration_that_is_logged_alone_is_not_counted_twice(
    tmp_path: Path, interval: int
) -> None:
    """Recent releases log it, and the next line is a mean over it too."""
    times = logs.steady(400, logs.MEGATRON)

    summary = imported(tmp_path, logs.megatron(times, interval=interval, first_too=True))

    assert summary.run.steps == 400
    assert summary.value("first_step_s") == about(0.910)
    steps_s = sum(step["forward-backward"] + step["optimizer"] + 10 for step in times) / 1e3
    assert sum(summary.phases_s().values()) == about(0.100)
    assert summary.run.fit_s == pytest.approx(steps_s, rel=0.002)


def test_megatron_without_timers_has_a_step_that_nothing_divides(tmp_path: Path) -> None:
    """All of it is `other`, and each phase says why it is missing."""
    summary = imported(tmp_path, logs.megatron(logs.steady(600, logs.MEGATRON), level=0))

    assert summary.value("phase_other_s") == about(0.100)
    assert reason(summary, "phase_optimizer_s") == (
        "not covered: this log has no timer `optimizer` (--timing-log-level 1); it is in `other`"
    )
    assert "100 % of the step is not divided" in summary.findings[0].title


MEMORY = {
    "megatron": (
        logs.megatron(logs.steady(100, logs.MEGATRON))
        + "[Rank 0] (after 100 iterations) memory (MB) | allocated: 1024.0 | max allocated: 2048.5 "
        "| reserved: 3072.0 | max reserved: 4096.0\n"
    ),
    "deepspeed": (
        logs.deepspeed(logs.steady(30, logs.DEEPSPEED))
        + "epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=9.1, CurrSamplesPerSec=9, "
        "MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
        + logs.deepspeed(logs.steady(30, logs.DEEPSPEED)).partition("\n")[2]
    ),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_that_of_the_step_it_is_printed_with(tmp_path: Path, name: str) -> None:
    """Megatron-LM prints it behind a line, DeepSpeed before an update."""
    summary = imported(tmp_path, MEMORY[name])

    peak = {"megatron": 2048.5 * (1 << 20), "deepspeed": 2.0 * (1 << 30)}[name]
    assert summary.value("memory_peak_bytes") == peak


def test_a_trainer_state_without_tokens_has_one_mean(tmp_path: Path) -> None:
    """No step is steady, and no rule says that it never settled."""
    text = logs.trainer_state(500, 10, 0.5, evaluation=(100, 20.0))

    summary = imported(tmp_path, text, name="trainer_state.json")

    assert summary.run.steps == 500
    assert summary.run.steady_steps == 0
    assert summary.phases_s() == {"other": about(0.5)}
    assert summary.ledger_s["validation"] == about(100.0)
    assert (
        reason(summary, "step_mean_s") == "not covered: the log holds one mean over all 500 steps"
    )
    assert [finding.id for finding in summary.findings] == ["validation", "unnamed_time"]


def test_a_trainer_state_with_tokens_has_a_mean_for_each_entry(tmp_path: Path) -> None:
    """The time of each entry, without the evaluations before it."""
    text = logs.trainer_state(500, 10, 0.5, tokens=2048, evaluation=(100, 20.0))

    summary = imported(tmp_path, text, name="trainer_state.json")

    assert summary.value("step_mean_s") == about(0.5)
    assert summary.value("padded_tokens_per_s") == about(4096)
    assert summary.value("loss") == pytest.approx(2.95)
    assert summary.ledger_s["validation"] == about(100.0)


def test_every_missing_reading_says_why(tmp_path: Path) -> None:
    """In every format nothing is missing without a reason of its own."""
    texts = {
        "torchtitan": logs.torchtitan(logs.steady(50, logs.TITAN)),
        "deepspeed": logs.deepspeed(logs.steady(50, logs.DEEPSPEED)),
        "megatron": logs.megatron(logs.steady(300, logs.MEGATRON)),
        "huggingface": logs.trainer_state(500, 10, 0.5),
    }
    assert set(texts) == {kind.name for kind in FORMATS}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        summary = imported(tmp_path / name, text)
        assert imported_from(summary.run.config) == name
        missing = [r.reason or "" for r in summary.readings.values() if r.value is None]
        allowed = ("not covered: ", "not applicable: ", "one rank", "no FLOP", "no steady")
        assert not [why for why in missing if not why.startswith(allowed)], name


def test_a_log_that_is_damaged_in_the_middle_loses_only_that(tmp_path: Path) -> None:
    """Lines that are cut, or of other programs, are passed over."""
    text = logs.torchtitan(logs.steady(60, logs.TITAN))
    lines = text.splitlines(keepends=True)
    lines[300:300] = [
        "NCCL INFO something else\n",
        lines[300][:80] + "\n",
        '{"log_type_name": "step_end"\n',
    ]

    assert imported(tmp_path, "".join(lines)).run.steps == 60


@pytest.mark.parametrize("options", [{"separators": (",", ":")}, {"reorder": True}])
def test_a_line_of_torchtitan_means_the_same_however_it_is_written(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """What is cut out of a line as torchtitan writes it is what decoding the whole line gives."""
    spans = {"eval": (7, 33.0), "checkpoint_save": (11, 50.0), "gc_collect": (13, 9.0)}
    text = logs.torchtitan(logs.steady(40, logs.TITAN), passes=2, every=spans)
    otherwise = []
    for line in text.splitlines():
        fields = json.loads(line)
        if options.get("reorder"):
            fields = {"value": fields.pop("value", None), **fields}
            fields = {name: value for name, value in fields.items() if value is not None}
        otherwise.append(json.dumps(fields, separators=options.get("separators")) + "\n")

    def rows(written: str, folder: Path) -> list[bytes]:
        folder.mkdir()
        log = folder / "rank0.jsonl"
        log.write_text(written, encoding="utf-8")
        run = write_run(recognise([log]), [log], folder)
        (record,) = run.glob("steps-rank0.jsonl")
        return record.read_bytes().splitlines()[1:-2]

    assert rows("".join(otherwise), tmp_path / "b") == rows(text, tmp_path / "a")


@pytest.mark.parametrize("value", ["20.", "NaN", "null", '"20"'])
def test_a_value_of_torchtitan_that_is_no_number_is_none(tmp_path: Path, value: str) -> None:
    """A line that is cut in its value, or has none, tells no time of its phase."""
    lines = logs.torchtitan(logs.steady(40, logs.TITAN)).splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if '"optim_end"' in line]
    place = places[20]
    whole, _, _ = lines[place].partition('"value": ')
    lines[place] = f'{whole}"value": {value}' + ("\n" if value == "20." else "}\n")

    assert imported(tmp_path, "".join(lines)).run.steps == 39


def test_a_format_that_is_not_known_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    """And so is one with lines of two."""
    file = tmp_path / "a.log"
    file.write_text("epoch 1 loss 3.0\n", encoding="utf-8")
    with pytest.raises(LogError, match=r"looked for torchtitan: .*deepspeed: .*megatron: "):
        recognise([file])

    both = logs.deepspeed(logs.steady(20, logs.DEEPSPEED))
    file.write_text(both + logs.megatron(logs.steady(20, logs.MEGATRON)), encoding="utf-8")
    with pytest.raises(
        LogError, match=r"several formats, 40 of deepspeed \(a\.log\) and 2 of megatron"
    ):
        recognise([file])
    assert recognise([file], "megatron").name == "megatron"


def test_nothing_is_left_of_a_log_without_steps(tmp_path: Path) -> None:
    """A run directory is there whole or not at all."""
    file = tmp_path / "state.json"
    file.write_text('{"log_history": [{"loss": 1.0, "step": 10}], "global_step": 10}', "utf-8")
    with pytest.raises(LogError, match="no time of a training step"):
        write_run(recognise([file]), [file], tmp_path / "run")
    assert not (tmp_path / "run").exists()

    file.write_text('{"time_us": 1, "log_type_name": "step_start"}\n', "utf-8")
    with pytest.raises(LogError, match=r"but no step of it: .*structured_logs"):
        write_run(recognise([file]), [file], tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_a_window_of_means_has_no_single_steps_either(tmp_path: Path) -> None:
    """What the end of the log tells of it holds in all of it."""
    file = tmp_path / "train.log"
    file.write_text(logs.megatron(logs.steady(600, logs.MEGATRON)), encoding="utf-8")
    run = write_run(recognise([file]), [file], tmp_path / "run")

    summary = summarize(Run.open(run, RunWindow(first=100, last=300)))

    assert summary.value("step_mean_s") == about(0.100)
    assert reason(summary, "step_s") == "not covered: the log holds means over 10 steps"
    assert reason(summary, "step_p99_s") == "not covered: the log holds means over 10 steps"


def test_a_page_has_no_time_of_what_the_log_does_not_hold(tmp_path: Path) -> None:
    """Not a part of the bar that says 0.0 ms either."""
    file = tmp_path / "trainer_state.json"
    file.write_text(logs.trainer_state(500, 10, 0.5, tokens=2048), encoding="utf-8")
    run = write_run(recognise([file]), [file], tmp_path / "run")

    page = render(load_page_data(Run.open(run)))

    assert "other: 500.0 ms" in page
    assert "forward: 0.0 ms" not in page

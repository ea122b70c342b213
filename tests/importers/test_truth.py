"""Logs with a known truth come back as runs with that truth, and with nothing that they lack."""

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import logs
from support.commands import Command
from support.imported import imported

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import LogError
from trainperf.core.loop_kind import imported_from
from trainperf.core.steps.own_sums import AnswerFacts
from trainperf.core.window import RunWindow
from trainperf.importers import FORMATS, recognise
from trainperf.importers.writing import write_run
from trainperf.reports.run.page import load_page_data, render
from trainperf.reports.run.rows import facts


def summary_of(folder: Path, *texts: str) -> Summary:
    """The summary of what logs become."""
    return summarize(Run.open(imported(folder, *texts)))


def about(seconds: float) -> object:
    """The issue's tolerance for a planted truth."""
    return pytest.approx(seconds, rel=0.02)


def reason(summary: Summary, name: str) -> str:
    """Why a reading has no value."""
    reading = summary.readings[name]
    assert reading.value is None
    return reading.reason or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is in a log, and must come back."""

    texts: tuple[str, ...]
    values: Mapping[str, float] = field(default_factory=dict)
    """Of readings, within 2 %."""
    ledger: Mapping[str, float] = field(default_factory=dict)
    """Seconds, within 2 %."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a reading has no value: words of it."""
    run: Mapping[str, object] = field(default_factory=dict)
    first: tuple[str, str] = ("", "")
    """Id and words of the first finding; empty where it is not asked for."""
    never: frozenset[str] = frozenset()
    """Ids of findings that there must not be."""
    noted: str = ""


def means_of(steps: int, **options: Any) -> str:
    """A log of Megatron-LM."""
    return logs.megatron(logs.steady(steps, logs.MEGATRON), **options)


def engine(steps: int, **options: Any) -> str:
    """A log of DeepSpeed."""
    return logs.deepspeed(logs.steady(steps, logs.DEEPSPEED), **options)


MEANS = "not covered: the log holds means over 10 steps"
EVALUATED = {"eval": (100, 2000.0), "checkpoint_save": (150, 500.0)}
SAVED = {"evaluate": (200, 9000.0), "save-checkpoint": (300, 2000.0)}

TRUTHS = {
    # Spans inside of an evaluation are not the step's.
    "torchtitan's spans become phases, gaps and tokens of each rank": Truth(
        texts=tuple(
            logs.torchtitan(logs.steady(300, logs.TITAN), rank=rank, passes=2, every=EVALUATED)
            for rank in (0, 1)
        ),
        values={
            "step_s": 0.100,
            "phase_data_wait_s": 0.020,
            "phase_optimizer_s": 0.015,
            "first_step_s": 1.0,
            "effective_tokens_per_s": 2 * 4096 / 0.1,
        },
        ledger={"validation": 6.0, "checkpoint": 1.0, "startup": 1.5},
        reasons={"phase_forward_s": "one span, `fwd_bwd`"},
        run={"ranks": (0, 1), "steps": 300},
        first=("data_wait", ""),
    ),
    # What is outside of the engine is in no step, and said so.
    "deepspeed's timers are the step where the log has no time of day": Truth(
        texts=(engine(300, passes=2),),
        values={
            "step_s": 0.100,
            "phase_forward_s": 0.030,
            "phase_backward_s": 0.060,
            "phase_optimizer_s": 0.010,
            "allreduce_tail_s": 0.010,
            "samples_per_s": 320,
        },
        reasons={"data_wait_fraction": "not covered: the engine times no loading"},
        run={"started_at": ""},
        noted="is in no step",
    ),
    # From update to update, without the checkpoints between them.
    "deepspeed's times of day show what is outside of the engine": Truth(
        texts=(engine(300, outside_ms=25, skipped_every=5, checkpoint=(100, 3000)),),
        values={"step_mean_s": 0.125, "phase_other_s": 0.025, "overflow_rate": 0.2},
        ledger={"checkpoint": 6.0},
        reasons={"first_step_s": "before the end of the first step"},
    ),
    # Spread, slow steps and the first step are not covered; means, gaps and counts are.
    "megatron's means are no single steps": Truth(
        texts=(means_of(600, every=SAVED, skipped=2),),
        values={
            "step_mean_s": 0.100,
            "phase_data_wait_s": 0.008,
            "phase_forward_s": 0.022,
            "phase_backward_s": 0.038,
            "phase_optimizer_s": 0.020,
            "samples_per_s": 160,
            "overflow_rate": 0.2,
        },
        ledger={"validation": 27.0, "checkpoint": 4.0},
        reasons=dict.fromkeys(
            ("step_s", "step_p95_s", "step_p99_s", "step_iqr_s", "first_step_s"), MEANS
        ),
        run={"steps": 600},
        never=frozenset({"slow_steps", "noisy_run", "no_steady_state"}),
    ),
    # Then quantiles are what the log holds.
    "a log interval of one has every step": Truth(
        texts=(means_of(300, interval=1),),
        values={"step_s": 0.100, "step_p99_s": 0.1047, "first_step_s": 0.910},
    ),
    # All of it is `other`, and each phase says why it is missing.
    "megatron without timers has a step that nothing divides": Truth(
        texts=(means_of(600, level=0),),
        values={"phase_other_s": 0.100},
        reasons={
            "phase_optimizer_s": "not covered: this log has no timer `optimizer` "
            "(--timing-log-level 1); it is in `other`"
        },
        first=("", "100 % of the step is not divided"),
    ),
    # Printed behind a line.
    "megatron's memory is that of the step it is printed with": Truth(
        texts=(
            means_of(100) + "[Rank 0] (after 100 iterations) memory (MB) | allocated: 1024.0 | "
            "max allocated: 2048.5 | reserved: 3072.0 | max reserved: 4096.0\n",
        ),
        values={"memory_peak_bytes": 2048.5 * (1 << 20)},
    ),
    # Printed before an update.
    "deepspeed's memory is that of the step it is printed with": Truth(
        texts=(
            engine(30) + "epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=9.1, "
            "CurrSamplesPerSec=9, MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
            + engine(30).partition("\n")[2],
        ),
        values={"memory_peak_bytes": 2.0 * (1 << 30)},
    ),
    # No step is steady, and no rule says that it never settled.
    "a trainer state without tokens has one mean": Truth(
        texts=(logs.trainer_state(500, 10, 0.5, evaluation=(100, 20.0)),),
        ledger={"validation": 100.0, "other": 250.0},
        reasons={"step_mean_s": "not covered: the log holds one mean over all 500 steps"},
        run={"steps": 500, "steady_steps": 0},
        first=("validation", ""),
        never=frozenset({"no_steady_state"}),
    ),
    # The time of each entry, without the evaluations before it.
    "a trainer state with tokens has a mean for each entry": Truth(
        texts=(logs.trainer_state(500, 10, 0.5, tokens=2048, evaluation=(100, 20.0)),),
        values={"step_mean_s": 0.5, "padded_tokens_per_s": 4096, "loss": 2.95},
        ledger={"validation": 100.0},
    ),
    # Parts of the step by the driver's timers; the engine's inside is not in the log.
    **{
        f"verl's timers are phases, {said}": Truth(
            texts=(text,),
            values={"step_s": 100.0, "phase_other_s": 100.0, "effective_tokens_per_s": 983.04},
            ledger={"validation": 180.0},
            reasons={"phase_forward_s": "are one timer, `timing_s/update_actor`"},
            first=("longest_answer", "up to 50 % of the rollout waits"),
            noted="is not in the log",
        )
        for said, text in {
            "in JSON": logs.verl(60),
            "on the console": logs.verl(60, console=True),
            "with tests inside of the step": logs.verl(60, inside=True),
        }.items()
    },
}


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_what_is_in_a_log_comes_back(truth: Truth, tmp_path: Path) -> None:
    """And nothing of what it lacks."""
    summary = summary_of(tmp_path, *truth.texts)

    assert {name: summary.value(name) for name in truth.values} == pytest.approx(
        truth.values, rel=0.02
    )
    assert {name: summary.ledger_s[name] for name in truth.ledger} == pytest.approx(
        truth.ledger, rel=0.02
    )
    reasons = {name: reason(summary, name) for name in truth.reasons}
    assert [why for name, why in reasons.items() if truth.reasons[name] not in why] == []
    assert {name: getattr(summary.run, name) for name in truth.run} == truth.run
    assert truth.noted in summary.run.notes["imported"]
    first = next(iter(summary.findings), None)
    assert truth.first[0] in ("", first and first.id)
    assert truth.first[1] in (first.title if first else "")
    assert truth.never & {finding.id for finding in summary.findings} == set()


def test_verls_phases_have_their_names(tmp_path: Path) -> None:
    """Two models weigh the answers; the answers' number follows from the time of a token."""
    summary = summary_of(tmp_path, logs.verl(50))

    named = {name: summary.phases_s()[name] for name in summary.named_phases}
    assert named == pytest.approx(
        {
            "rollout": 40.0,
            "reward": 5.0,
            "log_probabilities": 20.0,
            "update": 25.0,
            "weight_transfer": 6.0,
        }
    )
    assert summary.phases_s()["other"] == pytest.approx(4.0)
    assert summary.answers == AnswerFacts(
        tokens=65_536, number=128, longest=1024, usual=512, usual_is="mean"
    )
    ids = {finding.id for finding in summary.findings}
    assert {"reward_functions", "weight_transfer"} <= ids
    # An answer that the engine has aborted is none: of those that came nobody knows it.
    assert "useless_answers" not in ids


def test_verls_answers_are_not_counted_without_the_time_of_a_token(tmp_path: Path) -> None:
    """Their lengths are known, so what is said of them has no number of answers in it."""
    text = logs.verl(50).replace("timing_per_token_ms/gen", "timing_per_token_ms/none")
    summary = summary_of(tmp_path, text)

    of_answers = [fact for fact in facts(summary) if "answers" in fact or "generated" in fact]
    assert of_answers == ["answers longest 1,024, mean 512 tokens"]
    longest = next(each for each in summary.findings if each.id == "longest_answer")
    assert longest.evidence[0] == "the longest answer has 1,024 tokens, the mean 512"


def test_torchtitan_says_what_ended_a_fit_in_an_evaluation(tmp_path: Path) -> None:
    """The span that it broke off has no end."""
    lines = logs.torchtitan(logs.steady(30, logs.TITAN)).splitlines()
    last = json.loads(lines[-1])
    for name, message in (("eval_start", ""), ("step_error", "step_error: OutOfMemoryError: CUDA")):
        lines.append(json.dumps({**last, "log_type_name": name, "message": message}))

    assert "OutOfMemoryError" in str(summary_of(tmp_path, "\n".join(lines) + "\n").run)


@pytest.mark.parametrize("interval", [1, 10])
def test_the_first_iteration_that_is_logged_alone_is_not_counted_twice(
    tmp_path: Path, interval: int
) -> None:
    """Recent releases log it, and the next line is a mean over it too."""
    times = logs.steady(400, logs.MEGATRON)

    summary = summary_of(tmp_path, logs.megatron(times, interval=interval, first_too=True))

    assert summary.run.steps == 400
    assert summary.value("first_step_s") == about(0.910)
    steps_s = sum(step["forward-backward"] + step["optimizer"] + 10 for step in times) / 1e3
    assert sum(summary.phases_s().values()) == about(0.100)
    assert summary.run.fit_s == pytest.approx(steps_s, rel=0.002)


def test_every_missing_reading_says_why(tmp_path: Path) -> None:
    """In every format nothing is missing without a reason of its own."""
    texts = {
        "torchtitan": logs.torchtitan(logs.steady(50, logs.TITAN)),
        "deepspeed": logs.deepspeed(logs.steady(50, logs.DEEPSPEED)),
        "megatron": logs.megatron(logs.steady(300, logs.MEGATRON)),
        "huggingface": logs.trainer_state(500, 10, 0.5),
        "verl": logs.verl(50),
    }
    assert texts.keys() == FORMATS.keys()
    for name, text in texts.items():
        summary = summary_of(tmp_path / name, text)
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

    assert summary_of(tmp_path, "".join(lines)).run.steps == 60


@pytest.mark.parametrize("value", ["20.", "NaN", "null", '"20"'])
def test_a_value_of_torchtitan_that_is_no_number_is_none(tmp_path: Path, value: str) -> None:
    """A line that is cut in its value, or has none, tells no time of its phase."""
    lines = logs.torchtitan(logs.steady(40, logs.TITAN)).splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if '"optim_end"' in line]
    place = places[20]
    whole, _, _ = lines[place].partition('"value": ')
    lines[place] = f'{whole}"value": {value}' + ("\n" if value == "20." else "}\n")

    assert summary_of(tmp_path, "".join(lines)).run.steps == 39


DEEPSPEED, MEGATRON = engine(20), means_of(200)
TWO_RANKS = [logs.torchtitan(logs.steady(20, logs.TITAN), rank=rank) for rank in (0, 1)]
IN_TURNS = [text.splitlines(keepends=True) for text in TWO_RANKS]
STATE = logs.trainer_state(20, 1, 0.5)

REFUSED = {
    "of no format": ({"a.log": "epoch 1 loss 3.0\n"}, r"looked for torchtitan: .*megatron: "),
    "of two formats": (
        {"a.log": DEEPSPEED + means_of(20)},
        r"several formats, 40 of deepspeed \(a\.log\) and 2 of megatron",
    ),
    "in files of two formats": (
        {"a.log": means_of(600), "b.json": STATE},
        r"60 of megatron \(a\.log\) and 1 of huggingface \(b\.json\)",
    ),
    "without the time of a step": (
        {"a.json": '{"log_history": [{"loss": 1.0, "step": 10}], "global_step": 10}'},
        "no time of a training step",
    ),
    "without a whole step": (
        {"a.log": '{"time_us": 1, "log_type_name": "step_start"}\n'},
        r"but no step of it: .*structured_logs",
    ),
    # The spans of one would be taken for another's: 40 % data wait in place of 20.
    "of two ranks in turns": (
        {"a.log": "".join(line for pair in zip(*IN_TURNS, strict=True) for line in pair)},
        "lines of rank 0 and of rank 1: give a file for each rank",
    ),
    "of two ranks one behind the other": (
        {"a.log": "".join(TWO_RANKS)},
        "lines of rank 0 and of rank 1: give a file for each rank",
    ),
    "packed and damaged": (
        {"d.log.gz": gzip.compress(means_of(600).encode())[:500]},
        r"d\.log\.gz: packed, and damaged",
    ),
    # Nothing is made of sums over several updates, nor of MLPerf's blocks.
    "of a pipeline engine": (
        {
            "a.log": "[Rank 0] time (ms) | batch_input: 1.0 | fwd_microstep: 600.0\n"
            "[Rank 0] time (ms) | fwd: 600.0 | bwd: 1000.0 | step: 100.0\n"
        },
        r"pipeline engine, .* no longer read",
    ),
    "of MLPerf": (
        {"a.log": ':::MLLOG {"time_ms": 1, "key": "run_start"}\n'},
        "not read: MLPerf logs",
    ),
    "twice, by another path to it": ({"a.log": MEGATRON, "./a.log": MEGATRON}, "given twice"),
    # A state holds what earlier ones do: two of one training would count its steps twice.
    "twice, as a later state": ({"a.json": STATE, "b.json": STATE}, r"b\.json: .* given twice"),
}


@pytest.mark.parametrize(("files", "says"), REFUSED.values(), ids=REFUSED)
def test_a_log_is_refused(files: dict[str, str | bytes], says: str, tmp_path: Path) -> None:
    """With what was looked for or is to be given; a run directory is there whole or not at all."""
    paths = [tmp_path / "." / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    paths = [f"{tmp_path}/{name}" for name in files]

    with pytest.raises(LogError, match=says):
        write_run(recognise(list(map(Path, paths))), list(map(Path, paths)), tmp_path / "run")
    assert not list((tmp_path / "run").glob("*"))


def test_a_format_that_is_named_is_taken(tmp_path: Path, command: Command) -> None:
    """Whatever other lines there are; of one that there is not, all names are told."""
    file = tmp_path / "a.log"
    file.write_text(DEEPSPEED + MEGATRON, encoding="utf-8")
    of_format = ("import", str(file), "--out", str(tmp_path / "run"), "--format")

    for name in FORMATS:
        assert "choose" not in command(*of_format, name).err
    assert "recognised as a Megatron-LM log" in command(*of_format, "megatron").out
    refused = command(*of_format, "nemo")
    assert (refused.code, refused.out) == (2, "")
    assert [name for name in FORMATS if name not in refused.err] == []


def test_a_window_of_means_has_no_single_steps_either(tmp_path: Path) -> None:
    """What the end of the log tells of it holds in all of it."""
    run = imported(tmp_path, means_of(600))

    summary = summarize(Run.open(run, RunWindow(first=100, last=300)))

    assert summary.value("step_mean_s") == about(0.100)
    assert reason(summary, "step_s") == "not covered: the log holds means over 10 steps"
    assert reason(summary, "step_p99_s") == "not covered: the log holds means over 10 steps"


def test_a_page_has_no_time_of_what_the_log_does_not_hold(tmp_path: Path) -> None:
    """Its row says so, and has no 0.0 ms."""
    run = imported(tmp_path, logs.trainer_state(500, 10, 0.5, tokens=2048))

    page = render(load_page_data(Run.open(run)))

    rows = [re.sub("<[^>]*>", " ", row).split() for row in page.split("<tr>")]
    phases = {row[0]: row[1:] for row in rows if row}
    assert phases["other"][:2] == ["500.0", "ms"]
    assert phases["forward"] == ["not", "in", "the", "log"]

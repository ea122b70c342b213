"""The recipe runs, stage after stage, and every stage does the same work."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from recipes.gpt2.__main__ import main
from recipes.gpt2.stages import PRESETS, STAGES
from recipes.gpt2.text import find_documents, training_order
from recipes.gpt2.train import Work, walkthrough
from trainperf.meters.fold import Reading


STEPS = 3


class Summary(msgspec.Struct, frozen=True):
    """What the tests look at in a run's `summary.json`."""

    run: dict[str, object]
    readings: dict[str, Reading]


def work(out: Path) -> Work:
    """A walkthrough of three steps a stage, with 32 documents in each step."""
    preset = replace(PRESETS["tiny"], documents=32, context=64)
    return Work(preset=preset, steps=STEPS, seed=1, text=None, out=out, accelerator="cpu")


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Work, dict[str, Path]]:
    """Every stage, run once for all the tests below."""
    asked = work(tmp_path_factory.mktemp("runs"))
    runs = walkthrough(asked, STAGES)
    return asked, {stage.name: run for stage, run in zip(STAGES, runs, strict=True)}


def summaries(runs: dict[str, Path]) -> dict[str, Summary]:
    """The summary that each stage left."""
    return {
        name: msgspec.json.decode((run / "summary.json").read_bytes(), type=Summary)
        for name, run in runs.items()
    }


def test_every_stage_leaves_a_run_of_as_many_steps_as_were_asked_for(
    walked: tuple[Work, dict[str, Path]],
) -> None:
    """Each in a folder of its own name, finished."""
    asked, runs = walked

    for name, summary in summaries(runs).items():
        assert runs[name] == asked.out / name / "trainperf"
        assert (summary.run["steps"], summary.run["state"]) == (STEPS, "finished")


def test_every_stage_trains_to_the_same_loss(walked: tuple[Work, dict[str, Path]]) -> None:
    """The same documents in the same step: a stage may change the time and nothing else."""
    losses = {name: found.readings["loss"].value for name, found in summaries(walked[1]).items()}

    assert losses["baseline"] is not None
    assert losses == pytest.approx(dict.fromkeys(losses, losses["baseline"]), abs=1e-3)


def test_the_recorded_tokens_are_those_of_the_documents(
    walked: tuple[Work, dict[str, Path]],
) -> None:
    """The mask counts each document's tokens once, padded or packed, by the plan made beforehand.

    Three steps have no steady state, so the record files are read, not the readings.
    """
    asked, runs = walked
    order = training_order(find_documents(None, asked.preset), asked.preset, STEPS, asked.seed)
    lengths = [place.tokens for place in order]
    per_step = [sum(lengths[n : n + 32]) for n in range(0, len(lengths), 32)]

    for name, run in runs.items():
        head, *lines = (run / "steps-rank0.jsonl").read_text().splitlines()
        columns = msgspec.json.decode(head)["columns"]
        steps = [row for row in map(msgspec.json.decode, lines) if isinstance(row, list)]
        place = columns.index("tokens_effective") - len(columns)
        assert [step[place] for step in steps] == per_step, name


def test_the_table_has_a_row_per_stage(walked: tuple[Work, dict[str, Path]]) -> None:
    """It is left beside the runs, to be pasted."""
    lines = (walked[0].out / "walkthrough.md").read_text().splitlines()

    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {stage.name}" for stage in STAGES]


def test_the_numbers_are_in_tensorboards_files_too(walked: tuple[Work, dict[str, Path]]) -> None:
    """One event file per stage, so that `tensorboard --logdir` compares them."""
    for run in walked[1].values():
        assert list(run.parent.glob("events.out.tfevents.*"))
        assert (run.parent / "csv" / "metrics.csv").exists()


def test_a_second_walkthrough_leaves_the_first_one_alone(tmp_path: Path) -> None:
    """The stage's folder gets a number; TensorBoard shows both."""
    first = walkthrough(work(tmp_path), STAGES[:1])
    second = walkthrough(work(tmp_path), STAGES[:1])

    assert [run.parent.name for run in (*first, *second)] == ["baseline", "baseline-1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--stages", "faster"], "choose from all, baseline"),
        (["--steps", "0"], "must be at least 1"),
        (["--text", "nowhere"], "name a text file or a folder of them"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the value that was refused and what to write instead."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_help_needs_neither_torch_nor_transformers() -> None:
    """It answers at once, and names the stages."""
    code = "import sys\nfrom recipes.gpt2.__main__ import main\ntry: main(['--help'])\n"
    code += "except SystemExit: assert not {'torch', 'transformers'} & set(sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert all(stage.name in found.stdout for stage in STAGES)

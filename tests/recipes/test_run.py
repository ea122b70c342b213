"""The recipe really trains: every stage does the same work, and what is planted is found."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from support.tolerance import reordering, terms_of_transformer
from support.walk import Lacking, packed, small_work, stage

from recipes.gpt2.__main__ import main
from recipes.gpt2.outcomes import StageOutcome
from recipes.gpt2.stages import FIRST_SCRIPT, STAGES, Settings
from recipes.gpt2.text import DocumentSpan, find_documents, training_order
from recipes.gpt2.train import Recipe, train
from recipes.gpt2.walk import walkthrough


STEPS = 4
QUICK = {
    stage.name: stage.apply(Settings())
    for stage in STAGES
    if stage.name in ("baseline", "cached", "loader", "packed", "sdpa", "checkpoint", "fused")
} | {"first_script": FIRST_SCRIPT}


def twice(work: Recipe) -> list[DocumentSpan]:
    """Documents of half the steps, then the same ones again: their loss must have fallen."""
    places = find_documents(None, work.preset)  # others in every version of Python
    return 2 * training_order(places, work.preset, STEPS // 2, work.seed)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One short run of each kind of settings that any CPU has, for all the tests below."""
    work = small_work(tmp_path_factory.mktemp("runs"), steps=STEPS)
    order = twice(work)
    return {
        name: train(work, settings, order, name, profiled=False) for name, settings in QUICK.items()
    }


def columns(run: Path, name: str) -> list[float]:
    """A fact of every step, from the record file: four steps have no steady state."""
    head, *lines = (run / "steps-rank0.jsonl").read_text().splitlines()
    names = msgspec.json.decode(head)["columns"]
    place = names.index(name) - len(names)
    rows = map(msgspec.json.decode, lines)
    return [row[place] for row in rows if isinstance(row, list)]


def test_an_update_holds_the_same_effective_tokens_in_every_stage(
    trained: dict[str, Path],
) -> None:
    """Those of its documents, by the plan made beforehand; micro-batches add up to it."""
    work = small_work(Path())
    lengths = [place.tokens for place in twice(work)]
    size = work.preset.documents
    planned = [sum(lengths[n : n + size]) for n in range(0, len(lengths), size)]

    assert len(planned) == STEPS
    for name, run in trained.items():
        assert columns(run, "tokens_effective") == planned, name


def test_every_stage_learns_the_same(trained: dict[str, Path]) -> None:
    """The same update, in one micro-batch or two, padded or packed, to the digits of fp32."""
    losses = {name: columns(run, "loss") for name, run in trained.items()}
    baseline = losses["baseline"]
    # An update: forward, twice as much backward, and the sums over the tokens of a gradient.
    preset = small_work(Path()).preset
    tokens = int(max(columns(trained["baseline"], "tokens_effective")))
    forward = terms_of_transformer(
        layers=preset.layers, width=preset.width, heads=preset.heads, tokens=preset.context
    )
    terms = STEPS * (3 * forward + tokens)

    allowed = reordering(torch.float32, terms=terms, scale=max(baseline))
    for name, others in losses.items():
        assert others == pytest.approx(baseline, abs=allowed), name
    first, again = baseline[: STEPS // 2], baseline[STEPS // 2 :]
    assert all(before > after > 1 for before, after in zip(first, again, strict=True))


@pytest.mark.slow
def test_stages_run_one_after_the_other_and_are_found_again(tmp_path: Path) -> None:
    """A handful of steps proves nothing, and that is what is said."""
    work = replace(small_work(tmp_path), preset=replace(small_work(tmp_path).preset, turns=2))

    walkthrough(work, [each for each in STAGES if each.name in ("baseline", "loader", "packed")])

    decoded = [
        msgspec.json.decode(path.read_bytes(), type=StageOutcome)
        for path in sorted(tmp_path.glob("*/outcome.json"))
    ]
    assert [(one.stage, one.status) for one in decoded] == [
        ("baseline", "baseline"),
        ("loader", "rejected"),
        ("packed", "rejected"),
    ]
    assert decoded[1].why.startswith("not comparable: ")
    assert list((tmp_path / "loader/loader-1").glob("events.out.tfevents.*"))
    assert (tmp_path / "loader/loader-1/csv/metrics.csv").exists()


@pytest.mark.slow
def test_a_training_that_lacks_memory_ends_its_stage(tmp_path: Path) -> None:
    """Before it has begun its fit, while the other side waits for it."""
    work = replace(small_work(tmp_path), model=Lacking)

    found = walkthrough(work, [STAGES[0], stage("packed", packed)])[1]

    assert (found.status, found.why) == ("rejected", "failed: out of memory")


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

    assert all(one.name in found.stdout for one in STAGES)

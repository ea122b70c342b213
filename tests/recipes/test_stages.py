"""The stage table is data that can be checked."""

from dataclasses import replace
from pathlib import Path

import pytest

from recipes.gpt2.machine import Machine, unsupported
from recipes.gpt2.stages import (
    FIRST_SCRIPT,
    PRESETS,
    STAGES,
    Preset,
    Settings,
    Stage,
    chosen,
    differing,
)
from recipes.gpt2.text import DocumentSpan
from recipes.gpt2.train import typical_update


KEPT = {stage.name: stage.apply(Settings()) for stage in STAGES}
BUSY = replace(FIRST_SCRIPT, accumulation=4)
"""Settings in which every stage changes something."""


@pytest.mark.parametrize("stage", STAGES[1:], ids=lambda stage: stage.name)
def test_a_stage_changes_one_thing(stage: Stage) -> None:
    """Otherwise a gain could not be attributed; only a larger batch comes with what allows it."""
    found = differing(BUSY, stage.apply(BUSY))

    assert len(found) == 1 or found == ["accumulation", "checkpointing"]


@pytest.mark.parametrize("stage", STAGES[1:], ids=lambda stage: stage.name)
def test_a_stage_leaves_what_was_kept_before(stage: Stage) -> None:
    """It builds on the settings it is given, whatever they are."""
    kept = replace(BUSY, workers=3, packed=True, attention="sdpa")

    found = stage.apply(kept)

    own = set(differing(BUSY, stage.apply(BUSY)))
    assert set(differing(kept, found)) <= own


def test_the_baseline_is_what_a_first_script_does() -> None:
    """The defaults, unchanged."""
    assert STAGES[0].apply(Settings()) == Settings()


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_every_update_is_cut_evenly_into_micro_batches(preset: Preset) -> None:
    """Before and after the micro-batch is doubled."""
    assert preset.documents % preset.start.accumulation == 0
    assert KEPT["checkpoint"].accumulation * 2 == Settings().accumulation


def test_stages_have_their_own_names_and_say_what_and_why() -> None:
    """A name is a folder and a word on the command line; change and reason are printed."""
    names = [stage.name for stage in STAGES]

    assert len(names) == len(set(names))
    assert all(name.isidentifier() and name != "all" for name in names)
    assert all(stage.change and stage.reason for stage in STAGES)


def test_the_small_model_starts_from_a_beginners_script() -> None:
    """Every stage that this machine has to offer changes one of its habits."""
    start = PRESETS["tiny"].start

    habits = ("histograms", "cached", "packed", "sdpa", "metrics", "logging", "fused", "compile")
    assert start == FIRST_SCRIPT
    assert all(stage.apply(start) != start for stage in STAGES if stage.name in habits)


def test_the_large_model_keeps_every_stage_of_the_published_ladder() -> None:
    """Whether or not the report asks for it."""
    names = {stage.name for stage in STAGES}

    assert PRESETS["small"].every
    assert names >= {"loader", "packed", "sdpa", "tf32", "fp16", "bf16", "checkpoint", "compile"}
    assert names >= {"fused", "vocabulary", "graphs"}


def test_stages_are_chosen_by_name_in_the_order_of_the_table() -> None:
    """The baseline is always among them, and what runs on request only where it is named."""
    assert [stage.name for stage in chosen("sdpa, packed")] == ["baseline", "packed", "sdpa"]
    assert [stage for stage in STAGES if not stage.on_request] == chosen("all")
    assert [stage.name for stage in chosen("autotune")] == ["baseline", "autotune"]
    assert list(STAGES) == chosen("all,autotune")


@pytest.mark.parametrize("names", ["", "spda", "baseline,spda"])
def test_a_stage_that_does_not_exist_is_refused_with_those_that_do(names: str) -> None:
    """The message names the value and the remedy."""
    with pytest.raises(ValueError, match="choose from all, baseline, histograms, cached"):
        chosen(names)


def test_small_is_the_124_million_model() -> None:
    """12 layers, 12 heads, 768 wide, 50,257 tokens, 1,024 positions: 124,439,808 parameters."""
    preset = PRESETS["small"]
    width, layers = preset.width, preset.layers
    embeddings = (preset.vocabulary + preset.context) * width
    block = 12 * width * width + 13 * width

    assert embeddings + layers * block + 2 * width == 124_439_808
    assert preset.heads == 12


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (Machine(cuda=False, bf16=False), "this CPU has no instructions for bf16"),
        (Machine(cuda=False, bf16=True), ""),
        (Machine(cuda=True, capability=(7, 0)), "it needs compute capability 8.0"),
        (Machine(cuda=True, capability=(8, 0), bf16=False), ""),
    ],
)
def test_bf16_is_tried_where_there_are_instructions_for_it(machine: Machine, said: str) -> None:
    """What would convert to fp32 and back proves nothing about the format."""
    assert unsupported(Settings(), KEPT["bf16"], machine).startswith(said)
    assert bool(unsupported(Settings(), KEPT["bf16"], machine)) == bool(said)


@pytest.mark.parametrize(("settings", "expected"), [(Settings(), 20), (KEPT["packed"], 21)])
def test_the_audited_update_is_as_large_as_the_mean(settings: Settings, expected: int) -> None:
    """As it is computed: two of 61 tokens are padded to as many as 61 and 39, but fill two rows."""
    preset = replace(PRESETS["tiny"], documents=2, context=100)
    updates = [(61, 39)] * 60
    updates[20] = (61, 61)
    order = [DocumentSpan(Path("text"), 0, tokens - 1) for update in updates for tokens in update]

    assert typical_update(preset, replace(settings, accumulation=1), order) == expected

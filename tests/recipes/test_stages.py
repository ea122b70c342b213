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

    assert set(differing(kept, found)) <= set(differing(BUSY, stage.apply(BUSY)))


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_every_update_is_cut_evenly_into_micro_batches(preset: Preset) -> None:
    """Before and after the micro-batch is doubled."""
    assert preset.documents % preset.start.accumulation == 0
    assert KEPT["checkpoint"].accumulation * 2 == Settings().accumulation


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

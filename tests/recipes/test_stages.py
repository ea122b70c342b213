"""The stage table is data that can be checked."""

import itertools

import pytest

from recipes.gpt2.stages import PRESETS, STAGES, Settings, Stage, chosen, differing


@pytest.mark.parametrize(
    ("before", "after"),
    list(itertools.pairwise(STAGES)),
    ids=[stage.name for stage in STAGES[1:]],
)
def test_a_stage_changes_exactly_one_setting(before: Stage, after: Stage) -> None:
    """Otherwise a gain could not be attributed to one change."""
    assert len(differing(before.settings, after.settings)) == 1


def test_the_first_stage_is_the_baseline() -> None:
    """The defaults are what a first script does."""
    assert Settings() == STAGES[0].settings


def test_stages_have_their_own_names_and_say_what_and_why() -> None:
    """A name is a folder and a word on the command line; change and reason are printed."""
    names = [stage.name for stage in STAGES]

    assert len(names) == len(set(names))
    assert all(name.isidentifier() and name != "all" for name in names)
    assert all(stage.change and stage.reason for stage in STAGES)


def test_stages_are_chosen_by_name_in_the_order_of_the_table() -> None:
    """`sdpa,baseline` runs the baseline first: each stage is compared with the one before."""
    assert [stage.name for stage in chosen("sdpa, baseline")] == ["baseline", "sdpa"]
    assert list(STAGES) == chosen("all")


@pytest.mark.parametrize("names", ["", "spda", "baseline,spda"])
def test_a_stage_that_does_not_exist_is_refused_with_those_that_do(names: str) -> None:
    """The message names the value and the remedy."""
    with pytest.raises(ValueError, match="choose from all, baseline, packed, sdpa"):
        chosen(names)


def test_small_is_the_124_million_model() -> None:
    """12 layers, 12 heads, 768 wide, 50,257 tokens, 1,024 positions: 124,439,808 parameters."""
    preset = PRESETS["small"]
    width, layers = preset.width, preset.layers
    embeddings = (preset.vocabulary + preset.context) * width
    block = 12 * width * width + 13 * width

    assert embeddings + layers * block + 2 * width == 124_439_808
    assert preset.heads == 12

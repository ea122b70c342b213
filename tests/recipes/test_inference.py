"""The inference recipe in its small size: each fault is found, and everything is left behind."""

from pathlib import Path

import pytest

from recipes.cases.case import Case, RecipeRun, load
from recipes.cases.markdown import page_of, unprinted
from recipes.inference.__main__ import main
from recipes.inference.model import SIZES
from trainperf.core.formatting.table import Table
from trainperf.core.run_directory import RECORD_FILES


FAULTS = {
    "eval_forgotten": "the model answers in train mode",
    "dropout_left_on": "dropout is left on in eval mode, in blocks.0 (Block)",
    "gradients_left_on": "a graph for gradients is built with every answer",
}
"""Case to what trainperf said of its loop."""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a run has left."""
    folder = tmp_path_factory.mktemp("inference")
    main(["--size", "small", "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def left(out: Path) -> RecipeRun:
    """What it wrote of itself."""
    return load(out / "inference.json")


def case(left: RecipeRun, name: str) -> Case:
    """One of its cases."""
    return next(each for each in left.cases if each.name == name)


def table(left: RecipeRun, title: str) -> Table:
    """One of its tables."""
    return next(each for each in left.tables if each.title.startswith(title))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_own_finding(name: str, left: RecipeRun) -> None:
    """In the loop in which it was planted, and what mending it brings was measured in turns."""
    fault = case(left, name)

    assert FAULTS[name] in " ".join(fault.before)
    assert fault.deciding.ratio is not None


def test_every_case_shows_what_trainperf_says_first(left: RecipeRun) -> None:
    """A finding, an assertion that fails, a benchmark; and which of them where it is no finding."""
    for each in left.cases:
        assert each.before, each.name
    lines = {each.name: " ".join(each.before) for each in left.cases}

    assert "the answer hangs on a graph of" in lines["inference_mode"]
    assert "no finding `matmul_precision`" in case(left, "autocast_bf16").before_note
    assert [each.name for each in left.cases if each.published is None] == ["all_mended"]


def test_wrong_answers_are_counted(left: RecipeRun) -> None:
    """All requests are answered otherwise the second time, and none once it is mended."""
    for name in ("eval_forgotten", "dropout_left_on"):
        before, after = case(left, name).measured[:2]
        assert before.note.startswith("64 of 64 requests"), name
        assert after.note.startswith("0 of 64 requests"), name


def test_the_mended_loop_has_none_of_these_findings(left: RecipeRun) -> None:
    """The one with all faults has those that can be lines next to each other."""
    faulty, mended = table(left, "The loop as it was found").notes[0].split("; mended: ")

    assert {"train_mode", "gradients_on"} <= set(faulty.partition(": ")[2].split(", "))
    assert not {"train_mode", "dropout_left_on", "gradients_on"} & set(mended.split(", "))


def test_lines_that_would_wait_are_named(left: RecipeRun) -> None:
    """Both of the loop over requests; the version that asks once has none."""
    said = "\n".join(case(left, "hidden_waits").before)

    assert said.count("waits.py:") == 2
    assert "in asks_each" in said


def test_flops_are_two_per_weight_and_token(left: RecipeRun) -> None:
    """Torch's profiler counts the head in addition, the audit attention, too."""
    rows = [float(row[1].split()[0]) for row in table(left, "FLOPs of one batch").rows]
    size = SIZES["small"]
    weights = size.layers * 12 * size.width**2

    assert rows[0] == pytest.approx(2 * weights * size.batch * size.length / 1e6, abs=0.01)
    assert rows == sorted(rows)


def test_everything_is_left_behind(out: Path, left: RecipeRun) -> None:
    """A run directory per loop, traces of the long one, and a page without a figure of its own."""
    for name in {file for each in left.cases for file in each.files}:
        assert list((out / name).rglob(RECORD_FILES)), name
    assert len(list((out / "mended").rglob("traces/*.trace.json.gz"))) == 3
    assert len(table(left, "A scheduled profile").rows) == 3
    assert (out / "inference.html").is_file()
    assert unprinted(left, page_of(left, "inference.json")) == set()
